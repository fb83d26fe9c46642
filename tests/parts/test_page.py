"""What the summary of a run says, in which order, and how large it may be."""

import base64
import dataclasses
import io
import re
from urllib.parse import quote, unquote

import html5lib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from support.examples import examples
from support.golden import records as golden

from kernel_agent.errors import NotebookError
from kernel_agent.notebook.exporter import notebook_of
from kernel_agent.notebook.outputs import displayable
from kernel_agent.notebook.page import page_html, summary_html
from kernel_agent.notebook.pieces import code
from kernel_agent.records.action import Code
from kernel_agent.records.cell import (
    Answer,
    CellError,
    CellResult,
    Decision,
    Delegated,
    HostCall,
    Observation,
)
from kernel_agent.records.conversation import Usage
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.trace import (
    Condensation,
    RunStart,
    RunStop,
    Step,
    Undone,
    Visit,
)
from kernel_agent.safe.markup import INK, belt


def start(run_id="r", **fields):
    given = {
        "task": "How many rows?", "time": "2026-01-02T03:04:05+00:00", "model": "some-model",
        "format": "fenced", "sandbox": {"level": "bubblewrap", "statement": "Sandbox: bubblewrap"},
        "budget": {"max_steps": 30, "max_tokens": 5000, "max_cost": 0.5},
    }  # fmt: skip
    return RunStart(run_id=run_id, **given | fields)


def step(number=1, outputs=(), thought="Count them.", run_id="r", status="ok", **fields):
    known = {f.name for f in dataclasses.fields(CellResult)}
    told = {name: fields.pop(name) for name in list(fields) if name in known}
    result = CellResult(status=status, outputs=tuple(outputs), **told)
    return Step(
        run_id=run_id, number=number, action=Code(source="len(df)", thought=thought),
        observation=Observation(text=""), result=result, **fields,
    )  # fmt: skip


def stop(run_id="r", status=ExitStatus.ANSWERED, **fields):
    given = {"answer": Answer(text="344", value=344, kind="int")} if status == "answered" else {}
    usage = Usage(prompt_tokens=1000, completion_tokens=20, cost_usd=0.012)
    given |= {"steps": 1, "seconds": 2.5, "usage": usage}
    return RunStop(run_id=run_id, status=status, **given | fields)


def printed(text):
    return {"output_type": "stream", "name": "stdout", "text": text}


def figure(size=(40, 20), noise=False):
    buffer = io.BytesIO()
    picture = Image.effect_noise(size, 100) if noise else Image.new("RGB", size, "teal")
    picture.save(buffer, "PNG")
    data = {"image/png": base64.b64encode(buffer.getvalue()).decode(), "text/plain": "<Figure>"}
    return {"output_type": "display_data", "data": data, "metadata": {}}


def text_of(source):
    tree = html5lib.parse(source, namespaceHTMLElements=False)
    return re.sub(r"\s+", " ", " ".join(tree.itertext())).replace("$ ", "$")


def test_the_question_comes_first_then_the_answer_then_the_steps():
    """Also a reader whose viewer removes every style finds them in this order."""
    said = text_of(summary_html([start(), step(), stop()]))
    places = [said.index(t) for t in ("How many rows?", "Answered", "344", "Step 1", "some-model")]
    assert places == sorted(places)


def test_a_cap_is_named_only_where_more_than_half_of_it_was_used():
    said = text_of(summary_html([start(), step(), stop()]))
    assert "1 step · 2.5 s · 1,020 tokens · $0.0120" in said
    assert " of " not in said
    near = {"max_steps": 30, "max_seconds": 4, "max_tokens": 2040, "max_cost": 0.02}
    said = text_of(summary_html([start(budget=near), step(), stop()]))
    assert "1 step · 2.5 of 4 s · 1,020 tokens · $0.0120 of 0.02" in said


@pytest.mark.parametrize("status", list(ExitStatus))
def test_every_ending_has_words(status):
    records = [start(), step(), stop(status=status, message="why", partial="so far")]
    said = text_of(summary_html(records))
    assert ("so far" in said) == (status is not ExitStatus.ANSWERED)


