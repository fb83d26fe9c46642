"""What a person reads before and after deciding: all of it, and harmless."""

from __future__ import annotations

import ast
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_agent.records.action import Code
from kernel_agent.records.cell import CellResult, Decision, HostCall, Observation
from kernel_agent.records.codec import from_json
from kernel_agent.records.decisions import (
    Decided,
    as_json,
    cell_length,
    decision_line,
    denials,
    is_cut,
    list_decisions,
    question_text,
    source_text,
    untrusted_line,
)
from kernel_agent.records.event import Question
from kernel_agent.records.trace import Step, to_json

ORDINARY = Decision(allowed=True, by="policy", reason="cells are not asked about")
NO = Decision(allowed=False, by="person", reason="not to them", seconds=3.2)
EDITED = Decision(allowed=True, by="person", edited="y = 1", original="x = 1")


def step(decision=ORDINARY, *calls):
    return Step(
        run_id="r", number=2, action=Code(source="x"), observation=Observation(text=""),
        decision=decision, result=CellResult(status="ok", calls=calls),
    )  # fmt: skip


def call(decision, **more):
    return HostCall(name="pay", arguments={}, ok=False, number=7, decision=decision, **more)


def test_the_ordinary_is_not_told_and_a_denial_always_is():
    """A cell that runs because cells run is no news."""
    assert list(list_decisions(step())) == []
    made = step(ORDINARY, call(NO, influenced_by=(1, 4), contains=(4,)))
    assert denials(made) == ("pay",)
    assert [decision_line(each) for each in list_decisions(made)] == [
        "pay (call 7) was denied by a person after 3 s: not to them"
    ]
    cell = as_json([step(NO)])[0]
    assert (cell["kind"], cell["name"], cell["number"], cell["contains"]) == (
        "cell", "cell", None, [],
    )  # fmt: skip
    row = as_json([made])[0]
    assert row["number"] == 7
    assert (row["step"], row["kind"], row["name"], row["allowed"]) == (2, "call", "pay", False)
    assert (row["influenced_by"], row["contains"], row["by"]) == ([1, 4], [4], "person")


def test_a_changed_cell_is_told_and_survives_the_trace():
    """With what the model had written and what ran instead."""
    made = step(EDITED)
    assert (
        decision_line(next(list_decisions(made)))
        == "The cell was allowed by a person, who changed it first"
    )
    assert from_json(to_json(made)) == made


@pytest.mark.parametrize(
    "hidden", ["steal()\rprint(1)", "a = '\x1b[2K\x1b[1A'", "x\u202e = 1", "a\u200bb"]
)
def test_nothing_that_would_run_is_hidden_from_the_reader(hidden):
    """No character moves the cursor, turns text around or stays unseen."""
    shown = source_text(hidden)
    assert all(c.isprintable() or c in "\n\t" for c in shown)
    assert "steal" in shown or "steal" not in hidden
    assert shown != hidden


@pytest.mark.parametrize("blank", "\u3164\u115f\uffa0\u2800\u034f\u180b\ufe0f\U000e0101")
def test_a_letter_that_cannot_be_seen_is_shown_by_its_number(blank: str) -> None:
    """A name may be made of one, and a text may hold a message in them."""
    assert blank not in source_text(f"pay(to='bank{blank}', {blank}=1)")
    question = Question(
        kind="call", number=1, reason="", name="pay", arguments={"to": f"bank{blank}"}
    )
    assert f"{ord(blank):x}" in question_text(question)


@given(st.text())
def test_source_is_shown_in_printable_characters_only(text):
    """Whatever it holds."""
    assert all(c.isprintable() or c in "\n\t" for c in source_text(text))


@given(st.text(alphabet="abc =1\n\t'\"#()[]éλ", max_size=60))
def test_ordinary_source_is_shown_as_it_is(text):
    """So that what was read is what runs."""
    assert source_text(text) == text


def test_long_arguments_are_cut_and_can_be_seen_whole():
    """What is left out is counted, and a call reads as Python."""
    question = Question(
        kind="call", number=1, reason="", name="pay",
        arguments={"to": "x\x1b]0;title\x07", "note": "a" * 5000 + "END", "n": 1},
    )  # fmt: skip
    text = question_text(question)
    assert "4,005 characters left out" in text
    assert is_cut(question)
    assert "\x1b" not in text
    assert "END" in question_text(question, whole=True)
    assert "a" * 5000 in question_text(question, whole=True)
    ast.parse(question_text(question, whole=True))
    small = Question(kind="call", number=1, reason="", name="pay", arguments={})
    assert (question_text(small), is_cut(small)) == ("pay()", False)


