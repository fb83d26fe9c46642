"""The conversation grows at its end, stays within its allowance, and loses nothing for good."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from kernel_agent.agent.context import KEEP_STEPS, Context
from kernel_agent.agent.observation import observe
from kernel_agent.agent.task import task_text
from kernel_agent.formats import get_format
from kernel_agent.records.action import Code
from kernel_agent.records.cell import CellError, CellResult, Changes, Observation, Variable
from kernel_agent.records.codec import from_json
from kernel_agent.records.conversation import Image, Message, Usage
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.trace import (
    Condensation,
    DataFile,
    Record,
    RunStart,
    RunStop,
    Step,
    to_json,
)
from kernel_agent.safe.text import size_text

START = RunStart(
    run_id="r", task="Why?", time="", model="m", format="fenced", sandbox={}, budget={}
)


def step(number: int, text: str = "seen", **more: object) -> Step:
    result = more.pop("result", CellResult(status="ok"))
    thought = more.pop("thought", f"thought {number}")
    return Step(
        run_id="r",
        number=number,
        action=Code(source=f"x = {number}", thought=thought),
        observation=Observation(text=text, held=f"printed {len(text):,} characters", **more),
        result=result,
    )


def long_step(number: int, chars: int = 20_000, max_chars: int = 8000) -> Step:
    """A step that printed a table and made a variable, observed as the loop does it."""
    text = "".join(f"{n},{n * number},größe\n" for n in range(chars // 12))[:chars]
    output = {"output_type": "stream", "name": "stdout", "text": text}
    variable = Variable(name=f"table_{number}", type="DataFrame", shape="100 x 3")
    result = CellResult(status="ok", outputs=(output,), changes=Changes(added=(variable,)))
    return Step(
        run_id="r",
        number=number,
        action=Code(source=f"table_{number} = load({number})\nprint(table_{number})"),
        observation=observe(result, step=number, max_chars=max_chars),
        result=result,
    )


def context(max_tokens: int = 100_000) -> Context:
    made = Context("system prompt", get_format("fenced"), max_tokens=max_tokens)
    made.add(START)
    return made


def relieve(history: Context) -> list[Condensation]:
    """Shorten as the loop does before each request."""
    done = []
    while (planned := history.relief()) is not None:
        history.add(planned)
        done.append(planned)
    return done


def sent(history: Context) -> str:
    """The conversation as one text."""
    return "\x00".join(f"{m.role}\x01{m.content}" for m in history.messages())


def prompts(history: Context, steps: int) -> Iterator[str]:
    """Yield each prompt of a long run."""
    for number in range(1, steps + 1):
        relieve(history)
        yield sent(history)
        history.add(long_step(number, max_chars=min(8000, history.observation_chars)))


def unchanged(before: str, after: str) -> int:
    """How many characters at the start of two prompts are the same."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before[:middle] == after[:middle] else (low, middle - 1)
    return low


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


@pytest.mark.parametrize(("max_tokens", "at_least"), [(8_000, 0.75), (32_000, 0.8)])
def test_most_of_a_prompt_is_what_was_sent_before(max_tokens: int, at_least: float) -> None:
    """Prompt caches match from the start: what comes before the first change is not paid again."""
    history = Context(
        get_format("fenced").system_prompt(), get_format("fenced"), max_tokens=max_tokens
    )
    history.add(START)
    pairs = list(pairwise(prompts(history, 200)))
    same = sum(unchanged(before, after) for before, after in pairs)
    assert same / sum(len(after) for _, after in pairs) >= at_least
    broken = sum(not after.startswith(before) for before, after in pairs)
    assert 0 < broken <= 200 / 3  # strides of several steps


def test_200_steps_of_20000_characters_stay_under_32000_tokens() -> None:
    """And the work is linear: twice the steps send about twice the characters."""
    totals = {}
    for steps in (100, 200):
        history = Context(get_format("fenced").system_prompt(), get_format("fenced"),
                          max_tokens=32_000)  # fmt: skip
        history.add(START)
        total = 0
        for prompt in prompts(history, steps):
            total += len(prompt)
            assert history.tokens <= 32_000
            assert len(prompt.encode()) / 3.5 <= 32_000
        totals[steps] = total
    assert totals[200] <= 2.3 * totals[100]
    assert totals[100] < 12_000_000


def test_what_is_masked_says_what_it_held_and_how_to_reopen_it() -> None:
    history = context(max_tokens=10_000)
    for number in range(1, 10):
        history.add(long_step(number))
    assert [c.kind for c in relieve(history)] == ["masked"]
    text = sent(history)
    assert "outputs[1] holds the full text" in text
    assert "printed 20,000 characters: 0,0,größe" in text
    assert all(f"table_{n} = load({n})" in text for n in range(1, 10))  # the code stays
    assert "Why?" in text


