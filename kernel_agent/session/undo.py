"""Undo steps: play the remaining cells again in a fresh kernel.

A kernel cannot be rolled back. So a new one is started beside it, and the cells that ran before the
undone steps run in it again, in order, under their old numbers, each answered with what the host
had answered then: no tool is called a second time. Only when that has come to its end does the
session go over to the new kernel; whatever goes wrong before leaves the session as it was.

What is played again is what could have shaped the kernel: cells of steps, failed ones included,
and cells that the person ran in between. Cells that were interrupted or took the kernel with them
are left out; what they had done up to then cannot be done again.

What cells made in the folder is put aside meanwhile: :mod:`kernel_agent.session.aside`.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_agent.errors import KernelError, UndoError, UsageError
from kernel_agent.notebook import Verdict, compare
from kernel_agent.records import (
    CellResult,
    Changes,
    Record,
    Step,
    count_text,
    merge,
    standing_steps,
)
from kernel_agent.safe import one_line

if TYPE_CHECKING:
    from kernel_agent.kernel import Kernel

Answer = Callable[[str], Awaitable[str]]
"""Answers a request of the kernel: text in, text out (``inkernel/rpc.py`` has the wire)."""

_CLOCK_REALTIME_COARSE = 5  # linux/time.h
MAX_KEPT = 64_000_000  # characters of requests and answers that are kept of a session's cells
NO_CELL = -1  # owns what no cell has changed; cells before the first step have number 0


@dataclass(frozen=True, kw_only=True)
class Played:
    """A cell as a kernel ran it.

    ``requests`` are what it asked the host and what it was answered; ``began_ns`` and ``ended_ns``
    are times by the clock that stamps files. ``is_step`` is false for a cell of the person's own,
    whose outputs are not kept; ``given`` names the variables that a cell of the host's set for
    them. Either has the number of the step before it. ``dropped`` counts requests for which there
    was no room.
    """

    number: int
    source: str
    result: CellResult
    requests: tuple[tuple[str, str], ...]
    began_ns: int
    ended_ns: int
    is_step: bool
    given: tuple[str, ...] = ()
    dropped: int = 0

    @property
    def kept(self) -> int:
        """Characters kept of its requests and their answers."""
        return sum(len(request) + len(reply) for request, reply in self.requests)

    @property
    def can_be_played(self) -> bool:
        """Whether the cell came to its end, so that running it again can do the same."""
        return self.result.status in ("ok", "error")


@dataclass
class _Life:
    """The cells of one kernel since its start, perhaps from a hibernated one."""

    resumed: Path | None
    played: list[Played] = field(default_factory=list)


class History:
    """The cells that a session's kernels have run: an undo's needs beyond the trace.

    It stays in memory. Answers of the host stand in it as they were sent, up to :data:`MAX_KEPT`:
    a kernel decides how much it asks, and what is kept of that is not to fill the host's memory.
    """

    def __init__(self) -> None:
        self._lives: list[_Life] = []
        self._kept = 0  # characters of requests and answers
        self.put_back: dict[str, tuple[int, int]] = {}
        """Files that an undo put back: their time of change since then, and whose they are."""

    def begin(self, resumed: Path | None = None) -> None:
        """Note that a new kernel runs from here on; called by the executor at each start of one."""
        self._lives.append(_Life(resumed=resumed))

    def recording(
        self, number: int, source: str, *, is_step: bool, given: Sequence[str] = ()
    ) -> Recording:
        """Return a recording of a cell that is about to run."""
        played, room = self._lives[-1].played, self._has_room
        return Recording(played, number, source, is_step=is_step, given=given, has_room=room)

    def _has_room(self, characters: int) -> bool:
        """Take room for a request and its answer, if there is enough."""
        fits = self._kept + characters <= MAX_KEPT
        self._kept += characters if fits else 0
        return fits

    def before(self, first: int) -> tuple[Path | None, list[Played]]:
        """Return the cells that made the kernel's state before cell ``first``.

        Returns
        -------
        tuple
            The hibernated kernel that it began from, and the cells that it had run.
        """
        life = self._life_before(first)
        return life.resumed, [played for played in life.played if played.number < first]

    def _life_before(self, first: int) -> _Life:
        ran_it = [
            x for x in self._lives if any(p.number == first and not p.given for p in x.played)
        ]
        earlier = [x for x in self._lives if x.played and x.played[0].number < first]
        # What no kernel ran (a refused cell, calls) follows the last cell that one did.
        return (ran_it or earlier or self._lives)[-1]

    def go_back(self, first: int, played: Sequence[Played], resumed: Path | None) -> None:
        """Forget the cells from ``first`` on; a new kernel has run ``played``, those before it."""
        replaced = self._life_before(first)
        earlier = [
            _Life(resumed=life.resumed, played=[p for p in life.played if p.number < first])
            for life in self._lives
            if life is not replaced
        ]
        kept = [life for life in earlier if life.played]
        self._lives = [*kept, _Life(resumed=resumed, played=list(played))]
        self._kept = sum(cell.kept for life in self._lives for cell in life.played)

    def own_cells_from(self, first: int) -> int:
        """Return how many cells of the person's own have run since cell ``first``."""
        cells = (p for life in self._lives for p in life.played)
        return sum(p.number > first and not p.is_step and not p.given for p in cells)

    def owner(self, path: str, changed_ns: int) -> int:
        """Return the number of the cell in which a file changed last, or ``NO_CELL``."""
        known = self.put_back.get(path)
        if known is not None and known[0] == changed_ns:
            return known[1]
        cells = (p for life in reversed(self._lives) for p in reversed(life.played))
        return next((p.number for p in cells if p.began_ns <= changed_ns <= p.ended_ns), NO_CELL)


