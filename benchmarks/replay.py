"""The replay arm: recorded transcripts through the formats and the kernel.

    python -m benchmarks.replay FILE… --sandbox LEVEL [--format FORMAT …] [--limit N] [--every N]

A transcript is one JSON object a line with ``turns`` (``role``, ``content``) and perhaps the
``suite`` that it is of, by which agreement is counted; user turns that begin
with ``Observation:`` hold what the recorded kernel showed. Counted are, for each format, the turns
that it reads as an action and why it does not read the others; and for the first of them how often
our kernel shows what the recorded one did. An error agrees when its type does: messages differ
between versions of Python. What the harness said itself, without running anything, is no
observation; such a cell runs, because later ones may need it, and is not compared.

The code is untrusted: it runs at a sandbox level, or with ``--sandbox none`` not at all. Packages
that it imports (sympy for these) should be there, or it cannot agree. The numbers are kept, without
a word of what was recorded, in ``benchmarks/results/replay.json``.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import platform
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from kernel_agent.config import Config, load_config
from kernel_agent.errors import FormatError, InputError, KernelAgentError
from kernel_agent.evaluation.tasks import draw
from kernel_agent.formats import find_blocks, parse, readable
from kernel_agent.models import ScriptedModel
from kernel_agent.notebook import normal
from kernel_agent.records import CellResult, Code
from kernel_agent.safe import one_line, plain, temporary_folder
from kernel_agent.sandbox import AUTO, level_of

RESULTS = Path(__file__).parent / "results" / "replay.json"
FORMATS = ("fenced", "envelope", "tool")
OBSERVATION = "Observation:"
_SEVERAL = "; one block of several"
_RAISED = re.compile(r"raised (.*?); recorded:")
BUDGET_LINE = re.compile(r"\n?You have \d+ steps? left.*\Z", re.DOTALL)
"""Text that the recording harness added below each observation."""
RESULT_LABEL = re.compile(r"^Out\[\d+\]: ", re.MULTILINE)
"""Text that it wrote before the value of a cell's last line."""
NO_OUTPUT = "[Executed Successfully with No Output]"
HARNESS_WORDS = ("Your answer is wrong.", "I don't understand your input.")
"""Beginning of its own answers: nothing was run."""


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One transcript."""

    suite: str
    turns: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Observations of a suite: ``agreed`` of ``compared`` are the same.

    ``ours_raised`` counts our errors where the recording has none or another: a package or
    a tool that is not here shows there. ``several_blocks`` counts differences in turns that hold
    more than one block of code: the recorded harness may have run another one, or all of them.
    """

    suite: str
    ran: int
    compared: int
    agreed: int
    ours_raised: Mapping[str, int]
    several_blocks: int


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """Recorded turns as one format reads them: actions, and the kinds of errors."""

    format: str
    turns: int
    actions: int
    errors: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """The whole of a replay."""

    file: str
    episodes: int
    parsed: tuple[Parsed, ...]
    suites: tuple[Agreement, ...]
    differences: tuple[str, ...]
    level: str


async def replay_file(
    path: Path,
    *,
    formats: Sequence[str],
    sandbox: str,
    config: Config,
    limit: int | None = None,
    every: int = 1,
    at_once: int = 2,
    tell: Callable[[str], None] = lambda _line: None,
) -> Replayed:
    """Replay a file of transcripts.

    Parameters
    ----------
    path
        JSON lines, or those compressed by gzip.
    formats
        Which read the turns; the first one's actions are run.
    sandbox
        The level at which they run; ``none``: they are only read.
    limit
        So many episodes, as many of each suite as there can be.
    every
        One in so many; of these the limit is drawn.
    at_once
        Episodes at a time, each in a kernel of its own.

    Raises
    ------
    InputError
        The file cannot be read, or holds no transcript.
    SandboxError
        The level does not hold here.
    """
    episodes = _draw(path, limit, every, tell)
    if not episodes:
        raise InputError(f"{path} holds no transcript")
    counts = tuple(_parse_all(name, episodes) for name in formats)
    found: list[list[str | None]] = []
    if sandbox != AUTO and not level_of(sandbox).confines:
        tell("replayed code is untrusted and no sandbox level was named: it is read, not run")
    else:
        found = await _run_all(episodes, formats[0], sandbox, config, at_once=at_once, tell=tell)
    return Replayed(
        file=path.name,
        episodes=len(episodes),
        parsed=counts,
        suites=_by_suite(episodes, found),
        differences=tuple(
            f"episode {number}: {d}"
            for number, each in enumerate(found, start=1)
            for d in each
            if d
        ),
        level=sandbox,
    )