def test_the_last_steps_stay_whole() -> None:
    history = context(max_tokens=10_000)
    for number in range(1, 10):
        history.add(step(number, text=f"number {number} " + "z" * 5000))
    relieve(history)
    text = sent(history)
    assert text.count("z" * 5000) == KEEP_STEPS
    assert "number 9 zzz" in text


def test_the_variables_that_live_are_listed_where_the_masked_part_ends() -> None:
    """Name, type, shape, and the step in which each was set or changed last."""
    history = context(max_tokens=10_000)
    for number in range(1, 10):
        history.add(long_step(number))
    relieve(history)
    text = sent(history)
    assert text.count("Variables after step 9: ") == 1
    assert "table_2 DataFrame 100 x 3 (step 2)" in text
    for number in range(10, 14):
        history.add(long_step(number))
    relieve(history)
    assert sent(history).count("Variables after step ") == 1  # it moves, and does not pile up


def test_an_error_that_was_solved_shrinks_to_one_line() -> None:
    error = CellError(ename="KeyError", evalue="'prize'", traceback=("x" * 3000,))
    failed = CellResult(status="error", error=error)
    history = context(max_tokens=10_000)
    history.add(step(1, text="Traceback\n" + "x" * 7000, result=failed))
    for number in range(2, 9):
        history.add(step(number, text="y" * 7000))
    relieve(history)
    assert "[KeyError: 'prize' (solved since)]" in sent(history)
    assert "Traceback" not in sent(history)


def test_masked_pictures_are_not_sent_again() -> None:
    picture = Image(media_type="image/png", data="aGk=", width=1, height=1)
    history = context(max_tokens=10_000)
    for number in range(1, 12):
        history.add(step(number, text="y" * 3000, images=(picture,)))
    relieve(history)
    assert sum(len(m.images) for m in history.messages()) < 11
    assert len(history.messages()[-1].images) == 1


def test_when_masking_is_not_enough_the_oldest_steps_become_a_summary() -> None:
    """The task, the plan, the variables and the last steps stay."""
    history = context(max_tokens=3_000)
    history.add(step(1, thought="Plan:\n1. load\n2. compare\n3. answer"))
    for number in range(2, 120):
        history.add(step(number, thought=f"Part {number} of the table. " + "why " * 30))
        relieve(history)
        assert history.tokens <= 3_000
    text = sent(history)
    assert "Why?" in text
    assert "2. compare" in text
    assert "Variables after step" in text
    assert "x = 119" in text
    assert "x = 3\n" not in text
    assert "`outputs.code(k)`" in text
    assert "Step 80: Part 80 of the table. -> printed 4 characters" in text
    assert [m.role for m in history.messages()[:3]] == ["system", "user", "assistant"]


def test_the_summary_can_be_anothers() -> None:
    """What relief() writes by rules may be replaced before it is added."""
    history = context(max_tokens=2_000)
    for number in range(1, 60):
        history.add(step(number, thought="why " * 30))
    planned = history.relief()
    assert planned is not None
    assert planned.kind == "summarised"
    asked = history.summary_request(planned.last)
    assert [m.role for m in asked] == ["system", "user"]
    assert "x = 1" in asked[1].content
    history.add(Condensation(run_id="r", kind="summarised", first=1, last=planned.last,
                             text="All is well.", by="model"))  # fmt: skip
    assert "All is well." in sent(history)
    assert history.summary == "All is well."


def test_an_earlier_runs_task_and_answer_are_part_of_the_summary() -> None:
    history = context(max_tokens=2_000)
    for number in range(1, 30):
        history.add(step(number, thought="why " * 30))
    relieve(history)
    history.add(RunStop(run_id="r", status=ExitStatus.ANSWERED))
    second = RunStart(
        run_id="s", task="And then?", time="", model="m", format="fenced", sandbox={}, budget={}
    )
    history.add(second)
    for number in range(30, 60):
        history.add(step(number, thought="why " * 30))
        relieve(history)
    text = sent(history)
    assert "<task>\nAnd then?" in text
    assert text.count("<task>") == 1


@pytest.mark.parametrize("max_tokens", [1_500, 6_000, 20_000])
def test_the_same_records_give_the_same_conversation(max_tokens: int) -> None:
    """Through the trace, too: a run can be taken up again with the prefix that it had."""
    history = context(max_tokens)
    records: list[Record] = [START]
    for number in range(1, 80):
        records.append(long_step(number, max_chars=history.observation_chars))
        history.add(records[-1])
        records += relieve(history)
    assert any(isinstance(record, Condensation) for record in records)
    again = Context("system prompt", get_format("fenced"), max_tokens=99)
    for record in records:
        again.add(from_json(to_json(record)))
    assert again.messages() == history.messages()


