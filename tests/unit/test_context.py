"""The conversation grows at its end, stays within its allowance, and loses nothing for good."""

from __future__ import annotations

import pytest

from kernel_agent.context import KEEP_STEPS, Context, size_text, task_text
from kernel_agent.formats import get_format
from kernel_agent.records import (
    Code,
    DataFile,
    ExitStatus,
    Observation,
    RunStart,
    RunStop,
    Step,
)

START = RunStart(
    run_id="r", task="Why?", time="", model="m", format="fenced", sandbox={}, budget={}
)


def step(number: int, text: str = "seen") -> Step:
    return Step(
        run_id="r",
        number=number,
        action=Code(source=f"x = {number}", thought=f"thought {number}"),
        observation=Observation(text=text),
    )


def context(max_tokens: int = 100_000) -> Context:
    made = Context("system prompt", get_format("fenced"), max_tokens=max_tokens)
    made.add(START)
    return made


def test_the_prefix_is_the_same_to_the_byte_from_call_to_call() -> None:
    history = context()
    before = history.messages()
    for number in range(1, 20):
        history.add(step(number))
        after = history.messages()
        assert after[: len(before)] == before
        assert all(a is b for a, b in zip(after, before, strict=False))
        before = after


def test_code_stands_once_in_the_history() -> None:
    history = context()
    history.add(step(7))
    assert sum(m.content.count("x = 7") for m in history.messages()) == 1


def test_a_long_history_stays_within_its_allowance_and_names_the_way_back() -> None:
    history = context(max_tokens=20_000)
    for number in range(1, 101):
        history.add(step(number, text=f"table {number}\n" + "y" * 8000))
        history.messages()
        assert history.tokens <= 20_000
    text = "\n".join(m.content for m in history.messages())
    assert "table 1 [" in text
    assert "outputs[1] has the full text" in text
    assert "Why?" in text
    assert all(f"x = {n}" in text for n in range(1, 101))


def test_masking_is_rare_so_that_prompt_caches_hit() -> None:
    history = context(max_tokens=20_000)
    before, changed = history.messages(), 0
    for number in range(1, 101):
        history.add(step(number, text="y" * 4000))
        after = history.messages()
        changed += after[: len(before)] != before
        before = after
    assert 0 < changed < 20


def test_the_last_steps_are_never_masked() -> None:
    history = context(max_tokens=10)
    for number in range(1, 10):
        history.add(step(number, text=f"number {number} " + "z" * 5000))
    text = "\n".join(m.content for m in history.messages())
    for number in range(10 - KEEP_STEPS, 10):
        assert f"number {number} zzz" in text
    assert "number 1 zzzzzzzzzz" in text
    assert text.count("z" * 5000) == KEEP_STEPS


def test_shrinking_makes_it_shorter_until_nothing_is_left_to_mask() -> None:
    history = context()
    for number in range(1, 10):
        history.add(step(number, text="z" * 5000))
    assert history.shrink()
    while history.shrink():
        pass
    assert not history.shrink()


def test_the_model_learns_how_an_earlier_run_ended() -> None:
    history = context()
    history.add(
        RunStop(run_id="r", status=ExitStatus.TIME_LIMIT, message="the limit of 5 s was reached")
    )
    assert "the limit of 5 s was reached" in history.messages()[-1].content


def test_the_task_message_names_the_files_with_kind_and_size() -> None:
    file = DataFile(path="data/a b.csv", source="a b.csv", bytes=15_240, sha256="", kind="CSV")
    assert task_text("How many?", [file]) == (
        "<task>\nHow many?\n</task>\n\n"
        "Data files, relative to the working directory:\n- data/a b.csv (CSV, 15.2 kB)"
    )
    assert task_text("How many?", []) == "<task>\nHow many?\n</task>"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (2_100_000_000, "2.1 GB"),
        (10**13, "10000.0 GB"),
    ],
)
def test_sizes_read_as_a_person_writes_them(size: int, text: str) -> None:
    assert size_text(size) == text
