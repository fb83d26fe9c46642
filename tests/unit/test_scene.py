"""What the panel is told: notes of text, rows and pictures, and the same again on a replay."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from kernel_agent_extension.content import MAX_TEXT, rows
from kernel_agent_extension.messages import Scene

from kernel_agent.records.action import Call, Calls, Code
from kernel_agent.records.cell import Answer, CellError, CellResult, Decision, Observation
from kernel_agent.records.conversation import Usage
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.event import Acting, Notice, Output, Question, ReplyText
from kernel_agent.records.trace import RunStart, RunStop, Step

BUDGET = {"max_steps": 5, "max_seconds": 60.0, "max_tokens": None, "max_cost": 1.0}
START = RunStart(
    run_id="a", task="How many?", time="", model="m", format="fenced", budget=BUDGET,
    sandbox={"level": "none", "statement": "NOT SANDBOXED: code runs with your rights."},
)  # fmt: skip
PRINT = Code(source="print('héllo 🐧')  # it", thought="I look.")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def scene(clock: Clock) -> Scene:
    scene = Scene(task="How many?", level="auto", clock=clock)
    scene.tell(START)
    return scene


def output(text: str, name: str = "stdout", number: int = 1) -> Output:
    return Output(
        number=number, output={"output_type": "stream", "name": name, "text": text}
    )  # fmt: skip


def step(number: int = 1, *, outputs: tuple[dict[str, object], ...] = (), **fields: object) -> Step:
    given = {"action": PRINT, "result": CellResult(status="ok", outputs=outputs), **fields}
    usage = Usage(prompt_tokens=90, completion_tokens=10, cost_usd=0.25)
    return Step(
        run_id="a", number=number, observation=Observation(text="seen"), usage=usage, **given
    )


def only(notes: list[dict], op: str) -> dict:
    (found,) = [note for note in notes if note["op"] == op]
    return found


def test_the_question_and_the_level_are_there_before_the_run_begins(clock: Clock) -> None:
    """A panel appears at once; the sandbox is chosen later."""
    first = only(Scene(task="How many?", level="auto", clock=clock).replay(), "run")
    assert (first["task"], first["level"], first["begun"]) == ("How many?", "auto", False)


def test_the_level_that_a_run_got_replaces_the_one_that_was_asked_for(scene: Scene) -> None:
    """And its statement comes with it."""
    told = only(scene.replay(), "run")
    assert (told["level"], told["begun"]) == ("none", True)
    assert told["statement"].startswith("NOT SANDBOXED")


def test_what_is_not_asked_or_held_back_is_told_with_the_run(clock: Clock) -> None:
    """By the run's own settings, whatever a forged trace has for them."""
    config = {
        "approve": "never",
        "allow_hosts": ["example.org"],
        "approve_tools": {"send": "allow"},
    }
    scene = Scene(task="How many?", level="auto", clock=clock)
    told = only(scene.tell(replace(START, config=config)), "run")
    assert told["eased"] == ["Asks: never", "Never asked: send", "Reaches: example.org"]
    usual = {"approve": "risky", "allow_hosts": [], "approve_tools": {"send": "ask"}}
    for other in ({}, usual, {"approve": 5, "allow_hosts": 7, "approve_tools": "x"}):
        assert "eased" not in only(scene.tell(replace(START, config=other)), "run")


def test_a_step_has_the_pages_sentence_and_its_reason_when_it_failed(scene: Scene) -> None:
    """The thought is sent whole, and without what the sentence says."""
    action = Code(source="x", thought="I **add** them. Then I look.")
    act = only(scene.tell(Acting(number=1, action=action)), "act")
    assert (act["sentence"], act["rest"]) == ("I add them", "Then I look.")
    assert act["thought"] == action.thought
    error = CellError(ename="NameError", evalue="no x", traceback=())
    result = CellResult(status="error", outputs=(), seconds=0.1, error=error)
    step = Step(
        run_id="a", number=1, action=action, observation=Observation(text=""), result=result
    )
    assert only(scene.tell(step), "step")["sentence"] == "Failed: no x"


