"""The conversation grows at its end, stays within its allowance, and loses nothing for good."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from kernel_agent.agent.context import KEEP_STEPS, Context
from kernel_agent.agent.measure import CALIBRATE_FROM, PICTURE_TOKENS, Measure, Size
from kernel_agent.agent.observation import observe
from kernel_agent.agent.task import COMPUTE, task_text
from kernel_agent.formats import get_format
from kernel_agent.records.action import Code
from kernel_agent.records.cell import Answer, CellError, CellResult, Changes, Observation, Variable
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


def test_only_as_many_steps_become_a_summary_as_have_to() -> None:
    """Down to about half of the allowance."""
    history, number = context(max_tokens=3_000), 0
    while history.tokens <= 3_000:
        number += 1
        history.add(step(number, thought="why " * 30))
    planned = history.relief()
    assert planned is not None
    assert planned.kind == "summarised"
    assert number / 2 < planned.last < number * 3 / 4
    assert 1_350 < planned.tokens_after < 1_650


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


def test_questions_and_answers_outlive_their_steps_to_the_letter() -> None:
    """Masked or summarised, and whatever the summary says."""
    history = context(max_tokens=9_000)
    answer = Answer(text="42 of 97, that is 43.3 %; " + "and so on, " * 20)
    made = CellResult(status="ok", answer=answer)
    observation = observe(made, step=1)
    history.add(step(1, text=observation.text, result=made))
    history.add(RunStop(run_id="r", status=ExitStatus.ANSWERED, answer=answer))
    history.add(RunStart(run_id="s", task="And then?", time="", model="m", format="fenced",
                         sandbox={}, budget={}))  # fmt: skip
    kinds = set()
    for number in range(2, 120):
        history.add(step(number, thought="why " * 90, text="z" * 3_000))
        kinds |= {done.kind for done in relieve(history)}
        assert answer.text in sent(history)
        assert "Why?" in sent(history)
    assert kinds == {"masked", "summarised"}
    assert "Task: Why?\nAnswer: 42 of 97" in history.messages()[1].content


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
    history.overflow(limit_tokens=8_000, used_tokens=18_000)
    relieve(history)
    assert history.max_tokens == 6_000
    assert len(sent(history)) / 3.5 <= 3_100  # its tokens are twice ours


def test_without_a_limit_it_becomes_shorter_each_time() -> None:
    history = filled(20_000)
    lengths = [history.tokens]
    for _ in range(3):
        history.overflow()
        assert relieve(history)
        lengths.append(history.tokens)
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < lengths[0] / 4


def test_shrinking_ends_when_nothing_is_left_to_shorten() -> None:
    history = filled(9_000)
    for _ in range(50):
        history.overflow()
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


def test_a_count_of_a_short_conversation_corrects_nothing() -> None:
    """What an endpoint adds to every request would weigh too much in it."""
    ratios = []
    for short in (1, 0):
        measure = Measure()
        measure.correct(Size(text=CALIBRATE_FROM - short), 2 * CALIBRATE_FROM)
        ratios.append(measure.ratio)
    assert ratios == [1, 2]


PICTURE = Image(media_type="image/png", data="aGk=", width=1, height=1)


def test_a_dear_picture_makes_no_text_longer() -> None:
    """Some endpoints charge 14,000 tokens for one."""
    history = context(max_tokens=64_000)
    history.add(step(1, text="z" * 8_000))
    before, chars = history.tokens, history.observation_chars
    history.calibrate(Usage(prompt_tokens=before, calls=1))
    history.add(step(2, images=(PICTURE,)))
    with_picture = before + 14_167
    history.calibrate(Usage(prompt_tokens=with_picture, calls=1))
    assert history.tokens == pytest.approx(with_picture, abs=1)
    assert history.observation_chars == chars
    history.add(step(3, images=(PICTURE,)))
    assert history.tokens == pytest.approx(with_picture + 14_167, rel=0.01)


def test_a_count_with_pictures_is_kept_however_high_it_is() -> None:
    history = filled(9_000)
    history.add(step(90, images=(PICTURE,)))
    history.calibrate(Usage(prompt_tokens=60_000, calls=1))
    assert history.tokens == pytest.approx(60_000, rel=0.01)
    refused = filled(9_000)
    refused.add(step(90, images=(PICTURE,)))
    refused.overflow(used_tokens=60_000)
    assert refused.tokens == pytest.approx(60_000, rel=0.01)


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


def test_the_task_message_holds_what_the_files_begin_with_and_asks_for_no_second_look() -> None:
    file = DataFile(path="data/a.csv", source="a.csv", bytes=8, sha256="", kind="CSV")
    text = task_text("How many?", [file], "- data/a.csv (CSV, 8 B)\n  a,b\n  1,2")
    assert text.split("\n\n")[1:] == [
        "Data files, relative to the working directory:\n- data/a.csv (CSV, 8 B)\n  a,b\n  1,2",
        COMPUTE,
    ]


def test_a_list_of_names_alone_does_not_speak_of_lines_that_were_seen() -> None:
    file = DataFile(path="data/a.arrow", source="a.arrow", bytes=8, sha256="", kind="Arrow")
    listing = "[untrusted k7: x]\n- data/a.arrow (Arrow, 8 B)\n[end of untrusted k7]"
    assert task_text("How many?", [file], listing).endswith(f"working directory:\n{listing}")


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
    history.note_window(1024, prompt_tokens=904)
    assert history.max_tokens == 768
    assert history.tokens == pytest.approx(904, abs=1)
    assert estimated < 904
    relieve(history)
    assert history.tokens <= 768


def test_what_was_sent_beside_the_conversation_is_not_counted_to_it() -> None:
    """A re-ask makes one prompt longer, not the conversation."""
    beside = [Message(role="user", content="x" * 3500)]
    alone, both = context(), context()
    alone.note_window(8192, prompt_tokens=100)
    both.note_window(8192, prompt_tokens=100, beside=beside)
    assert alone.tokens == 100
    assert both.tokens < 50


# --- how much is shortened, and what of it -------------------------------------------------------


@pytest.mark.parametrize("chars", [3000, 5000])
def test_shortening_goes_down_to_half_of_the_allowance_and_not_much_below(chars: int) -> None:
    """One stride, so that what endpoints cache changes rarely; and no more is lost than must be."""
    history = context(max_tokens=10_000)
    number = 0
    while history.tokens <= 10_000:
        number += 1
        history.add(step(number, text="z" * chars))
    [done] = relieve(history)
    assert done.kind == "masked"
    assert 5_000 - chars / 3.5 <= history.tokens <= 5_050
    assert (done.first, done.tokens_after) == (1, history.tokens)
    assert done.tokens_before > 10_000
    assert done.reason == "it had outgrown its allowance"


def test_what_a_stride_says_of_itself_is_what_comes_of_it() -> None:
    """Each kind, planned and applied: the trace can be believed."""
    for made in (filled_with(40, text="z" * 3000), filled_with(200, thought="why " * 40)):
        made.max_tokens = 4_000
        done = relieve(made)
        assert done
        assert done[-1].tokens_after == made.tokens
        assert all(c.tokens_after < c.tokens_before for c in done)
        assert [c.tokens_before for c in done[1:]] == [c.tokens_after for c in done[:-1]]
        assert {c.run_id for c in done} == {"r"}


def filled_with(steps: int, **more: object) -> Context:
    history = context()
    for number in range(1, steps + 1):
        history.add(step(number, **more))
    return history


def test_planning_changes_nothing() -> None:
    """Only what is added counts."""
    history = filled_with(40, text="z" * 3000)
    before = sent(history)
    for tokens in (20_000, 6_000, 2_000):
        history.max_tokens = tokens
        assert history.relief("why not") is not None
    assert history.relief("why not").reason == "why not"  # type: ignore[union-attr]
    assert sent(history) == before


def test_a_step_is_masked_with_its_number_and_only_where_that_is_shorter() -> None:
    """A few lines with the result in them are worth more than the room that they take."""
    history = context(max_tokens=5_000)
    history.add(step(1, text="the sum is 42"))
    for number in range(2, 9):
        history.add(step(number, text=f"{number} " + "z" * 4000))
    relieve(history)
    text = sent(history)
    assert "the sum is 42" in text
    assert "outputs[1] holds" not in text
    assert "outputs[2] holds the full text" in text


def test_an_error_is_solved_when_a_later_step_ran() -> None:
    """Before, and when only the steps before it ran, the whole of it may still be needed."""
    error = CellError(ename="KeyError", evalue="'prize'")
    failed = CellResult(status="error", error=error)
    long = "Traceback\n" + "x" * 7000
    solved, unsolved = context(5_000), context(5_000)
    solved.add(step(1, text=long, result=failed))
    unsolved.add(step(1, text="seen"))
    for number in range(2, 8):
        solved.add(step(number, text="y" * 3000))
        unsolved.add(step(number, text=long, result=failed))
    relieve(solved)
    relieve(unsolved)
    assert "(solved since)" in sent(solved)
    assert "(solved since)" not in sent(unsolved)
    assert "outputs[2] holds the full text" in sent(unsolved)


def test_the_last_steps_are_cut_when_nothing_else_is_left() -> None:
    """All of them alike, each with what reopens it; none below what says something."""
    history = context(max_tokens=2_000)
    for number in (1, 2, 3):
        history.add(step(number, text=f"number {number} " + "z" * 8000))
    done = relieve(history)
    assert {c.kind for c in done} >= {"shortened"}
    text = sent(history)
    assert history.tokens <= 2_000
    assert "outputs[3] holds the full text" in text
    lengths = [len(m.content) for m in history.messages() if "number 3" in m.content]
    assert all(length >= 200 for length in lengths)


def test_the_newest_observation_keeps_its_ordinary_room() -> None:
    """However little is left for the others: the model has not seen it yet."""
    history = context(max_tokens=4_000)
    for number in range(1, 4):
        history.add(step(number, text=f"number {number} " + "z" * history.observation_chars))
    history.overflow(limit_tokens=1_600)
    relieve(history)
    newest = history.messages()[-1].content
    assert len(newest) >= history.observation_chars
    assert history.tokens <= history.max_tokens


def test_where_only_the_newest_observation_is_long_only_that_is_cut() -> None:
    """To its ordinary room, however much code and thought stand beside it."""
    history = context(max_tokens=2_000)
    for number, text in enumerate(("seen", "seen", "z" * 4000), start=1):
        history.add(step(number, text=text, thought="why " * 300))
    [done] = relieve(history)
    assert (done.kind, done.first, done.last) == ("shortened", 3, 3)
    assert done.max_chars == history.observation_chars


def test_what_is_cut_keeps_as_much_as_half_of_the_allowance_holds() -> None:
    """Shared out evenly, whatever else stands in the conversation."""
    history = context(max_tokens=6_000)
    for number in (1, 2, 3):
        history.add(step(number, text=f"number {number} " + "z" * 12_000))
    [done] = relieve(history)
    assert (done.kind, done.first, done.last) == ("shortened", 1, 3)
    assert 2_800 <= history.tokens <= 3_050
    lengths = [len(m.content) for m in history.messages() if "number" in m.content]
    assert max(lengths) - min(lengths) <= 5


def test_calls_have_no_full_text_in_the_kernel() -> None:
    from kernel_agent.agent.entries import mask
    from kernel_agent.records.action import Call, Calls

    asked = Calls(calls=(Call(name="f", arguments={}),))
    made = Step(run_id="r", number=3, action=asked,
                observation=Observation(text="x" * 900, held="what f gave"))  # fmt: skip
    assert mask(made) == "[what f gave]"
    cell = step(3, text="x" * 900)
    assert mask(cell) == "[printed 900 characters; outputs[3] holds the full text]"


def test_pictures_and_calls_count() -> None:
    """A picture as much as a long text; a call by its arguments."""
    from kernel_agent.records.action import Call, Calls

    picture = Image(media_type="image/png", data="aGk=", width=1, height=1)
    plain, shown = context(), context()
    plain.add(step(1))
    shown.add(step(1, images=(picture, picture)))
    assert shown.tokens - plain.tokens == 2 * PICTURE_TOKENS
    short, long = (Context("s", get_format("json"), max_tokens=9999) for _ in range(2))
    for made, text in ((short, "x"), (long, "x" * 3501)):
        action = Calls(calls=(Call(name="f", arguments={"a": text}),))
        made.add(Step(run_id="r", number=1, action=action,
                      observation=Observation(text="y", parts=("y",))))  # fmt: skip
    assert long.tokens - short.tokens == pytest.approx(1000, abs=1)


def test_an_estimate_is_on_the_careful_side() -> None:
    """A token for 3.5 bytes, and four for each message."""
    made = Context("x" * 350, get_format("fenced"), max_tokens=9999)
    assert made.tokens == 104
    made.add(START)
    assert made.tokens == 104 + 4 + int(len("<task>\nWhy?\n</task>") / 3.5)


def test_small_conversations_are_not_corrected_and_none_beyond_measure() -> None:
    """What an endpoint adds to every request weighs too much in them; a count may be nonsense."""
    small = filled(1_000)
    before = small.tokens
    small.calibrate(Usage(prompt_tokens=2 * before, calls=1))
    assert small.tokens == before
    large = filled(9_000)
    before = large.tokens
    large.calibrate(Usage(prompt_tokens=0, calls=1))
    assert large.tokens == before
    large.calibrate(Usage(prompt_tokens=100 * before, calls=1))
    assert large.tokens == pytest.approx(8 * before, rel=0.01)


def test_a_count_that_a_refusal_proved_is_never_undercut() -> None:
    """A later, smaller count may be of what was not in the endpoint's cache."""
    history = filled(9_000)
    before = history.tokens
    history.overflow(limit_tokens=50_000, used_tokens=3 * before)
    assert history.tokens == pytest.approx(3 * before, rel=0.01)
    history.calibrate(Usage(prompt_tokens=before, calls=1))
    assert history.tokens == pytest.approx(3 * before, rel=0.01)
    history.overflow(used_tokens=2 * before)
    assert history.tokens == pytest.approx(3 * before, rel=0.01)


