"""The answer on the page: a number large, a table, names and values, text, a figure. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from kernel_agent.notebook.answer import (
    answer_output,
    answer_rows,
    is_text,
    last_figure,
    printed_answer,
    short_answer,
)
from kernel_agent.notebook.matter import alt_text
from kernel_agent.notebook.pieces import (
    Room,
    block,
    display_piece,
    join,
    note,
    output_pieces,
    picture_piece,
    piece,
    prose,
    rich,
)
from kernel_agent.records import (
    Answer,
    RunRecords,
    Wording,
    answer_note,
    reason_text,
    split_partial,
    steps_text,
)
from kernel_agent.safe import one_line, paragraphs, plain

if TYPE_CHECKING:
    from markupsafe import Markup

MAX_ANSWER = 100_000  # characters
MAX_ROWS = 200  # of a table: as many as a record has


def answer_piece(run: RunRecords, room: Room) -> Markup:
    """Return the answer with its figure, or why there is none and what was achieved."""
    stop = run.stop
    if stop is None:
        said = "The run goes on, or its process was ended: the trace has no last record."
        return prose(said, max_chars=MAX_ANSWER, style="font-style:italic")
    if stop.answer is not None and run.withdrawn is not None:
        taken = f"{steps_text(run.withdrawn)} undone{reason_text(run.withdrawn)}"
        gone = prose(f"The answer does not hold any more ({taken}).", max_chars=MAX_ANSWER)
        was = _answer_text(stop.answer, room)
        return gone + piece("beside", title="The answer that was withdrawn", inner=was)
    if stop.answer is not None:
        shown = _show_answer(run, stop.answer, room)
        below = answer_note(stop.answer)
        noted = prose(below, max_chars=MAX_ANSWER, style="opacity:0.8")
        return piece("answer", inner=join([shown, noted]) if below else shown)
    message = paragraphs(stop.message, max_chars=MAX_ANSWER)
    undone = "Some of its steps were undone: they are marked below." if run.undone else ""
    so_far = [] if undone or not stop.partial.strip() else [*_so_far(run, stop.partial, room)]
    return piece("no_answer", message=message, so_far=so_far, undone=undone)


def _so_far(run: RunRecords, said: str, room: Room) -> Iterator[Markup]:
    """Yield what a run without an answer has achieved; what its last good step showed, as it is."""
    counts, step = split_partial(said, run.last_good)
    result = step.result if step else None
    shown = [*output_pieces(result, room, partial(alt_text, step))] if step and result else []
    last = f" Step {step.number} showed last:" if step and shown else ""
    yield prose(f"{counts}{last}", max_chars=MAX_ANSWER)
    yield from shown


def _show_answer(run: RunRecords, answer: Answer, room: Room) -> Markup:
    """Return the answer as a picture where it is one, else in words, with its figure."""
    in_words = is_text(answer) or short_answer(answer) or answer_rows(answer)
    if not in_words and (shown := answer_output(run)):
        step, output = shown
        displayed = display_piece(output, room, alt=alt_text(step, output), rich_only=True)
        if displayed:
            return displayed
    return join([_answer_text(answer, room), _last_figure(run, room)])


def _answer_text(answer: Answer, room: Room) -> Markup:
    """Return an answer as a person writes it: formatted text, a large number, names and values."""
    limit = min(MAX_ANSWER, max(room.left // 6, 1_000))
    if is_text(answer):
        return rich(plain(answer.text), max_chars=limit)
    if large := short_answer(answer):
        return piece("large", text=one_line(large, 200))
    if worded := answer_rows(answer, MAX_ROWS):
        table = _rows(worded)
        if room.fits(table):
            return table
    if "\n" not in (printed := printed_answer(answer)):
        return prose(printed, max_chars=limit)
    return block(printed, max_chars=limit, where="the trace has all of it")


def _rows(worded: Wording) -> Markup:
    """Return a table, or names and values, with its size below."""
    last = len(worded.rows[0]) - 1
    sides = ["right" if n in worded.right else "left" for n in range(last + 1)]
    rows = [
        [
            (text.strip(), side, len(text) - len(text.lstrip(" ")))
            for text, side in zip(row, sides, strict=True)
        ]
        for row in worded.rows
    ]
    heads = list(zip(worded.columns, sides, strict=False))
    return piece("rows", heads=heads, rows=rows, names=worded.kind == "pairs", below=worded.below)


def _last_figure(run: RunRecords, room: Room) -> Markup:
    """Return the figure that the run drew last, which most often belongs to what it says."""
    found = last_figure(run)
    if found is None:
        return join([])
    step, output, mime = found
    picture = picture_piece(mime, output, room.left // 2, alt=alt_text(step, output))
    return join([picture, *([note(f"Figure of step {step.number}")] if picture else [])])