class Recording:
    """Records one cell while it runs, with the host's answers to it.

    Parameters
    ----------
    cells
        Where the cell is appended when it has ended.
    has_room
        Says of so many characters whether they may be kept, and counts them.
    """

    def __init__(
        self,
        cells: list[Played],
        number: int,
        source: str,
        *,
        is_step: bool,
        given: Sequence[str] = (),
        has_room: Callable[[int], bool] = lambda _: True,
    ) -> None:
        self._cells = cells
        self._has_room = has_room
        self._dropped = 0
        self._number, self._source, self._is_step = number, source, is_step
        self._given = tuple(given)
        self._requests: list[tuple[str, str]] = []
        self._began_ns = _file_clock_ns()

    def listening(self, answer: Answer) -> Answer:
        """Return a function that answers requests and keeps both."""

        async def answer_and_keep(request: str) -> str:
            reply = await answer(request)
            if self._has_room(len(request) + len(reply)):
                self._requests.append((request, reply))
            else:
                self._dropped += 1
            return reply

        return answer_and_keep

    def end(self, result: CellResult) -> None:
        """Keep the cell; called when it has ended, however it did."""
        kept = result if self._is_step else dataclasses.replace(result, outputs=())
        self._cells.append(
            Played(
                number=self._number,
                source=self._source,
                result=kept,
                requests=tuple(self._requests),
                began_ns=self._began_ns,
                ended_ns=time.time_ns(),
                is_step=self._is_step,
                given=self._given,
                dropped=self._dropped,
            )
        )


def _file_clock_ns() -> int:
    """Return the time as the file system stamps it, which lags behind the usual clock."""
    return time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)


# --- which steps ---------------------------------------------------------------------------------


def steps_to_undo(records: Sequence[Record], count: int) -> list[Step]:
    """Return the last ``count`` steps that hold.

    Raises
    ------
    UsageError
        The caller's: there are not so many.
    """
    if count < 1:
        raise UsageError("there is nothing to undo: it takes back one step or more")
    steps = standing_steps(records)
    if not steps:
        raise UsageError("there is no step to undo")
    if count > len(steps):
        has = count_text(len(steps), "step")
        raise UsageError(f"{count} steps cannot be undone: the session has {has}")
    return steps[-count:]


# --- playing again -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The result of playing cells again: how they ran, and the differences."""

    played: tuple[Played, ...]
    differences: tuple[str, ...]
    changes: Changes