def test_a_refusal_without_numbers_halves_what_is_allowed() -> None:
    """So does one whose numbers do not explain it."""
    history = filled(9_000)
    history.overflow()
    assert history.max_tokens == history.tokens // 2
    history = filled(9_000)
    history.overflow(limit_tokens=10**6)
    assert history.max_tokens <= history.tokens


def test_the_room_for_a_reply_is_a_quarter_of_a_small_window_and_4096_of_a_large_one() -> None:
    history = filled(9_000)
    history.overflow(limit_tokens=8_000, used_tokens=9_000)
    assert history.max_tokens == 6_000
    history = filled(30_000)
    history.overflow(limit_tokens=32_000, used_tokens=40_000)
    assert history.max_tokens == 32_000 - 4_096
    history.note_window(10**6, prompt_tokens=40_000)
    assert history.max_tokens == 32_000 - 4_096  # it never grows


def test_an_observation_may_have_a_twelfth_of_the_allowance_and_a_thousand_characters() -> None:
    assert context(max_tokens=24_000).observation_chars == 7_000
    assert context(max_tokens=1_000).observation_chars == 1_000
    corrected = filled(9_000)
    chars = corrected.observation_chars
    corrected.calibrate(Usage(prompt_tokens=2 * corrected.tokens, calls=1))
    assert corrected.observation_chars == pytest.approx(chars / 2, rel=0.01)


