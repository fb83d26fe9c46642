"""The panel's messages: its content, note by note. Pure: no widget, no thread.

An event becomes a few *notes*, dicts of JSON types whose ``op`` names what they change. The page
builds elements from them and puts every text in with ``textContent``; nothing here is markup. What
a kernel displays passes through :mod:`kernel_agent.notebook.outputs` first, which leaves text,
pictures that we encoded, and tables that we wrote; a table travels as rows of texts.

===========  =====================================================================================
``op``       what it holds
===========  =====================================================================================
``run``      the task, the model, the sandbox level, the caps, what was eased: a run begins
``text``     a piece of the reply as it is written; ``reasoning`` is kept apart
``act``      the step's sentence, its thought, the ``rest`` that the sentence does not say, and its
             code with the colours; ``was`` is what the model had written, where a person changed
             it: the note takes the place of the first
``out``      an output of the step: ``stream``, ``text``, ``error``, ``picture``, ``table``
``step``     the step is over: its sentence, how it ended, seconds, tokens
``ask``      a person is asked; ``told`` is what the person said, or that nobody needs to
``note``     something a person should know
``spent``    steps, seconds, tokens and cost so far
``end``      how the run ended, by its name and in words, the answer
``book``     where the notebook is
``save``     whether the notebook is to be saved, so that a page that is loaded again finds the run
===========  =====================================================================================

:class:`Scene` keeps what was said in its shortest form, so that a page that is opened again is told
the whole at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kernel_agent.notebook import rest_of_thought, step_sentence
from kernel_agent.records import (
    Acting,
    Action,
    Calls,
    Code,
    Condensation,
    Decision,
    Event,
    ExitStatus,
    FormatChange,
    Notice,
    Observation,
    Output,
    OutputDict,
    Question,
    ReplyText,
    RunStart,
    RunStop,
    Step,
    Story,
    Undone,
    Usage,
    question_text,
    source_text,
)
from kernel_agent.safe import encodable, one_line, plain
from kernel_agent_extension.content import (
    MAX_CODE,
    MAX_TEXT,
    Note,
    Shown,
    colour_code,
    harmless_text,
)

MAX_DRAFT = 20_000  # characters of a reply in the making


class Scene:
    """The notes that a panel has been sent of one run.

    Parameters
    ----------
    task
        The question; shown before the run itself begins.
    level
        The sandbox level that was asked for, until the run says what it became.
    clock
        Seconds, monotonic.
    waits
        What is waited for until the run begins.
    """

    def __init__(
        self, *, task: str, level: str, clock: Callable[[], float], waits: str = ""
    ) -> None:
        self._clock = clock
        self._opened = clock()
        self._began: float | None = None
        self._waited = 0.0
        self._asked_at: float | None = None
        self._questions: dict[int, Note] = {}
        self._draft: list[Note] = []
        asked = harmless_text(task, 4000)
        self._said: list[Note] = [
            {
                "op": "run",
                "task": asked,
                "level": one_line(level, 40),
                "begun": False,
                "waits": one_line(waits, 80),
            }
        ]
        self._story = Story()
        self._run_id: str | None = None
        self._children: dict[str, str] = {}
        self._steps = 0
        self._usage = Usage()
        self._budget: dict[str, Any] = {}
        self._shown = Shown(0)
        self._stopped = False
        self.warnings = 0

    # --- what happened ---------------------------------------------------------------------

    def tell(self, event: Event) -> list[Note]:
        """Return the notes of an event, and keep them."""
        return self._keep(list(self._notes(event)))

    def ask(self, number: int, question: Question) -> list[Note]:
        """Return the note that asks a person; ``number`` is the question's own."""
        if self._asked_at is None:
            self._asked_at = self._clock()
        is_cell = question.kind == "cell"
        asked = question.code if is_cell else question_text(question, max_chars=MAX_CODE // 2)
        note: Note = {
            "op": "ask",
            "id": number,
            "step": question.number,
            "kind": question.kind,
            "reason": harmless_text(question.reason[:1].upper() + question.reason[1:], 2000),
            "rest": _rest(question),
            "cut": is_cell and len(source_text(asked)) > MAX_CODE,
            **colour_code(asked),
        }
        self._questions[number] = note
        return [note, *self._spent()]

    def close_question(self, number: int, decision: Decision | None) -> list[Note]:
        """Return the note that a question is over; the decision is None when it was withdrawn."""
        question = self._questions.pop(number, None)
        if question is None:
            return []
        if not self._questions and self._asked_at is not None:
            self._waited += self._clock() - self._asked_at
            self._asked_at = None
        note: Note = {"op": "told", "id": number, "step": question["step"]}
        if decision is not None:
            note["said"] = _describe_decision(question["kind"], decision)
        return [*self._change(note["step"], decision), *self._keep([note]), *self._spent()]

    def _change(self, number: int, decision: Decision | None) -> list[Note]:
        """Return the announcement of a step anew when a person has changed its cell."""
        if decision is None or decision.edited is None:
            return []
        for place, said in enumerate(self._said):
            if said["op"] == "act" and said["step"] == number:
                changed = {**said, **colour_code(decision.edited), "was": _code_of(said)}
                self._said[place] = changed
                return [dict(changed)]
        return []

    def note(self, text: str) -> list[Note]:
        """Return a note of the front end's own."""
        return self._keep([{"op": "note", "text": harmless_text(text, 2000)}])

    def book(self, path: str) -> list[Note]:
        """Return the note that says where the notebook is."""
        return self._keep([{"op": "book", "path": path}])

    def save(self, *, wanted: bool) -> list[Note]:
        """Return the note that the notebook is to be saved, or was."""
        return self._keep([{"op": "save", "wanted": wanted}])

    def replay(self) -> list[Note]:
        """Return all notes for a page that has just been opened."""
        asked = [note for _, note in sorted(self._questions.items())]
        age = round(self._clock() - self._opened, 1)
        said = [
            {**note, "age": age} if note["op"] == "run" and not note["begun"] else note
            for note in self._said
        ]
        return [*said, *self._draft, *asked, *self._spent()]

    # --- events ----------------------------------------------------------------------------

    def _notes(self, event: Event) -> Iterator[Note]:
        if self._is_delegated(event):
            yield from self._note_delegated(event)
            return
        match event:
            case RunStart():
                yield from self._start(event)
            case ReplyText(text=text) if text:
                yield from self._note_draft(event)
            case Acting():
                self._shown = Shown(event.number)
                yield _act(event.number, event.action)
            case Output():
                yield from self._output(event)
            case Step():
                yield from self._step(event)
            case RunStop():
                yield from self._stop(event)
            case Notice() | Condensation() | FormatChange() | Undone():
                for block in self._story.blocks(event):
                    yield {"op": "note", "text": harmless_text(block.text, 2000)}

    def _is_delegated(self, event: Event) -> bool:
        if isinstance(event, RunStart):
            return self._run_id is not None and event.parent_id is not None
        return getattr(event, "run_id", None) in self._children

    def _note_delegated(self, event: Event) -> Iterator[Note]:
        """Say that delegated work began or ended; its steps have numbers of their own."""
        match event:
            case RunStart(run_id=run_id, task=task):
                self._children[run_id] = one_line(task, 120)
                yield {"op": "note", "text": f"Delegated: {one_line(task, 300)}"}
            case Step(usage=usage):
                self._usage += usage
                yield from self._spent()
            case RunStop(run_id=run_id, status=status):
                task = self._children.pop(run_id)
                yield {"op": "note", "text": f"Delegated work ended, {status}: {task}"}

    def _start(self, start: RunStart) -> Iterator[Note]:
        self._run_id, self._began, self._waited = start.run_id, self._clock(), 0.0
        self._budget = dict(start.budget)
        self._said = [note for note in self._said if note["op"] != "run"]
        note: Note = {
            "op": "run",
            "begun": True,
            "task": harmless_text(start.task, 4000),
            "model": one_line(start.model, 80),
            "level": one_line(str(start.sandbox.get("level", "none")), 40),
            "statement": one_line(str(start.sandbox.get("statement", "")), 400),
            "data": [one_line(file.path, 80) for file in start.data[:10]],
        }
        if start.eased:
            note["eased"] = [one_line(text, 80) for text in start.eased]
        yield note
        yield from self._spent()

    def _note_draft(self, event: ReplyText) -> Iterator[Note]:
        room = MAX_DRAFT - sum(len(kept["text"]) for kept in self._draft)
        if room > 0:
            note: Note = {"op": "text", "text": encodable(event.text)[:room]}
            if event.reasoning:
                note["reasoning"] = True
            if event.call:
                note["call"] = True
            yield note

    def _output(self, event: Output) -> Iterator[Note]:
        if event.number != self._shown.number:
            self._shown = Shown(event.number)
        yield from self._shown.notes(event.output)

    def _step(self, step: Step) -> Iterator[Note]:
        if self._shown.number != step.number:  # nobody announced it: a run that is shown afterwards
            self._shown = Shown(step.number)
            was = step.decision.original if step.decision else None
            yield _act(step.number, step.action, step.observation.text, was=was)
        outputs = step.result.outputs if step.result else ()
        if not self._shown.any:
            for output in outputs:
                yield from self._shown.notes(output)
        if not self._shown.any and not outputs and isinstance(step.action, Calls):
            yield from self._shown.notes(_stream(step.observation.text))
        self._steps += 1
        self._usage += step.usage
        note: Note = {
            "op": "step",
            "step": step.number,
            "sentence": step_sentence(step),
            "status": step.result.status if step.result else "",
            "ok": step.ok,
            "seconds": round(step.cell_seconds, 2),
            "model_seconds": round(step.model_seconds, 2),
            "tokens": step.usage.total_tokens,
        }
        if step.decision is not None and not step.decision.allowed:
            note["denied"] = harmless_text(step.decision.reason, 500) or "denied"
        yield note
        yield from self._spent()

    def _stop(self, stop: RunStop) -> Iterator[Note]:
        self._usage = stop.usage
        yield from self._spent(stop.seconds)
        blocks = self._story.blocks(stop)
        yield {
            "op": "end",
            "status": str(stop.status),
            "words": stop.status.label,
            "ok": stop.status is ExitStatus.ANSWERED,
            "answer": harmless_text(stop.answer.text, MAX_TEXT) if stop.answer else None,
            "note": "\n".join(block.text for block in blocks if block.kind == "note"),
            "why": "\n".join(block.text for block in blocks if block.kind == "warning"),
            "partial": "\n".join(block.text for block in blocks if block.kind == "partial"),
        }
        self._stopped = True

    def _spent(self, seconds: float | None = None) -> list[Note]:
        if self._began is None or self._stopped:
            return []
        now = self._asked_at if self._asked_at is not None else self._clock()
        usage = self._usage
        note: Note = {
            "op": "spent",
            "steps": self._steps,
            "seconds": round(now - self._began - self._waited if seconds is None else seconds, 1),
            "runs": self._asked_at is None and seconds is None,
            "tokens": usage.total_tokens,
            "caps": [
                self._budget.get(f"max_{name}") for name in ("steps", "seconds", "tokens", "cost")
            ],
        }
        if usage.estimated:
            note["about"] = True
        if usage.cost_usd is not None:
            note["cost"] = round(usage.cost_usd, 4)
        return [note]

    # --- what is kept for a replay -----------------------------------------------------------

    def _keep(self, notes: list[Note]) -> list[Note]:
        for note in notes:
            op = note["op"]
            if op == "text":
                self._draft.append(note)
                continue
            if op in {"act", "step", "end", "note"}:  # a note: the model is asked again
                self._draft.clear()
            if op == "spent" and not self._is_end(notes):
                continue  # a replay says it anew
            if not self._merge(note):
                # A copy: what is merged here later must not change what is on its way.
                self._said.append(dict(note))
        return notes

    def _is_end(self, notes: list[Note]) -> bool:
        return bool(notes[-1]["op"] == "end")

    def _merge(self, note: Note) -> bool:
        """Put text of a stream behind the text before it, as it would look in the end."""
        last = self._said[-1] if self._said else {}
        if note["op"] != "out" or note["kind"] != "stream" or last.get("kind") != "stream":
            return False
        if (last["step"], last["name"]) != (note["step"], note["name"]):
            return False
        last["text"] = _settle(last["text"] + note["text"])
        return True


def _rest(question: Question) -> str:
    what = "cell" if question.kind == "cell" else f"call of {one_line(question.name, 80)}"
    return f"The same for every further {what} in this run; a yes until untrusted data comes in"


def _stream(text: str) -> OutputDict:
    return {"output_type": "stream", "name": "stdout", "text": text}


def _settle(text: str) -> str:
    """Return text after its carriage returns have overwritten lines; the last line stays open."""
    *lines, last = text.split("\n")
    return "\n".join([*(plain(line) for line in lines), last])


def _code_of(note: Note) -> Note:
    return {key: note[key] for key in ("code", "hues") if key in note}


def _act(
    number: int, action: Action | None, unreadable: str = "", *, was: str | None = None
) -> Note:
    step = Step(run_id="", number=number, action=action, observation=Observation(text=unreadable))
    note: Note = {"op": "act", "step": number, "sentence": step_sentence(step), "thought": ""}
    if action is None:
        return {**note, "thought": harmless_text(unreadable, 2000)}
    note["thought"] = harmless_text(action.thought, 8000)
    if (rest := rest_of_thought(step)) != action.thought:
        note["rest"] = harmless_text(rest, 8000)
    if isinstance(action, Code):
        before = {} if was is None else {"was": colour_code(was)}
        return {**note, **colour_code(action.source), **before}
    if isinstance(action, Calls):
        calls = (f"{c.name}({_arguments(c.arguments)})" for c in action.calls)
        return {**note, **colour_code("\n".join(calls))}
    return note


def _arguments(arguments: Any) -> str:
    return ", ".join(f"{name}={value!r:.2000}" for name, value in dict(arguments).items())


def _describe_decision(kind: str, decision: Decision) -> str:
    what = "cell" if kind == "cell" else "call"
    if not decision.allowed:
        return f"You denied the {what}" + (
            f": {one_line(decision.reason)}" if decision.reason else "."
        )
    return f"You edited and approved the {what}." if decision.edited is not None else (
        f"You approved the {what}."
    )  # fmt: skip