def test_code_is_coloured_by_lengths_that_fit_javascript(scene: Scene) -> None:
    """Characters beyond the first plane count twice there."""
    note = only(scene.tell(Acting(number=1, action=PRINT)), "act")
    units = len(PRINT.source.encode("utf-16-le")) // 2
    import re

    runs = re.findall(r"([a-z])(\d+)", note["hues"])
    assert sum(int(length) for _, length in runs) == units
    assert runs[0] == ("f", "5")
    assert runs[-1] == ("c", "4")


def test_a_replay_after_a_step_has_its_code_and_output_but_not_its_draft(scene: Scene) -> None:
    """What was being written became the action."""
    for piece in ("I look.\n", "```python\n"):
        scene.tell(ReplyText(text=piece))
    assert [n["text"] for n in scene.replay() if n["op"] == "text"] == ["I look.\n", "```python\n"]
    scene.tell(Acting(number=1, action=PRINT))
    scene.tell(output("one\n"))
    scene.tell(output("two\n"))
    scene.tell(step())
    told = scene.replay()
    assert "text" not in {note["op"] for note in told}
    assert only(told, "out")["text"] == "one\ntwo\n"
    assert only(told, "step")["ok"] is True


def test_a_reply_that_is_asked_for_again_is_not_put_behind_the_one_before(scene: Scene) -> None:
    scene.tell(ReplyText(text="x" * 30_000))
    scene.tell(Notice(text="The reply could not be read; asking again."))
    assert only(scene.tell(ReplyText(text="second")), "text")["text"] == "second"
    assert [n["text"] for n in scene.replay() if n["op"] == "text"] == ["second"]


def test_a_native_call_in_the_making_is_told_apart_from_the_thought(scene: Scene) -> None:
    told = [
        *scene.tell(ReplyText(text="I look.")),
        *scene.tell(ReplyText(text='python {"code": "1', call=True)),
    ]
    assert [(note["text"], note.get("call", False)) for note in told] == [
        ("I look.", False),
        ('python {"code": "1', True),
    ]


def test_outputs_that_were_shown_as_they_came_are_not_shown_again_with_the_step(
    scene: Scene,
) -> None:
    """The step's record has them, too."""
    outputs = ({"output_type": "stream", "name": "stdout", "text": "one\n"},)
    scene.tell(Acting(number=1, action=PRINT))
    scene.tell(output("one\n"))
    assert [n["op"] for n in scene.tell(step(outputs=outputs))] == ["step", "spent"]
    late = scene.tell(step(2, outputs=outputs))
    assert [n["op"] for n in late] == ["act", "out", "step", "spent"]


def test_escape_sequences_are_dropped_also_when_they_are_cut_between_two_pieces(
    scene: Scene,
) -> None:
    """The kernel writes in pieces of any length."""
    scene.tell(Acting(number=1, action=PRINT))
    texts = [only(scene.tell(output(text)), "out")["text"] for text in ("a\x1b[3", "1mred\x1b[0m")]
    assert "".join(texts) == "ared"


def test_a_flood_of_output_is_cut_and_said_to_be_cut_once(scene: Scene) -> None:
    """The notebook has all of it."""
    scene.tell(Acting(number=1, action=PRINT))
    notes = [note for _ in range(50) for note in scene.tell(output("x" * 999 + "\n"))]
    assert sum(len(note["text"]) for note in notes if note["kind"] == "stream") <= MAX_TEXT
    assert [note["kind"] for note in notes].count("more") == 1


def test_what_is_spent_is_counted_against_the_caps(scene: Scene, clock: Clock) -> None:
    """Steps, seconds, tokens and money; no cap is None."""
    clock.now += 7
    spent = only(scene.tell(step()), "spent")
    assert spent["caps"] == [5, 60.0, None, 1.0]
    assert (spent["steps"], spent["seconds"], spent["tokens"], spent["cost"]) == (1, 7, 100, 0.25)


