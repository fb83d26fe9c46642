"""A finished run as a page for a person: the question, the answer, and the steps to it.

Records in, HTML out. Pure. :func:`summary_html` gives a fragment with inline styles for the output
of a cell: it lives on in the saved notebook, in nbviewer and in ``nbconvert``; GitHub removes every
style, and headings, lists and folds are still in their order. :func:`page_html` gives the same as a
whole file, for ``kernel-agent show --html``.

What is shown is decided here, as plain data; how it looks stands in two templates beside this
module, ``summary.html`` and ``page.html``. Nothing of a model or a kernel is interpreted: all that
a template is given is escaped (:func:`kernel_agent.safe.markup.escape_text`), displays come
through :mod:`kernel_agent.notebook.outputs`, and the whole through one more parser
(:func:`kernel_agent.safe.markup.belt`).

The size has a bound. The answer comes first; what room is left is shared by the steps, and what
does not fit is named in its place: the trace has all of it. So the pieces are rendered one by one,
from the inside out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from kernel_agent.errors import NotebookError
from kernel_agent.formats import write_call
from kernel_agent.notebook.calls import asked_text, result_text
from kernel_agent.notebook.headings import rest_of_thought, step_sentence
from kernel_agent.notebook.matter import MANY, alt_text, entry
from kernel_agent.notebook.page_answer import answer_piece
from kernel_agent.notebook.pieces import (
    MAX_OUTPUT,
    Room,
    block,
    code,
    join,
    length,
    note,
    output_pieces,
    piece,
    prose,
    rich,
    sorting,
    templates,
)
from kernel_agent.notebook.tracebacks import cut_traceback
from kernel_agent.records import (
    UNFINISHED,
    Calls,
    CellResult,
    Code,
    DataFile,
    Decided,
    ExitStatus,
    Final,
    HostCall,
    Record,
    RunRecords,
    Step,
    Usage,
    Visit,
    agent_cost,
    agent_outcome,
    apply_updates,
    count_text,
    decision_line,
    list_decisions,
    minute_text,
    notice_text,
    reason_text,
    runs_of,
    spent_texts,
    window_text,
)
from kernel_agent.safe import (
    as_printed,
    belt,
    obeyed_line,
    one_line,
    paragraphs,
    plain,
    size_text,
    title_line,
)

if TYPE_CHECKING:
    from markupsafe import Markup

MAX_SUMMARY = 1_000_000  # characters; it is saved in a notebook, perhaps once for each cell
MAX_PAGE = 20_000_000
MAX_TASK = 10_000
MAX_THOUGHT = 10_000
MAX_CODE = 20_000
MAX_CALLS = 50  # of one step
MAX_DEPTH = 6  # of runs in runs
MIN_STEP = 1_500  # characters; with less room for each, steps in the middle are left out

# What a record may raise that was damaged by hand: its fields are not of the types they should be.
_DAMAGED = (AttributeError, TypeError, ValueError, KeyError, IndexError, OverflowError)


# --- the two forms -------------------------------------------------------------------------------


def summary_html(
    records: Sequence[Record],
    *,
    notebook: str | None = None,
    notices: Sequence[str] = (),
    max_chars: int = MAX_SUMMARY,
) -> str:
    """Return a run, or the runs of a session, as one fragment of HTML with inline styles.

    Called when a run in a notebook is over; what it returns replaces the live view.

    Parameters
    ----------
    records
        A trace, in order; its last run may be unfinished.
    notebook
        Where the exported notebook is, relative to the reader's; it becomes a link.
    notices
        What a person was told that no record holds; among the facts.
    max_chars
        Upper bound of the result in characters.

    Raises
    ------
    NotebookError
        The records hold no run, or a run's first or last record is damaged.
    """
    return _summary(records, notebook, max_chars, *notices)


def _summary(
    records: Sequence[Record], notebook: str | None, max_chars: int, *told: str, whole: bool = False
) -> str:
    """Return the summary; where it is a whole page, with the contents of many questions above."""
    runs = runs_of(apply_updates(records))
    if not runs:
        raise NotebookError("the trace holds no run, so there is nothing to show")
    room = max_chars * 9 // 10  # the parser may write some characters longer
    try:
        entries = [entry(run) for run in runs] if whole and len(runs) >= MANY else []
        contents = [piece("contents", entries=entries)] if entries else []
        room -= sum(map(length, contents))
        places = [each.place for each in entries] or [""] * len(runs)
        parts = contents + [
            _run(run, Room(room // len(runs)), notebook, *told, place=place)
            for run, place in zip(runs, places, strict=True)
        ]
    except _DAMAGED as error:
        reason = one_line(f"{type(error).__name__}: {error}", 120)
        raise NotebookError(f"a record of the trace is damaged ({reason})") from None
    made = belt(piece("summary", runs=parts))
    if len(made) > max_chars:
        raise NotebookError(f"{len(runs):,} runs do not fit into {max_chars:,} characters")
    return made


def page_html(
    records: Sequence[Record],
    *,
    notebook: str | None = None,
    cut: bool = False,
    max_chars: int = MAX_PAGE,
) -> str:
    """Return the same as a whole file, which loads nothing and runs nothing.

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
    from markupsafe import Markup

    summary = _summary(records, notebook, max_chars, whole=True)
    title = title_line(str(runs_of(records)[0].start.task), 80) or "Run"
    page = templates().get_template("page.html")
    shown = Markup(summary)  # noqa: S704 - past the belt
    return page.render(title=title, summary=shown, cut=cut, **sorting())