def _by_suite(
    episodes: Sequence[Episode], found: Sequence[Sequence[str | None]]
) -> tuple[Agreement, ...]:
    suites: dict[str, list[str | None]] = {}
    for episode, each in zip(episodes, found, strict=False):
        suites.setdefault(episode.suite, []).extend(each)
    return tuple(
        Agreement(
            suite=suite,
            ran=len(each),
            compared=sum(d is not None for d in each),
            agreed=each.count(""),
            ours_raised=dict(
                Counter(raised[1] for d in each if d and (raised := _RAISED.match(d)))
            ),
            several_blocks=sum(d is not None and d.endswith(_SEVERAL) for d in each),
        )
        for suite, each in sorted(suites.items())
        if each
    )


def _draw(path: Path, limit: int | None, every: int, tell: Callable[[str], None]) -> list[Episode]:
    """Read a file's episodes; with a limit twice, so that those not drawn take no memory."""
    if limit is None:
        return list(islice(read_episodes(path), 0, None, every))
    suites = [episode.suite for episode in islice(read_episodes(path), 0, None, every)]
    taken, remark = draw(suites, limit)
    if remark:
        tell(remark.replace(" tasks ", " transcripts ", 1))
    read = enumerate(islice(read_episodes(path), 0, None, every))
    return [episode for place, episode in read if place in taken]