def test_the_clock_stands_still_while_a_person_is_asked(scene: Scene, clock: Clock) -> None:
    """Also when the page is opened anew meanwhile."""
    clock.now += 2
    asked = scene.ask(1, Question(kind="cell", number=2, reason="It writes.", code="x = 1"))
    assert only(asked, "ask")["code"] == "x = 1"
    clock.now += 1000
    assert only(scene.replay(), "spent")["seconds"] == 2
    assert only(scene.replay(), "ask")["reason"] == "It writes."
    said = scene.close_question(1, Decision(allowed=False, by="person", reason="not now"))
    assert only(said, "told")["said"] == "You denied the cell: not now"
    clock.now += 1
    assert only(scene.replay(), "spent")["seconds"] == 3
    assert "ask" not in {note["op"] for note in scene.replay()}


def test_the_box_below_a_question_promises_no_more_than_it_does(scene: Scene) -> None:
    """A yes for all further cells or calls ends when untrusted data enters; a no does not."""
    cell = Question(kind="cell", number=2, reason="r", code="x = 1")
    call = Question(kind="call", number=3, reason="r", name="mail")
    ends = "in this run; a yes until untrusted data comes in"
    assert only(scene.ask(1, cell), "ask")["rest"] == f"The same for every further cell {ends}"
    told = only(scene.ask(2, call), "ask")["rest"]
    assert told == f"The same for every further call of mail {ends}"


def test_nothing_that_would_run_is_hidden_in_a_question(scene: Scene) -> None:
    """A carriage return lets text be written over, and ends a line for Python."""
    code = "steal()\rprint(1)\x1b[2K # \u3164"
    asked = scene.ask(1, Question(kind="cell", number=2, reason="r", code=code))
    assert only(asked, "ask")["code"] == "steal()\nprint(1)\\x1b[2K # \\U00003164"
    assert only(asked, "ask")["cut"] is False
    told = scene.tell(Acting(number=1, action=Code(source=code, thought="")))
    assert only(told, "act")["code"].startswith("steal()\nprint(1)")


def test_what_a_question_leaves_out_is_counted(scene: Scene) -> None:
    """Of a cell that is shown in part only, no part can be edited and run for the whole."""
    code = "a = 1\n" * 20_000
    asked = only(scene.ask(1, Question(kind="cell", number=2, reason="r", code=code)), "ask")
    assert "characters left out" in asked["code"]
    assert asked["cut"] is True
    question = Question(
        kind="call", number=2, reason="r", code="", name="mail", arguments={"to": "x" * 50_000}
    )
    asked = only(scene.ask(2, question), "ask")
    assert "43,752 characters left out" in asked["code"]


def test_calls_are_shown_as_calls_with_what_came_of_them(scene: Scene) -> None:
    """Formats whose actions are calls have no cell."""
    action = Calls(calls=(Call(name="rate", arguments={"currency": "USD"}),), thought="I ask.")
    scene.tell(Acting(number=1, action=action))
    notes = scene.tell(step(action=action, result=None))
    assert only(scene.replay(), "act")["code"] == "rate(currency='USD')"
    assert only(notes, "out")["text"] == "seen"


def test_delegated_work_is_noted_and_its_steps_are_not_mixed_in(scene: Scene) -> None:
    """A child's steps have numbers of their own."""
    child = RunStart(**{**START.__dict__, "run_id": "b", "parent_id": "a", "task": "a part"})
    assert only(scene.tell(child), "note")["text"] == "Delegated: a part"
    inner = Step(**{**step().__dict__, "run_id": "b"})
    assert [note["op"] for note in scene.tell(inner)] == ["spent"]
    ended = scene.tell(RunStop(run_id="b", status=ExitStatus.ANSWERED, answer=None, steps=1,
                               seconds=1.0, message=""))  # fmt: skip
    assert "a part" in only(ended, "note")["text"]
    assert "end" not in {note["op"] for note in scene.replay()}