def test_it_has_steps_when_something_was_done() -> None:
    """Also when all of it is a summary."""
    history = context(max_tokens=2_000)
    assert not history.has_steps
    for number in range(1, 60):
        history.add(step(number, thought="why " * 30))
        relieve(history)
    assert history.summary
    assert history.has_steps


def test_the_plan_of_the_task_is_not_carried_to_the_next_one() -> None:
    history = context(max_tokens=2_000)
    history.add(step(1, thought="Plan:\n1. load\n2. compare"))
    history.add(RunStop(run_id="r", status=ExitStatus.ANSWERED))
    history.add(RunStart(run_id="s", task="And then?", time="", model="m", format="fenced",
                         sandbox={}, budget={}))  # fmt: skip
    for number in range(2, 60):
        history.add(step(number, thought="why " * 30))
        relieve(history)
    assert "2. compare" not in sent(history)
    assert "Plan:\n" + ("why " * 30).strip() in sent(history)


def test_a_task_whose_steps_are_a_summary_stands_before_it_until_the_next_task() -> None:
    """The earlier task becomes a line of the summary."""
    history = context(max_tokens=2_000)
    for number in range(1, 60):
        history.add(step(number, thought="why " * 30))
        relieve(history)
        assert sent(history).count("<task>\nWhy?") == 1
    head = history.messages()[1].content
    assert head.startswith("<task>\nWhy?\n</task>")
    assert "<earlier>" in head
    assert f"The steps up to step {history_end(head)} are not shown." in head
    history.add(RunStart(run_id="s", task="And then?", time="", model="m", format="fenced",
                         sandbox={}, budget={}))  # fmt: skip
    for number in range(60, 160):
        history.add(step(number, thought="why " * 30))
        relieve(history)
        assert sent(history).count("<task>\nAnd then?") == 1
    head = history.messages()[1].content
    assert head.startswith("<task>\nAnd then?\n</task>")
    assert sent(history).count("<task>") == 1


