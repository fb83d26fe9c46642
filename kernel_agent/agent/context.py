"""The context: the records of a session as messages, within an allowance of tokens.

Pure: records in, messages out. The conversation only grows at its end, so that the prefix stays
the same to the byte and the endpoint's prompt cache hits. When it outgrows its allowance,
:meth:`Context.relief` proposes a :class:`~kernel_agent.records.Condensation`, which takes effect
when it is added like any other record. So the trace says how the conversation was shortened, and
the same records always give the same conversation.

The ladder, each rung only when the one before is not enough (``docs/context.md``):

1. the observations of the oldest steps become one line each, solved errors the shortest;
2. the oldest steps become a summary;
3. the observations that are left are cut.

Each goes down to half of the allowance at once: many steps in one stride, so that the prefix
changes rarely. The task, the plan, the variables that live and the last steps stay. Nothing is
lost: ``outputs[k]`` is the whole text in the kernel, ``outputs.code(k)`` the code, and the trace
has both.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kernel_agent.agent.summary import (
    by_rules,
    describe_ending,
    describe_observation,
    plan_in,
    request,
)
from kernel_agent.agent.task import run_text
from kernel_agent.formats import Format, get_format
from kernel_agent.records import (
    Code,
    Condensation,
    FormatChange,
    Message,
    Observation,
    Record,
    RunStart,
    RunStop,
    Step,
    Undone,
    Usage,
    Variables,
    drop_undone,
    model_text,
)
from kernel_agent.safe import one_line
from kernel_agent.tools import mark_like, shorten_marked

BYTES_PER_TOKEN = 3.5  # of UTF-8; on the careful side for English, code and Chinese alike
MESSAGE_TOKENS = 4  # a role and its marks
IMAGE_TOKENS = 800  # about what endpoints charge for a 768-pixel picture
RELIEF_TO = 0.5  # shorten down to this share of the allowance, so that it is done rarely
CROWDED = 0.75  # above this share after masking, masking is not enough
KEEP_STEPS = 3  # the last steps stay as they are
OBSERVATION_SHARE = 1 / 12  # of the allowance, for one observation: a stride is several steps
SUMMARY_SHARE = 0.1  # of the allowance, for a summary
NOTE_SHARE = 0.05  # of the allowance, for the list of variables
MIN_OBSERVATION = 1000  # characters that a new observation may have, however small the window
MIN_SHORTENED = 200  # characters that are left of an observation at least
REPLY_TOKENS = 4096  # of a model's window that are left for its reply
CALIBRATE_FROM = 2000  # tokens; below, what an endpoint adds to every request weighs too much
MAX_RATIO = 8.0


@dataclass
class _Entry:
    """A record in the conversation, and how it stands there now."""

    record: Record
    messages: tuple[Message, ...]
    tokens: int
    level: Literal["whole", "shortened", "masked"] = "whole"

    @property
    def number(self) -> int:
        """The step's number; 0 for other records."""
        return self.record.number if isinstance(self.record, Step) else 0


