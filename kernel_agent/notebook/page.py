"""A run as a person reads it when it is over: the question, the answer, and how it came about.

Records in, HTML out. Pure. :func:`summary_html` gives a fragment with inline styles for the output
of a cell: it lives on in the saved notebook, in nbviewer and in ``nbconvert``; GitHub removes every
style, and headings, lists and folds are still in their order. :func:`page_html` gives the same as a
file of its own for ``kernel-agent show --html``.

Nothing of a model or a kernel is interpreted: text goes through
:mod:`kernel_agent.safe.markup`, what was displayed through
:mod:`kernel_agent.notebook.outputs`, and the whole through one more parser
(:func:`kernel_agent.safe.markup.belt`).

The size has a bound. The answer comes first; what room is left is shared by the steps, and what
does not fit is named in its place: the trace has all of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote

from kernel_agent.errors import NotebookError
from kernel_agent.formats import written
from kernel_agent.notebook.outputs import as_text, displayable, picture_size
from kernel_agent.notebook.tracebacks import cut_traceback
from kernel_agent.records import (
    Answer,
    Calls,
    CellResult,
    Code,
    Condensation,
    Decided,
    ExitStatus,
    Final,
    FormatChange,
    HostCall,
    Json,
    OutputDict,
    Record,
    RunStart,
    RunStop,
    Step,
    Undone,
    Usage,
    Visit,
    decided,
    gave,
    reason_text,
    spent,
    steps_text,
    told,
    undone_steps,
    updated,
)
from kernel_agent.safe import (
    FORMATS,
    GROUND,
    INK,
    LINE,
    Unreadable,
    belt,
    block,
    code,
    element,
    escaped,
    folded,
    inked,
    obeyed_line,
    one_line,
    plain,
    prose,
    reencoded,
    size_text,
)

MAX_SUMMARY = 1_000_000  # characters; it is saved in a notebook, perhaps once for each cell
MAX_PAGE = 20_000_000
MAX_TASK = 10_000
MAX_THOUGHT = 10_000
MAX_CODE = 20_000
MAX_OUTPUT = 20_000  # characters of one output that are shown
MAX_ANSWER = 100_000
MAX_CALLS = 50  # of one step
MAX_DEPTH = 6  # of runs in runs
MIN_STEP = 1_500  # characters; with less room for each, steps in the middle are left out
SIDES = (1600, 1000, 600, 300)  # pixels to which a picture is scaled down until it fits

# What a record may raise that was damaged by hand: its fields are not of the types they should be.
_DAMAGED = (AttributeError, TypeError, ValueError, KeyError, IndexError, OverflowError)

_ENDINGS = {
    ExitStatus.ANSWERED: ("Answered", "green"),
    ExitStatus.STEP_LIMIT: ("Not answered: the step limit was reached", "orange"),
    ExitStatus.TIME_LIMIT: ("Not answered: the time limit was reached", "orange"),
    ExitStatus.TOKEN_LIMIT: ("Not answered: the token limit was reached", "orange"),
    ExitStatus.COST_LIMIT: ("Not answered: the cost limit was reached", "orange"),
    ExitStatus.LOOP_DETECTED: ("Not answered: the same action kept failing", "orange"),
    ExitStatus.INTERRUPTED: ("Stopped before an answer", "orange"),
    ExitStatus.DENIED: ("Not answered: an action was denied", "red"),
    ExitStatus.KERNEL_LOST: ("Not answered: the kernel was lost", "red"),
    ExitStatus.MODEL_ERROR: ("Not answered: the model failed", "red"),
    ExitStatus.CELL_FAILED: ("Not finished: a cell failed", "red"),
}
_UNFINISHED = ("Unfinished", "orange")


@dataclass
class _Run:
    """The records of one run; ``stop`` is None while it goes on or when it was killed."""

    start: RunStart
    told: list[Step | FormatChange | Condensation] = field(default_factory=list)
    stop: RunStop | None = None
    children: list[_Run] = field(default_factory=list)
    undone: dict[int, Undone] = field(default_factory=dict)

    @property
    def withdrawn(self) -> Undone | None:
        """What took the answer back: the last step was undone."""
        return self.undone.get(self.steps[-1].number) if self.steps else None

    @property
    def steps(self) -> list[Step]:
        return [record for record in self.told if isinstance(record, Step)]


@dataclass
class _Room:
    """Characters that are left for a part of the summary."""

    left: int

    def fits(self, source: str) -> bool:
        """Take room for this HTML if there is enough."""
        if len(source) > self.left:
            return False
        self.left -= len(source)
        return True


# --- the two forms -------------------------------------------------------------------------------


def summary_html(
    records: Sequence[Record], *, notebook: str | None = None, max_chars: int = MAX_SUMMARY
) -> str:
    """Return a run, or the runs of a session, as one fragment of HTML with inline styles.

    Called when a run in a notebook is over; what it returns replaces the live view.

    Parameters
    ----------
    records
        A trace, in order; its last run may be unfinished.
    notebook
        Where the exported notebook is, relative to the reader's; it becomes a link.
    max_chars
        Upper bound of the result in characters.

    Raises
    ------
    NotebookError
        The records hold no run, or a run's first or last record is damaged.
    """
    runs = _runs(updated(records))
    if not runs:
        raise NotebookError("the trace holds no run, so there is nothing to show")
    room = max_chars * 9 // 10  # the parser may write some characters longer
    try:
        parts = [_run(run, _Room(room // len(runs)), notebook) for run in runs]
    except _DAMAGED as error:
        reason = one_line(f"{type(error).__name__}: {error}", 120)
        raise NotebookError(f"a record of the trace is damaged ({reason})") from None
    whole = belt(f'<div class="tex2jax_ignore mathjax_ignore">{"".join(parts)}</div>')
    if len(whole) > max_chars:
        raise NotebookError(f"{len(runs):,} runs do not fit into {max_chars:,} characters")
    return whole


def page_html(
    records: Sequence[Record],
    *,
    notebook: str | None = None,
    cut: bool = False,
    max_chars: int = MAX_PAGE,
) -> str:
    """Return the same as a file of its own, which loads nothing and runs nothing.

    Called by ``kernel-agent show --html``.

    Parameters
    ----------
    records, notebook, max_chars
        As in :func:`summary_html`.
    cut
        Whether the trace ends in a record that was not written to its end; the page says so.

    Raises
    ------
    NotebookError
        As :func:`summary_html`.
    """
    body = summary_html(records, notebook=notebook, max_chars=max_chars)
    (first, *_) = _runs(records)
    note = "<p>The last record is incomplete: its writing was interrupted.</p>" if cut else ""
    title = escaped(one_line(str(first.start.task), 80) or "Run").replace("<span>", "")
    return _PAGE.format(title=title.replace("</span>", ""), style=_STYLE, body=body + note)


_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; \
style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""

_STYLE = """\
:root { color-scheme: light dark; }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; line-height: 1.5;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
h3 { font-size: 1.35rem; line-height: 1.3; }
a { color: #2f7bd6; }
table { display: block; max-width: 100%; overflow-x: auto; border-collapse: collapse; border: 0;
  font-size: 0.9em; font-variant-numeric: tabular-nums; }
th, td { border: 0; padding: 0.25em 0.8em; text-align: right; }
tr + tr, tbody tr { border-top: 1px solid rgba(128, 128, 128, 0.3); }
summary:hover { background: rgba(128, 128, 128, 0.1); }
@media (prefers-color-scheme: dark) { body { background: #15171a; color: #e4e6e8; } }
@media print { body { margin: 0; max-width: none; } pre { max-height: none !important; } }
"""


# --- runs ----------------------------------------------------------------------------------------


def _runs(records: Sequence[Record]) -> list[_Run]:
    """Return the runs that nobody delegated, each with those that it did."""
    runs: dict[str, _Run] = {}
    for record in records:
        known = runs.get(getattr(record, "run_id", ""))
        if isinstance(record, RunStart):
            if known is None:
                runs[record.run_id] = _Run(start=record)
        elif known is None:
            continue
        elif isinstance(record, RunStop):
            known.stop = record
        elif isinstance(record, Step | FormatChange | Condensation):
            known.told.append(record)
    for (run_id, number), undone in undone_steps(records).items():
        runs[run_id].undone[number] = undone
    top = []
    for run in runs.values():
        parent = runs.get(run.start.parent_id or "")
        # A parent comes first; a trace in which it does not would have circles.
        if parent is None or parent is run or _is_below(parent, run, runs):
            top.append(run)
        else:
            parent.children.append(run)
    return top


def _is_below(run: _Run, above: _Run, runs: Mapping[str, _Run]) -> bool:
    seen: set[str] = set()
    at: _Run | None = run
    while at is not None and at.start.run_id not in seen:
        if at is above:
            return True
        seen.add(at.start.run_id)
        at = runs.get(at.start.parent_id or "")
    return at is not None


def _run(run: _Run, room: _Room, notebook: str | None, depth: int = 0) -> str:
    """Return one run: how it ended, the question, the answer, the steps, the facts."""
    ending, ink = _ENDINGS[run.stop.status] if run.stop else _UNFINISHED
    if run.withdrawn is not None:
        ending, ink = f"{ending}, then undone", "orange"
    head = element(
        "p",
        f"{inked(ending, ink, bold=True)}{_small(' · ' + ' · '.join(_spent(run)))}",
        "margin:0 0 0.3em 0",
    )
    task = plain(str(run.start.task)).strip()
    title = one_line(task, 200) or "Run"
    head += element(
        "h4" if depth else "h3", escaped(title), "margin:0 0 0.6em 0;overflow-wrap:break-word"
    )
    if title != " ".join(task.split()) or "\n" in task:
        head += prose(task, max_chars=MAX_TASK)
    head += _unsafe(run.start)
    foot = folded(_small("About this run"), _facts(run)) + (_footer(notebook) if not depth else "")
    room.fits(head + foot)
    answer = _answer(run, _Room(room.left * 6 // 10))
    room.fits(answer)
    steps = _steps(run, room, depth)
    look = (
        f"border:{LINE};border-left:4px solid {INK[ink]};border-radius:6px;"
        f"padding:0.9em 1.1em;margin:0.5em 0;max-width:60em;line-height:1.5"
    )
    return element("div", head + answer + steps + foot, look)


def _small(text: str) -> str:
    return element("small", escaped(text), "color:#7d7d7d")


def _unsafe(start: RunStart) -> str:
    if start.confined:
        return ""
    said = one_line(str(start.sandbox.get("statement") or "")) or "NOT SANDBOXED"
    return element("p", inked(said, "red", bold=True), "margin:0 0 0.6em 0")


def _spent(run: _Run) -> Iterator[str]:
    """Yield what the run took, against what it was allowed."""
    caps = run.start.budget
    stop, steps = run.stop, run.steps
    count = stop.steps if stop else len(steps)
    cap = caps.get("max_steps")
    yield f"{count}{_of(cap)} step{'' if (cap or count) == 1 else 's'}"
    if stop:
        yield f"{stop.seconds:,.1f}{_of(caps.get('max_seconds'))} s"
    usage = stop.usage if stop else sum((step.usage for step in steps), Usage())
    if usage.total_tokens or caps.get("max_tokens"):
        about = "about " if usage.estimated else ""
        yield f"{about}{usage.total_tokens:,}{_of(caps.get('max_tokens'))} tokens"
    if usage.cost_usd is not None or caps.get("max_cost"):
        yield f"${usage.cost_usd or 0.0:.4f}{_of(caps.get('max_cost'))}"


def _of(cap: Any) -> str:
    return f" of {cap:,.10g}" if isinstance(cap, int | float) else ""


# --- the answer ----------------------------------------------------------------------------------


def _answer(run: _Run, room: _Room) -> str:
    stop = run.stop
    if stop is None:
        said = "The run goes on, or its process was ended: the trace has no last record."
        return prose(said, max_chars=MAX_ANSWER, style="font-style:italic")
    if stop.answer is not None and run.withdrawn is not None:
        taken = f"{steps_text(run.withdrawn)} undone{reason_text(run.withdrawn)}"
        was = _answer_text(stop.answer, room)
        note = prose(f"The answer does not hold any more ({taken}).", max_chars=MAX_ANSWER)
        return note + folded(_small("The answer that was withdrawn"), was)
    if stop.answer is not None:
        look = f"background-color:{GROUND};border-radius:4px;padding:0.7em 0.9em;margin:0 0 0.8em 0"
        return element("div", _answer_shown(run, stop.answer, room), look)
    parts = [prose(stop.message, max_chars=MAX_ANSWER)]
    if stop.partial.strip():
        parts += ["<p>Achieved so far:</p>", block(stop.partial, max_chars=MAX_OUTPUT)]
    return "".join(parts)


def _answer_shown(run: _Run, answer: Answer, room: _Room) -> str:
    """Return the answer as a table or a picture where it is one, else its text."""
    for step in reversed(run.steps):
        for output in reversed(step.result.outputs if step.result else ()):
            metadata = output.get("metadata")
            ours = metadata.get("kernel_agent") if isinstance(metadata, Mapping) else None
            if isinstance(ours, Mapping) and ours.get("role") == "answer":
                shown = _display(output, room, rich_only=True)
                if shown:
                    return shown
    return _answer_text(answer, room) + _last_figure(run, room)


def _answer_text(answer: Answer, room: _Room) -> str:
    text = plain(answer.text)
    limit = min(MAX_ANSWER, max(room.left // 6, 1_000))
    if answer.kind in ("text", "str"):
        return prose(text, max_chars=limit, style="font-size:1.08em")
    return block(text, max_chars=limit, where="the trace has all of it")


def _last_figure(run: _Run, room: _Room) -> str:
    """Return the figure that the run drew last, which most often belongs to what it says."""
    for step in reversed(run.steps):
        for output in reversed(step.result.outputs if step.result else ()):
            data = output.get("data")
            for mime in FORMATS:
                if isinstance(data, Mapping) and mime in data:
                    picture = _picture(mime, output, room.left // 2)
                    return picture + _note(f"Figure of step {step.number}") if picture else ""
    return ""


# --- steps ---------------------------------------------------------------------------------------


def _steps(run: _Run, room: _Room, depth: int) -> str:
    if not run.told:
        return ""
    told = run.told
    most = max(room.left // MIN_STEP, 2)
    head, tail = told[: most // 2], told[len(told) - (most - most // 2) :]
    left_out = len(told) - len(head) - len(tail) if len(told) > most else 0
    shown = [*head, None, *tail] if left_out else list(told)
    parts = []
    for place, record in enumerate(shown):
        if record is None:
            said = f"{left_out:,} steps are left out here; the trace has them."
            parts.append(element("p", _small(said)))
            continue
        share = _Room(room.left // (len(shown) - place))
        part = _intact(record, partial(_told, run, record, share, depth))
        if not room.fits(part):
            part = element("p", _small(f"{_name(record)} is left out; the trace has it."))
            room.fits(part)
        parts.append(part)
    failed = sum(not step.ok for step in run.steps if step.number not in run.undone)
    count = f"{len(run.steps):,} step{'' if len(run.steps) == 1 else 's'}"
    more = f", {failed} failed" if failed else ""
    more += f", {len(run.undone)} undone" if run.undone else ""
    title = element("strong", escaped(f"How it came about: {count}{more}"))
    return folded(title, "".join(parts), opened=run.stop is None)


def _name(record: Record) -> str:
    return f"Step {record.number}" if isinstance(record, Step) else "A note"


def _intact(record: Record, shown: Callable[[], str]) -> str:
    try:
        return shown()
    except _DAMAGED:
        said = f"{_name(record)} cannot be shown: its record in the trace is damaged."
        return element("p", inked(one_line(said), "red"))


def _told(run: _Run, record: Record, room: _Room, depth: int) -> str:
    if isinstance(record, Step):
        return _step(run, record, room, depth)
    if isinstance(record, FormatChange):
        return _note(f"Going on in the format {record.format}: {record.reason}.")
    assert isinstance(record, Condensation)
    return _note(
        f"The conversation was shortened (steps {record.first} to {record.last} {record.kind}; "
        f"about {record.tokens_before:,} to {record.tokens_after:,} tokens; {record.reason})."
    )


def _note(text: str) -> str:
    return element("p", _small(one_line(text, 500)), "margin:0.4em 0")


def _step(run: _Run, step: Step, room: _Room, depth: int) -> str:
    mark = inked("✓", "green") if step.ok else inked("✗", "red", bold=True)
    gist = one_line(step.thought, 110) or one_line(step.code, 90) or "no words"
    undone = run.undone.get(step.number)
    number = element("strong", escaped(f"Step {step.number}"))
    title = f"{mark} {number} {escaped(gist)}"
    if undone is not None:
        taken = inked(f"undone{reason_text(undone)}", "orange")
        title = f"{number} {taken} · {element('del', escaped(gist))}"
    room.left -= len(title) + 400
    parts = []
    for piece in _step_parts(run, step, room, depth):
        if room.fits(piece):
            parts.append(piece)
        else:
            parts.append(_note("More of this step is left out; the trace has it."))
            break
    body = element("div", "".join(parts), f"border-left:{LINE};padding:0.1em 0 0.1em 1em;"
                   "margin:0.3em 0 0.8em 0.3em")  # fmt: skip
    return folded(title, body, opened=not step.ok and undone is None)


def _step_parts(run: _Run, step: Step, room: _Room, depth: int) -> Iterator[str]:
    """Yield the pieces of a step in the order in which they happened."""
    limit = max(room.left // 10, 300)
    if step.reasoning.strip():
        thinking = prose(step.reasoning, max_chars=min(MAX_THOUGHT, limit), style="opacity:0.8")
        yield folded(_small("Reasoning"), thinking)
    thought = step.thought.strip()
    if thought and thought != one_line(thought, 110):
        yield prose(thought, max_chars=min(MAX_THOUGHT, limit))
    for retry in step.retries:
        said = block(retry.content, max_chars=min(4_000, limit))
        what = "that was cut off" if retry.cut_off else "that could not be read"
        yield folded(_small(f"A reply {what}"), said + _note(retry.feedback))
    decisions = list(decided(step))
    yield from (_decision(each) for each in decisions if each.call is None)
    yield from _acted(step, limit)
    if step.result is None:
        if not isinstance(step.action, Final):
            yield block(step.observation.text, max_chars=min(MAX_OUTPUT, limit))
        return
    yield from _calls(run, step.result.calls, decisions, room, depth)
    yield from _outputs(step.result, room)
    yield from _ended(step.result)


def _acted(step: Step, limit: int) -> Iterator[str]:
    """Yield what was run or called, and what it was before a person changed it."""
    action = step.action
    if isinstance(action, Code):
        original = step.decision.original if step.decision else None
        if original is not None:
            yield _note("A person changed the cell before it ran:")
        yield code(action.source, max_chars=min(MAX_CODE, limit))
        if original is not None:
            was = code(original, max_chars=min(MAX_CODE, limit))
            yield folded(_small("As the model had written it"), was)
    elif isinstance(action, Calls):
        made = "\n".join(written(call) for call in action.calls)
        yield code(made, max_chars=min(MAX_CODE, limit))
    elif action is None:
        yield element("p", inked("No readable action: nothing was run.", "red"))


def _decision(each: Decided) -> str:
    ink = "green" if each.decision.allowed else "red"
    return element("p", inked(told(each), ink), "margin:0.4em 0")


def _calls(
    run: _Run,
    calls: Sequence[HostCall],
    decisions: Sequence[Decided],
    room: _Room,
    depth: int,
) -> Iterator[str]:
    children = {child.start.run_id: child for child in run.children}
    made = sorted(calls, key=lambda call: call.number)  # as they were asked for, not answered
    for call in made[:MAX_CALLS]:
        yield _called(call)
        yield from (_decision(each) for each in decisions if each.call is call)
        child = children.get(call.run_id)
        if child is not None and depth < MAX_DEPTH:
            shown = _run(child, _Room(room.left // 2), None, depth + 1)
            yield folded(element("strong", "Delegated run"), shown)
    if len(calls) > MAX_CALLS:
        yield _note(f"{len(calls) - MAX_CALLS:,} more calls are in the trace.")


def _called(call: HostCall) -> str:
    """Return one call: an agent with how it ended, any other with what it gave."""
    if call.delegated is not None:
        agent = call.delegated
        ended = call.delegated.status is ExitStatus.ANSWERED
        said = inked(f"Agent {agent.name}: ", "blue", bold=True) + escaped(
            one_line(agent.task, 200)
        )
        ink = "green" if ended else "orange"
        return _line(f"{said}<br>{inked(one_line(spent(agent), 200), ink)}{escaped(gave(agent))}")
    number = f"Call {call.number}: " if call.number else "Call: "
    asked = one_line(f"{call.name}({_arguments(call.arguments)})", 300)
    gave_back = one_line(_json(described(call.result)) if call.ok else call.error, 300)
    said = f"{inked(number, 'blue', bold=True)}{escaped(asked)} → "
    said += escaped(gave_back) if call.ok else inked(gave_back, "red")
    if call.untrusted:
        said += f" {inked('untrusted', 'orange')}"
    if call.influenced_by:
        from_calls = ", ".join(str(number) for number in call.influenced_by[:20])
        said += _small(f" could be influenced by call {from_calls}")
    return _line(said)


def _line(said: str) -> str:
    return element("p", said, "margin:0.4em 0;overflow-wrap:break-word")


def _arguments(given: Json) -> str:
    """Return a call's arguments as they stand in code."""
    if not isinstance(given, Mapping):
        return _json(given)
    args, kwargs = given.get("args"), given.get("kwargs")
    if not isinstance(args, Sequence) or not isinstance(kwargs, Mapping):
        return _json(described(dict(given)))
    named = (f"{name}={_json(described(value))}" for name, value in kwargs.items())
    return ", ".join([*(_json(described(value)) for value in args), *named])


def described(value: Json) -> Json:
    """Return a value of a trace for a person: what has a typed form is named by its type.

    Examples
    --------
    >>> described([1, {"$": "table", "arrow": "QVJST1cx…"}])
    [1, '<table>']
    """
    if isinstance(value, Mapping):
        kind = value.get("$")
        if kind == "float":
            return value.get("text")
        if kind is not None:
            return f"<{value.get('type', kind) if kind == 'left out' else kind}>"
        return {key: described(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [described(item) for item in value]
    return value


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)[:2_000]
    except (TypeError, ValueError, RecursionError):
        return "…"


def _outputs(result: CellResult, room: _Room) -> Iterator[str]:
    printed = ""
    for output in result.outputs:
        kind = output.get("output_type")
        if kind == "stream":
            printed += as_text(output.get("text"))[: 4 * MAX_OUTPUT]
            continue
        if printed:
            yield _printed(printed, room)
            printed = ""
        if kind in ("display_data", "execute_result"):
            yield _display(output, room)
    if printed:
        yield _printed(printed, room)


def _printed(text: str, room: _Room) -> str:
    limit = min(MAX_OUTPUT, max(room.left // 3, 300))
    return block(text, max_chars=limit, where="the trace has all of it")


def _display(output: OutputDict, room: _Room, *, rich_only: bool = False) -> str:
    """Return a table, a picture or text; of what does not fit, its text."""
    shown = displayable(output)
    data = shown["data"]
    table = data.get("text/html")
    if table is not None:
        source = element(
            "div", table.replace("$", "<span>$</span>"), "overflow:auto;margin:0.4em 0"
        )
        if len(source) <= room.left:
            return source
    for mime in FORMATS:
        if mime in data and (picture := _picture(mime, output, room.left - 500)):
            return picture
    pictured = any(mime in data for mime in FORMATS)
    if rich_only and not pictured and table is None:
        return ""
    note = _note("A picture is left out: it does not fit here.") if pictured else ""
    return note + _printed(as_text(data.get("text/plain")), room)


def _picture(mime: str, output: OutputDict, most: int) -> str:
    """Return a display's picture, scaled down until it fits; empty when it never does."""
    data = as_text(output["data"][mime])
    width = picture_size(output, mime).get("width")  # one for fine screens has twice the pixels
    expected, longest = len(data), 0  # characters, pixels
    for side in SIDES:
        # What has fewer pixels takes about as many characters fewer: most sides need no trial.
        if longest and expected * (side / longest) ** 2 > 1.3 * most:
            continue
        try:
            shown, *pixels = reencoded(mime, data, max_side=side)
        except Unreadable:
            return ""
        if len(shown.data) <= most:
            look = "max-width:100%;background-color:#ffffff;border-radius:4px;margin:0"
            source = f"data:{shown.media_type};base64,{shown.data}"
            wide = f' width="{width}"' if width else ""
            image = f'<img src="{source}" alt="Figure"{wide} style="{look}">'
            return f'<p style="margin:0.4em 0">{image}</p>'
        expected, longest = len(shown.data), min(side, max(pixels))
    return ""


def _ended(result: CellResult) -> Iterator[str]:
    if result.error is not None:
        cut = cut_traceback(result.error)
        frames = f"{cut.before}\n" if cut.before.strip() else ""
        yield block(
            f"{frames}{cut.message}", max_chars=4_000, style="color:#d4493f;border-left:3px solid"
        )
    ended = {
        "timeout": "Took longer than a cell may take and was interrupted.",
        "interrupted": "Interrupted.",
        "dead": "The kernel ended; all variables were lost.",
    }.get(result.status, "")
    if ended:
        yield element("p", inked(ended, "red"))


# --- facts ---------------------------------------------------------------------------------------


def _facts(run: _Run) -> str:
    start, stop = run.start, run.stop
    sandbox = str(start.sandbox.get("statement") or start.sandbox.get("level"))
    lines = [
        ("Model", one_line(start.model)),
        ("Format", one_line(f"{start.format} ({start.format_reason})" if start.format_reason
                            else start.format)),
        ("Started", _minute(start.time)),
        *(("Data", one_line(f"{f.path} ({f.kind}, {size_text(f.bytes)}, SHA-256 {f.sha256[:12]}…)"))
          for f in start.data[:50]),
        ("Sandbox", one_line(sandbox.removeprefix("Sandbox: "), 400)),
        ("Tools", one_line(", ".join(start.tools), 400)),
        ("Versions", one_line(", ".join(f"{n} {v}" for n, v in start.versions.items()), 600)),
        *(("Network", _visit(visit)) for visit in (stop.network if stop else ())[:20]),
        ("Look at", obeyed_line(stop.obeyed) if stop else ""),
        ("Run", one_line(start.run_id)),
    ]  # fmt: skip
    items = (
        element("li", f"<strong>{name}:</strong> {escaped(said)}", "overflow-wrap:break-word")
        for name, said in lines
        if said
    )
    return element("small", element("ul", "".join(items), "margin:0.3em 0;padding:0 0 0 1.3em"))


def _visit(visit: Visit) -> str:
    at = one_line(f"{visit.host}:{visit.port}")
    if not visit.allowed:
        return f"{at} refused ({visit.requests} requests; {one_line(visit.reason)})"
    moved = f"{size_text(visit.sent)} out, {size_text(visit.received)} in"
    return f"{at} ({visit.requests} requests, {moved})"


def _minute(time: str) -> str:
    try:
        return f"{datetime.fromisoformat(time).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return one_line(time)


def _footer(notebook: str | None) -> str:
    link = ""
    if notebook is not None:
        # "./" and quoted: whatever the name is, it is a path and no other scheme.
        slash = "/" if notebook.startswith("/") else "./"
        address = quote(slash + notebook.lstrip("/"))
        link = f'Notebook: <a href="{address}">{escaped(notebook)}</a> · '
    made = "Made by kernel-agent. Check it before you rely on it."
    return element("p", f"<small>{link}{made}</small>", "margin:0.5em 0 0 0")