def test_the_end_says_how_it_ended_and_why(scene: Scene) -> None:
    """With the answer where there is one."""
    stop = RunStop(run_id="a", status=ExitStatus.STEP_LIMIT, answer=None, steps=5, seconds=3.0,
                   message="the limit of 5 steps was reached", partial="5 steps ran.")  # fmt: skip
    end = only(scene.tell(stop), "end")
    assert (end["ok"], end["answer"]) == (False, None)
    assert end["why"] == "Not answered: the limit of 5 steps was reached"
    assert "5 steps ran." in end["partial"]
    answered = RunStop(run_id="a", status=ExitStatus.ANSWERED, answer=Answer(text="42"), steps=1,
                       seconds=1.0, message="")  # fmt: skip
    assert only(scene.tell(answered), "end")["answer"] == "42"


def test_a_table_becomes_rows_of_texts() -> None:
    """Headings say what they cover; text is what it says, tags included."""
    html = (
        '<div>\n<table border="1" class="dataframe">\n<thead><tr><th></th><th colspan="2">a</th>'
        "</tr></thead>\n<tbody><tr><th>0</th><td>1</td><td>&lt;b&gt;x&lt;/b&gt;</td></tr></tbody>"
        "</table>\n<p>9 rows</p></div>"
    )
    assert rows(html) == {
        "head": [[["", 1, 1, True], ["a", 2, 1, True]]],
        "body": [[["0", 1, 1, True], "1", "<b>x</b>"]],
        "below": "9 rows",
    }
    assert rows("<p>no table</p>") is None


def test_a_step_costs_less_than_two_and_a_half_kilobytes_beyond_its_outputs(scene: Scene) -> None:
    """Its reply as it is written, its thought, its coloured code, how it ended."""
    code = "\n".join(f"table_{k} = load('part_{k}.csv').groupby('a')['b'].mean()" for k in range(9))
    notes = [n for at in range(0, 600, 6) for n in scene.tell(ReplyText(text=code[at : at + 6]))]
    text = "".join(note["text"] for note in notes)  # pieces are sent together
    action = Code(source=code, thought="I look at each part, and at the whole of it after that.")
    rest = [*scene.tell(Acting(number=1, action=action)), *scene.tell(step(action=action))]
    assert len(json.dumps([{"op": "text", "text": text}, *rest])) < 2500


def test_a_step_that_a_person_edited_shows_what_runs_and_what_the_model_had_written(
    scene: Scene,
) -> None:
    """At once, when it is allowed, and on a replay; the thought stays."""
    scene.tell(Acting(number=1, action=PRINT))
    scene.ask(7, Question(kind="cell", number=1, reason="it writes", code=PRINT.source))
    edited = Decision(allowed=True, by="person", edited="x = 2", original=PRINT.source)
    told = scene.close_question(7, edited)
    act = only(told, "act")
    assert (act["code"], act["thought"]) == ("x = 2", "I look.")
    assert act["was"]["code"] == PRINT.source
    assert [note["op"] for note in told if note["op"] in ("act", "told")] == ["act", "told"]
    assert only(scene.replay(), "act") == act


def test_an_edited_step_that_is_shown_afterwards_has_both_cells(scene: Scene) -> None:
    """Nobody announced it."""
    decision = Decision(allowed=True, by="person", edited="x = 2", original=PRINT.source)
    told = scene.tell(step(action=Code(source="x = 2", thought="I look."), decision=decision))
    act = only(told, "act")
    assert (act["code"], act["was"]["code"]) == ("x = 2", PRINT.source)


def test_a_page_that_is_loaded_while_the_run_starts_knows_since_when_and_for_what(
    clock: Clock,
) -> None:
    scene = Scene(task="How many?", level="auto", clock=clock, waits="starting the kernel")
    clock.now += 4
    first = only(scene.replay(), "run")
    assert (first["waits"], first["age"]) == ("starting the kernel", 4)
    scene.tell(START)
    assert "age" not in only(scene.replay(), "run")
