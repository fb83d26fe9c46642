"""A session goes on with another model, format or rule of approval: kernel and talk stay."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kernel_agent import Config, FakeKernel, Session
from kernel_agent.config import SETTINGS
from kernel_agent.errors import KernelAgentError, ModelError, UsageError
from kernel_agent.models.base import ModelDefaults
from kernel_agent.records import Message, Notice, Reply


class Heard(ModelDefaults):
    """A model that keeps what it was sent; it fails without a reply."""

    def __init__(self, name: str, *replies: str) -> None:
        self.name = name
        self.sent: list[list[Message]] = []
        self._replies = list(replies)

    async def complete(self, messages: Sequence[Message], *_: Any) -> Reply:
        self.sent.append(list(messages))
        if not self._replies:
            raise ModelError(f"no model {self.name}")
        return Reply(content=self._replies.pop(0))

    async def close(self) -> None: ...


def cell(source: str) -> str:
    return f"Thinking.\n```python\n{source}\n```"


def session(out: Path, first: Heard, **options: Any) -> Session:
    return Session(kernel=FakeKernel, model=first, out=out, config=Config(), **options)


async def test_another_model_has_the_kernel_and_what_was_said(tmp_path: Path) -> None:
    one = Heard("one", cell("x = 41\nfinal_answer(x)"))
    two = Heard("two", cell("final_answer(x + 1)"))
    async with session(tmp_path / "s", one) as book:
        await book.run("First?")
        await book.change(model=two)
        run = await book.run("And one more?")
        assert (run.answer, book.model_name) == (42, "two")
    told = "\n".join(message.content for message in two.sent[0])
    assert "First?" in told
    assert "x = 41" in told


async def test_another_format_writes_the_conversation_anew(tmp_path: Path) -> None:
    one = Heard(
        "one", cell("x = 41\nfinal_answer(x)"), '{"thought": "t", "code": "final_answer(x)"}'
    )
    async with session(tmp_path / "s", one, format="fenced") as book:
        await book.run("First?")
        await book.change(format="envelope")
        assert (await book.run("Again?")).answer == 41
        assert book.config.format == "envelope"
    system, *rest = one.sent[1]
    assert system.content != one.sent[0][0].content
    assert any(
        '"code"' in m.content and "x = 41" in m.content for m in rest if m.role == "assistant"
    )


async def test_another_rule_of_approval_holds_from_the_next_run_on(tmp_path: Path) -> None:
    one = Heard("one", cell("final_answer(1)"), *[cell("final_answer(2)")] * 9)
    async with session(tmp_path / "s", one) as book:
        assert (await book.run("First?")).answer == 1
        await book.change(approve="always")
        assert (await book.run("Again?")).answer is None, "nobody could be asked"


async def test_a_model_that_never_replies_gives_way_to_the_one_before(tmp_path: Path) -> None:
    """The rule of approval that was asked for stays."""
    one = Heard("one", cell("x = 41\nfinal_answer(x)"), *[cell("final_answer(x)")] * 9)
    told: list[Any] = []
    async with session(tmp_path / "s", one, on_event=told.append) as book:
        await book.run("First?")
        await book.change(model=Heard("goood"), approve="always")
        assert (await book.run("And?")).status == "model_error"
        assert (book.model_name, book.config.approve) == ("one", "always")
        await book.change(approve="never")
        assert (await book.run("Now?")).answer == 41
    texts = [event.text for event in told if isinstance(event, Notice)]
    assert "goood did not reply: the session goes on with one." in texts


@pytest.mark.parametrize(
    "wrong", [{"format": "fencd"}, {"approve": "perhaps"}, {"model": "scripted:missing.jsonl"}]
)
async def test_what_cannot_be_had_changes_nothing(tmp_path: Path, wrong: dict[str, str]) -> None:
    one = Heard("one", cell("x = 41\nfinal_answer(x)"), cell("final_answer(x)"))
    async with session(tmp_path / "s", one) as book:
        await book.run("First?")
        before = book.config
        with pytest.raises(KernelAgentError):
            await book.change(**wrong)
        assert (book.config, book.model_name) == (before, "one")
        assert (await book.run("Again?")).answer == 41


async def test_a_session_is_changed_between_runs_only(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not started"):
        await session(tmp_path / "s", Heard("one")).change(approve="never")


def test_the_table_says_what_may_change_between_runs() -> None:
    taken = set(inspect.signature(Session.change).parameters) - {"self"}
    assert taken == {row.name for row in SETTINGS.values() if row.between}


async def test_a_step_that_is_undone_after_a_change_is_forgotten(tmp_path: Path) -> None:
    one = Heard("one", cell("x = 41\nfinal_answer(x)"))
    two = Heard("two", cell("y = 1\nfinal_answer(y)"), cell("final_answer(x)"))
    async with session(tmp_path / "s", one) as book:
        await book.run("First?")
        await book.change(model=two)
        await book.run("Second?")
        await book.undo()
        assert (await book.run("Third?")).answer == 41
    told = "\n".join(message.content for message in two.sent[-1])
    assert "x = 41" in told
    assert "y = 1" not in told
