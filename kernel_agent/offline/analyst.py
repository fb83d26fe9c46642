"""The analyst: a question becomes two or three cells, which look, and then answer.

:func:`work` is the whole story. It is a generator that yields cells and is sent observations. As a
model is asked anew at every turn with the messages so far, :class:`OfflineAnalyst` keeps no state:
it tells the story again from its beginning, answering each cell with the observation that is already
there, until it comes to the one that is not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

from kernel_agent.errors import ModelError
from kernel_agent.formats import Format
from kernel_agent.offline.cells import Cell, answer
from kernel_agent.offline.conversation import Conversation, File, failure, read_conversation
from kernel_agent.offline.grammar import Reading, Refused, read
from kernel_agent.offline.offers import offers
from kernel_agent.offline.table import (
    Table,
    dates_code,
    is_table,
    look_code,
    read_code,
    read_look,
    variable_for,
    with_dates,
)
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
    "I am the offline analyst: rules, not a language model. I answer five kinds of plain question"
    " about a table, and refuse the others."
)
_CONFIGURE = "--model NAME --base-url URL, with the key in OPENAI_API_KEY"
_MOST_FILES = 6


class OfflineAnalyst:
    """A first look at a table by fixed rules, in a model's place: no network, no key, no guess.

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
            The question is refused or the file cannot be read; the message says why, what is
            answered, and how to configure a model.
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
    return cell


def work(conversation: Conversation) -> Generator[Cell, str, None]:
    """Yield the run's cells: read the tables and look, find the dates, answer."""
    files = [file for file in conversation.files if is_table(file)]
    named = [file for file in files if file.path.rpartition("/")[2] in conversation.question]
    files = (named or files)[:_MOST_FILES]
    if not files:
        raise ModelError(
            "The offline analyst answers questions about tables (CSV, TSV, JSON, Parquet, Excel) and"
            f" was given none: add one with --data FILE, or configure a model: {_CONFIGURE}."
        )
    code = "\n\n".join(f"{read_code(f)}\n{look_code(variable_for(f.path))}" for f in files)
    paths = " and ".join(file.path for file in files)
    seen = yield Cell(
        thought=f"{INTRODUCTION}\n\nFirst I load {paths} and look at the columns.",
        code=f"import pandas as pd\n\n{code}",
    )
    tables = [_table(file, seen) for file in files]
    for at, table in enumerate(tables):
        if code := dates_code(table):
            seen = yield Cell(thought=f"I look which columns of {table.path} hold dates.", code=code)
            tables[at] = with_dates(table, seen)
    question = conversation.question
    for file in named:
        question = question.replace(file.path, " ").replace(file.path.rpartition("/")[2], " ")
    table, reading = _choose(question, tables)
    cell = answer(reading, table)
    chosen = f"I use {table.path}. " if len(tables) > 1 else ""
    yield replace(cell, thought=f"{chosen}{cell.thought}")


def _table(file: File, observation: str) -> Table:
    table, failed = read_look(observation, file), failure(observation)
    if table is None or failed:
        raise ModelError(_unreadable(file, failed or ("no table", "nothing was printed")))
    if not table.rows or not table.width:
        raise ModelError(f"{file.path} has no rows; give a table with a header line and rows.")
    return table


def _choose(question: str, tables: Sequence[Table]) -> tuple[Table, Reading]:
    """Return the one table about which the question can be read, and its reading."""
    found: list[tuple[Table, Reading]] = []
    refused: list[tuple[Table, Refused]] = []
    for table in tables:
        try:
            found.append((table, read(question, table)))
        except Refused as reason:
            refused.append((table, reason))
    if len(found) == 1:
        return found[0]
    if found:
        paths = " and ".join(table.path for table, _ in found)
        raise ModelError(_refusal(f"{paths} both fit, and it names neither file", found[0][0]))
    table, reason = max(refused, key=lambda one: len(one[1].readings))
    raise ModelError(_refusal(str(reason), table, reason.readings)) from None


def _refusal(reason: str, table: Table, readings: tuple[Reading, ...] = ()) -> str:
    asked = " ".join(f"“{question}”" for question in offers(table, readings))
    return (
        f"The offline analyst does not answer this question: {reason}. It does answer, of"
        f" {table.path}: {asked} For free questions configure a model: {_CONFIGURE}."
    )


def _unreadable(file: File, failed: tuple[str, str]) -> str:
    kind, message = failed[0], " ".join(failed[1].split())[:200]
    if kind == "GuardError":
        return f"The guard stopped a cell of the offline analyst, which needs pandas: {message}"
    if kind in ("ImportError", "ModuleNotFoundError") and "pandas" in message:
        return (
            f"The offline analyst needs pandas and cannot work in this kernel ({message}): take"
            " another sandbox level than interpreter, or configure a model (--model NAME)."
        )
    if kind in ("ImportError", "ModuleNotFoundError"):
        return (
            f"Reading {file.path} needs a package that is not installed where the kernel runs"
            f" ({message})."
        )
    if kind == "KeyboardInterrupt":
        return f"Reading {file.path} was interrupted; allow a cell more time (--cell-seconds)."
    return f"{file.path} cannot be read as a table ({kind}: {message}); check or convert the file."
