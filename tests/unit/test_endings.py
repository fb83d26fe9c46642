"""An ending has its words in one place: every view of a run takes them from there."""

from __future__ import annotations

from pathlib import Path

import kernel_agent_extension
import pytest
from kernel_agent_extension.messages import Scene

from kernel_agent.notebook.build import notebook_of
from kernel_agent.notebook.page import summary_html
from kernel_agent.records.cell import Observation
from kernel_agent.records.conversation import Usage
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.reading import own_runs, runs_of, spent_texts
from kernel_agent.records.story import Story
from kernel_agent.records.trace import RunStart, RunStop, Step, Undone

every_ending = pytest.mark.parametrize("status", ExitStatus)


def start(run_id: str = "r", **fields: object) -> RunStart:
    return RunStart(
        run_id=run_id, task="How many?", time="", model="m", format="fenced", sandbox={}, budget={},
        **fields,
    )  # fmt: skip


def run(status: ExitStatus) -> list[RunStart | RunStop]:
    return [start(), RunStop(run_id="r", status=status, message="So it was.")]


@every_ending
def test_terminal_page_and_notebook_say_an_ending_in_its_own_words(status: ExitStatus) -> None:
    told = " ".join(block.text for block in Story().blocks(run(status)[1]))
    assert status is ExitStatus.ANSWERED or f"{status.sentence}. So it was." in told
    assert f">{status.sentence}</strong>" in summary_html(run(status))
    assert f"- **Status:** {status.words}" in notebook_of(run(status)).cells[-1].source


@every_ending
def test_the_panel_is_sent_the_label_of_an_ending_and_knows_none_itself(
    status: ExitStatus,
) -> None:
    scene = Scene(task="How many?", level="none", clock=lambda: 0.0)
    notes = [note for record in run(status) for note in scene.tell(record)]
    (end,) = [note for note in notes if note["op"] == "end"]
    assert end["words"] == status.label
    page = Path(kernel_agent_extension.__file__).with_name("panel.js").read_text()
    assert f'"{status.label}"' not in page
    assert f'"{status.sentence}' not in page


def test_an_answer_a_limit_and_a_persons_stop_are_no_faults() -> None:
    limits = {"step_limit", "time_limit", "token_limit", "cost_limit", "loop_detected"}
    assert not any(ExitStatus(name).is_fault for name in limits | {"answered", "interrupted"})
    faults = {"denied", "kernel_lost", "model_error", "cell_failed"}
    assert all(ExitStatus(name).is_fault for name in faults)


def test_runs_that_claim_to_be_each_others_parent_are_the_sessions_own() -> None:
    """So a damaged trace still shows every run; what one of its runs delegated stays below it."""
    records = [start("a", parent_id="b"), start("b", parent_id="a"), start("c", parent_id="c"),
               start("d", parent_id="elsewhere"), start("e", parent_id="d")]  # fmt: skip
    assert list(own_runs(records)) == ["a", "b", "c", "d"]
    assert [(r.number, r.start.run_id, [c.start.run_id for c in r.children])
            for r in runs_of(records)] == [(1, "a", []), (2, "b", []), (3, "c", []),
                                           (4, "d", ["e"])]  # fmt: skip


@every_ending
def test_a_run_has_an_answer_when_it_ended_with_one_that_still_holds(status: ExitStatus) -> None:
    """Not while it goes on, nor when its last step was undone."""
    step = Step(run_id="r", number=1, action=None, observation=Observation(text=""))
    began, end = run(status)
    undo = Undone(run_id="r", first=1, last=1)
    ended, going, undone = (
        runs_of(records)[0]
        for records in ([began, step, end], [began, step], [began, step, end, undo])
    )
    assert ended.is_answered is (status is ExitStatus.ANSWERED)
    assert not going.is_answered
    assert not undone.is_answered


def test_what_was_spent_stands_against_its_caps() -> None:
    """One cap of one thing is one thing."""
    usage = Usage(prompt_tokens=1500, cost_usd=0.5, estimated=True)
    budget = {"max_steps": 1, "max_seconds": 900, "max_tokens": 2000, "max_cost": 2}
    assert list(spent_texts(steps=0, seconds=1.0, usage=usage, budget=budget)) == [
        "0 of 1 step", "1.0 of 900 s", "about 1,500 of 2,000 tokens", "$0.5000 of 2",
    ]  # fmt: skip
