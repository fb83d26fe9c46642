"""Traces that nobody wrote who means well, read by the commands that show and export them."""

from __future__ import annotations

import asyncio
import io
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attacks.forging import forged, rich
from attacks.score import either, grew, never_ended
from attacks.words import Report, host_attack

if TYPE_CHECKING:
    from attacks.stage import Stage
    from kernel_agent.records.trace import Record

COUNT = 400
STOP = b'{"$": "RunStop", "run_id": "r", "status": "answered", '
TOOK_ALL = "the host took all the memory that there was"


def unexpected(stage: Stage, report: Report) -> str:
    """Tell that an error came that no command expects."""
    return report.text if report.text.startswith("unexpected") else ""


def took_all(stage: Stage, report: Report) -> str:
    """Tell that the host took all the memory that the suite lets it have."""
    return report.text if report.text == TOOK_ALL else ""


@host_attack("host-confusion", either(unexpected, never_ended), timeout_s=180)
async def forged_traces(folder: Path) -> str:
    """400 forged traces, each read, shown, exported and made a page"""
    return await asyncio.to_thread(_read_all, folder)


# Of 45 MB some copies are made while it is counted; decoded it is 1,000 MB and more.
@host_attack("host-resource", either(grew(600), took_all, never_ended), timeout_s=100)
async def trace_of_many_items(folder: Path) -> str:
    """A trace of 75 MB that stands for 25 million lists"""
    with (folder / "trace.jsonl").open("wb") as file:
        for millions in (15, 10):  # in one line there may be 64 MB
            file.write(
                b'{"$": "RunStop", "run_id": "r", "status": "answered", "answer": {"value": ['
            )
            for _ in range(millions):
                file.write(b"[]," * (1 << 20))
            file.write(b"1]}}\n")
    return await _read(folder)


@host_attack("host-resource", either(grew(64), took_all, never_ended), timeout_s=100)
async def trace_of_one_long_line(folder: Path) -> str:
    """A trace of 3 GB in one line: it begins as a record, and after 200 MB of text is a hole"""
    with (folder / "trace.jsonl").open("wb") as file:
        file.write(STOP + b'"message": "')
        for _ in range(200):
            file.write(b"x" * (1 << 20))
        file.truncate(3 << 30)
    return await _read(folder)


async def _read(folder: Path) -> str:
    from kernel_agent.errors import KernelAgentError
    from kernel_agent.records.store import read_trace

    try:
        return f"{len(await asyncio.to_thread(read_trace, folder))} records"
    except KernelAgentError as error:
        raise ValueError(str(error)) from None  # refused, as it should be
    except MemoryError:
        return TOOK_ALL


def _read_all(folder: Path) -> str:
    lines, seen = rich(), Counter[str]()
    for seed in range(COUNT):
        (folder / "trace.jsonl").write_bytes(forged(lines, random.Random(seed)))
        seen.update(surprises(folder))
    told = ", ".join(f"{name} {count} times" for name, count in seen.most_common(5))
    return f"unexpected: {told}" if told else f"{COUNT} traces read or refused"


def surprises(folder: Path) -> list[str]:
    """Return what went wrong with the trace in a folder beyond a plain refusal."""
    from kernel_agent.errors import KernelAgentError
    from kernel_agent.records.store import read_trace

    found: list[str] = []
    records: Sequence[Record] = ()
    try:
        records = read_trace(folder)
    except KernelAgentError:
        return found
    except Exception as error:
        return [f"{type(error).__name__} while reading"]
    for what, read in READERS.items():
        try:
            read(records, folder)
        except KernelAgentError:
            continue
        except Exception as error:
            found.append(f"{type(error).__name__} in {what}")
    return found


def _show(records: Sequence[Record], folder: Path) -> None:
    from kernel_agent.cli.live import open_view

    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with open_view(stream, live=False) as view:
        for record in records:
            view(record)


def _export(records: Sequence[Record], folder: Path) -> None:
    from kernel_agent.notebook.build import notebook_of
    from kernel_agent.notebook.exporter import write_notebook

    write_notebook(notebook_of(records), folder / "run.ipynb")


def _page(records: Sequence[Record], folder: Path) -> None:
    from kernel_agent.notebook.exporter import write_page
    from kernel_agent.notebook.page import page_html

    write_page(page_html(records, notebook=None, cut=False), folder / "run.html")


READERS: dict[str, Callable[[Sequence[Record], Path], None]] = {
    "show": _show, "export": _export, "the page": _page,
}  # fmt: skip