def test_a_conversation_that_fits_is_left_alone() -> None:
    history = context()
    history.add(step(1))
    assert history.relief() is None


def test_what_cannot_become_shorter_ends_the_shortening() -> None:
    history = context(max_tokens=5)
    history.add(step(1, text="short"))
    assert history.relief() is None


# --- when the endpoint says how much it takes ----------------------------------------------------


def filled(tokens: int) -> Context:
    history = context()
    number = 0
    while history.tokens < tokens:
        number += 1
        history.add(step(number, text="z" * 3000))
    return history


def test_a_limit_that_was_named_is_kept_from_then_on() -> None:
    """With room for the reply, and by the endpoint's count instead of our own."""
    history = filled(9_000)
    history.refused(limit_tokens=8_000, used_tokens=18_000)
    relieve(history)
    assert history.max_tokens == 6_000
    assert len(sent(history)) / 3.5 <= 3_100  # its tokens are twice ours


def test_without_a_limit_it_becomes_shorter_each_time() -> None:
    history = filled(20_000)
    lengths = [history.tokens]
    for _ in range(3):
        history.refused()
        assert relieve(history)
        lengths.append(history.tokens)
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < lengths[0] / 4


def test_shrinking_ends_when_nothing_is_left_to_shorten() -> None:
    history = filled(9_000)
    for _ in range(50):
        history.refused()
        if not relieve(history):
            break
    else:
        raise AssertionError("it never ended")
    assert "Why?" in sent(history)


def test_the_endpoints_count_corrects_ours() -> None:
    history = filled(9_000)
    before = history.tokens
    history.calibrate(Usage(prompt_tokens=2 * before, calls=1))
    assert history.tokens == pytest.approx(2 * before, rel=0.01)
    history.calibrate(Usage(prompt_tokens=3, calls=1))  # only what was not in its cache
    assert history.tokens == before
    history.calibrate(Usage(prompt_tokens=9 * before, calls=1, estimated=True))
    assert history.tokens == before


@pytest.mark.parametrize("letter", ["z", "é", "語", "🎉"])
def test_other_scripts_are_counted_by_their_bytes(letter: str) -> None:
    history = context(max_tokens=4_000)
    for number in range(1, 9):
        history.add(step(number, text=letter * 4000))
    relieve(history)
    assert history.tokens <= 4_000


# --- what the model is told ----------------------------------------------------------------------


def test_the_model_is_told_what_a_person_changed_between_runs() -> None:
    changes = Changes(changed=(Variable(name="df", type="DataFrame", shape="3 x 4"),),
                      removed=("old",))  # fmt: skip
    history = Context("system prompt", get_format("fenced"), max_tokens=9_000)
    history.add(RunStart(run_id="r", task="Why?", time="", model="m", format="fenced",
                         sandbox={}, budget={}, changes=changes))  # fmt: skip
    told = history.messages()[-1].content
    assert told.startswith("<task>\nWhy?\n</task>")
    assert "changed from outside" in told
    assert "changed df DataFrame 3 x 4; removed old" in told


def test_a_lost_kernel_leaves_no_variables() -> None:
    history = context()
    history.add(long_step(1))
    assert "table_1" in history.variables
    history.add(step(2, result=CellResult(status="dead")))
    assert len(history.variables) == 0


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
        (1000, "1 kB"),
        (13_400, "13.4 kB"),
        (999_900, "1 MB"),
        (2_100_000_000, "2.1 GB"),
        (10**13, "10,000.0 GB"),
    ],
)
def test_sizes_read_as_a_person_writes_them(size: int, text: str) -> None:
    assert size_text(size) == text


def test_a_window_that_a_reply_met_is_kept_room_in_from_then_on() -> None:
    """A quarter of it for the reply, by the endpoint's own count of the conversation."""
    history = context()
    for number in range(1, 6):
        history.add(step(number, "y" * 500))
    estimated = history.tokens
    history.met(1024, prompt_tokens=904)
    assert history.max_tokens == 768
    assert history.tokens == pytest.approx(904, abs=1)
    assert estimated < 904
    relieve(history)
    assert history.tokens <= 768


def test_what_was_sent_beside_the_conversation_is_not_counted_to_it() -> None:
    """A re-ask makes one prompt longer, not the conversation."""
    beside = [Message(role="user", content="x" * 3500)]
    alone, both = context(), context()
    alone.met(8192, prompt_tokens=100)
    both.met(8192, prompt_tokens=100, beside=beside)
    assert alone.tokens == 100
    assert both.tokens < 50
