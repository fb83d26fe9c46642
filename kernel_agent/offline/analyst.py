"""The analyst: a question becomes two cells, one that looks and one that answers.

As a model is asked anew at every turn with the messages so far, :class:`OfflineAnalyst` keeps no
state: what to do next follows from the observations that are there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from kernel_agent.errors import ModelError
from kernel_agent.formats import Format
from kernel_agent.offline.cells import answer_code
from kernel_agent.offline.conversation import INTRODUCTION, Conversation, read_conversation
from kernel_agent.offline.grammar import Refused, read
from kernel_agent.offline.offers import offers, say
from kernel_agent.offline.table import Table, look_code, read_look, reader_of
from kernel_agent.records import (
    Event,
    Message,
    ModelWindow,
    Reply,
    ReplyText,
    RequestOptions,
    Usage,
)

_CONFIGURE = "--model NAME --base-url URL, with the key in OPENAI_API_KEY"
_FAILURE = re.compile(
    r"^(?:[a-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Interrupt|Exit|Invalid))\b(?:: ?(.*))?$",
    re.MULTILINE,
)


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
        thought, code = next_cell(read_conversation(messages))
        for line in thought.splitlines(keepends=True):
            on_event(ReplyText(text=line))
        on_event(ReplyText(text=f"\n\n{code}\n"))
        content = self._format.compose(thought=thought, code=code)
        return Reply(content=content, finish_reason="stop", usage=Usage(calls=1))

    async def close(self) -> None:
        """No-op: there is nothing to release."""


def next_cell(conversation: Conversation) -> tuple[str, str]:
    """Return the thought and the code that come after the observations so far.

    Raises
    ------
    ModelError
        There is no answer; the message says why.
    """
    path, question, others = _choose(conversation)
    if not conversation.observations:
        code = look_code(path, conversation.files[path])
        introduced = f"{INTRODUCTION}\n\nFirst " if conversation.is_first else ""
        return f"{introduced}I load {path} and look at its columns.", code
    look, *later = conversation.observations
    table = read_look(look)
    failed = [match for text in (look, *later) for match in _FAILURE.finditer(text)]
    if table is None or failed or later:
        said = f"{failed[-1][1]}: {failed[-1][2] or ''}" if failed else "no answer was given"
        raise ModelError(_failed(path, said.strip(": "), answering=bool(later)))
    if not table.rows or not table.width:
        raise ModelError(f"{path} has no rows: give a table with a header line and rows.")
    if others:
        refused = Refused(f"it does not name one of the files, {path}{''.join(others)}")
        raise ModelError(_refusal(refused, question, table, f" in {path}"))
    try:
        reading = read(question, table)
    except Refused as refused:
        raise ModelError(_refusal(refused, question, table)) from None
    return f"I read the question as: {say(reading, table)}", answer_code(reading, table)


def _choose(conversation: Conversation) -> tuple[str, str, list[str]]:
    """Return the file that is asked about, the question without its name, and the other files."""
    paths = [path for path in conversation.files if reader_of(path)]
    if not paths:
        raise ModelError(
            "The offline analyst answers questions about tables (CSV, TSV, JSON, Parquet, Excel)"
            f" and was given none: add one with --data FILE, or configure a model: {_CONFIGURE}."
        )
    for path in paths:
        name = path.rpartition("/")[2]
        stem = rf"(?:(?:in|of|from|for) )?(?:{re.escape(path)}|{re.escape(name)})(?!\w)"
        short = rf"(?:in|of|from|for) {re.escape(name.partition('.')[0])}(?!\w)"
        for named in (stem, short):
            if re.search(named, conversation.question):
                return path, re.sub(named, " ", conversation.question), []
    return paths[0], conversation.question, [f" and {path}" for path in paths[1:6]]


def _refusal(refused: Refused, question: str, table: Table, where: str = "") -> str:
    offered = (re.sub(r"\??$", rf"{where}\g<0>", text, count=1)
               for text in offers(table, question, refused.readings))  # fmt: skip
    return "\n".join([
        f"The offline analyst does not answer this question: {refused}. It does answer:",
        *(f"  “{text}”" for text in offered),
        f"For free questions configure a model: {_CONFIGURE}.",
    ])  # fmt: skip


def _failed(path: str, said: str, *, answering: bool) -> str:
    said = " ".join(said.split())[:200]
    if said.startswith("GuardError"):
        return f"The guard stopped a cell of the offline analyst, which needs pandas: {said}"
    if "pandas" in said and "NotFound" in said:
        return (
            f"The offline analyst needs pandas, which this kernel does not have ({said}): take"
            " another sandbox level than interpreter, or configure a model (--model NAME)."
        )
    what = (
        "The offline analyst could not answer" if answering else f"{path} cannot be read as a table"
    )
    return f"{what} ({said}); check the file, or configure a model: {_CONFIGURE}."
