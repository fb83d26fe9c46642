"""The analyst: turn a task into a sequence of cells.

:func:`work` is the whole story: load, look, understand, solve. It is a generator that yields
cells and is sent observations. As a model is asked anew at every turn with the messages so far,
:class:`OfflineAnalyst` keeps no state: it tells the story again from its beginning, answering
each cell with the observation that is already there, until it comes to the one that is not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

from kernel_agent.errors import ModelError, NotUnderstoodError
from kernel_agent.formats import Format
from kernel_agent.offline.cells import Cell, fit_lines
from kernel_agent.offline.conversation import Conversation, failure, read_conversation
from kernel_agent.offline.loading import load, variable_for
from kernel_agent.offline.looking import closer_look, values_look
from kernel_agent.offline.printed import look_again, read_named, read_tables
from kernel_agent.offline.question import Question
from kernel_agent.offline.reader import NotUnderstood
from kernel_agent.offline.recipes import solve
from kernel_agent.offline.schema import Table, split_name
from kernel_agent.offline.suggestions import suggest
from kernel_agent.offline.understanding import understand
from kernel_agent.records import (
    Event,
    Message,
    ModelWindow,
    Reply,
    ReplyText,
    RequestOptions,
    Usage,
)

INTRODUCTION = (
    "I am the offline analyst: rules, not a language model. I answer plain questions about a table"
    " and say so when I do not understand one."
)
_CONFIGURE = "--model NAME --base-url URL, with the key in OPENAI_API_KEY"
_MOST_FILES = 6


class OfflineAnalyst:
    """A deterministic, rule-based stand-in for a model: no network, no key, nothing guessed.

    Parameters
    ----------
    format
        How the replies are written down; only its ``compose`` is used.

    Examples
    --------
    >>> from kernel_agent.offline import OfflineAnalyst
    >>> OfflineAnalyst.name
    'offline'
    """

    name = "offline"
    accepts_images = False
    writes_prose = False
    window: ModelWindow | None = None
    endpoint: object = ""
    answers_no_prompts = (
        f"the offline analyst writes code by rules and answers no prompts: configure a model with "
        f"{_CONFIGURE}"
    )

    def __init__(self, format: Format) -> None:  # noqa: A002 - the project's word for it
        self._format = format

    async def prepare(self) -> None:
        """Do nothing: there is nothing to load."""

    async def complete(
        self,
        messages: Sequence[Message],
        options: RequestOptions,  # noqa: ARG002 - rules need no response format
        on_event: Callable[[Event], None],
    ) -> Reply:
        """Return the next cell for the conversation so far; see :class:`~..base.Model`.

        Raises
        ------
        ModelError
            The question is not understood or the file cannot be read; the message says what is
            understood and how to configure a model.
        """
        cell = next_cell(read_conversation(messages))
        for line in cell.thought.splitlines(keepends=True):
            on_event(ReplyText(text=line))
        content = self._format.compose(thought=cell.thought, code=cell.code)
        on_event(ReplyText(text=f"\n\n{cell.code}\n"))
        return Reply(content=content, finish_reason="stop", usage=Usage(calls=1))

    async def close(self) -> None:
        """No-op: there is nothing to release."""


def next_cell(conversation: Conversation) -> Cell:
    """Return the cell that comes after the observations so far.

    Raises
    ------
    ModelError
        The story ends here without an answer; the message says why.
    """
    story = work(conversation)
    try:
        cell = next(story)
        for observation in conversation.observations:
            cell = story.send(observation)
    except StopIteration:
        failed = failure(conversation.observations[-1])
        why = f" ({failed[0]}: {failed[1]})" if failed else ""
        raise ModelError(
            f"The offline analyst has nothing more to do, but no answer was given{why};"
            " ask in another way."
        ) from None
    return replace(cell, code=fit_lines(cell.code))


def work(conversation: Conversation) -> Generator[Cell, str, None]:
    """Yield the run's cells: load what is not loaded yet, look, understand, solve."""
    if not conversation.files:
        raise ModelError(
            "The offline analyst answers questions about tables and was given none: add one with"
            f" --data FILE, or configure a model: {_CONFIGURE}."
        )
    yield from _greet(_story(conversation), f"{INTRODUCTION}\n\n")


def _story(conversation: Conversation) -> Generator[Cell, str, None]:
    known = read_tables(conversation.earlier)
    tables: list[Table] = []
    for path in _named_first(conversation):
        table = known.get(variable_for(path))
        if table is None:
            first = not known and not tables
            table = yield from load(path, conversation.question, first=first)
        elif not table.complete:
            table = look_again(table, (yield closer_look(table, conversation.question)))
        tables.append(replace(table, path=path))
    question, table, failed = _choose(conversation.question, tables)
    for at, candidate in enumerate(tables):
        cell = values_look(candidate, conversation.question)
        if cell and (question is None or candidate is table):
            tables[at] = candidate.naming(read_named((yield cell)))
    question, table, failed = _choose(conversation.question, tables)
    if question is None:
        raise NotUnderstoodError(_refusal(failed, table))
    chosen = f"The question fits {table.path}, so I use that table. " if len(tables) > 1 else ""
    yield from _greet(solve_or_refuse(question, table), chosen)


def _named_first(conversation: Conversation) -> tuple[str, ...]:
    """Return the files to look at: those that the question names, else all of them."""
    words = set(split_name(conversation.question))
    named = [
        path
        for path in conversation.files
        if path.lower() in conversation.question.lower()
        or path.rpartition("/")[2].lower() in conversation.question.lower()
        or set(split_name(path.rpartition("/")[2].split(".")[0])) <= words
    ]
    return tuple(named or conversation.files)[:_MOST_FILES]


def _choose(text: str, tables: list[Table]) -> tuple[Question | None, Table, str]:
    """Return the first table that the question is understood against, or why the first is not."""
    reasons: list[str] = []
    for table in tables:
        try:
            return understand(text, table), table, ""
        except NotUnderstood as reason:
            reasons.append(str(reason))
    return None, tables[0], reasons[0]


def _greet(cells: Generator[Cell, str, None], greeting: str) -> Generator[Cell, str, None]:
    """Put the greeting before the first thought."""
    cell = next(cells)
    observation = yield replace(cell, thought=greeting + cell.thought)
    while True:
        try:
            cell = cells.send(observation)
        except StopIteration:
            return
        observation = yield cell


def solve_or_refuse(question: Question, table: Table) -> Generator[Cell, str, None]:
    """Solve the question; what only shows in the data to be unclear is refused like any other."""
    try:
        yield from solve(question, table)
    except NotUnderstood as reason:
        raise NotUnderstoodError(_refusal(str(reason), table)) from None


def _refusal(part: str, table: Table) -> str:
    names = [c.name for c in table.columns] + list(table.others)
    listed = ", ".join(names[:40]) + (f", … ({table.width:,} in all)" if table.width > 40 else "")
    sheet = f" {table.other_sheets}" if table.other_sheets else ""
    examples = " ".join(f"“{question}”" for question in suggest(table))
    return (
        f"The offline analyst did not understand this question: {part}. It would understand, for"
        f" example: {examples} Columns of {table.path}: {listed}.{sheet} For free questions"
        f" configure a model: {_CONFIGURE}."
    )
