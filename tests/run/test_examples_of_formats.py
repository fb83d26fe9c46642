"""What a model is shown as an example runs as it stands in its own run, and answers nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from kernel_agent import ScriptedModel, Session
from kernel_agent.errors import FormatError
from kernel_agent.formats import get_format, parse
from kernel_agent.records.action import Code
from kernel_agent.records.budget import Budget
from kernel_agent.records.conversation import Reply, ToolCall
from kernel_agent.records.store import read_trace
from kernel_agent.records.trace import RunStart

FRAME = pd.DataFrame({"region": ["north", "south"], "amount": [3.5, 4.25]})
NAMES = ("fenced", "envelope", "tool")
UNREADABLE = [
    Reply(content="The answer is probably 4."),
    Reply(content="Well,", finish_reason="length"),
    Reply(content='{"thought": "x", "code": ""}'),
    Reply(content='{"thought": "x", "code": "1 +'),
    Reply(content='{"thought": "x", "code": 5}'),
    Reply(content='{"language": "R", "code": "x <- 1"}'),
    Reply(content="```python\nx = ("),
    Reply(content="", tool_calls=(ToolCall(id="", name="f", arguments=""),) * 200),
]


def text(name: str, content: str | bytes) -> Callable[[Path], list[Path]]:
    def make(folder: Path) -> list[Path]:
        data = content.encode() if isinstance(content, str) else content
        (folder / name).write_bytes(data)
        return [folder / name]

    return make


def parquet(folder: Path) -> list[Path]:
    FRAME.to_parquet(folder / "a.parquet")
    return [folder / "a.parquet"]


def excel(folder: Path) -> list[Path]:
    FRAME.to_excel(folder / "a.xlsx", index=False)
    return [folder / "a.xlsx"]


def several(folder: Path) -> list[Path]:
    return [*text("notes.txt", "about it\n")(folder), *parquet(folder), *excel(folder)]


CSV = FRAME.to_csv(index=False)
MADE: dict[str, tuple[Callable[[Path], list[Path]], str]] = {
    "csv": (text("my sales (1).csv", CSV), 'read_csv("data/my sales (1).csv")'),
    "semicolons": (text("a.csv", "a;b\n" + "1,5;2,5\n" * 3), 'read_csv("data/a.csv", sep=";")'),
    "tabs": (text("a.tsv", "a\tb\n1\t2\n"), 'read_csv("data/a.tsv", sep="\\t")'),
    "not UTF-8": (text("a.csv", b"stra\xdfe,n\nh\xf6he,1\n"), 'csv", encoding="cp1252")'),
    "a preamble": (
        text("a.csv", "Sales\n\n" + "a,b\n1,2\n" * 5),
        'read_csv("data/a.csv", skiprows=2)',
    ),
    "lines": (text("a.jsonl", '{"a": 1}\n{"a": 2}\n'), 'read_json("data/a.jsonl", lines=True)'),
    "nested": (text("a.json", '{"a": [1, 2], "b": {"c": 1}}'), 'open("data/a.json")'),
    "parquet": (parquet, 'read_parquet("data/a.parquet")'),
    "excel": (excel, 'read_excel("data/a.xlsx")'),
    "binary": (text("a.bin", bytes(range(256))), 'open("data/a.bin", "rb")'),
    "several": (several, 'read_parquet("data/a.parquet")'),
    "an odd name": (text('it\'s "a" `b` ```.csv', CSV), "dir()"),
    "no file": (lambda _folder: [], "dir()"),
}

QUICK = ("csv", "not UTF-8", "nested", "several", "no file")  # the gate tries these


def examples(told: str, name: str) -> list[str]:
    """Return the code of each example in a text for the model."""
    fenced = re.findall(r"^(```+)(python|json)\n(.*?)\n\1$", told, re.MULTILINE | re.DOTALL)
    if name == "fenced":
        return [body for _, language, body in fenced if language == "python"]
    found = [body for _, _, body in fenced]
    found = found or re.findall(r"^(?:python\()?(\{.*\})\)?$", told, re.MULTILINE)
    calls = [ToolCall(id="1", name="python", arguments=body) for body in found]
    read = [parse(Reply(content="", tool_calls=(call,)), "tool") for call in calls]
    return [action.source for action in read if isinstance(action, Code)]


def re_asks(name: str, look: str) -> list[str]:
    """Return what a model is told about each reply that cannot be read."""
    told = []
    for reply in UNREADABLE:
        try:
            get_format(name, look=look).parse(reply)
        except FormatError as error:
            told.append(error.feedback)
    return told


@pytest.mark.parametrize(
    "made",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in MADE],
)
async def test_each_example_runs_as_it_stands_and_holds_no_answer(
    made: str, tmp_path: Path
) -> None:
    """In the prompt and in each re-ask, in a real kernel with the run's own files."""
    make, call = MADE[made]
    data = make(tmp_path)
    model = ScriptedModel(["I will look."] * 3, keep_requests=True)
    async with Session(model=model, data=data, sandbox="none", out=tmp_path / "out") as session:
        run = await session.run("Well?", budget=Budget(max_steps=1))
        [look] = examples(model.requests[0][0].content, "fenced")
        assert [examples(retry.feedback, "fenced") for retry in run.steps[0].retries] == [
            [look]
        ] * 3
        for name in NAMES:
            told = [get_format(name, look=look).system_prompt(), *re_asks(name, look)]
            shown = [code for text in told for code in examples(text, name)]
            assert len(shown) >= 4
            assert set(shown) == {look}
        assert call in look
        assert "final_answer" not in look
        result = await session.execute(look)
        assert (result.status, result.answer, result.error) == ("ok", None, None)
        assert result.outputs


