"""Summaries of steps that have left the conversation: by rules, or by the model.

Pure. By rules it is a line a step. A model writes a better one, but may remember what never was:
so it is asked to put the names of variables in backticks, and every sentence with a name that the
kernel does not have is dropped. What the kernel has is measured, not remembered
(:mod:`kernel_agent.records.variables`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_agent.records import (
    Calls,
    Code,
    ExitStatus,
    Message,
    Record,
    RunStart,
    RunStop,
    Step,
    Undone,
    model_text,
)
from kernel_agent.safe import one_line, plain, shorten
from kernel_agent.tools import shorten_marked

LINE_CHARS = 160  # of one step in a summary by rules
SAID_CHARS = 4000  # of one question or answer beside a summary: all of it but for reports
LEAST_CHARS = 20  # of notes for each step that they replace
ENOUGH_CHARS = 300  # of notes for any number of steps
PLAN_CHARS = 1200
CODE_CHARS = 800  # of one step's code in the request for a summary
SEEN_CHARS = 600  # of one step's observation in it

SYSTEM = """\
You keep the notes of a data analyst who works in a live Python kernel. You are given the steps so \
far and write what the analyst needs in order to go on without them: what was found out, with its \
numbers; what was done to the data; what failed and why; what is still open. Write plain \
sentences, no code and no headings, at most {words} words. Write the names of variables, and of \
nothing else, in backticks; put names of columns and files in double quotes. Never write a number \
that is not in the steps."""

_NAME = re.compile(r"`([^`\n]{1,200})`")
_ROOT = re.compile(r"([A-Za-z_]\w*)\s*(?=$|[.\[(])")
_FILE = re.compile(
    r"[\w./-]+\.(?:csv|tsv|json|jsonl|parquet|feather|xlsx?|txt|md|png|jpe?g|svg|pdf|html?|ipynb|"
    r"py|zip|gz|db|sqlite3?|ya?ml|toml|pkl|npy|npz)"
)
_SNAKE = re.compile(r"(?<![\"'\w./])([A-Za-z][A-Za-z0-9]*_\w+)(?![\"'\w/])")
_SENTENCE = re.compile(r"(?<=[.!?])[ \t]+(?=[A-Z`\"(])|\n+")
_THINK = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL)
_PLAN = re.compile(r"^\W{0,4}(?:my |the |new |updated )?plan\b", re.IGNORECASE | re.MULTILINE)
_NUMBERED = re.compile(r"^\s*\d[.)] .+\n+\s*\d[.)] ", re.MULTILINE)


# --- by rules ------------------------------------------------------------------------------


def by_rules(records: Sequence[Record], *, earlier: str, max_chars: int) -> str:
    """Return one line for each step; the oldest are only counted when there is no room.

    Parameters
    ----------
    records
        What leaves the conversation, in order.
    earlier
        The summary that stood before them.
    max_chars
        Upper bound of the result.
    """
    lines = [line for line in earlier.split("\n") if line]
    lines += [line for r in records if not dialogue(r) and (line := _line(r))]
    if len("\n".join(lines)) <= max_chars:
        return "\n".join(lines)
    note = "(older steps are not listed)"
    room, kept = max_chars - len(note), list[str]()
    for line in reversed(lines):
        kept.append(shorten(line, max(room, 0)))
        room -= len(line) + 1
        if room < LINE_CHARS:
            break
    return "\n".join([note, *(line for line in reversed(kept) if line != note)])


def dialogue(record: Record) -> str:
    """Return a question or an answer, which stand beside a summary as they were."""
    if isinstance(record, RunStart):
        return f"Task: {shorten(record.task, SAID_CHARS)}"
    if isinstance(record, RunStop) and record.answer is not None:
        return f"Answer: {shorten(record.answer.text, SAID_CHARS)}"
    return ""


def newest(said: Sequence[str], *, max_chars: int) -> str:
    """Return the latest questions and answers, and how many are older.

    Parameters
    ----------
    said
        All of them, in order.
    max_chars
        Upper bound of the result; the latest stands in any case.
    """
    kept = len(said) - 1
    room = max_chars - sum(map(len, said[-1:]))
    while kept > 0 and (room := room - len(said[kept - 1]) - 1) >= 0:
        kept -= 1
    older = [f"({kept} older questions and answers are not listed)"] if kept > 0 else []
    return "\n".join([*older, *said[max(kept, 0) :]])


def _line(record: Record) -> str:
    if isinstance(record, RunStart):
        return f"Task: {one_line(record.task, 2 * LINE_CHARS)}"
    if isinstance(record, Step):
        thought = one_line(_first_sentence(record.thought), LINE_CHARS // 2)
        said = thought or one_line(record.code, LINE_CHARS // 2)
        return (
            f"Step {record.number}: {said} -> {one_line(describe_observation(record), LINE_CHARS)}"
        )
    if isinstance(record, RunStop):
        if record.answer is not None:
            return f"Answer: {one_line(record.answer.text, 2 * LINE_CHARS)}"
        return f"That run ended without an answer: {one_line(record.message, LINE_CHARS)}"
    if isinstance(record, Undone):
        return one_line(model_text(record).strip("()"), 2 * LINE_CHARS)
    return ""


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.!?])\s", text.strip(), maxsplit=1)[0]


def describe_observation(step: Step) -> str:
    """Describe a step's observation in one line."""
    if step.observation.held:
        return step.observation.held
    text = step.observation.text
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f"{len(text):,} characters that begin with {one_line(first, 100)!r}" if text else ""


