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
from typing import Literal

from kernel_agent.agent.entries import (
    Entry,
    earlier,
    index_after,
    make_entry,
    mask,
    where_is,
    with_text,
)
from kernel_agent.agent.measure import BYTES_PER_TOKEN, Measure, Size, size_of
from kernel_agent.agent.summary import (
    by_rules,
    dialogue,
    newest,
    plan_in,
    request,
)
from kernel_agent.formats import Format, get_format
from kernel_agent.records import (
    Condensation,
    FormatChange,
    Message,
    Record,
    RunStart,
    Step,
    Undone,
    Usage,
    Variables,
    drop_undone,
)
from kernel_agent.tools import mark_like, shorten_marked

RELIEF_TO = 0.5  # shorten down to this share of the allowance, so that it is done rarely
CROWDED = 0.75  # above this share after masking, masking is not enough
_NOTE = "Variables after step "
KEEP_STEPS = 3  # the last steps stay as they are
OBSERVATION_SHARE = 1 / 12  # of the allowance, for one observation: a stride is several steps
SUMMARY_SHARE = 0.1  # of the allowance, for a summary
NOTE_SHARE = 0.05  # of the allowance, for the list of variables
DIALOGUE_SHARES = 3  # of those, for the questions and answers that a summary stands behind
MIN_OBSERVATION = 1000  # characters that a new observation may have, however small the window
MIN_SHORTENED = 200  # characters that are left of an observation at least
REPLY_TOKENS = 4096  # of a model's window that are left for its reply


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
        self._measure = Measure()
        self.max_tokens = max_tokens
        self._begin()

    def _begin(self) -> None:
        """Reset to an empty conversation."""
        system_prompt, self._format = self._first
        self.records: list[Record] = []  # all that was added, but for what was undone
        self._system = Message(role="system", content=system_prompt)
        self._head: Message | None = None  # what stands for the entries that are gone
        self._head_task: RunStart | None = None  # the task that stands in it
        self._entries: list[Entry] = []
        self._start: RunStart | None = None  # of the current run
        self._plan = ""
        self._last_step = 0
        self._size = size_of([self._system])
        self._dialogue: tuple[str, ...] = ()  # questions and answers that a summary stands behind
        self.variables = Variables()
        """The kernel's variables, as far as they were reported."""
        self.summary = ""
        """The summary of the steps that are gone."""

    @property
    def tokens(self) -> int:
        """The estimated length of all messages, corrected by what the endpoint has counted."""
        return int(self._measure.tokens(self._size))

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
        self._entries.append(make_entry(record, self._format))
        self._size += self._entries[-1].size

    def _undo(self, undone: Undone) -> None:
        """Rebuild the conversation from the records that still hold."""
        kept = drop_undone(self.records, undone)
        self._begin()
        for record in kept:
            if isinstance(record, Undone):  # what it took out is out already
                self.records.append(record)
                self._say(record)
                self.variables.settle(record.changes, record.first - 1)
            else:
                self.add(record)
        self.variables.settle(undone.changes, undone.first - 1)

    def _rewrite(self, change: FormatChange) -> None:
        """Write the whole conversation in another format; what was masked stays masked."""
        self._format = get_format(change.format)
        self._system = Message(role="system", content=change.system_prompt)
        self._entries = [self._rewrite_entry(entry) for entry in self._entries]
        self._size = self._sum()

    def _rewrite_entry(self, entry: Entry) -> Entry:
        if not isinstance(entry.record, Step):
            return entry
        if entry.level == "masked":
            _, mark, note = entry.messages[-1].content.partition(_NOTE)
            return self._mask_entry(entry, mark + note)
        return make_entry(entry.record, self._format)

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
        if not usage.estimated and usage.prompt_tokens:
            self._measure.correct(self._size, usage.prompt_tokens)

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
        self._measure.prove(self._size, counted)
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
        self._measure.prove(self._size + size_of(beside), prompt_tokens)
        self._fit_into(window_tokens)

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
        masked = (self._mask_entry(entry).size for entry in self._old_steps(keep))
        old = sum(map(self._measure.tokens, masked))
        if old > self._target / 2:  # it is the many old steps, and not the last ones
            return (self._summarising(keep), masking, *self._shortening())
        return (masking, *self._shortening(), self._summarising(keep))

    @property
    def _target(self) -> float:
        """Length to which the conversation is shortened, in tokens."""
        return self.max_tokens * RELIEF_TO

    def _old_steps(self, keep: int) -> list[Entry]:
        steps = [entry for entry in self._entries if entry.number]
        return steps[:-keep]

    def _masking(self, keep: int) -> Condensation | None:
        old = [entry for entry in self._old_steps(keep) if entry.level != "masked"]
        tokens, length, last = self._measure.tokens, float(self.tokens), 0
        for entry in old:
            length += tokens(self._mask_entry(entry).size) - tokens(entry.size)
            last = entry.number
            if length <= self._target:
                break
        return self._condensation("masked", old[0].number, last) if old else None

    def _summarising(self, keep: int) -> Condensation | None:
        old = self._old_steps(keep)
        if not old:
            return None
        length = self.tokens + self.max_tokens * SUMMARY_SHARE
        last = 0
        for entry in self._entries[: self._entries.index(old[-1]) + 1]:
            length -= self._measure.tokens(entry.size) if entry.record is not self._start else 0
            last = entry.number or last
            if last and length <= self._target:
                break
        text = by_rules(self.leaving(last), earlier=self.summary, max_chars=self.summary_chars)
        made = self._condensation("summarised", old[0].number, last)
        return dataclasses.replace(made, text=text, by="rules")

    def _shortening(self) -> list[Condensation]:
        """Cut what is left of observations alike; the newest never below its ordinary bound."""
        left = [entry for entry in self._entries if entry.number and entry.level != "masked"]
        if (even := self._cut_to(left)) >= self.observation_chars:
            return self._cutting(left, even)
        older = self._cutting(left[:-1], self._cut_to(left[:-1]))
        return [*older, *self._cutting(left[-1:], self.observation_chars)]

    def _cut_to(self, entries: list[Entry]) -> int:
        """Return the characters to which observations are cut, so that all is short enough."""
        texts = [entry.text for entry in entries if entry.number]
        room = self._target - self.tokens + self._measure.text_tokens(texts)
        return max(self._measure.characters(texts, room), MIN_SHORTENED)

    def _cutting(self, entries: list[Entry], max_chars: int) -> list[Condensation]:
        if not entries:
            return []
        made = self._condensation("shortened", entries[0].number, entries[-1].number)
        return [dataclasses.replace(made, max_chars=max_chars)]

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
        return int(self.max_tokens * share * BYTES_PER_TOKEN / self._measure.ratio)

    def leaving(self, last: int) -> list[Record]:
        """Return the records that a summary up to step ``last`` replaces, in order."""
        gone = [entry.record for entry in self._entries[: index_after(self._entries, last)]]
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
            self._summarise(done)
        else:
            self._shorten_steps(done.first, done.last, done.max_chars)
        self._size = self._sum()

    def _sum(self) -> Size:
        """Return the size of all messages as they are now."""
        head = [self._head] if self._head else []
        return sum((entry.size for entry in self._entries), size_of([self._system, *head]))

    def _mask(self, last: int, note: str) -> None:
        """Mask the steps up to ``last``; the last of them carries the note on the variables."""
        for index, entry in enumerate(self._entries):
            if not entry.number or entry.number > last:
                continue
            carried_one = entry.level == "masked" and _NOTE in entry.messages[-1].content
            if entry.level != "masked" or carried_one or entry.number == last:
                self._entries[index] = self._mask_entry(entry, note if entry.number == last else "")

    def _mask_entry(self, entry: Entry, note: str = "") -> Entry:
        step = entry.record
        assert isinstance(step, Step)
        solved = any(
            isinstance(e.record, Step) and e.record.ok and e.number > step.number
            for e in reversed(self._entries)
        )
        told = "\n".join(filter(None, (mask(step, solved), note)))
        made = make_entry(with_text(step, told), self._format)
        return dataclasses.replace(made, record=step, level="masked", cut=told)

    def _summarise(self, done: Condensation) -> None:
        end = index_after(self._entries, done.last)
        self._dialogue += tuple(filter(None, map(dialogue, self.leaving(done.last))))
        if any(entry.record is self._start for entry in self._entries[:end]):
            self._head_task = self._start
        self.summary = done.text
        said = newest(self._dialogue, max_chars=DIALOGUE_SHARES * done.max_chars)
        steps = [e.record for e in self._entries[:end] if isinstance(e.record, Step)]
        gone = [step.observation.text for step in steps]
        before = [*gone, self._head.content if self._head else ""]
        notes = mark_like("\n\n".join(filter(None, [said, done.text])), before)
        self._entries = self._entries[end:]
        self._head = earlier(
            done.last,
            task=self._head_task,
            notes=notes,
            plan=self._plan,
            variables=self._note_on_variables(done.max_chars),
        )

    def _shorten_steps(self, first: int, last: int, max_chars: int) -> None:
        for index, entry in enumerate(self._entries):
            step = entry.record
            if not isinstance(step, Step) or entry.level == "masked":
                continue
            if first <= step.number <= last and len(entry.text) > max_chars:
                cut = shorten_marked(step.observation.text, max_chars, where=where_is(step))
                made = make_entry(with_text(step, cut), self._format)
                self._entries[index] = dataclasses.replace(
                    made, record=step, level="shortened", cut=cut
                )

    def _note_on_variables(self, max_chars: int) -> str:
        return f"{_NOTE}{self._last_step}: {self.variables.listing(max_chars=max_chars)}"