class Context:
    """The messages of one session.

    Parameters
    ----------
    system_prompt
        The first message; the same for the whole session.
    format
        How steps are written down.
    max_tokens
        The allowance for all messages together.
    """

    def __init__(self, system_prompt: str, format: Format, *, max_tokens: int) -> None:  # noqa: A002 - the project's word
        self._first = (system_prompt, format)
        self._ratio = self._least_ratio = 1.0  # real tokens per estimated one
        self.max_tokens = max_tokens
        self._begin()

    def _begin(self) -> None:
        """Reset to an empty conversation."""
        system_prompt, self._format = self._first
        self.records: list[Record] = []  # all that was added, but for what was undone
        self._system = Message(role="system", content=system_prompt)
        self._head: Message | None = None  # what stands for the entries that are gone
        self._head_task: RunStart | None = None  # the task that stands in it
        self._entries: list[_Entry] = []
        self._start: RunStart | None = None  # of the current run
        self._plan = ""
        self._last_step = 0
        self._estimate = _tokens([self._system])
        self.variables = Variables()
        """The kernel's variables, as far as they were reported."""
        self.summary = ""
        """The summary of the steps that are gone."""

    @property
    def tokens(self) -> int:
        """The estimated length of all messages, corrected by what the endpoint has counted."""
        return int(self._estimate * self._ratio)

    @property
    def has_steps(self) -> bool:
        """Whether there is more than the instructions and the task."""
        return self._head is not None or any(entry.number for entry in self._entries)

    @property
    def observation_chars(self) -> int:
        """Characters that one observation may have, so that the conversation holds several."""
        return max(self._chars(OBSERVATION_SHARE), MIN_OBSERVATION)

    def messages(self) -> list[Message]:
        """Return the conversation so far."""
        head = [self._head] if self._head else []
        return [self._system, *head, *(m for entry in self._entries for m in entry.messages)]

    def add(self, record: Record) -> None:
        """Append a record, or shorten as it says; called once for each record, in order."""
        if isinstance(record, Undone):
            self._undo(record)
        self.records.append(record)
        if isinstance(record, Condensation):
            self._apply(record)
            return
        if isinstance(record, FormatChange):
            self._rewrite(record)
            return
        if isinstance(record, RunStart):
            self._start, self._plan = record, ""
            self.variables.apply(record.changes, self._last_step)
        elif isinstance(record, Step):
            self._note(record)
        self._say(record)

    def _say(self, record: Record) -> None:
        self._entries.append(_entry(record, self._format))
        self._estimate += self._entries[-1].tokens

    def _undo(self, undone: Undone) -> None:
        """Rebuild the conversation from the records that still hold."""
        kept = drop_undone(self.records, undone)
        self._begin()
        for record in kept:
            if isinstance(record, Undone):  # what it took out is out already
                self.records.append(record)
                self._say(record)
                self.variables.apply(record.changes, record.first - 1)
            else:
                self.add(record)
        self.variables.apply(undone.changes, undone.first - 1)

    def _rewrite(self, change: FormatChange) -> None:
        """Write the whole conversation in another format; what was masked stays masked."""
        self._format = get_format(change.format)
        self._system = Message(role="system", content=change.system_prompt)
        self._entries = [self._rewrite_entry(entry) for entry in self._entries]
        self._estimate = self._sum()

    def _rewrite_entry(self, entry: _Entry) -> _Entry:
        if not isinstance(entry.record, Step):
            return entry
        if entry.level == "masked":
            _, mark, note = entry.messages[-1].content.partition(_NOTE)
            return self._mask_entry(entry, mark + note)
        return _entry(entry.record, self._format)

    def _note(self, step: Step) -> None:
        self._last_step = step.number
        self._plan = plan_in(step, self._plan)
        if step.result is not None:
            if step.result.status == "dead":
                self.variables.clear()
            self.variables.apply(step.result.changes, step.number)

    # --- what is known of the allowance ------------------------------------------------------

    def calibrate(self, usage: Usage) -> None:
        """Correct the estimate by the endpoint's count of the messages as they are now."""
        if not usage.estimated and usage.prompt_tokens and self._estimate >= CALIBRATE_FROM:
            counted = usage.prompt_tokens / self._estimate
            self._ratio = min(max(counted, self._least_ratio), MAX_RATIO)

    def overflow(self, *, limit_tokens: int | None = None, used_tokens: int | None = None) -> None:
        """Note that the endpoint found the conversation too long.

        Parameters
        ----------
        limit_tokens
            What it accepts, if it said so.
        used_tokens
            What it counted, if it said so.
        """
        counted = used_tokens or limit_tokens or 0  # it was more than the limit, at any rate
        self._count_at_least(counted / self._estimate)
        if limit_tokens:
            self._fit_into(limit_tokens)
        if self.tokens <= self.max_tokens:  # no limit was named, or our count is still off
            self.max_tokens = max(self.tokens // 2, 1)

    def note_window(
        self, window_tokens: int, *, prompt_tokens: int, beside: Sequence[Message] = ()
    ) -> None:
        """Note the size of the model's window, which a reply has filled.

        Parameters
        ----------
        window_tokens
            Prompt and reply together.
        prompt_tokens
            What the endpoint counted for the messages as they are now.
        beside
            What was sent with them that time only.
        """
        self._count_at_least(prompt_tokens / (self._estimate + _tokens(beside)))
        self._fit_into(window_tokens)

    def _count_at_least(self, ratio: float) -> None:
        self._least_ratio = min(max(ratio, self._least_ratio), MAX_RATIO)
        self._ratio = max(self._ratio, self._least_ratio)

    def _fit_into(self, window_tokens: int) -> None:
        room = window_tokens - min(REPLY_TOKENS, window_tokens // 4)
        self.max_tokens = min(self.max_tokens, room)

    # --- what to shorten ---------------------------------------------------------------------

    def relief(self, reason: str = "it had outgrown its allowance") -> Condensation | None:
        """Return what to shorten now, or None when the conversation fits or cannot be shortened.

        Called before each request, and again until it returns None; each result is added. The
        text of a summary is by rules and may be replaced by a better one.
        """
        if self.tokens <= self.max_tokens:
            return None
        for keep in (KEEP_STEPS, 1):
            for rung in self._ladder(keep):
                if rung is not None and (after := self._after(rung)) < self.tokens:
                    return dataclasses.replace(
                        rung, reason=reason, tokens_before=self.tokens, tokens_after=after
                    )
        return None

    def _ladder(self, keep: int) -> tuple[Condensation | None, ...]:
        """Return the ways to shorten, in the order in which they are tried."""
        masking = self._masking(keep)
        if masking and self._after(masking) <= CROWDED * self.max_tokens:
            return (masking,)
        old = sum(self._mask_entry(entry).tokens for entry in self._old_steps(keep))
        if old > self._target / 2:  # it is the many old steps, and not the last ones
            return (self._summarising(keep), masking, self._shortening())
        return (masking, self._shortening(), self._summarising(keep))

    @property
    def _target(self) -> float:
        """Length to which the conversation is shortened, in estimated tokens."""
        return self.max_tokens * RELIEF_TO / self._ratio

    def _old_steps(self, keep: int) -> list[_Entry]:
        steps = [entry for entry in self._entries if entry.number]
        return steps[:-keep]

    def _masking(self, keep: int) -> Condensation | None:
        old = [entry for entry in self._old_steps(keep) if entry.level != "masked"]
        estimate, last = self._estimate, 0
        for entry in old:
            estimate += self._mask_entry(entry).tokens - entry.tokens
            last = entry.number
            if estimate <= self._target:
                break
        return self._condensation("masked", old[0].number, last) if old else None

    def _summarising(self, keep: int) -> Condensation | None:
        old = self._old_steps(keep)
        if not old:
            return None
        estimate = self._estimate + self.summary_chars / BYTES_PER_TOKEN
        last = 0
        for entry in self._entries[: self._entries.index(old[-1]) + 1]:
            estimate -= entry.tokens if entry.record is not self._start else 0
            last = entry.number or last
            if last and estimate <= self._target:
                break
        text = by_rules(self.leaving(last), earlier=self.summary, max_chars=self.summary_chars)
        made = self._condensation("summarised", old[0].number, last)
        return dataclasses.replace(made, text=text, by="rules")

    def _shortening(self) -> Condensation | None:
        left = [entry for entry in self._entries if entry.number and entry.level != "masked"]
        texts = [_get_observation(entry).text for entry in left]
        size = sum(len(text.encode("utf-8", "replace")) for text in texts)
        if not size:
            return None
        room = self._target - (self._estimate - size / BYTES_PER_TOKEN)
        share = max(room, 0) * BYTES_PER_TOKEN / size  # of the text that may stay
        max_chars = max(int(share * sum(map(len, texts)) / len(left)), MIN_SHORTENED)
        made = self._condensation("shortened", left[0].number, left[-1].number)
        return dataclasses.replace(made, max_chars=max_chars)

    def _condensation(
        self, kind: Literal["masked", "summarised", "shortened"], first: int, last: int
    ) -> Condensation:
        run_id = self._start.run_id if self._start else ""
        note = self._chars(NOTE_SHARE)
        return Condensation(run_id=run_id, kind=kind, first=first, last=last, max_chars=note)

    def _after(self, condensation: Condensation) -> int:
        trial = copy.copy(self)
        trial._entries = list(self._entries)  # noqa: SLF001 - it is one of us
        trial._apply(condensation)  # noqa: SLF001
        return trial.tokens

    # --- summaries ---------------------------------------------------------------------------

    @property
    def summary_chars(self) -> int:
        """Characters that a summary may have."""
        return self._chars(SUMMARY_SHARE)

    def _chars(self, share: float) -> int:
        return int(self.max_tokens * share * BYTES_PER_TOKEN / self._ratio)

    def leaving(self, last: int) -> list[Record]:
        """Return the records that a summary up to step ``last`` replaces, in order."""
        gone = [entry.record for entry in self._entries[: self._index_after(last)]]
        stays = self._start
        if self._head_task is not None and any(record is stays for record in gone):
            gone.insert(0, self._head_task)  # an earlier run's: a newer task takes its place
        return [record for record in gone if record is not stays]

    def summary_request(self, last: int) -> list[Message]:
        """Return the request to a model for a summary of the steps up to ``last``."""
        records = self.leaving(last)
        return request(records, earlier=self.summary, max_chars=self._chars(RELIEF_TO))

    # --- shortening --------------------------------------------------------------------------

    def _apply(self, done: Condensation) -> None:
        if done.kind == "masked":
            self._mask(done.last, self._note_on_variables(done.max_chars))
        elif done.kind == "summarised":
            self._summarise(done.last, done.text, self._note_on_variables(done.max_chars))
        else:
            self._shorten_steps(done.first, done.last, done.max_chars)
        self._estimate = self._sum()

    def _sum(self) -> int:
        """Return the estimated length of all messages as they are now."""
        head = _tokens([self._head]) if self._head else 0
        return _tokens([self._system]) + head + sum(entry.tokens for entry in self._entries)

    def _mask(self, last: int, note: str) -> None:
        """Mask the steps up to ``last``; the last of them carries the note on the variables."""
        for index, entry in enumerate(self._entries):
            if not entry.number or entry.number > last:
                continue
            carried_one = entry.level == "masked" and _NOTE in entry.messages[-1].content
            if entry.level != "masked" or carried_one or entry.number == last:
                self._entries[index] = self._mask_entry(entry, note if entry.number == last else "")

    def _mask_entry(self, entry: _Entry, note: str = "") -> _Entry:
        step = entry.record
        assert isinstance(step, Step)
        solved = any(
            isinstance(e.record, Step) and e.record.ok and e.number > step.number
            for e in reversed(self._entries)
        )
        told = "\n".join(filter(None, (mask(step, solved), note)))
        made = _entry(_with_text(step, told), self._format)
        return dataclasses.replace(made, record=step, level="masked")

    def _summarise(self, last: int, text: str, note: str) -> None:
        end = self._index_after(last)
        if any(entry.record is self._start for entry in self._entries[:end]):
            self._head_task = self._start
        self.summary = text
        steps = [e.record for e in self._entries[:end] if isinstance(e.record, Step)]
        gone = [step.observation.text for step in steps]
        text = mark_like(text, [*gone, self._head.content if self._head else ""])
        self._entries = self._entries[end:]
        where = (
            f"<earlier>\nThe steps up to step {last} are not shown. `outputs[k]` in the kernel is "
            "the full text of what step k showed, `outputs.code(k)` its code."
        )
        parts = [
            run_text(self._head_task) if self._head_task else "",
            where,
            text,
            f"Plan:\n{self._plan}" if self._plan else "",
            f"{note}\n</earlier>",
        ]
        self._head = Message(role="user", content="\n\n".join(filter(None, parts)))

    def _shorten_steps(self, first: int, last: int, max_chars: int) -> None:
        for index, entry in enumerate(self._entries):
            step = entry.record
            if not isinstance(step, Step) or entry.level == "masked":
                continue
            if first <= step.number <= last and len(step.observation.text) > max_chars:
                cut = shorten_marked(step.observation.text, max_chars, where=_where(step))
                made = _entry(_with_text(step, cut), self._format)
                self._entries[index] = dataclasses.replace(made, record=step, level="shortened")

    def _index_after(self, last: int) -> int:
        return 1 + max(
            (i for i, entry in enumerate(self._entries) if 0 < entry.number <= last), default=-1
        )

    def _note_on_variables(self, max_chars: int) -> str:
        return f"{_NOTE}{self._last_step}: {self.variables.listing(max_chars=max_chars)}"


_NOTE = "Variables after step "


def mask(step: Step, solved: bool = False) -> str:  # noqa: FBT001, FBT002 - the one thing to say
    """Return the line that replaces an observation: what it held, and how to reopen it.

    Parameters
    ----------
    step
        The step.
    solved
        Whether a later step ran: then what went wrong in this one needs no more than its name.
    """
    text = step.observation.text
    error = step.result.error if step.result else None
    if error is not None and solved:
        line = f"[{one_line(f'{error.ename}: {error.evalue}', 160)} (solved since)]"
        return line if len(line) < len(text) else text
    where = _where(step)
    line = f"[{describe_observation(step)}{'; ' + where if where else ''}]"
    # A few lines with the result in them are worth more than the room that they take.
    return line if 2 * len(line) < len(text) else text


def _where(step: Step) -> str:
    """Say where the full text is: in the kernel, if the step was a cell."""
    return f"outputs[{step.number}] holds the full text" if isinstance(step.action, Code) else ""


def _with_text(step: Step, text: str) -> Step:
    """Return a step as the conversation has it from now on: other text, no pictures."""
    observation = Observation(text=text, shortened=True)
    return dataclasses.replace(step, observation=observation)


def _entry(record: Record, format: Format) -> _Entry:  # noqa: A002 - the project's word
    """Return the conversation's entry for a record."""
    if isinstance(record, RunStart):
        messages: tuple[Message, ...] = (Message(role="user", content=run_text(record)),)
    elif isinstance(record, Step):
        messages = format.write(record)
    else:
        text = describe_ending(record) if isinstance(record, RunStop) else ""
        if isinstance(record, Undone):
            text = model_text(record)
        messages = (Message(role="user", content=text),) if text else ()
    return _Entry(record=record, messages=messages, tokens=_tokens(messages))


def _get_observation(entry: _Entry) -> Observation:
    assert isinstance(entry.record, Step)
    return entry.record.observation


def _tokens(messages: Sequence[Message]) -> int:
    texts = (t for m in messages for t in (m.content, *(c.arguments for c in m.tool_calls)))
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    pictures = sum(len(message.images) for message in messages)
    return int(size / BYTES_PER_TOKEN) + MESSAGE_TOKENS * len(messages) + IMAGE_TOKENS * pictures
