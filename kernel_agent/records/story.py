"""The story of a run as named blocks of harmless text, and as plain lines. Pure.

:class:`Story` turns an event into blocks, for terminals, notebooks and the panel alike: views
differ only in how a block looks. Everything that comes from a model or a kernel passes through
:func:`kernel_agent.safe.text.plain` here, and no view interprets markup in it, so that hostile text
can neither move the cursor nor pose as ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from kernel_agent.records.action import Action, Calls, Code, Final
from kernel_agent.records.answers import answer_note
from kernel_agent.records.decisions import (
    cell_length,
    decision_line,
    list_decisions,
    question_text,
    source_text,
    untrusted_line,
)
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.event import Acting, Event, Notice, Question
from kernel_agent.records.reading import (
    SHOWED_LAST,
    agents_of,
    count_text,
    spent_texts,
    split_partial,
    tree_lines,
    window_text,
)
from kernel_agent.records.trace import (
    Condensation,
    DataFile,
    FormatChange,
    RunStart,
    RunStop,
    Step,
    Undone,
    Visit,
)
from kernel_agent.records.undo import person_text
from kernel_agent.safe import obeyed_line, one_line, plain, shorten, size_text

Kind: TypeAlias = Literal[
    "task",
    "fact",
    "warning",
    "title",
    "thought",
    "code",
    "call",
    "observation",
    "question",
    "notice",
    "partial",
    "answer",
    "note",
    "end",
]


MAX_UNREAD = 1_000
"""Characters that are shown of a reply which could not be read."""

ACHIEVED = "Achieved so far:\n"


@dataclass(frozen=True, kw_only=True)
class Block:
    """A piece of text with its place in the story; the text is harmless already.

    ``of`` is the record that the text was made of, for views that draw more than text; nothing in
    that is harmless.
    """

    kind: Kind
    text: str
    of: Step | RunStop | None = field(default=None, compare=False)


def shown_to_model(step: Step) -> str:
    """Return what the model is shown of a step."""
    return step.observation.text


class Story:
    """Turns events into what they add to the story of a session.

    It remembers what was told: the model, the data and the sandbox are said again only when they
    change, and a step that nobody announced (from a trace) brings its own thought and code.

    Parameters
    ----------
    observe
        Returns the text of what a step showed; by default, what its model reads.
    """

    def __init__(self, observe: Callable[[Step], str] = shown_to_model) -> None:
        self._observe = observe
        self._told: set[Block] = set()
        self._acting: int | None = None
        self._good: Step | None = None

    def blocks(self, event: Event) -> tuple[Block, ...]:
        """Return the blocks that an event adds; none for pieces that only pass by."""
        if isinstance(event, RunStart):
            return self._news(_start_blocks(event))
        if isinstance(event, Acting):
            self._acting = event.number
            return _action_blocks(event.number, event.action)
        if isinstance(event, Step):
            known = event.number == self._acting
            action = () if known else _action_blocks(event.number, event.action)
            agents = () if known else _agents(event)  # else they have told it themselves
            self._good = event if event.ok else self._good
            return (
                *action,
                *(_unread_blocks(event) if event.action is None else ()),
                *agents,
                *_decision_blocks(event, changed=known),
                *self._observation(event),
            )
        if isinstance(event, Question):
            return _question_blocks(event)
        if isinstance(event, RunStop):
            self._acting = None
            return _stop_blocks(event, self._achieved(event))
        return _some("notice", notice_text(event))

    def _observation(self, step: Step) -> tuple[Block, ...]:
        return () if _is_in_words(step.action) else _some("observation", self._observe(step), step)

    def _achieved(self, stop: RunStop) -> tuple[Block, ...]:
        """Return what was achieved without an answer, its quotation as all steps are told."""
        if not stop.partial:
            return ()
        counts, good = split_partial(stop.partial, self._good)
        if good is None:
            return _some("partial", f"{ACHIEVED}{counts}")
        seen = self._observe(good)
        if seen.strip():
            counts += f" Step {good.number}{SHOWED_LAST}{seen}"
            return _some("partial", f"{ACHIEVED}{counts}", of=good)
        return _some("partial", f"{ACHIEVED}{counts}")

    def _news(self, header: tuple[Block, ...]) -> tuple[Block, ...]:
        news = tuple(b for b in header if b.kind == "task" or b not in self._told)
        self._told.update(header)
        return news


def _some(kind: Kind, text: str, of: Step | RunStop | None = None) -> tuple[Block, ...]:
    text = plain(text).strip("\n").rstrip()
    return (Block(kind=kind, text=text, of=of),) if text else ()


def _start_blocks(start: RunStart) -> tuple[Block, ...]:
    data = ", ".join(f"{file.path} ({file.about})" for file in start.data)
    known = f" ({text})" if (text := window_text(start)) else ""
    return (
        *_some("task", start.task),
        *_some("fact", f"Model: {one_line(start.model)}{known}"),
        *(_some("fact", f"Data:  {one_line(data, 2000)}") if data else ()),
        *_some(
            "fact" if start.confined else "warning",
            str(start.sandbox.get("statement", "")),
        ),
    )


def _is_in_words(action: Action | None) -> bool:
    return isinstance(action, Final) and action.in_words


def _action_blocks(number: int, action: Action | None) -> tuple[Block, ...]:
    if _is_in_words(action):
        return ()  # the answer is all that there is to it
    title = _some("title", f"Step {number}")
    if action is None:
        return title
    shown = (*title, *_some("thought", action.thought))
    if isinstance(action, Code):
        code = code_block(action.source)
        return (*shown, *((code,) if code.text else ()))
    if isinstance(action, Calls):
        calls = (f"{c.name}({_arguments(c.arguments)})" for c in action.calls)
        return (*shown, code_block("\n".join(calls)))
    return shown


def _unread_blocks(step: Step) -> Iterator[Block]:
    """Return the replies of a step without an action, which cost as much as any other."""
    for retry in step.retries:
        text = shorten(retry.content.strip(), MAX_UNREAD)
        yield from _some("thought", f"{text} […cut off]" if retry.cut_off else text)


def code_block(source: str) -> Block:
    """Return a cell's source as a block in which nothing that would run is hidden."""
    return Block(kind="code", text=source_text(source).strip("\n").rstrip())