def test_a_run_without_a_sandbox_says_so_outside_of_any_fold():
    sandbox = {"level": "none", "statement": "NOT SANDBOXED: cells have your rights"}
    source = summary_html([start(sandbox=sandbox), step(), stop()])
    assert "NOT SANDBOXED" in source[: source.index("<details")]


def test_what_is_not_asked_or_held_back_stands_beside_the_ending():
    """In the head, outside of any fold, for as long as it holds; escaped like any text."""
    config = {"approve": "never", "allow_hosts": ["<b>x</b>.org", "y" * 500]}
    head = summary_html([start(config=config), step(), stop()]).split("<details")[0]
    assert ">Asks: never</strong>" in head
    assert "Reaches: &lt;b&gt;x" in head
    assert "y" * 81 not in head
    assert "Asks:" not in summary_html([start(config={"approve": "always"}), step(), stop()])


def test_a_run_that_goes_on_shows_what_there_is():
    source = summary_html([start(), step()])
    assert "Unfinished" in source
    assert '<details open=""' in source


def test_an_answer_that_is_a_table_is_shown_as_one():
    described = {
        "columns": [["mass"]], "column_names": [""], "index": [["Gentoo"]], "index_names": [""],
        "cells": [["5076"]], "row_gap": None, "column_gap": None, "shape": [1, 1],
    }  # fmt: skip
    output = {
        "output_type": "display_data",
        "data": {
            "text/plain": "mass", "application/vnd.kernel-agent.value+json": {"table": described},
        },
        "metadata": {"kernel_agent": {"role": "answer"}},
    }  # fmt: skip
    answer = Answer(text="mass", kind="DataFrame")
    source = summary_html([start(), step(outputs=[output]), stop(answer=answer)])
    above = source[: source.index("<details")]
    assert '<td style="text-align:right">5076</td>' in above
    assert '<th style="text-align:left">Gentoo</th>' in above


def test_the_last_figure_stands_by_an_answer_in_words():
    answer = Answer(text="It rose.", kind="str")
    source = summary_html([start(), step(outputs=[figure()]), stop(answer=answer)])
    assert "data:image/png;base64," in source[: source.index("<details")]


def test_a_failed_step_is_open_and_shows_its_error():
    error = CellError(ename="KeyError", evalue="'isle'", traceback=())
    said = summary_html([start(), step(status="error", error=error), stop()])
    assert "1 failed" in said
    assert "KeyError: 'isle'" in said


def test_decisions_calls_and_network_are_told():
    denied = Decision(allowed=False, by="person", reason="too dear", seconds=3.0)
    call = HostCall(name="buy", arguments={"n": 1}, ok=False, error="PermissionError: no",
                    number=7, decision=denied, untrusted=True, influenced_by=(2, 3))  # fmt: skip
    edited = Decision(allowed=True, by="person", original="len(df) - 1")
    visits = (Visit(host="example.org", port=443, allowed=False, requests=2, reason="not named"),)
    said = text_of(
        summary_html([start(), step(calls=(call,), decision=edited), stop(network=visits)])
    )
    for told in (
        "buy (call 7) was denied by a person after 3 s: too dear", "Call 7:",
        "PermissionError: no", "untrusted",
        "could be influenced by call 2, 3", "A person changed the cell",
        "As the model had written it", "example.org:443 refused",
    ):  # fmt: skip
        assert told in said


def test_a_delegated_run_stands_in_the_call_that_asked_for_it():
    call = HostCall(name="delegate", arguments={}, ok=True, result="9", run_id="child", number=1)
    records = [
        start(), start("child", task="The smaller question", parent_id="r"),
        step(1, run_id="child"), stop("child"), step(2, calls=(call,)), stop(),
    ]  # fmt: skip
    said = text_of(summary_html(records))
    assert said.index("delegate(") < said.index("The smaller question") < said.index("some-model")


def test_an_undone_step_is_marked_and_its_answer_withdrawn():
    answer = Answer(text="It is 42.")
    gone = Undone(run_id="r", first=2, last=2, reason="wrong column", withdrawn=("r",))
    ended = RunStop(run_id="r", status=ExitStatus.ANSWERED, answer=answer, steps=2)
    said = text_of(summary_html([start(), step(1), step(2), ended, gone]))
    for told in ("Answered, then undone", "The answer does not hold any more", "wrong column",
                 "The answer that was withdrawn", "It is 42.", "2 steps, 1 undone"):  # fmt: skip
        assert told in said