def plan_in(step: Step, known: str) -> str:
    """Return the plan as of this step: the one in its thought, or the one known before.

    A thought is a plan when it says so or counts its points; until one is, the first thought of a
    run is what comes closest.
    """
    thought = step.thought.strip()
    if thought and (not known or _PLAN.search(thought) or _NUMBERED.search(thought)):
        return shorten(plain(thought), PLAN_CHARS)
    return known


# --- by the model --------------------------------------------------------------------------


def request(records: Sequence[Record], *, earlier: str, max_chars: int) -> list[Message]:
    """Return the question for a summary: a conversation of its own, whatever the format.

    Parameters
    ----------
    records
        What leaves the conversation, in order.
    earlier
        The summary that stood before them.
    max_chars
        Upper bound of the question; long steps are shortened alike.
    """
    parts = [part for record in records if (part := _describe_record(record))]
    if earlier:
        parts.insert(0, f"Your notes so far:\n{earlier}")
    share = max(max_chars // max(len(parts), 1), 80)
    text = "\n\n".join(shorten(part, share) for part in parts)
    return [
        Message(role="system", content=SYSTEM.format(words=250)),
        Message(role="user", content=f"{shorten(text, max_chars)}\n\nWrite the notes."),
    ]


def _describe_record(record: Record) -> str:
    if not isinstance(record, Step):
        return _line(record)
    action = record.action
    code = ""
    if isinstance(action, Code):
        code = shorten(action.source, CODE_CHARS)
    elif isinstance(action, Calls):
        code = ", ".join(call.name for call in action.calls)
    seen = shorten_marked(record.observation.text, SEEN_CHARS)
    pieces = (f"Step {record.number}. {shorten(record.thought, CODE_CHARS)}", code, f"-> {seen}")
    return "\n".join(piece for piece in pieces if piece)


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A summary that names only variables that exist; ``unknown`` are the other names."""

    text: str
    dropped: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def check(text: str, *, names: frozenset[str], told: str, max_chars: int) -> Checked:
    """Drop the sentences that name a variable which the kernel does not have.

    Parameters
    ----------
    text
        What the model wrote.
    names
        Every name that there is in the kernel.
    told
        What the model was told: a word like ``body_mass`` that stands in it is no invention.

    Examples
    --------
    >>> check("`df` has 3 rows. `gone` too.", names=frozenset({"df"}), told="", max_chars=99).text
    '`df` has 3 rows.'
    """
    text = plain(_THINK.sub("", text)).strip()
    kept, dropped = list[str](), list[str]()
    unknown: dict[str, None] = {}
    for sentence in filter(None, (s.strip() for s in _SENTENCE.split(text))):
        wrong = [name for name in _find_names(sentence, told) if name not in names]
        unknown |= dict.fromkeys(wrong)
        (dropped if wrong else kept).append(sentence)
    return Checked(
        text=shorten(" ".join(kept), max_chars), dropped=tuple(dropped), unknown=tuple(unknown)
    )


def least_chars(steps: int, *, earlier: str, max_chars: int) -> int:
    """Return how long notes must be, so that they can hold what they replace.

    Parameters
    ----------
    steps
        The number of steps.
    earlier
        The notes that they replace, too.
    max_chars
        Upper bound of the notes.
    """
    return min(LEAST_CHARS * steps + len(earlier) // 4, ENOUGH_CHARS, max_chars // 2)


def _find_names(sentence: str, told: str) -> list[str]:
    """Return the variables that a sentence names: in backticks, or as no other word is spelled."""
    marked = [found.strip() for found in _NAME.findall(sentence) if not _FILE.fullmatch(found)]
    names = [root[1] for found in marked if (root := _ROOT.match(found))]
    invented = [w for w in _SNAKE.findall(_NAME.sub("", sentence)) if w not in told]
    return [*names, *invented]


def ask_again(unknown: Sequence[str]) -> Message:
    """Return the feedback to the model about names that do not exist."""
    names = ", ".join(f"`{name}`" for name in unknown[:20])
    return Message(
        role="user",
        content=f"These variables do not exist in the kernel: {names}. Write the notes again, "
        "with variables that exist in backticks and nothing else in backticks.",
    )


def ask_longer(steps: int) -> Message:
    """Return the feedback to the model about notes that say too little."""
    return Message(
        role="user",
        content=f"These notes are all that is left of {steps} steps, and they are too short to go "
        "on from. Write them again: what was found out, with its numbers, and what is open.",
    )


def describe_ending(stop: RunStop) -> str:
    """Return the note to the model on a run's end; empty when it was answered."""
    if stop.status is ExitStatus.ANSWERED:
        return ""
    return f"(That run ended without an answer: {stop.message})"
