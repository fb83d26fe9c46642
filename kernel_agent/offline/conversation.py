"""Messages read back: the question, the files with their first lines, the observations."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from kernel_agent.errors import ModelError
from kernel_agent.records import Message

INTRODUCTION = (
    "I am the offline analyst: rules, not a language model. I answer five kinds of plain question"
    " about a table, and refuse the others."
)
_TASK = re.compile(r"\A\s*<task>\n?(.*)\n?</task>(.*)\Z", re.DOTALL)
_FILES = "Data files, relative to the working directory:\n"
_ALIKE = re.compile(r"^  and \d+ more with these columns: (.+)$", re.MULTILINE)
_OBSERVATION = re.compile(r"\AObservation \(step \d+\):\s*")


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """The current run: the question, the files with their first lines, what its cells printed.

    ``is_first`` says that no earlier question of the session was answered.
    """

    question: str
    files: dict[str, str]
    observations: tuple[str, ...]
    is_first: bool = True


def read_conversation(messages: Sequence[Message]) -> Conversation:
    """Find the current run in the messages.

    Raises
    ------
    ModelError
        When no message holds a task (the caller's fault).
    """
    question, files, observations = "", {}, []  # type: str, dict[str, str], list[str]
    for message in messages:
        if message.role in ("user", "tool") and (task := _TASK.match(message.content)):
            listed = task[2].partition(_FILES)[2].partition("\n\n")[0]
            question, files, observations = task[1].strip(), dict(_files(listed)) or files, []
        elif message.role in ("user", "tool") and _OBSERVATION.match(message.content):
            observations.append(_OBSERVATION.sub("", message.content, count=1))
    if not question:
        raise ModelError("The offline analyst was given no question; ask one about a table.")
    met = any(m.role == "assistant" and INTRODUCTION in m.content for m in messages)
    return Conversation(
        question=question, files=files, observations=tuple(observations), is_first=not met
    )


def _files(listed: str) -> Iterator[tuple[str, str]]:
    """Yield the files of a list; those that are only named as like another one have its lines."""
    for entry in re.split(r"^- ", listed, flags=re.MULTILINE)[1:]:
        head, _, lines = entry.partition("\n")
        alike = _ALIKE.search(lines)
        for path in (head.rpartition(" (")[0], *(alike[1].split(", ") if alike else ())):
            with suppress(ValueError, SyntaxError):
                yield str(ast.literal_eval(path)) if path[:1] in "\"'" else path, lines