async def play_again(
    kernel: Kernel, cells: Sequence[Played], *, timeout_s: float, folder: str
) -> Replay:
    """Run cells in a fresh kernel, with the recorded answers of the host.

    Parameters
    ----------
    kernel
        A started kernel that has run nothing.
    cells
        What to run, in order.
    timeout_s
        Seconds that one cell may take.
    folder
        The session's folder: its path in outputs is no difference.

    Raises
    ------
    UndoError
        The kernel was lost.
    """
    played: list[Played] = []
    differences: list[str] = []
    changes = Changes(fresh=True)
    for cell in cells:
        if not cell.can_be_played:
            differences.append(
                f"{_name(cell)} had been ended early ({cell.result.status}) and was not played "
                "again: what it had done until then is gone."
            )
            continue
        recorded = Recorded(cell.requests, dropped=cell.dropped)
        recording = Recording(
            played, cell.number, cell.source, is_step=cell.is_step, given=cell.given
        )
        try:
            result = await kernel.execute(
                cell.source,
                step=0 if cell.given else cell.number,
                timeout_s=timeout_s,
                on_request=recording.listening(recorded.answer),
            )
        except KernelError as error:
            raise UndoError(_describe_loss(cell, str(error))) from None
        if result.status == "dead":
            raise UndoError(_describe_loss(cell, result.error.evalue if result.error else ""))
        recording.end(result)
        # What this cell showed and asked the first time is what the trace has, and what counts.
        played[-1] = dataclasses.replace(
            played[-1], result=cell.result, requests=cell.requests, dropped=cell.dropped
        )
        changes = merge(changes, result.changes) or changes
        difference = recorded.missing or _difference(cell, result, folder)
        if difference:
            differences.append(f"{_name(cell)} {difference}")
    return Replay(played=tuple(played), differences=tuple(differences), changes=changes)


class Recorded:
    """Answers a cell's requests with the answers of the first time; nothing is called.

    Parameters
    ----------
    requests
        What the cell had asked and was answered, in the order of the answers.
    dropped
        How many more it had asked, whose answers were too much to keep.
    """

    def __init__(self, requests: Sequence[tuple[str, str]], *, dropped: int = 0) -> None:
        self._answers: dict[str, deque[str]] = defaultdict(deque)
        for request, reply in requests:
            self._answers[_split_number(request)[1]].append(reply)
        self._unknown = "whose answer was too much to keep" if dropped else "not made before"
        self.missing = ""
        """Requests without a recorded answer."""

    async def answer(self, request: str) -> str:
        """Answer one request; the same request gets its answers in their order."""
        number, asked = _split_number(request)
        if self._answers[asked]:
            return _set_number(self._answers[asked].popleft(), number)
        self.missing = f"asked for a call {self._unknown}; it was not made."
        told = {
            "ok": False,
            "type": "RuntimeError",
            "message": f"a call {self._unknown}: in an undo no tool is called",
        }
        return json.dumps({"id": number, "results": [told] * max(_calls(request), 1)})


def _split_number(request: str) -> tuple[object, str]:
    """Return a request's number, and the request without it: numbers differ in another kernel."""
    head, brace, body = request.partition("{")
    try:
        content = json.loads(brace + body)
        number = content.pop("id")
    except (ValueError, KeyError, AttributeError, RecursionError):
        return None, request
    return number, head + json.dumps(content, sort_keys=True)


def _set_number(reply: str, number: object) -> str:
    try:
        content = json.loads(reply)
    except ValueError:
        return reply
    return json.dumps({**content, "id": number})


def _calls(request: str) -> int:
    with suppress(ValueError, KeyError, TypeError, RecursionError):
        return len(json.loads(request[request.index("{") :])["calls"])
    return 1


def _difference(cell: Played, result: CellResult, folder: str) -> str:
    """Return a cell's difference from before, or empty."""
    before, error = cell.result, result.error
    if result.status != before.status:
        told = f" ({error.ename}: {error.evalue})" if error else ""
        if result.status == "ok":
            return "failed before and did not fail now."
        return one_line(f"worked before and ended now as {result.status}{told}.", 300)
    if not cell.is_step:
        return ""
    found = compare(before.outputs, result.outputs, folders=(folder, folder))
    if found.verdict is not Verdict.DIFFERENT:
        return ""
    changed = [x for x in found.detail.split("\n") if x[:1] in "+-" and x[:3] not in ("---", "+++")]
    return one_line(f"shows something else than before: {' '.join(changed) or found.detail}", 300)


def _name(cell: Played) -> str:
    if cell.given:
        return f"What passed in {', '.join(cell.given)}"
    return f"Step {cell.number}" if cell.is_step else f"Your cell {cell.number}"


def _describe_loss(cell: Played, reason: str) -> str:
    return one_line(
        f"nothing was undone: the kernel was lost while {_name(cell).lower()} was played again"
        f"{f' ({reason})' if reason else ''}",
        500,
    )
