"""Read a run's messages back into question, files and results."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from kernel_agent.errors import ModelError
from kernel_agent.records import Message

_TASK = re.compile(r"\A\s*<task>\n?(.*)\n?</task>(.*)\Z", re.DOTALL)
_FILES = "Data files, relative to the working directory:\n"
_FILE = re.compile(
    r"^- (?P<path>.+) \([^()]*\)$|^  and \d+ more with these columns: (?P<alike>.+)$",
    re.MULTILINE,
)
_OBSERVATION = re.compile(r"\AObservation \(step \d+\):\s*")
_FAILURE = re.compile(
    r"^(?P<type>(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Invalid))\b"
    r"(?:: ?(?P<text>.*))?$",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """The current run as the analyst needs it.

    ``earlier`` holds the observations of the session's earlier runs, ``observations`` those of
    this one; both in order.
    """

    question: str
    files: tuple[str, ...]
    earlier: tuple[str, ...]
    observations: tuple[str, ...]


def read_conversation(messages: Sequence[Message]) -> Conversation:
    """Find the current run in the messages; the runs before it are what the kernel remembers.

    Raises
    ------
    ModelError
        When no message holds a task (the caller's fault).
    """
    question, files = "", ()  # type: str, tuple[str, ...]
    earlier: list[str] = []
    observations: list[str] = []
    for message in messages:
        if message.role not in ("user", "tool"):
            continue
        task = _TASK.match(message.content)
        if task:
            question = task[1].strip()
            listed = task[2].partition(_FILES)[2].partition("\n\n")[0]
            files = tuple(_files(listed)) or files
            earlier += observations
            observations = []
        elif _OBSERVATION.match(message.content):
            observations.append(_OBSERVATION.sub("", message.content, count=1))
    if not question:
        raise ModelError("The offline analyst was given no question; ask one about a table.")
    return Conversation(
        question=question,
        files=files,
        earlier=tuple(earlier),
        observations=tuple(observations),
    )


def _files(listed: str) -> Iterator[str]:
    """Yield the paths in a list of files, those that are only named as like another one, too."""
    for found in _FILE.finditer(listed):
        if found["path"]:
            yield _unquoted(found["path"])
        else:
            yield from (_unquoted(name) for name in found["alike"].split(", "))


def _unquoted(path: str) -> str:
    with suppress(ValueError, SyntaxError):
        return str(ast.literal_eval(path)) if path[:1] in "\"'" else path
    return path


def failure(observation: str) -> tuple[str, str] | None:
    """Return the error type and message that a cell ended with, or None without one."""
    found = list(_FAILURE.finditer(observation))
    if not found:
        return None
    return found[-1]["type"].rpartition(".")[2], (found[-1]["text"] or "").strip()