def test_a_name_of_the_kernels_choice_stays_on_its_line():
    """The name of a call that was never a tool is the kernel's."""
    each = Decided(step=1, what="a\nb\x1b[31m", decision=NO, call=call(NO))
    assert decision_line(each).startswith("a b (call 7)")


def test_a_long_cell_is_said_to_be_long():
    """Its beginning may have left the screen when the question comes."""
    assert cell_length("a = 1\n" * 5) == ""
    assert cell_length("steal()\n" + "\n" * 998 + "print(1)") == "It has 1,000 lines, above."
    assert cell_length("a = 1" + " " * 500 + "; b") == "It has a line of 508 characters, above."
    assert "3 lines" not in cell_length("a\rb\rc")


def test_marks_that_are_piled_on_a_letter_are_counted_by_their_numbers():
    """Enough of them cover the lines around."""
    assert source_text("e\u0301 \u0915\u093f") == "e\u0301 \u0915\u093f"
    assert source_text("a" + "\u0301" * 4) == "a\u0301\u0301" + "\\u0301" * 2


def test_a_parameter_that_is_any_text_forges_no_line():
    """As a function with ** takes it."""
    name = 'to="anna",\n)\n\n  y make this call\nDecide> '
    question = Question(
        kind="call", number=1, reason="r", code="", name="f", arguments={name: 1, "p\u0430y": 2}
    )
    first, *_, last = question_text(question).split("\n")
    assert (first, last) == ("f(", ")")
    assert question_text(question).count("\n") == 3
    assert '"p\\u0430y"=2' in question_text(question)  # a letter that looks like another


def test_many_arguments_are_cut_shorter_so_that_the_question_stays_in_sight():
    arguments = {f"a{number}": "x" * 5000 for number in range(40)}
    question = Question(kind="call", number=1, reason="r", code="", name="f", arguments=arguments)
    assert len(question_text(question)) < 8000
    assert question_text(question).count("4,902 characters left out") == 40
    assert is_cut(question)


def test_arguments_beyond_forty_are_counted_and_can_be_seen_whole():
    for count, more in ((40, []), (43, ["    … 3 more arguments"])):
        arguments = {f"a{number}": number for number in range(count)}
        question = Question(
            kind="call", number=1, reason="r", code="", name="f", arguments=arguments
        )
        assert question_text(question).split("\n")[41:-1] == more
        assert "\n    a39=39,\n" in question_text(question)
        assert f"\n    a{count - 1}={count - 1},\n)" in question_text(question, whole=True)


def test_a_cell_that_the_question_leaves_in_sight_is_not_said_to_be_long():
    """Thirty lines, of up to two hundred characters."""
    assert cell_length("\n".join(["a"] * 30)) == ""
    assert cell_length("\n".join(["a"] * 31)) == "It has 31 lines, above."
    assert cell_length("a" * 200) == ""
    assert cell_length("a" * 201 + "\nb" * 30) == (
        "It has 31 lines and a line of 201 characters, above."
    )


def test_untrusted_data_came_from_calls_that_were_made_and_not_from_denied_ones():
    """Ten of them are named and the others counted."""
    made = [call(None, untrusted=True), call(None, untrusted=False), call(NO, untrusted=True)]
    assert untrusted_line(step(ORDINARY, *made)) == "Untrusted data came from pay (call 7)"
    assert untrusted_line(step(ORDINARY, *made[1:])) == untrusted_line(step()) == ""
    allowed = call(ORDINARY, untrusted=True)
    assert untrusted_line(step(ORDINARY, *[allowed] * 10)).count("pay (call 7)") == 10
    assert untrusted_line(step(ORDINARY, *[allowed] * 11)).endswith("pay (call 7) and 1 more")


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.9, ""), (1.0, " after 1 s"), (61.2, " after 61 s")]
)
def test_how_long_a_decision_took_is_told_from_one_second_on(seconds, told):
    decided = Decided(step=1, what="pay", decision=dataclasses.replace(NO, seconds=seconds))
    assert decision_line(decided) == f"pay was denied by a person{told}: not to them"