def history_end(head: str) -> int:
    return int(head.partition("The steps up to step ")[2].partition(" ")[0])


def test_a_request_for_a_summary_has_room_in_half_of_the_allowance() -> None:
    history = filled_with(60, thought="why " * 30)
    history.max_tokens = 2_000
    planned = history.relief()
    assert planned is not None
    asked = history.summary_request(planned.last)
    assert len(asked[-1].content) <= 3_500 + len("\n\nWrite the notes.")
    assert history.summary_chars == 700
    assert len(planned.text) <= 700


def test_only_what_leaves_is_asked_to_be_summarised() -> None:
    """The task stays, so it is not; what an earlier summary said is handed on."""
    history = filled_with(9)
    leaving = history.leaving(4)
    assert [r.number for r in leaving if isinstance(r, Step)] == [1, 2, 3, 4]
    assert START not in leaving
    assert history.leaving(0) == []


def test_the_end_of_a_run_leaves_with_its_last_step_and_the_next_task_stays() -> None:
    """A task that stands before a summary already only leaves when the next one does."""
    history = filled_with(1)
    one, two, three = (step(number) for number in (1, 2, 3))
    ended = RunStop(run_id="r", status=ExitStatus.ANSWERED)
    assert history.leaving(1) == [one]
    history.add(Condensation(run_id="r", kind="summarised", first=1, last=1, text="All is well."))
    then = RunStart(run_id="s", task="And then?", time="", model="m", format="fenced", sandbox={},
                    budget={})  # fmt: skip
    for record in (two, ended, then, three):
        history.add(record)
    assert history.leaving(2) == [two, ended]
    assert history.leaving(3) == [START, two, ended, three]
    history.add(Condensation(run_id="s", kind="summarised", first=2, last=2, text="It still is."))
    head, task = history.messages()[1:3]
    assert head.content.startswith("<task>\nWhy?\n</task>")
    assert task.content == "<task>\nAnd then?\n</task>"


