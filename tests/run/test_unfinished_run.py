"""A run that ends in the middle of a reply keeps what was written, and everything shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import nbformat
from typer.testing import CliRunner

from kernel_agent import Session
from kernel_agent.cli.app import app
from kernel_agent.models.base import ModelDefaults
from kernel_agent.records.budget import Budget
from kernel_agent.records.conversation import Message, Reply, RequestOptions, Usage
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.event import Event, ReplyText
from kernel_agent.records.store import read_trace
from kernel_agent.records.trace import Step

PROSE, BEGUN = "I believe that it is seventeen.", "Let me look at the tab"


class Talker(ModelDefaults):
    """Talks, begins to talk again and never ends; in the next run it answers."""

    name = "talker"

    def __init__(self) -> None:
        self.asked: list[list[Message]] = []

    async def close(self) -> None:
        """Nothing to do."""

    async def complete(
        self,
        messages: Sequence[Message],
        _options: RequestOptions,
        on_event: Callable[[Event], None],
    ) -> Reply:
        self.asked.append(list(messages))
        usage = Usage(prompt_tokens=100, completion_tokens=7, calls=1)
        if len(self.asked) == 1:
            return Reply(content=PROSE, usage=usage)
        if len(self.asked) == 2:
            on_event(ReplyText(text=BEGUN))
            await asyncio.sleep(600)
        return Reply(content="```python\nfinal_answer(17)\n```", usage=usage)


async def test_it_is_in_the_trace_the_notebook_the_page_and_on_the_screen(tmp_path: Path) -> None:
    model = Talker()
    async with Session(model=model, sandbox="none", out=tmp_path / "out") as session:
        first = await session.run("How many?", budget=Budget(max_seconds=2))
        second = await session.run("And now?")
    assert (first.status, second.answer) == (ExitStatus.TIME_LIMIT, 17)
    steps = [record for record in read_trace(first.trace) if isinstance(record, Step)]
    assert [step.number for step in steps] == [1, 2]
    assert [retry.content for retry in steps[0].retries] == [PROSE, BEGUN]
    assert [retry.cut_off for retry in steps[0].retries] == [False, True]
    assert steps[0].usage == first.usage
    assert first.usage.calls == 1

    assert first.notebook is not None
    notebook = "\n".join(c.source for c in nbformat.read(first.notebook, as_version=4).cells)
    page = tmp_path / "page.html"
    show = ["show", str(tmp_path / "out")]
    shown = CliRunner().invoke(app, show).output
    CliRunner().invoke(app, [*show, "--html", "-o", str(page)])
    for text in (notebook, shown, page.read_text()):
        assert PROSE in text
        assert BEGUN in text
    assert "107 tokens" in shown

    first_asked, again, last = model.asked
    assert last[: len(first_asked)] == first_asked
    assert again[: len(first_asked)] == first_asked
    assert [m.role for m in last[len(first_asked) :]] == ["assistant", "user", "user", "user"]
    assert last[len(first_asked)].content == BEGUN