def test_agents_are_told_with_how_they_ended_and_tables_by_their_type():
    agent = Delegated(
        run_id="c", name="1-biscoe", folder="agents/1-biscoe", task="Biscoe?",
        status=ExitStatus.STEP_LIMIT, message="the limit was reached", steps=6,
    )  # fmt: skip
    failed = HostCall(name="delegate", arguments={}, ok=False, error="RuntimeError: x",
                      delegated=agent, number=2)  # fmt: skip
    table = {"$": "table", "arrow": "QVJST1cx"}
    given = HostCall(name="fit", arguments={"args": [table], "kwargs": {"n": 3}}, ok=True,
                     result=table, number=1)  # fmt: skip
    said = text_of(summary_html([start(), step(calls=(failed, given)), stop()]))
    assert "QVJST1cx" not in said
    for told in (
        'fit("<table>", n=3) → "<table>"', "Agent 1-biscoe: Biscoe?", "step limit · 6 steps",
        "the limit was reached",
    ):  # fmt: skip
        assert told in said


def test_runs_that_claim_to_be_each_others_parent_are_both_shown():
    records = [start("a", parent_id="b", task="One"), start("b", parent_id="a", task="Two")]
    said = text_of(summary_html(records))
    assert "One" in said
    assert "Two" in said


def test_what_shortened_the_conversation_is_told_in_its_place():
    note = Condensation(run_id="r", kind="masked", first=1, last=1, reason="too long",
                        tokens_before=9000, tokens_after=100)  # fmt: skip
    assert "9,000 to 100 tokens" in summary_html([start(), step(), note, stop()])


def test_the_notebook_is_a_link_to_a_path_and_nothing_else():
    for name in ("runs/a b/run.ipynb", "javascript:alert(1)", "//host/x", "data:text/html,x"):
        source = summary_html([start(), stop()], notebook=name)
        links = re.findall(r'href="([^"]*)"', source)
        assert all(re.match(r"\.?/(?!/)", link) for link in links), links
    assert 'href="./runs/a%20b/run.ipynb"' in summary_html([start()], notebook="runs/a b/run.ipynb")


def test_no_text_becomes_a_link_or_markup():
    source = summary_html([start(task="See https://x.example **now** [x](y) <b>"), stop()])
    assert "<a " not in source
    assert "**now** [x](y) &lt;b&gt;" in source


@pytest.mark.parametrize("many", [1, 40, 3_000])
@pytest.mark.parametrize("max_chars", [20_000, 200_000])
def test_the_summary_never_outgrows_its_bound(many, max_chars):
    outputs = [printed("<&>" * 3_000), figure((300, 300), noise=True)]
    steps = [step(n, outputs if many < 100 else outputs[:1]) for n in range(1, many + 1)]
    source = summary_html([start(), *steps, stop()], max_chars=max_chars)
    assert len(source) <= max_chars
    said = text_of(source)
    assert "344" in said
    assert "left out" in said
    assert f"Step {many} " in said


def test_a_picture_is_scaled_down_until_it_fits():
    source = summary_html([start(), step(outputs=[figure((700, 700), noise=True)]), stop()],
                          max_chars=700_000)  # fmt: skip
    (data, *_) = re.findall(r"base64,([^\"]+)", source)
    with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
        assert 300 <= picture.width < 700


def test_a_picture_for_a_fine_screen_is_as_wide_as_it_asks_to_be():
    """seaborn states the size with decimals; what is no size is ignored."""
    fine, wrong = figure((200, 100)), figure((200, 100))
    fine["metadata"] = {"image/png": {"width": 99.6, "height": 50.2}}
    wrong["metadata"] = {"image/png": {"width": '1" onerror="', "height": float("nan")}}
    source = summary_html([start(), step(1, [fine]), step(2, [wrong]), stop()])
    widths = [tag.get("width") for tag in html5lib.parse(source).iter() if "img" in str(tag.tag)]
    assert widths == [None, "100", None]  # the first is the last figure, beside the answer
    assert displayable(fine)["metadata"] == {"image/png": {"width": 100, "height": 50}}


