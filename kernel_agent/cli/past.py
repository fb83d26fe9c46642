"""Commands on a past run: show it, write its notebook, verify that notebook."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_agent.cli import completion
from kernel_agent.cli.outlet import warn_of, write_line
from kernel_agent.cli.run import VERBOSE
from kernel_agent.errors import NotebookError, UsageError
from kernel_agent.safe import one_line

if TYPE_CHECKING:
    from kernel_agent.records import Record
    from kernel_agent.session import Report

LEGEND = (
    "Compared: texts, the text of tables, types and messages of errors, character by\n"
    "character; pictures by their pixels. What a clock said, addresses in memory,\n"
    "temporary paths and progress bars are passed over (volatile)."
)

Trace = Annotated[
    Path,
    typer.Argument(metavar="TRACE|DIR", help="A trace, or its folder."),
]


def show(
    trace: Trace,
    steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Show the last N steps only.")
    ] = None,
    *,
    verbose: Annotated[bool, typer.Option("--verbose", help=VERBOSE)] = False,
    html: Annotated[bool, typer.Option("--html", help="Write it as a web page, one file.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The page (default: run.html beside the trace)."
        ),
    ] = None,
) -> None:
    """Show a past run again, step by step."""
    from kernel_agent.cli.live import open_view
    from kernel_agent.records import FILE_NAME, Notice, Step, load

    trace = _in(trace, FILE_NAME)
    records, cut = load(trace)
    numbers = [r.number for r in records if isinstance(r, Step)]
    first = numbers[-steps] if steps and steps < len(numbers) else 0
    shown = [r for r in records if not isinstance(r, Step) or r.number >= first]
    if html:
        write_line(str(_page(shown, trace, output, cut=cut)))
        return
    if output is not None:
        raise UsageError("-o names the file of the page: add --html")
    with open_view(sys.stdout, live=False, verbose=verbose) as view:
        for record in shown:
            view(record)
        if cut:
            view(Notice(text="The last record is incomplete: its writing was interrupted."))


def _page(records: list[Record], trace: Path, output: Path | None, *, cut: bool) -> Path:
    """Write the page of a run; it links to the notebook where that lies beside it."""
    from kernel_agent.notebook import page_html, write_page
    from kernel_agent.records import locate

    target = output or locate(trace).with_name("run.html")
    beside = target.with_name("run.ipynb").is_file()
    notebook = "run.ipynb" if beside else None
    return write_page(page_html(records, notebook=notebook, cut=cut), target)


def export(
    trace: Trace,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The notebook (default: run.ipynb beside the trace).",
        ),
    ] = None,
    *,
    with_data: Annotated[
        bool, typer.Option("--with-data", help="Put the files that it read beside it, into data/.")
    ] = False,
) -> None:
    """Write the notebook of a past run."""
    from kernel_agent.notebook import copy_read
    from kernel_agent.notebook import export as write
    from kernel_agent.records import FILE_NAME, locate, read_trace

    source = locate(_in(trace, FILE_NAME))
    target = output or source.with_name("run.ipynb")
    beside, folder = source.parent.resolve(), target.parent.resolve()
    if with_data and beside == folder:
        raise UsageError("--with-data copies into another folder: name the notebook there with -o")
    write_line(str(write(source, target)))
    for told in copy_read(read_trace(source), beside, folder) if with_data else ():
        write_line(f"not copied: {told}")


def verify(
    notebook: Annotated[
        Path,
        typer.Argument(metavar="NOTEBOOK|DIR", help="A notebook, or a run's folder."),
    ],
    *,
    sandbox: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="How the kernel is confined (default: the setting sandbox); not by interpreter "
            "or remote, which run no notebook.",
            autocompletion=completion.SETTINGS["sandbox"],
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a table.")
    ] = False,
) -> int:
    """Run a notebook again and compare what its cells show.

    A line with the verdict and its day is left in a notebook that this program wrote.
    """
    import json

    from kernel_agent.config import load_config
    from kernel_agent.session import verify as examine

    path = _in(notebook, "run.ipynb")
    level = sandbox or load_config().sandbox
    warn_of(level, sys.stderr)
    report = examine(path, sandbox=level)
    left = _leave_line(path, report)
    write_line(json.dumps(report.to_json()) if as_json else "\n".join([_table(report), *left]))
    return 0 if report.reproduces else 1


def _leave_line(path: Path, report: Report) -> list[str]:
    """Write the verdict into an exported notebook; return lines on that for a person."""
    from kernel_agent.session import certify, is_exported

    try:
        if not is_exported(path):
            return []
        certify(path, report)
    except NotebookError as error:
        return [f"The verdict is not in the notebook: {one_line(str(error), 300)}"]
    void = f" The one of {report.voided} was of other code." if report.voided else ""
    return [f"The verdict stands near the top of the notebook.{void}"]


def _in(path: Path, name: str) -> Path:
    """Return the file of a run: in its folder, or in the only one beneath, as in an evaluation.

    Raises
    ------
    UsageError
        The caller's: there are several runs beneath.
    """
    if not path.is_dir():
        return path
    file = path / name
    beneath = [] if file.exists() else sorted(path.glob(f"*/{name}"))
    if len(beneath) > 1:
        names = ", ".join(str(each.parent) for each in beneath[:5])
        more = f" and {len(beneath) - 5} more" if len(beneath) > 5 else ""
        raise UsageError(f"{path} holds several runs: name one of {names}{more}")
    return beneath[0] if beneath else file


def _files(what: str, names: Sequence[str]) -> list[str]:
    """Return a line on files, if there are any; the JSON has all of them."""
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return [f"{what}: {', '.join(names[:5])}{more}"] if names else []


def _table(report: Report) -> str:
    """Return the verdicts as lines: place, role, verdict, and what differs below it."""
    from kernel_agent.safe import plain

    rows = [f"{'cell':>4}  {'role':<12} {'verdict':<10} {'seconds':>7}"]
    for cell in report.cells:
        rows.append(f"{cell.index:>4}  {cell.role:<12} {cell.verdict:<10} {cell.seconds:>7.2f}")
        rows += [f"        {line}" for line in cell.detail.splitlines()]
    rows += _files("not copied", report.left_out)
    rows += _files("inputs that have changed since the run", report.changed)
    return plain("\n".join([*rows, LEGEND, f"{report.path} {report.summary}"]))