def _question_blocks(question: Question) -> tuple[Block, ...]:
    """Return the question to a person; a cell's code stands above it already."""
    why = question.reason[:1].upper() + question.reason[1:]
    if question.kind == "cell":
        told = f"May this cell run? {why}. {cell_length(question.code)}"
        return _some("question", told)
    may = f"May {one_line(question.name, 80)} be called? {why}."
    return (*_some("question", may), Block(kind="call", text=question_text(question)))


def _decision_blocks(step: Step, *, changed: bool) -> Iterator[Block]:
    """Say what was decided, and show the code that ran where a person has ``changed`` it."""
    each = list(list_decisions(step))
    for one in each[:10]:
        yield from _some("notice", decision_line(one))
    if len(each) > 10:
        yield from _some("notice", f"{len(each) - 10} more decisions are in the trace.")
    if changed and step.decision is not None and step.decision.edited is not None:
        yield code_block(step.code)
    yield from _some("notice", untrusted_line(step))


def _agents(step: Step) -> tuple[Block, ...]:
    return _some("notice", "\n".join(tree_lines(agents_of([step]))))


def notice_text(event: Event) -> str:
    """Return the notice on an event between steps; empty for any other event."""
    match event:
        case Notice(text=text):
            return text
        case Condensation():
            return _describe_condensation(event)
        case FormatChange():
            return f"Going on in the format {event.format}: {event.reason}."
        case Undone():
            return person_text(event)
    return ""


def _describe_condensation(event: Condensation) -> str:
    steps = f"step {event.last}" if event.first == event.last else (
        f"steps {event.first} to {event.last}"
    )  # fmt: skip
    what = {
        "masked": f"what {steps} showed became one line each",
        "summarised": f"{steps} became a summary",
        "shortened": f"what {steps} showed was cut to {event.max_chars:,} characters each",
    }[event.kind]
    return (
        f"The conversation was shortened: {what} (about {event.tokens_before:,} to "
        f"{event.tokens_after:,} tokens; {event.reason}). The whole is in the trace."
    )


def _arguments(arguments: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={json.dumps(value, default=str)}" for name, value in arguments.items()
    )