def test_what_the_user_put_into_the_kernel_is_told_with_the_task() -> None:
    """And what they want back; each variable once, and not as a change from outside."""
    from kernel_agent.records.trace import Given

    given = Given(name="df", type="DataFrame", shape="3 x 4", about="a: int\nb: str")
    again = Given(name="n", type="int", again=True, undone=3)
    changes = Changes(added=(Variable(name="df", type="DataFrame"), Variable(name="k", type="int")),
                      changed=(Variable(name="n", type="int"),))  # fmt: skip
    history = Context("system prompt", get_format("fenced"), max_tokens=9_000)
    history.add(RunStart(run_id="r", task="Why?", time="", model="m", format="fenced", sandbox={},
                         budget={}, given=(given, again), wanted=("a", "b"),
                         changes=changes))  # fmt: skip
    assert history.messages()[-1].content == (
        "<task>\nWhy?\n</task>\n\n"
        "Variables of the user, set in the kernel already:\n"
        "- df: DataFrame, 3 x 4\n  a: int\n  b: str\n"
        "- n: int (the user has changed it since you saw it last: what you made of it is outdated; "
        "your change to it in step 3 is gone)\n\n"
        "The user takes these variables back when you have answered: a, b. Set them.\n\n"
        "Since the last step, the kernel was changed from outside:\n[variables: new k int]"
    )


@settings(max_examples=examples(200))
@given(
    seen=st.lists(st.sampled_from([50, 500, 2000, 5000, 8000]), min_size=2, max_size=8),
    thought=st.sampled_from([0, 100, 1500]),
    limit=st.sampled_from([1500, 2000, 3000, 4000, 8000]),
)
def test_an_observation_that_was_cut_never_grows_again(
    seen: list[int], thought: int, limit: int
) -> None:
    """And the newest one is cut to its bound before a conversation counts as too long."""
    history = context(max_tokens=32_000)
    for number, chars in enumerate(seen, 1):
        text = "z" * min(chars, history.observation_chars)
        history.add(step(number, text=text, thought="y" * thought))
    history.overflow(limit_tokens=limit)
    before = dict(enumerate(seen, 1))
    while (rung := history.relief()) is not None:
        history.add(rung)
        cut = [entry for entry in history._entries if entry.level == "shortened"]
        assert all(len(entry.text) <= before[entry.number] for entry in cut)
        before |= {entry.number: len(entry.text) for entry in cut}
    assert history.tokens <= history.max_tokens or before[len(seen)] <= history.observation_chars
