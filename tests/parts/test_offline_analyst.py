"""The offline analyst is an honest Model: it says what it is, and refuses with a way out."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from kernel_agent.errors import ModelError
from kernel_agent.offline import OfflineAnalyst
from kernel_agent.offline.conversation import read_conversation
from kernel_agent.records.conversation import Message, Reply, RequestOptions
from kernel_agent.records.event import ReplyText

OVERVIEW = """penguins: 344 rows x 2 columns, RangeIndex(start=0, stop=344, step=1)
'species': string, 0 missing, 3 distinct: ['Adelie', 'Chinstrap', 'Gentoo']
'body_mass_g': Int64, 2 missing, 94 distinct: 2700 to 6300
DataFrame: 5 rows x 2 columns"""


class Plain:
    def compose(self, *, thought: str, code: str) -> str:
        return f"{thought}\n---\n{code}"


def task(question: str, *files: str) -> Message:
    lines = "\n".join(f"- {file} (CSV, 15.2 kB)" for file in files)
    data = f"\n\nData files, relative to the working directory:\n{lines}" if files else ""
    return Message(role="user", content=f"<task>\n{question}\n</task>{data}")


def observed(step: int, text: str) -> Message:
    return Message(role="user", content=f"Observation (step {step}):\n{text}")


async def reply(*messages: Message, events: list[Any] | None = None) -> Reply:
    analyst = OfflineAnalyst(Plain())  # type: ignore[arg-type]  # only compose is used
    system = Message(role="system", content="…")
    kept: list[Any] = [] if events is None else events
    return await analyst.complete((system, *messages), RequestOptions(), kept.append)


async def test_the_first_line_says_what_it_is() -> None:
    """The first thought begins with the admission, and the reply is streamed as text."""
    events: list[Any] = []
    answer = await reply(task("How many penguins?", "data/penguins.csv"), events=events)
    assert answer.content.startswith("I am the offline analyst: rules, not a language model.")
    assert 'penguins = pd.read_csv("data/penguins.csv")' in answer.content
    assert answer.usage.calls == 1
    assert answer.usage.total_tokens == 0
    assert all(isinstance(event, ReplyText) for event in events)
    assert len(events) > 1


async def test_it_is_a_function_of_the_messages() -> None:
    """The same conversation gives the same reply, also from another instance."""
    messages = (task("mean body mass by species", "data/penguins.csv"), observed(1, OVERVIEW))
    first, second = await reply(*messages), await reply(*messages)
    assert first == second
    assert 'groupby("species")["body_mass_g"]' in first.content


async def test_a_later_run_does_not_load_again() -> None:
    """What an earlier run loaded is still in the kernel, and is used from there."""
    answer = await reply(
        task("How many penguins?", "data/penguins.csv"),
        observed(1, OVERVIEW),
        observed(2, "344"),
        task("average body mass for Gentoo", "data/penguins.csv"),
    )
    assert "read_csv" not in answer.content
    assert 'penguins[penguins["species"] == "Gentoo"]' in answer.content
    assert answer.content.startswith("I am the offline analyst")


async def test_a_question_that_is_not_understood_is_refused_with_a_way_out() -> None:
    """The refusal names the part, the kinds, the columns, and how to configure a model."""
    question = task("average mass of penguins that eat krill", "data/penguins.csv")
    with pytest.raises(ModelError) as refused:
        await reply(question, observed(1, OVERVIEW))
    message = str(refused.value)
    for part in ("krill", "for example: “Which species", "body_mass_g",
                 "--model NAME --base-url URL", "OPENAI_API_KEY"):  # fmt: skip
        assert part in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("messages", "part"),
    [
        ((task("What is 2 + 2?"),), "--data FILE"),
        ((task("describe", "data/photo.png"),), "photo.png"),
        (
            (
                task("describe", "data/t.parquet"),
                observed(1, "ImportError: Missing optional dependency 'pyarrow'. Use pip"),
            ),
            "pip install pyarrow",
        ),
        (
            (
                task("describe", "data/t.csv"),
                observed(1, "pandas.errors.EmptyDataError: No columns to parse from file"),
            ),
            "no columns",
        ),
        (
            (task("describe", "data/big.csv"), observed(1, "KeyboardInterrupt")),
            "Reading data/big.csv was interrupted",
        ),
        (
            (
                task("mean body mass by species", "data/penguins.csv"),
                observed(1, OVERVIEW),
                observed(2, "KeyError: 'body_mass_g'"),
            ),
            "KeyError",
        ),
    ],
)
async def test_what_cannot_be_done_ends_in_one_clear_line(
    messages: tuple[Message, ...], part: str
) -> None:
    """Missing tables, unreadable files and failed cells each say what happened and what to do."""
    with pytest.raises(ModelError) as refused:
        await reply(*messages)
    assert part in str(refused.value)


def test_file_names_with_blanks_quotes_and_brackets_are_read() -> None:
    """The list of files is read as it was written."""
    files = ('data/my "best" cars (1).csv', "data/it's.csv")
    assert read_conversation([task("describe", *files)]).files == files


def test_importing_it_is_light() -> None:
    """The package can be imported without pandas, numpy or matplotlib."""
    code = (
        "import sys, kernel_agent.offline;"
        "print([m for m in ('pandas', 'numpy', 'matplotlib', 'IPython') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_files_that_are_only_named_as_like_another_one_are_known_and_contents_are_no_files() -> (
    None
):
    listed = (
        "- data/a.csv (CSV, 1.2 kB)\n  year,v\n  - b.csv (CSV, 1 B)\n"
        "  and 2 more with these columns: data/b.csv, 'data/c d\".csv'"
    )
    text = f"<task>\nWhy?\n</task>\n\nData files, relative to the working directory:\n{listed}\n\nX"
    conversation = read_conversation([Message(role="user", content=text)])
    assert conversation.files == ("data/a.csv", "data/b.csv", 'data/c d".csv')