def _stop_blocks(stop: RunStop, achieved: tuple[Block, ...]) -> tuple[Block, ...]:
    answered = stop.status is ExitStatus.ANSWERED
    answer = _some("answer", stop.answer.text, of=stop) if stop.answer else ()
    note = _some("note", answer_note(stop.answer)) if stop.answer else ()
    why = "" if answered else stop.status.say(stop.message)
    spent = spent_texts(steps=stop.steps, seconds=stop.seconds, usage=stop.usage)
    return (
        *answer,
        *note,
        *_some("warning", why),
        *(() if answered else achieved),
        *_read(stop.read),
        *_network(stop.network),
        *_some("warning", obeyed_line(stop.obeyed)),
        *_some("end", " · ".join([str(stop.status), *spent])),
    )


def _read(files: Sequence[DataFile]) -> Iterator[Block]:
    """List the files of folders of data that were read."""
    shown = [file.path for file in files[:5]]
    more = [f"{len(files) - 5:,} more"] if len(files) > 5 else []
    if shown:
        yield from _some("end", one_line(f"Read: {', '.join(shown + more)}", 1000))


def _network(visits: Iterable[Visit]) -> Iterator[Block]:
    """List the hosts that were contacted, and the requests that were refused."""
    for allowed, word in ((True, "Network:"), (False, "Network, refused:")):
        asked = [visit for visit in visits if visit.allowed is allowed]
        shown = [f"{v.host}:{v.port} ({_describe_visit(v)})" for v in asked[:10]]
        more = [f"{len(asked) - 10} more"] if len(asked) > 10 else []
        if shown:
            yield from _some("end" if allowed else "warning", f"{word} {', '.join(shown + more)}")


def _describe_visit(visit: Visit) -> str:
    times = count_text(visit.requests, "request")
    moved = f", {size_text(visit.sent)} out, {size_text(visit.received)} in"
    return times + moved if visit.allowed else times


def place_blocks(*, notebook: Path | None, trace: Path, files: Sequence[str]) -> tuple[Block, ...]:
    """Return the places of a run: its notebook, its trace and the files that it made."""
    made = ", ".join(files[:10]) + (", …" if len(files) > 10 else "")
    return (
        *(_some("end", f"Notebook: {notebook}") if notebook else ()),
        *_some("end", f"Trace:    {trace}"),
        *(_some("end", f"Files:    {one_line(made, 1000)} (in {trace.parent})") if made else ()),
    )


# --- plain lines -------------------------------------------------------------------------------

_INDENTED = {
    "code": "    ",
    "call": "    ",
    "observation": "    ",
    "notice": "! ",
    "question": "? ",
}
STORY_LABELS: dict[Kind, str] = {
    "thought": "Thought:",
    "code": "Code:",
    "call": "Call:",
    "observation": "Observation:",
}


class PlainView:
    """Shows a run as lines of text, each block when it is complete.

    Parameters
    ----------
    write
        Takes text that ends in a newline: a stream's ``write``, or ``print`` without its end.
    observe
        As of :class:`Story`.
    """

    def __init__(
        self, write: Callable[[str], object], observe: Callable[[Step], str] = shown_to_model
    ) -> None:
        self._write = write
        self._story = Story(observe)

    def __call__(self, event: Event) -> None:
        """Show an event."""
        self.show(self._story.blocks(event))

    def show(self, shown: Iterable[Block]) -> None:
        """Show blocks."""
        for block in shown:
            self._write(plain_lines(block))


def plain_lines(block: Block) -> str:
    """Return a block as lines of plain text, each with its newline."""
    if block.kind == "title":
        return f"\n--- {block.text} ---\n"
    if block.kind == "task":
        return f"Task:  {block.text}\n"
    if block.kind == "answer":
        return f"\nAnswer\n{block.text}\n\n"
    if block.kind == "thought":
        return f"{STORY_LABELS[block.kind]} {block.text}\n"
    label = f"{STORY_LABELS[block.kind]}\n" if block.kind in STORY_LABELS else ""
    indent = _INDENTED.get(block.kind, "")
    return label + "".join(f"{indent}{line}".rstrip() + "\n" for line in block.text.split("\n"))
