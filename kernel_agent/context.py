"""What the model is sent: the records of a session as messages, within an allowance of tokens.

Pure: records in, messages out. The history only grows at its end, so that the prefix stays the
same to the byte and the endpoint's prompt cache hits. When it outgrows the allowance, the oldest
observations are replaced by one line each, many at once, so that the prefix changes rarely. The
whole text stays in the kernel (``outputs[k]``) and in the trace.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from kernel_agent.formats.base import Format
from kernel_agent.records import (
    DataFile,
    ExitStatus,
    Message,
    Observation,
    Record,
    RunStart,
    RunStop,
    Step,
)

CHARS_PER_TOKEN = 3.5  # on the careful side for English and code
IMAGE_TOKENS = 800  # about what endpoints charge for a 768-pixel picture
MASK_TO = 0.5  # mask down to this share of the allowance, so that it is done rarely
KEEP_STEPS = 3  # the last steps are never masked


class Context:
    """The messages of one session.

    Parameters
    ----------
    system_prompt
        The first message; the same for the whole session.
    format
        How steps are written down.
    max_tokens
        The allowance for all messages together, estimated from their length.
    """

    def __init__(self, system_prompt: str, format: Format, *, max_tokens: int) -> None:  # noqa: A002 - the project's word
        self._format = format
        self._system = Message(role="system", content=system_prompt)
        self._entries: list[tuple[Record, tuple[Message, ...]]] = []
        self._masked = 0  # entries before this index are masked
        self.max_tokens = max_tokens
        self.tokens = _tokens([self._system])
        """The estimated length of all messages."""

    def add(self, record: Record) -> None:
        """Append what happened; called once for each record, in order."""
        messages = self._write(record)
        self._entries.append((record, messages))
        self.tokens += _tokens(messages)

    def messages(self) -> list[Message]:
        """Return the conversation so far, the oldest observations masked where it is too long."""
        if self.tokens > self.max_tokens:
            self._mask()
        return [self._system, *(m for _, messages in self._entries for m in messages)]

    def shrink(self) -> bool:
        """Halve the allowance, because the endpoint found the conversation too long.

        Returns
        -------
        bool
            Whether that made the conversation shorter.
        """
        before = self.tokens
        self.max_tokens = max(before // 2, 1000)
        self._mask()
        return self.tokens < before

    def rewrite(self, system_prompt: str, format: Format) -> None:  # noqa: A002 - the project's word
        """Write the whole conversation in another format; the loop moved down a rung."""
        self._format = format
        self._system = Message(role="system", content=system_prompt)
        records = [record for record, _ in self._entries]
        self._entries, self._masked, self.tokens = [], 0, _tokens([self._system])
        for record in records:
            self.add(record)

    def _write(self, record: Record) -> tuple[Message, ...]:
        if isinstance(record, RunStart):
            return (Message(role="user", content=task_text(record.task, record.data)),)
        if isinstance(record, Step):
            return self._format.write(record)
        return _ending(record) if isinstance(record, RunStop) else ()

    def _mask(self) -> None:
        last = len(self._entries) - KEEP_STEPS
        while self._masked < last and self.tokens > self.max_tokens * MASK_TO:
            record, messages = self._entries[self._masked]
            if isinstance(record, Step):
                shorter = self._format.write(mask(record))
                self.tokens += _tokens(shorter) - _tokens(messages)
                self._entries[self._masked] = (record, shorter)
            self._masked += 1


def task_text(task: str, data: Sequence[DataFile]) -> str:
    """Return the message that begins a run. The offline analyst reads this form, too."""
    text = f"<task>\n{task}\n</task>"
    if data:
        files = "\n".join(f"- {f.path} ({f.kind}, {size_text(f.bytes)})" for f in data)
        text += f"\n\nData files, relative to the working directory:\n{files}"
    return text


def size_text(size: int) -> str:
    """Return a number of bytes as a person writes it.

    Examples
    --------
    >>> size_text(15_240)
    '15.2 kB'
    """
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError("unreachable")


def mask(step: Step) -> Step:
    """Return the step with its observation replaced by one line that says what it held."""
    text = step.observation.text
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")[:160]
    line = f"{first} [… {len(text):,} characters; outputs[{step.number}] has the full text]"
    shorter = line if len(line) < len(text) else text
    return dataclasses.replace(step, observation=Observation(text=shorter, shortened=True))


def _ending(stop: RunStop) -> tuple[Message, ...]:
    if stop.status is ExitStatus.ANSWERED:
        return ()
    return (Message(role="user", content=f"(That run ended without an answer: {stop.message})"),)


def _tokens(messages: Sequence[Message]) -> int:
    chars = sum(len(m.content) + sum(len(c.arguments) for c in m.tool_calls) for m in messages)
    return int(chars / CHARS_PER_TOKEN) + IMAGE_TOKENS * sum(len(m.images) for m in messages)
