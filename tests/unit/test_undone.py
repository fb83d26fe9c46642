"""What an undo takes out of the records: the conversation, the notebook and the view without it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_agent.agent.context import Context
from kernel_agent.errors import UsageError
from kernel_agent.formats import get_format
from kernel_agent.notebook.build import notebook_of
from kernel_agent.records.action import Code
from kernel_agent.records.cell import Answer, CellResult, Changes, Observation, Variable
from kernel_agent.records.codec import from_json
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.reading import standing_steps, undone_given, undone_steps
from kernel_agent.records.story import Story
from kernel_agent.records.trace import (
    Condensation,
    Given,
    Record,
    RunStart,
    RunStop,
    Step,
    Undone,
    to_json,
)
from kernel_agent.records.undo import model_text, person_text
from kernel_agent.session.undo import steps_to_undo


def start(run_id: str, **more: object) -> RunStart:
    return RunStart(
        run_id=run_id, task=f"Task {run_id}", time="", model="m", format="fenced",
        sandbox={}, budget={}, **more,
    )  # type: ignore[arg-type]  # fmt: skip


def step(run_id: str, number: int, *, answer: str = "") -> Step:
    set_here = Changes(added=(Variable(name=f"v{number}", type="int"),))
    result = CellResult(
        status="ok", answer=Answer(text=answer) if answer else None, changes=set_here
    )
    return Step(
        run_id=run_id, number=number, action=Code(source=f"v{number} = {number}", thought="Next."),
        result=result, observation=Observation(text=f"seen {number} " + "x" * 60),
    )  # fmt: skip


def stop(run_id: str, answer: str = "") -> RunStop:
    given_one = Answer(text=answer) if answer else None
    status = ExitStatus.ANSWERED if answer else ExitStatus.STEP_LIMIT
    return RunStop(run_id=run_id, status=status, answer=given_one, message="over")


def conversation(records: list[Record], max_tokens: int = 100_000) -> Context:
    context = Context("system", get_format("fenced"), max_tokens=max_tokens)
    for record in records:
        context.add(record)
    return context


def said(context: Context) -> str:
    return "\n".join(message.content for message in context.messages())


TWO_RUNS: list[Record] = [
    start("a"), step("a", 1), step("a", 2, answer="42"), stop("a", "42"),
    start("b", changes=Changes(added=(Variable(name="own", type="int"),))),
    step("b", 4), step("b", 5), stop("b"),
]  # fmt: skip


def test_an_undone_step_is_out_of_the_prompt_and_one_line_says_so_and_why() -> None:
    undone = Undone(run_id="b", first=5, last=5, reason="the join was wrong")
    told = said(conversation([*TWO_RUNS, undone]))
    assert "seen 4" in told
    assert "seen 5" not in told
    assert "ended without an answer" not in told
    assert "(Step 5 was undone by the user: the join was wrong." in told
    assert told.endswith("before step 5.)")


def test_variables_of_undone_steps_are_unknown_again_and_those_of_the_others_known() -> None:
    undone = Undone(run_id="a", first=2, last=5)
    context = conversation([*TWO_RUNS, undone])
    assert "v1" in context.variables
    assert not {"v2", "v4", "v5", "own"} & context.variables.names


def test_the_tasks_stay_and_what_the_person_did_after_the_first_undone_step_is_not_told() -> None:
    told = said(conversation([*TWO_RUNS, Undone(run_id="a", first=2, last=5)]))
    assert "Task a" in told
    assert "Task b" in told
    assert "changed from outside" not in told


def test_a_variable_that_came_out_as_before_keeps_the_step_that_set_it() -> None:
    known = conversation([*TWO_RUNS]).variables.listing(max_chars=999)
    assert "v1 int (step 1)" in known
    changes = Changes(
        fresh=True, added=tuple(Variable(name=n, type="int") for n in ("v1", "v2", "new"))
    )
    undone = Undone(run_id="b", first=4, last=5, changes=changes)
    listed = conversation([*TWO_RUNS, undone]).variables.listing(max_chars=999)
    assert listed == "new int (step 3), v2 int (step 2), v1 int (step 1)"


def test_what_the_new_kernel_has_instead_is_believed_when_it_differs() -> None:
    changes = Changes(fresh=True, added=(Variable(name="other", type="str"),))
    undone = Undone(run_id="b", first=5, last=5, differences=("Step 4 failed.",), changes=changes)
    context = conversation([*TWO_RUNS, undone])
    assert "other" in context.variables
    assert "v1" not in context.variables
    assert "with exceptions: Step 4 failed.)" in said(context)


def test_steps_that_a_summary_stood_for_are_told_again_when_it_went_with_the_undone_ones() -> None:
    summary = Condensation(run_id="b", kind="summarised", first=1, last=4, text="All of it.")
    shortened = conversation([*TWO_RUNS[:-1], summary, TWO_RUNS[-1]])
    assert "seen 1" not in said(shortened)
    shortened.add(Undone(run_id="b", first=4, last=5))
    assert "All of it." not in said(shortened)
    assert "seen 1" in said(shortened)
    assert "seen 4" not in said(shortened)


def test_an_undo_of_an_undo_s_neighbours_leaves_one_line_only() -> None:
    first = Undone(run_id="b", first=5, last=5)
    records = [*TWO_RUNS, first, start("c"), step("c", 6), stop("c")]
    told = said(conversation([*records, Undone(run_id="a", first=2, last=6)]))
    assert told.count("undone by the user") == 1
    assert "Steps 2 to 6 were undone" in told


def test_a_step_that_is_undone_twice_is_told_of_once() -> None:
    first = Undone(run_id="b", first=5, last=5, reason="too slow")
    again = [first, start("c"), step("c", 5), stop("c")]
    told = said(conversation([*TWO_RUNS, *again, Undone(run_id="c", first=5, last=5)]))
    assert told.count("undone by the user") == 1
    assert "too slow" not in told


def test_variables_put_after_an_undone_step_go_with_it_and_those_put_before_it_stay() -> None:
    put = (Given(name="x", type="int"),)
    records: list[Record] = [
        start("a", given=put), step("a", 1), stop("a"),
        start("b", given=put), step("b", 2), stop("b"),
        start("c", given=put), step("c", 3), stop("c"),
    ]  # fmt: skip
    gone = {
        first: undone_given([*records, Undone(run_id="c", first=first, last=3)])
        for first in (1, 2, 3)
    }
    assert gone == {1: {"b", "c"}, 2: {"c"}, 3: set()}


@st.composite
def sessions(draw: st.DrawFn) -> tuple[list[Record], list[Record]]:
    """Return the records of a session with undos, and those of one without what was undone."""
    records: list[Record] = []
    plain: list[Record] = []
    number = 0
    for run in range(draw(st.integers(1, 5))):
        records.append(start(f"r{run}"))
        plain.append(records[-1])
        for _ in range(draw(st.integers(1, 4))):
            number += 1
            records.append(step(f"r{run}", number))
            plain.append(records[-1])
        records.append(stop(f"r{run}", draw(st.sampled_from(["", "yes"]))))
        plain.append(records[-1])
        standing = standing_steps(records)
        if standing and draw(st.booleans()):
            gone = steps_to_undo(records, draw(st.integers(1, len(standing))))
            runs, numbers = {s.run_id for s in gone}, {s.number for s in gone}
            records.append(Undone(run_id="", first=gone[0].number, last=gone[-1].number))
            plain = [
                r for r in plain
                if not (isinstance(r, Step) and r.number in numbers)
                and not (isinstance(r, RunStop) and r.run_id in runs)
            ]  # fmt: skip
    return records, plain


@given(sessions())
def test_without_its_own_lines_the_prompt_is_that_of_a_session_without_the_undone_steps(
    both: tuple[list[Record], list[Record]],
) -> None:
    records, plain = both
    told = [
        m for m in conversation(records).messages() if "undone by the user" not in m.content
    ]  # fmt: skip
    assert told == conversation(plain).messages()
    assert [s.number for s in standing_steps(records)] == [
        r.number for r in plain if isinstance(r, Step)
    ]
    known = conversation(records).variables.names
    assert known == conversation(plain).variables.names


@given(sessions())
def test_a_trace_that_is_read_back_gives_the_same_prompt(
    both: tuple[list[Record], list[Record]],
) -> None:
    records, _ = both
    again = [from_json(to_json(record)) for record in records]
    assert again == records
    assert conversation(again).messages() == conversation(records).messages()


@given(sessions())
def test_the_notebook_runs_the_steps_that_hold_and_shows_the_others_folded(
    both: tuple[list[Record], list[Record]],
) -> None:
    records, _ = both
    cells = notebook_of(records).cells
    code = {c.metadata.kernel_agent.step for c in cells if c.metadata.kernel_agent.role == "code"}
    folded = {
        c.metadata.kernel_agent.step for c in cells if c.metadata.kernel_agent.role == "folded"
    }
    assert code == {s.number for s in standing_steps(records)}
    assert folded == {number for _, number in undone_steps(records)}


def test_an_answer_whose_step_was_undone_is_withdrawn_in_the_notebook() -> None:
    undone = Undone(run_id="a", first=2, last=2, reason="<script>alert(1)</script>")
    notebook = notebook_of([*TWO_RUNS[:4], undone])
    answer = notebook.cells[1].source
    assert answer.startswith("## Answer withdrawn")
    assert "The answer had been" in answer
    assert "42" in answer
    assert "- **Status:** answered, then undone" in notebook.cells[-1].source
    assert notebook.metadata.kernel_agent.runs[0].answered is False
    assert notebook.metadata.kernel_agent.runs[0].undone == [2]
    assert not any("<script>" in cell.source for cell in notebook.cells)


def test_steps_of_delegated_runs_are_never_undone_themselves() -> None:
    child = [start("c", parent_id="a"), step("c", 1), step("c", 2), stop("c", "done")]
    records = [start("a"), step("a", 1), *child, step("a", 2), stop("a")]
    gone = steps_to_undo(records, 2)
    assert [s.run_id for s in gone] == ["a", "a"]
    assert set(undone_steps([*records, Undone(run_id="a", first=1, last=2)])) == {
        ("a", 1),
        ("a", 2),
    }


@pytest.mark.parametrize(
    ("records", "count", "line"),
    [
        ([], 1, "there is no step to undo"),
        (TWO_RUNS, 0, "there is nothing to undo: it takes back one step or more"),
        (TWO_RUNS, 5, "5 steps cannot be undone: the session has 4 steps"),
        ([start("a"), step("a", 1)], 2, "2 steps cannot be undone: the session has 1 step"),
    ],
)
def test_what_cannot_be_undone_is_said_in_one_line(
    records: list[Record], count: int, line: str
) -> None:
    with pytest.raises(UsageError) as caught:
        steps_to_undo(records, count)
    assert str(caught.value) == line


def test_a_person_is_told_what_went_where_files_are_and_what_did_not_come_out_as_before() -> None:
    undone = Undone(
        run_id="a", first=2, last=3, reason="too slow.", files=("a.png",), cells=1,
        withdrawn=("a",),
        differences=("Step 1 shows something else than before: -0.1 +0.7",),
    )  # fmt: skip
    (block,) = Story().blocks(undone)
    assert block.kind == "notice"
    assert block.text == person_text(undone)
    before = "Variables, conversation and cells' files are as before step 2."
    assert block.text.splitlines() == [
        f"Steps 2 to 3 were undone: too slow. {before}",
        "The answer that was given there does not hold any more.",
        "1 cell of your own, run since then, went with it.",
        "Moved to undone/: a.png",
        "What was played again did not all come out as before:",
        "- Step 1 shows something else than before: -0.1 +0.7",
    ]


def test_hostile_names_and_reasons_stay_one_line_for_the_model() -> None:
    undone = Undone(run_id="a", first=1, last=1, reason="a\nb\x1b[31m", differences=("x\ny",) * 5)
    assert "\n" not in model_text(undone)
    assert "and 2 more" in model_text(undone)