def test_a_damaged_step_is_named_and_the_others_are_shown():
    bad = dataclasses.replace(step(2), action=Code(source=7, thought=[]))
    said = text_of(summary_html([start(), step(1), bad, step(3), stop()]))
    assert "Step 2 cannot be shown: its record in the trace is damaged." in said
    assert "Step 3" in said


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([], "holds no run"),
        ([stop()], "holds no run"),
        ([start(), stop(seconds="soon")], "damaged"),
        ([start(budget=None)], "damaged"),
    ],
)
def test_what_cannot_be_shown_is_one_error(records, why):
    with pytest.raises(NotebookError, match=why):
        summary_html(records)


def test_the_last_belt_changes_nothing():
    for records in (golden(), [start(), step(outputs=[figure()]), stop()]):
        source = summary_html(records)
        assert belt(source) == source


def test_the_page_loads_nothing_and_says_that_its_trace_is_cut():
    source = page_html(golden(), cut=True)
    assert source.startswith("<!DOCTYPE html>")
    assert "default-src 'none'; img-src data:" in source
    assert "The last record is incomplete" in source
    assert source.count("Which *species* is the heaviest?") >= 2  # the title, too
    assert "How many rows?" in source  # the session's second run


def test_every_colour_reads_on_white_and_on_black():
    """A contrast of 4 to both: nobody knows the theme in which a notebook is read."""

    def light(ink):
        parts = [int(ink[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for name, ink in INK.items():
        assert 1.05 / (light(ink) + 0.05) >= 3.99, name
        assert (light(ink) + 0.05) / (light("#111111") + 0.05) >= 4, name


@pytest.mark.parametrize("source", ["(" * 20_000, '"' * 19_999, "f'{" * 6_000, "\\\n" * 9_000])
def test_code_that_is_no_python_is_shown_as_it_is(source):
    shown = "".join(html5lib.parse(code(source, max_chars=20_000)).itertext())
    assert shown.strip() == source.strip()


# --- answers as a person writes them ---------------------------------------------------------


def shown(answer, *before):
    source = summary_html([start(), *before, stop(answer=answer)])
    return source[: source.index("<details")]


@pytest.mark.parametrize(
    ("answer", "html"),
    [
        (Answer(text="np.float64(91219.93250000001)", value=91219.93250000001, kind="float64"),
         ">91,219.93</p>"),
        (Answer(text="1234567", value=1234567, kind="int"), ">1,234,567</p>"),
        (Answer(text="True", value=True, kind="bool"), ">Yes</p>"),
        (Answer(text="Timestamp('2025-01-01 00:00:00')", value="2025-01-01T00:00:00",
                kind="Timestamp"), ">2025-01-01</p>"),
        (Answer(text="**North** sold `most`.", kind="str"), "<strong>North</strong> sold <code"),
        (Answer(text="# Result\n\n- a\n- b", kind="str"), ">Result</h4>"),
        (Answer(text="|a|b|\n|-|-|\n|x|1|", kind="str"), "text-align:right\">1</td>"),
        (Answer(text="{'a': 1}", value={"a": 12345.0}, kind="dict"), ">12,345</td>"),
        (Answer(text="(np.int64(3), 4)", value=[3, 4], kind="tuple"), ">(3, 4)</p>"),
    ],
)  # fmt: skip
def test_an_answer_is_shown_as_a_person_writes_it(answer, html):
    assert html in shown(answer, step())


MARKUP = [
    "**", "*", "`", "```\n", "# ", "- ", "1. ", "> ", "|", "\n", "\n\n", "|-|-|\n", "[x](y)",
    "![x](http://e/x.png)", "<script>x</script>", "<img src=x onerror=y>", "<http://e>", "\\",
    "http://e.f/", "[x]: javascript:a", "[x]", "&lt;", "&#60;b&#62;", "word", " ", "~~", "---\n",
    "    ", "$",
]  # fmt: skip


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(st.sampled_from(MARKUP), max_size=25).map("".join))
def test_markdown_in_an_answer_makes_no_link_no_picture_and_no_tag_of_its_own(text):
    whole = summary_html([start(), step(), stop(answer=Answer(text=f"x{text}", kind="str"))])
    assert belt(whole) == whole
    source = whole[: whole.index("<details")]
    inside = html5lib.parse(source, namespaceHTMLElements=False)
    tags = {e.tag for e in inside.iter() if isinstance(e.tag, str)}
    assert tags <= {"html", "head", "body", "div", "p", "br", "span", "strong", "small", "em", "h3",
                    "h4", "ul", "ol", "li", "blockquote", "pre", "code", "del", "table", "thead",
                    "tbody", "tr", "th", "td"}  # fmt: skip
    assert not re.search(r"(?:href|src|on\w+)=\"", source)


def test_very_long_text_is_not_parsed_but_shown():
    said = text_of(shown(Answer(text="**x** " * 20_000, kind="str")))
    assert "**x**" in said


def test_what_was_stopped_or_denied_has_not_failed():
    denied = dataclasses.replace(step(2), result=None,
                                 decision=Decision(allowed=False, by="person"))  # fmt: skip
    records = [start(), step(1, status="interrupted"), denied, stop(status=ExitStatus.INTERRUPTED)]
    said = text_of(summary_html(records))
    assert "2 steps, 1 stopped, 1 denied" in said
    assert "failed" not in said


def test_a_stopped_run_shows_what_it_has_as_its_steps_do():
    """Not as the model reads it: tables and figures are drawn, variables are not told."""
    partial = "1 step ran, 1 without an error. Step 1 showed last:\n[variables: new t DataFrame]"
    made = step(1, outputs=[figure()])
    source = summary_html([start(), made, stop(status=ExitStatus.INTERRUPTED, partial=partial)])
    above = source[: source.index("<details")]
    assert "1 step ran, 1 without an error. Step 1 showed last:" in text_of(above)
    assert "data:image/png;base64," in above
    assert "variables" not in above


def test_what_an_undo_took_back_is_not_said_to_be_achieved():
    gone = Undone(run_id="r", first=1, last=1)
    ended = stop(status=ExitStatus.INTERRUPTED, partial="Step 1 showed last: 7")
    said = text_of(summary_html([start(), step(1), gone, step(2), ended]))
    assert "showed last" not in said
    assert "Achieved" not in said


def test_a_step_is_a_line_with_a_sentence_a_mark_and_how_long_it_took():
    made = step(thought="I count the rows. Then more.", cell_seconds=1.25)
    said = text_of(summary_html([start(), made, stop()]))
    assert "✓ I count the rows Step 1 · 1.2 s" in said


def test_a_figure_says_what_it_is():
    source = summary_html([start(), step(outputs=[figure()]), stop()])
    assert source.count('alt="Figure of step 1: Count them"') == 2


ODD = ("How many rows?", 'A "quoted" <b>one</b> & ü?', "Of $x$ and 50 %?", "Is it so?")


def asked(*tasks):
    """Return the records of runs with these questions; the last one was not answered."""
    for number, task in enumerate(tasks, start=1):
        run_id = f"r{number}"
        last = number == len(tasks)
        status = ExitStatus.STEP_LIMIT if last else ExitStatus.ANSWERED
        yield from (start(run_id, task=task), step(number, run_id=run_id), stop(run_id, status))


def test_a_page_of_three_questions_has_contents_that_lead_to_their_headings():
    """At the places that Jupyter gives the same headings of the notebook."""
    tree = html5lib.parse(page_html(list(asked(*ODD))), namespaceHTMLElements=False)
    links = [(link.text or "", unquote(link.attrib["href"])) for link in tree.iter("a")]
    headings = [h3.attrib["id"] for h3 in tree.iter("h3")]
    assert [href for _, href in links] == [f"#{place}" for place in headings]
    assert headings[0] == "Question-1:-How-many-rows?"
    assert headings[1] == 'Question-2:-A-"quoted"-<b>one</b>-&-ü?'
    (*answered, last) = ["".join(line.itertext()) for line in tree.find(".//ul").iter("li")]
    assert [line.partition(". ")[2] for line in answered] == list(ODD[:3])
    assert last == "4. Is it so? (step limit)"
    notebook = notebook_of(list(asked(*ODD))).cells[0].source
    assert all(f"](#{quote(place, safe='')})" in notebook for place in headings)


def test_two_questions_and_a_cell_of_a_notebook_have_no_contents():
    """In a notebook the places would be those of its own headings."""
    assert "questions" not in text_of(page_html(list(asked("One?", "Two?"))))
    assert " id=" not in summary_html(list(asked(*ODD)))