def read_episodes(path: Path) -> Iterator[Episode]:
    """Yield each transcript.

    Raises
    ------
    InputError
        The file cannot be read; the message names the line.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _episode(line, f"{path}, line {number}")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"the transcripts {path} cannot be read: {error}") from None


def _episode(line: str, where: str) -> Episode:
    try:
        read = json.loads(line)
        turns = [{"role": str(t["role"]), "content": str(t["content"])} for t in read["turns"]]
        return Episode(suite=str(read.get("suite") or ""), turns=tuple(turns))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(f'{where}: no transcript: {{"turns": [{{"role", "content"}}]}}') from None


def _parse_all(name: str, episodes: Sequence[Episode]) -> Parsed:
    turns = [t["content"] for e in episodes for t in e.turns if t["role"] == "assistant"]
    errors: Counter[str] = Counter()
    for content in turns:
        try:
            parse(content, format=name)
        except FormatError as error:
            errors[error.kind] += 1
    return Parsed(
        format=name, turns=len(turns), actions=len(turns) - errors.total(), errors=dict(errors)
    )


async def _run_all(
    episodes: Sequence[Episode],
    name: str,
    sandbox: str,
    config: Config,
    *,
    at_once: int,
    tell: Callable[[str], None],
) -> list[list[str | None]]:
    """Run every episode; return the results of :func:`_run_episode` in order."""
    found: list[list[str | None]] = [[] for _ in episodes]
    waiting = iter(range(len(episodes)))
    done = 0

    async def work_off() -> None:
        nonlocal done
        for number in waiting:
            found[number] = await _run_episode(episodes[number].turns, name, sandbox, config)
            done += 1
            compared = [d for each in found for d in each if d is not None]
            agreed = compared.count("")
            tell(f"[{done}/{len(episodes)}] {agreed} of {len(compared)} observations agree")

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work_off())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return found


async def _run_episode(
    turns: Sequence[Mapping[str, str]], name: str, sandbox: str, config: Config
) -> list[str | None]:
    """Run an episode's cells in one kernel.

    Returns for each "" or how its observation differs; None when there is nothing to compare.
    """
    from kernel_agent.session import Session

    compared: list[str | None] = []
    pairs = list(_cells_with_observations(turns, name))
    if not pairs:
        return compared
    with temporary_folder("replay-") as folder:
        async with Session(
            model=ScriptedModel([]),
            config=config,
            sandbox=sandbox,
            out=folder / "session",
        ) as session:
            for source, recorded, several in pairs:
                result = await session.execute(source)
                difference = None if recorded is None else _difference(result, recorded)
                compared.append(difference + _SEVERAL if difference and several else difference)
                if result.status == "dead":
                    break
    return compared


def _cells_with_observations(
    turns: Sequence[Mapping[str, str]], name: str
) -> Iterator[tuple[str, str | None, bool]]:
    """Yield each cell, its recorded observation, and whether its turn holds other blocks."""
    for turn, following in pairwise(turns):
        if turn["role"] != "assistant" or not following["content"].startswith(OBSERVATION):
            continue
        try:
            action = parse(turn["content"], format=name)
        except FormatError:
            continue
        if isinstance(action, Code):
            sources = {block.source for block in find_blocks(readable(turn["content"])).blocks}
            yield action.source, _find_recorded(following["content"]), len(sources) > 1


def _find_recorded(content: str) -> str | None:
    """Return the recorded observation; None when the harness ran nothing."""
    shown = content.removeprefix(OBSERVATION).strip()
    if shown.startswith(HARNESS_WORDS):
        return None
    shown = RESULT_LABEL.sub("", BUDGET_LINE.sub("", shown).strip())
    return "" if shown == NO_OUTPUT else shown


def _difference(result: CellResult, recorded: str) -> str:
    now = _output_text(result)
    if result.error is not None:  # tracebacks are drawn differently: the type is what counts
        name = result.error.ename
        same = any(line.startswith(name) for line in recorded.splitlines())
        last = recorded.splitlines()[-1].strip() if recorded else ""
        said = f"{name}: {one_line(result.error.evalue, 60)}"
        return "" if same else f"raised {said}; recorded: {last[:100]!r}"
    if normal(now) == normal(recorded):
        return ""
    return f"shows {now[:100]!r}; recorded: {recorded[:100]!r}"


def _output_text(result: CellResult) -> str:
    parts = []
    for output in result.outputs:
        data: Mapping[str, Any] = output.get("data") or {}
        if any(kind.startswith("image/") for kind in data):
            continue  # the recording holds text only
        text = (
            output.get("text") if output.get("output_type") == "stream" else data.get("text/plain")
        )
        parts.append("".join(text) if isinstance(text, list) else str(text or ""))
    return plain("".join(parts)).strip()


def replay_text(found: Replayed) -> str:
    """Return the findings as Markdown."""
    lines = [f"{found.file}, {found.episodes} episodes", ""]
    lines += ["| format | turns | actions | errors |", "| --- | --- | --- | --- |"]
    for one in found.parsed:
        errors = ", ".join(f"{kind} {count}" for kind, count in sorted(one.errors.items())) or "-"
        lines.append(
            f"| {one.format} | {one.turns} | {one.actions} "
            f"({one.actions / max(1, one.turns):.1%}) | {errors} |"
        )
    if found.suites:
        lines += ["", f"Cells run at level {found.level}:", ""]
        lines += ["| suite | ran | compared | agree | differ, of several blocks | ours raised |",
                  "| --- | --- | --- | --- | --- | --- |"]  # fmt: skip
        lines += [_row(suite) for suite in found.suites]
    return "\n".join(lines)


def _row(one: Agreement) -> str:
    most = Counter(one.ours_raised).most_common(3)
    raised = ", ".join(f"{error} ({count})" for error, count in most) or "-"
    agree = f"{one.agreed} ({one.agreed / max(1, one.compared):.1%})"
    counts = f"{one.ran} | {one.compared} | {agree} | {one.several_blocks}"
    return f"| {one.suite or '-'} | {counts} | {raised} |"


def main() -> None:
    """Replay every file, print the tables, and add the numbers to those that are kept."""
    options = _read_options()
    kept = json.loads(options.out.read_text()) if options.out.exists() else {}
    for path in options.files:
        began = time.perf_counter()
        found = asyncio.run(
            replay_file(
                path, formats=options.format or FORMATS, sandbox=options.sandbox,
                config=load_config(), limit=options.limit, every=options.every,
                at_once=options.at_once, tell=print,
            )
        )  # fmt: skip
        print(replay_text(found), end="\n\n", flush=True)
        numbers = asdict(found)
        del numbers["differences"]  # they quote the recording
        who = "root" if os.geteuid() == 0 else "ordinary user"
        kept[f"{path.name.partition('.jsonl')[0]}, {options.sandbox}, {who}"] = numbers | {
            "every": options.every,
            "seconds": round(time.perf_counter() - began, 1),
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
        }
        options.out.write_text(json.dumps(kept, indent=1) + "\n")


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replay")
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--sandbox", required=True)
    parser.add_argument("--format", action="append")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--every", type=int, default=1, help="one episode in so many")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except KernelAgentError as error:
        sys.exit(f"replay: {error}")
