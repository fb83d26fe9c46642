"""Approval: decide whether a cell or a call goes ahead, is asked about, or is denied.

The rule is in :mod:`.rules`. :class:`Approval` is what a session knows beside it: who can be
asked, what a person has said in this run, and which results that came from others have entered the
kernel.

Asking stops the run's clock. One question is open at a time; the others wait. Nobody to ask, an
approver that fails, a run that is stopped, a cell that ends while a person still thinks, a cell
that goes on asking after twenty denials: each of these means no.

**What could have shaped a call's arguments** is known only from above: once an untrusted result
is in the kernel, any later call could carry it, by a variable or because the model has read it. So
each call lists every untrusted result that was there before the request for it arrived, which says
"could"; and those of which a piece is found in its arguments (:mod:`kernel_agent.tools.taint`),
which says "does" and is looked for where a tool has effects. Not finding a piece proves nothing and
loosens nothing.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kernel_agent.records import (
    HOW_TO_ALLOW,
    MAX_INFLUENCES,
    NOBODY,
    Approver,
    Budget,
    CellResult,
    Decision,
    Event,
    HostCall,
    Meter,
    Notice,
    Observation,
    Question,
    StopSignal,
    Visit,
    denial,
)
from kernel_agent.safe import one_line
from kernel_agent.tools.definition import ANYWHERE, Origin, Tool
from kernel_agent.tools.preview import readable
from kernel_agent.tools.rules import Policy
from kernel_agent.tools.taint import defuse, mark, names_of, pieces, texts_of

EVIDENCE = 200  # untrusted results whose pieces are kept, the latest ones
MAX_REASON = 500  # characters of a person's reason
MAX_DENIED = 20  # questions of one cell that a person denies before no more of it are asked


@dataclass(frozen=True, kw_only=True, eq=False)
class _Source:
    """An untrusted result that has entered the session; number 0 came by no call."""

    number: int
    name: str
    texts: tuple[str, ...] = ()

    @cached_property
    def pieces(self) -> frozenset[int]:
        """Computed only for decisions on calls with effects."""
        return pieces(self.texts)


@dataclass(frozen=True, kw_only=True)
class _Influences:
    """Untrusted results that could have shaped a call's arguments, and those found in them."""

    could: tuple[int, ...] = ()
    contains: tuple[int, ...] = ()
    known: int = 0  # how many results were there
    found: tuple[_Source, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Standing:
    """A person's word on all further calls of a tool (or cells), and the facts known then."""

    decision: Decision
    tainted: bool


class Approval:
    """Decides on the cells and calls of one session.

    Parameters
    ----------
    policy
        The rule.
    approver
        Asks a person; None where there is nobody.
    word
        The session's word for untrusted data (:func:`kernel_agent.tools.taint.mark`).
    stop
        The session's: once it is set, every open or further question is denied.
    clock
        Seconds, monotonic. Tests pass their own.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        approver: Approver | None = None,
        word: str,
        stop: StopSignal | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.policy = policy
        self.word = word
        self._approver = approver
        self._stop = stop or StopSignal()
        self._clock = clock
        self._sources: list[_Source] = []
        self._admitted: dict[int, tuple[Decision, _Influences]] = {}
        self._standing: dict[str, _Standing] = {}
        self._denied: dict[str, Decision] = {}  # what a person denied in this run, word for word
        self._one_at_a_time = asyncio.Lock()
        self._cell_over = asyncio.Event()
        self._open = 0  # questions asked or waiting to be
        self._denied_here = 0  # calls of this cell, by a person
        self._told_nobody = False
        self._step, self._code = 0, ""
        self._meter = Meter(Budget(max_steps=None, max_seconds=None))
        self._tell: Callable[[Event], None] = lambda _event: None

    @property
    def tainted(self) -> bool:
        """Whether untrusted data has entered the session."""
        return bool(self._sources)

    @property
    def known(self) -> int:
        """Number of untrusted results so far; a later one cannot shape a present call."""
        return len(self._sources)

    # --- the course of a run, told by the executor -------------------------------------------

    def begin(self, meter: Meter, tell: Callable[[Event], None]) -> None:
        """Begin a run, and forget the person's answers in the last one.

        Parameters
        ----------
        meter
            Its clock stops while a person is asked.
        tell
            Told of each question before it is asked.
        """
        self._meter, self._tell = meter, tell
        self._standing.clear()
        self._denied.clear()
        self._cell_over = asyncio.Event()
        self._told_nobody = False

    def enter(self, number: int, code: str = "") -> None:
        """Begin a step's cell or calls; questions about calls from it show its code."""
        self._step, self._code = number, code
        self._denied_here = 0
        self._cell_over = asyncio.Event()

    async def leave(self) -> None:
        """End a step's cell, and withdraw questions about its calls."""
        self.give_up()
        while self._open:  # noqa: ASYNC110 - each ends in the next turns of the loop
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # the denied calls are answered, and recorded with this step

    def give_up(self) -> None:
        """Withdraw the question about the step's cell, which nobody awaits any longer."""
        self._cell_over.set()

    # --- decisions ---------------------------------------------------------------------------

    async def cell(self, source: str, number: int) -> Decision:
        """Decide on a cell that a model wrote; called by the loop before it runs."""
        verdict, why = self.policy.of_cell()
        if verdict != "ask":
            return Decision(allowed=True, by="policy", reason=why)
        self.enter(number, source)
        question = Question(kind="cell", number=number, reason=why, code=source)
        decision = await self._decide(question, "")
        if not decision.allowed or decision.edited in (None, source):
            return dataclasses.replace(decision, edited=None)
        return dataclasses.replace(decision, original=source)

    async def call(
        self, tool: Tool, arguments: Mapping[str, Any], origin: Origin = ANYWHERE
    ) -> Decision:
        """Decide on a call; called by the broker for each, after its arguments were checked.

        Parameters
        ----------
        tool
            What would be called.
        arguments
            The checked arguments by parameter.
        origin
            Where the call comes from.
        """
        verdict, why = self.policy.of_call(tool)
        look = tool.effects or verdict == "ask"
        influences = self._influences(arguments, origin.known, look=look)
        if verdict == "ask":
            question = Question(
                kind="call",
                number=self._step,
                reason=f"{why}{self._describe_influences(influences)}",
                code=self._code,
                name=tool.name,
                arguments=readable(arguments),
            )
            decision = dataclasses.replace(await self._decide(question, tool.name), edited=None)
        else:
            decision = Decision(allowed=verdict == "allow", by="policy", reason=why)
        self._admitted[id(decision)] = (decision, influences)
        return decision

    async def ask(self, question: Question) -> Decision:
        """Ask the person, now; the run's clock stands still.

        Also the approver of a session that this one delegates to, so that its questions come
        after one another with ours, on the same screen.
        """
        self._open += 1
        try:
            async with self._one_at_a_time:
                return await self._ask_now(question)
        finally:
            self._open -= 1

    async def _decide(self, question: Question, name: str) -> Decision:
        """Return the person's standing answer, or ask."""
        same = _same(question)  # once: of a long text it takes a while
        before = self._said_before(same, name)
        if before is not None:
            return before
        self._open += 1
        try:
            async with self._one_at_a_time:
                # Meanwhile an answer to the question before may have settled this one.
                before = self._said_before(same, name)
                if before is not None:
                    return before
                decision = await self._ask_now(question)
                if decision.standing and name not in self._standing:
                    self._standing[name] = _Standing(decision=decision, tainted=self.tainted)
                elif not decision.allowed and decision.by == "person":
                    self._denied.setdefault(same, decision)
                    self._denied_here += not decision.standing
                return decision
        finally:
            self._open -= 1

    def _said_before(self, same: str, name: str) -> Decision | None:
        standing = self._standing.get(name)
        if standing is not None:
            said = standing.decision
            if not said.allowed or standing.tainted or not self.tainted:
                word = "allowed" if said.allowed else "denied"
                reason = said.reason or f"{word} for the rest of this run"
                return Decision(allowed=said.allowed, by="person", reason=reason, standing=True)
            del self._standing[name]  # it was given before untrusted data had entered
        denied = self._denied.get(same)
        if denied is None:
            return None
        reason = f"the same was denied before{f' ({denied.reason})' if denied.reason else ''}"
        return Decision(allowed=False, by="person", reason=reason)

    async def _ask_now(self, question: Question) -> Decision:
        if self._stop.is_set or self._cell_over.is_set():
            return self._too_late()
        if self._denied_here >= MAX_DENIED:  # asked often enough, a person says yes
            reason = f"{MAX_DENIED} questions of this cell were denied: it is asked no more"
            return Decision(allowed=False, by="policy", reason=reason)
        if self._approver is None:
            if not self._told_nobody:
                self._told_nobody = True
                self._tell(Notice(text=HOW_TO_ALLOW))
            return Decision(allowed=False, by="policy", reason=f"{NOBODY}, and {question.reason}")
        began = self._clock()
        with self._meter.paused():
            decision = await self._await_answer(self._approver, question)
        return dataclasses.replace(decision, seconds=self._clock() - began)

    async def _await_answer(self, approver: Approver, question: Question) -> Decision:
        """Wait for the person, or for an event that makes the question pointless."""
        asking = asyncio.ensure_future(_ask_approver(approver, question))
        ends = [asyncio.ensure_future(e.wait()) for e in (self._stop, self._cell_over)]
        try:
            await asyncio.sleep(0)  # the question waits for its answer before it is shown
            self._tell(question)
            await asyncio.wait((asking, *ends), return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return _check_decision(asking)
            return self._too_late()
        finally:
            for task in (asking, *ends):
                task.cancel()

    def _too_late(self) -> Decision:
        why = "the run was stopped" if self._stop.is_set else "the cell ended"
        return Decision(allowed=False, by="policy", reason=f"{why} before an answer")

    # --- untrusted data ----------------------------------------------------------------------

    def note_data(self, name: str) -> None:
        """Note untrusted data that came by no call: inputs, or a host that a cell reached."""
        if all(source.name != name for source in self._sources):
            self._sources.append(_Source(number=0, name=name))

    def note_visit(self, visit: Visit) -> None:
        """Note untrusted data from a host that a cell reached; called by the proxy for each."""
        if visit.allowed:
            self.note_data(f"the host {visit.host}")

    def mark(self, call: HostCall, result: Any = None) -> HostCall:
        """Return a call's record with its possible influences.

        Called by the broker for each call, once, as soon as it is over and before its result is
        sent to the kernel.

        Parameters
        ----------
        call
            The record; ``untrusted`` says whether the tool's results are.
        result
            What the tool returned, as it was.
        """
        found = self._admitted.pop(id(call.decision), None)
        # Without: it never came to a decision, because there is no such tool, or for its arguments.
        influences = found[1] if found else _Influences()
        # An error that a tool raised can hold the words of strangers, too.
        was_made = call.ok or (call.decision is not None and call.decision.allowed)
        if call.untrusted and was_made:
            texts = texts_of(result if call.ok else call.error)
            self._sources.append(_Source(number=call.number, name=call.name, texts=texts))
            if len(self._sources) > EVIDENCE:
                old = self._sources[-EVIDENCE - 1]
                self._sources[-EVIDENCE - 1] = _Source(number=old.number, name=old.name)
        return dataclasses.replace(
            call, influenced_by=influences.could, contains=influences.contains
        )

    def mark_shown(self, observation: Observation, result: CellResult) -> Observation:
        """Return an observation, marked as data when it may contain untrusted data.

        A denial is our own word, and stands after the mark where it is not data.
        """
        if not self.tainted:
            return observation
        denied = dict.fromkeys(
            denial(f"{c.name} (call {c.number})", c.decision)
            for c in result.calls
            if c.decision is not None and not c.decision.allowed
        )
        why = self._why()
        if observation.parts:
            parts = tuple(mark(part, word=self.word, why=why) for part in observation.parts)
            text = "\n\n".join(parts) + observation.text[len("\n\n".join(observation.parts)) :]
        else:
            parts, text = (), mark(observation.text, word=self.word, why=why)
        text = "\n".join([text, *(f"({one_line(line, 600)})" for line in list(denied)[:3])])
        held = f"untrusted: {defuse(observation.held, self.word)}" if observation.held else ""
        return dataclasses.replace(observation, text=text, parts=parts, held=held)

    def mark_text(self, text: str) -> str:
        """Return a text, marked as data when untrusted data has entered the session."""
        return mark(text, word=self.word, why=self._why()) if text and self.tainted else text

    def _why(self) -> str:
        return f"it may hold what came from {names_of([(s.number, s.name) for s in self._sources])}"

    def _influences(
        self, arguments: Mapping[str, Any], known_then: int | None, *, look: bool
    ) -> _Influences:
        """Return possible influences on the arguments; ``look`` for traces of them if told to."""
        known = self._sources[:known_then]
        if not known:
            return _Influences()
        mine = pieces(arguments) if look else frozenset[int]()
        found = tuple(s for s in known[-EVIDENCE:] if mine and s.pieces & mine)
        numbers = dict.fromkeys(s.number for s in (*found, *reversed(known[-MAX_INFLUENCES:])))
        return _Influences(
            could=tuple(sorted(list(numbers)[:MAX_INFLUENCES])),
            contains=tuple(sorted({s.number for s in found})),
            known=len(known),
            found=found,
        )

    def _describe_influences(self, influences: _Influences) -> str:
        """Describe in a question the possible influences on the arguments."""
        if not influences.known:
            return ""
        where = names_of([(s.number, s.name) for s in self._sources[: influences.known]])
        said = f"; untrusted data has entered this session from {where}"
        if influences.found:
            found = names_of([(s.number, s.name) for s in influences.found])
            what = "it" if found == where else f"what came from {found}"
            said += f", and a piece of {what} stands in the arguments"
        return said


async def _ask_approver(approver: Approver, question: Question) -> Decision:
    return await approver(question)


def _check_decision(asking: asyncio.Future[Decision]) -> Decision:
    """Return the person's decision; any other value of an approver means no."""
    if asking.cancelled():
        return Decision(allowed=False, by="policy", reason="the question was withdrawn")
    error = asking.exception()
    if error is not None:
        why = one_line(f"{type(error).__name__}: {error}", 200)
        return Decision(allowed=False, by="policy", reason=f"asking failed ({why})")
    decision = asking.result()
    if not isinstance(decision, Decision) or not isinstance(decision.allowed, bool):
        return Decision(allowed=False, by="policy", reason="asking gave no decision")
    return dataclasses.replace(decision, reason=one_line(decision.reason, MAX_REASON))


def _same(question: Question) -> str:
    """Return a key that is equal for questions about the same thing."""
    asked = [question.kind, question.name, question.arguments or question.code]
    # "readable" made of it what JSON can hold.
    text = json.dumps(asked, default=str, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