@pytest.mark.parametrize("name", NAMES)
async def test_each_format_is_given_it(name: str, tmp_path: Path) -> None:
    model = ScriptedModel(["I will look."] * 3, keep_requests=True)
    data = text("a.csv", CSV)(tmp_path)
    out = tmp_path / "out"
    async with Session(model=model, format=name, data=data, sandbox="none", out=out) as session:
        run = await session.run("Well?", budget=Budget(max_steps=1))
    for told in (model.requests[0][0].content, run.steps[0].retries[0].feedback):
        [look] = examples(told, name)
        assert 'read_csv("data/a.csv")' in look


@pytest.mark.parametrize("data", [text("a.csv", CSV), text("a.csv", b"\xdf,1\n"), lambda _: []])
async def test_it_runs_in_the_interpreter_too(
    data: Callable[[Path], list[Path]], tmp_path: Path
) -> None:
    pytest.importorskip("pydantic_monty")
    model = ScriptedModel(["```python\nfinal_answer(1)\n```"], keep_requests=True)
    async with Session(
        model=model, data=data(tmp_path), sandbox="interpreter", out=tmp_path / "out"
    ) as session:
        await session.run("Well?")
        [look] = examples(model.requests[0][0].content, "fenced")
        assert (await session.execute(look)).error is None


async def test_what_the_guard_would_refuse_is_no_example(tmp_path: Path) -> None:
    model = ScriptedModel(["```python\nfinal_answer(1)\n```"], keep_requests=True)
    async with Session(
        model=model, data=text("a.csv", CSV)(tmp_path), sandbox="none", out=tmp_path / "out",
        guard_imports=["math"],
    ) as session:  # fmt: skip
        await session.run("Well?")
        assert examples(model.requests[0][0].content, "fenced") == ['open("data/a.csv").read(500)']


def test_calls_are_asked_for_without_an_example_to_copy() -> None:
    told = re_asks("json", "look()")
    assert len(told) > 3
    assert not any(re.search(r"EUR|42|```|look", text) for text in told)


async def test_the_prompt_stays_the_same_to_the_byte_through_a_session(tmp_path: Path) -> None:
    """Also while the file changes, and when replies cannot be read."""
    data = text("a.csv", CSV)(tmp_path)
    replies = ["Hm.", "```python\nfinal_answer(1)\n```", "```python\nfinal_answer(2)\n```"]
    model = ScriptedModel(replies, keep_requests=True)
    async with Session(model=model, data=data, sandbox="none", out=tmp_path / "out") as session:
        run = await session.run("One?")
        data[0].write_bytes(b"\xff no table any more")
        await session.run("Two?")
    system = {request[0].content for request in model.requests}
    starts = [record for record in read_trace(run.trace) if isinstance(record, RunStart)]
    assert len(starts) == 2
    assert {start.system_prompt for start in starts} == system
