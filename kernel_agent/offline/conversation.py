"""Messages read back: the question, the files with what is known of them, the observations."""

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
_FILE = re.compile(r"^- (?P<path>.+) \([^()]*\)$|^  and \d+ more with these columns: (?P<alike>.+)$")
_OBSERVATION = re.compile(r"\AObservation \(step \d+\):\s*")
_FAILURE = re.compile(
    r"^(?P<type>(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Invalid))\b"
    r"(?:: ?(?P<text>.*))?$",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class File:
    """A data file: its path and its first lines, as the task tells them."""

    path: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """The current run: what is asked, of which files, and what its cells printed, in order."""

    question: str
    files: tuple[File, ...]
    observations: tuple[str, ...]


def read_conversation(messages: Sequence[Message]) -> Conversation:
    """Find the current run in the messages.

    Raises
    ------
    ModelError
        When no message holds a task (the caller's fault).
    """
    question, files = "", ()  # type: str, tuple[File, ...]
    observations: list[str] = []
    for message in messages:
        if message.role not in ("user", "tool"):
            continue
        task = _TASK.match(message.content)
        if task:
            question = task[1].strip()
            listed = task[2].partition(_FILES)[2].partition("\n\n")[0]
            files = tuple(_files(listed)) or files
            observations = []
        elif _OBSERVATION.match(message.content):
            observations.append(_OBSERVATION.sub("", message.content, count=1))
    if not question:
        raise ModelError("The offline analyst was given no question; ask one about a table.")
    return Conversation(question=question, files=files, observations=tuple(observations))


def _files(listed: str) -> Iterator[File]:
    """Yield the files of a list; those that are only named as like another one have its lines."""
    path, lines, alike = "", [], ""  # type: str, list[str], str
    for line in [*listed.split("\n"), "- end ()"]:
        found = _FILE.match(line)
        if found is None:
            lines.append(line.removeprefix("  "))
        elif found["path"]:
            names = [path, *alike.split(", ")] if alike else [path]
            yield from (File(path=_unquoted(name), lines=tuple(lines)) for name in names if name)
            path, lines, alike = found["path"], [], ""
        else:
            alike = found["alike"]


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