# --- runs ----------------------------------------------------------------------------------------


def _run(
    run: RunRecords, room: Room, notebook: str | None, *told: str, depth: int = 0, place: str = ""
) -> Markup:
    """Return one run: how it ended, the question, the answer, the steps, the facts."""
    ending, colour = _ending(run)
    head = _head(run, ending, colour, level=4 if depth else 3, place=place)
    facts = [*_facts(run), *(("Notice", one_line(text, 500)) for text in told)]
    foot = piece("beside", title="About this run", inner=piece("facts", lines=facts))
    if not depth:
        foot += piece("footer", address=_address(notebook), notebook=notebook)
    room.fits(head + foot)
    answer = answer_piece(run, Room(room.left * 6 // 10))
    room.fits(answer)
    parts = [head, answer, _steps(run, room, depth), foot]
    return piece("run", parts=parts)


def _ending(run: RunRecords) -> tuple[str, str]:
    """Return a run's ending in words, and its colour."""
    if run.stop is None:
        return UNFINISHED, "orange"
    status = run.stop.status
    if run.withdrawn is not None:
        return f"{status.sentence}, then undone", "orange"
    answered = status is ExitStatus.ANSWERED
    return status.sentence, "green" if answered else "red" if status.is_fault else "orange"


def _head(run: RunRecords, ending: str, colour: str, *, level: int, place: str) -> Markup:
    task = plain(str(run.start.task)).strip()
    title = title_line(task, 200) or "Run"
    is_whole = title == " ".join(task.split()) and "\n" not in task
    return piece(
        "head",
        ending=ending,
        colour=colour,
        spent=" · ".join(_spent(run)),
        level=level,
        place=place,
        title=title,
        task=[] if is_whole else paragraphs(task, max_chars=MAX_TASK),
        unsafe=_unsafe(run),
        eased=[one_line(text, 80) for text in run.start.eased],
    )


def _unsafe(run: RunRecords) -> str:
    if run.start.confined:
        return ""
    return one_line(str(run.start.sandbox.get("statement") or "")) or "NOT SANDBOXED"


def _spent(run: RunRecords) -> Iterator[str]:
    """Yield what was spent, with a cap only where more than half of it was used."""
    stop, steps = run.stop, run.steps
    usage = stop.usage if stop else sum((step.usage for step in steps), Usage())
    count, seconds = stop.steps if stop else len(steps), stop.seconds if stop else None
    used = {
        "max_steps": count,
        "max_seconds": seconds,
        "max_tokens": usage.total_tokens,
        "max_cost": usage.cost_usd,
    }
    near = {
        name: cap
        for name, cap in run.start.budget.items()
        if isinstance(cap, int | float) and (used.get(name) or 0) > cap / 2
    }
    return spent_texts(steps=count, seconds=seconds, usage=usage, budget=near)


def _address(notebook: str | None) -> str:
    """Return the link to a notebook: always a path, never another scheme."""
    if notebook is None:
        return ""
    slash = "/" if notebook.startswith("/") else "./"
    return quote(slash + notebook.lstrip("/"))


def _facts(run: RunRecords) -> Iterator[tuple[str, str]]:
    start, stop = run.start, run.stop
    sandbox = str(start.sandbox.get("statement") or start.sandbox.get("level"))
    why = f" ({start.format_reason})" if start.format_reason else ""
    window = f" ({text})" if (text := window_text(start)) else ""
    lines = [
        ("Model", f"{one_line(start.model)}{window}"),
        ("Format", one_line(f"{start.format}{why}")),
        ("Started", minute_text(start.time)),
        *(("Data", one_line(f"{f.path} ({f.about}{_digest(f)})")) for f in start.data[:50]),
        *(("Read", one_line(f"{f.path} ({f.about}{_digest(f)})"))
          for f in (stop.read if stop else ())[:50]),
        ("Sandbox", one_line(sandbox.removeprefix("Sandbox: "), 400)),
        ("Tools", one_line(", ".join(start.tools), 400)),
        ("Versions", one_line(", ".join(f"{n} {v}" for n, v in start.versions.items()), 600)),
        *(("Network", _visit(visit)) for visit in (stop.network if stop else ())[:20]),
        ("Look at", obeyed_line(stop.obeyed) if stop else ""),
        ("Run", one_line(start.run_id)),
    ]  # fmt: skip
    return ((name, text) for name, text in lines if text)


def _digest(file: DataFile) -> str:
    return f", SHA-256 {file.sha256[:12]}…" if file.sha256 else ""


def _visit(visit: Visit) -> str:
    at = one_line(f"{visit.host}:{visit.port}")
    if not visit.allowed:
        return f"{at} refused ({visit.requests} requests; {one_line(visit.reason)})"
    moved = f"{size_text(visit.sent)} out, {size_text(visit.received)} in"
    return f"{at} ({visit.requests} requests, {moved})"


# --- steps ---------------------------------------------------------------------------------------


def _steps(run: RunRecords, room: Room, depth: int) -> Markup:
    records = run.parts
    if not records:
        return join([])
    most = max(room.left // MIN_STEP, 2)
    head, tail = records[: most // 2], records[len(records) - (most - most // 2) :]
    left_out = len(records) - len(head) - len(tail) if len(records) > most else 0
    shown = [*head, None, *tail] if left_out else list(records)
    parts = []
    for place, record in enumerate(shown):
        if record is None:
            said = f"{left_out:,} steps are left out here; the trace has them."
            parts.append(piece("aside", text=said))
            continue
        share = Room(room.left // (len(shown) - place))
        part = _intact(record, partial(_part, run, record, share, depth))
        if not room.fits(part):
            part = piece("aside", text=f"{_name(record)} is left out; the trace has it.")
            room.fits(part)
        parts.append(part)
    return piece("steps", title=_steps_title(run), parts=parts, opened=run.stop is None)


def _steps_title(run: RunRecords) -> str:
    """Return how many steps there were, and how many failed, were stopped, denied or undone."""
    held = [step for step in run.steps if step.number not in run.undone]
    counted = [(sum(_state(step) == word for step in held), word)
               for word in ("failed", "stopped", "denied")]  # fmt: skip
    told = [f", {count} {word}" for count, word in [*counted, (len(run.undone), "undone")] if count]
    return f"How it came about: {count_text(len(run.steps), 'step')}{''.join(told)}"


def _state(step: Step) -> str:
    """Return whether a step failed, or was stopped or denied, which is no failure."""
    if step.decision is not None and not step.decision.allowed:
        return "denied"
    if step.result is not None and step.result.status == "interrupted":
        return "stopped"
    return "ok" if step.ok else "failed"


_MARKS = {"ok": ("✓", "green"), "failed": ("✗", "red"), "stopped": ("■", "orange"),
          "denied": ("-", "orange"), "undone": ("↶", "orange")}  # fmt: skip


def _name(record: Record) -> str:
    return f"Step {record.number}" if isinstance(record, Step) else "A note"


def _intact(record: Record, shown: Callable[[], Markup]) -> Markup:
    try:
        return shown()
    except _DAMAGED:
        said = f"{_name(record)} cannot be shown: its record in the trace is damaged."
        return piece("warning", text=one_line(said))


def _part(run: RunRecords, record: Record, room: Room, depth: int) -> Markup:
    if isinstance(record, Step):
        return _step(run, record, room, depth)
    return note(notice_text(record))


def _step(run: RunRecords, step: Step, room: Room, depth: int) -> Markup:
    undone = run.undone.get(step.number)
    mark, colour = _MARKS[_state(step) if undone is None else "undone"]
    title = piece(
        "step_title",
        number=step.number,
        gist=step_sentence(step),
        mark=mark,
        colour=colour,
        spent=f" · {step.cell_seconds:,.1f} s" if step.result is not None else "",
        undone=None if undone is None else reason_text(undone),
    )
    room.left -= length(title) + 400
    parts = []
    for part in _step_parts(run, step, room, depth):
        if room.fits(part):
            parts.append(part)
        else:
            parts.append(note("More of this step is left out; the trace has it."))
            break
    opened = undone is None and _state(step) == "failed"
    return piece("step", title=title, parts=parts, opened=opened)


def _step_parts(run: RunRecords, step: Step, room: Room, depth: int) -> Iterator[Markup]:
    """Yield the pieces of a step in the order in which they happened."""
    limit = max(room.left // 10, 300)
    words = min(MAX_THOUGHT, limit)
    if step.reasoning.strip():
        thinking = prose(step.reasoning, max_chars=words, style="opacity:0.8")
        yield piece("beside", title="Reasoning", inner=thinking)
    if thought := rest_of_thought(step).strip():
        yield rich(thought, max_chars=words)
    for retry in step.retries:
        what = "that was cut off" if retry.cut_off else "that could not be read"
        content = as_printed(retry.content, max_chars=min(4_000, limit))
        feedback = one_line(retry.feedback, 500)
        yield piece("retry", title=f"A reply {what}", content=content, feedback=feedback)
    decisions = list(list_decisions(step))
    yield from (_decision(each) for each in decisions if each.call is None)
    yield from _action(step, limit)
    if step.result is None:
        if not isinstance(step.action, Final):
            yield block(step.observation.text, max_chars=min(MAX_OUTPUT, limit))
        return
    yield from _calls(run, step.result.calls, decisions, room, depth)
    yield from output_pieces(step.result, room, partial(alt_text, step))
    yield from _failure(step.result)


def _action(step: Step, limit: int) -> Iterator[Markup]:
    """Yield the code or calls of a step, and the code before a person changed it."""
    action, most = step.action, min(MAX_CODE, limit)
    if isinstance(action, Code):
        original = step.decision.original if step.decision else None
        if original is not None:
            yield note("A person changed the cell before it ran:")
        yield code(action.source, max_chars=most)
        if original is not None:
            was = code(original, max_chars=most)
            yield piece("beside", title="As the model had written it", inner=was)
    elif isinstance(action, Calls):
        yield code("\n".join(write_call(call) for call in action.calls), max_chars=most)
    elif action is None:
        yield piece("warning", text="No readable action: nothing was run.")


def _decision(each: Decided) -> Markup:
    return piece("decision", text=decision_line(each), allowed=each.decision.allowed)


def _calls(
    run: RunRecords,
    calls: Sequence[HostCall],
    decisions: Sequence[Decided],
    room: Room,
    depth: int,
) -> Iterator[Markup]:
    children = {child.start.run_id: child for child in run.children}
    made = sorted(calls, key=lambda call: call.number)  # as they were asked for, not answered
    for call in made[:MAX_CALLS]:
        yield _call(call)
        yield from (_decision(each) for each in decisions if each.call is call)
        child = children.get(call.run_id)
        if child is not None and depth < MAX_DEPTH:
            below = _run(child, Room(room.left // 2), None, depth=depth + 1)
            yield piece("delegated", run=below)
    if len(calls) > MAX_CALLS:
        yield note(f"{len(calls) - MAX_CALLS:,} more calls are in the trace.")


def _call(call: HostCall) -> Markup:
    """Return one call: an agent with its ending, any other with its result."""
    if call.delegated is not None:
        return piece(
            "agent_line",
            name=call.delegated.name,
            task=one_line(call.delegated.task, 200),
            cost=one_line(agent_cost(call.delegated), 200),
            outcome=agent_outcome(call.delegated),
            answered=call.delegated.status is ExitStatus.ANSWERED,
        )
    return piece(
        "call_line",
        number=call.number,
        asked=one_line(asked_text(call), 300),
        gave=one_line(result_text(call), 300),
        ok=call.ok,
        untrusted=call.untrusted,
        influenced_by=", ".join(str(number) for number in call.influenced_by[:20]),
    )


def _failure(result: CellResult) -> Iterator[Markup]:
    if result.error is not None:
        cut = cut_traceback(result.error)
        frames = f"{cut.before}\n" if cut.before.strip() else ""
        yield piece("error", text=as_printed(f"{frames}{cut.message}", max_chars=4_000))
    ended = {
        "timeout": "Took longer than a cell may take and was interrupted.",
        "interrupted": "Interrupted.",
        "dead": "The kernel ended; all variables were lost.",
    }.get(result.status, "")
    if ended:
        yield piece("warning", text=ended)
