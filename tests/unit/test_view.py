"""What a person is shown of a run."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_agent.cli.live import LiveView
from kernel_agent.cli.view import progress
from kernel_agent.records.action import Call, Calls, Code, Final
from kernel_agent.records.cell import Answer, CellResult, Decision, HostCall, Observation
from kernel_agent.records.conversation import Usage
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.event import Acting, Notice, Output, ReplyText
from kernel_agent.records.story import PlainView, Story, place_blocks
from kernel_agent.records.trace import Condensation, DataFile, RunStart, RunStop, Step, Visit

PNG = {"output_type": "display_data", "data": {"image/png": "iVBORw0"}, "metadata": {}}


def start(**fields) -> RunStart:
    given = {"task": "How many?", "model": "offline", "budget": {"max_steps": 30}, "sandbox": {}}
    return RunStart(run_id="r", time="", format="fenced", **given | fields)


def step(number: int = 1, text: str = "344", **fields) -> Step:
    action = fields.pop("action", Code(source="len(df)", thought="Count the rows."))
    return Step(
        run_id="r", number=number, action=action, observation=Observation(text=text), **fields
    )


def stop(status: ExitStatus = ExitStatus.ANSWERED, **fields) -> RunStop:
    return RunStop(run_id="r", status=status, steps=1, seconds=1.24, **fields)


def story(*events) -> str:
    shown = io.StringIO()
    view = PlainView(shown.write)
    for event in events:
        view(event)
    return shown.getvalue()


def screen(*events) -> str:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = Terminal()
    with LiveView(shown, clock=lambda: 0.0) as view:
        for event in events:
            view(event)
    return shown.getvalue()


def test_a_run_reads_as_a_story():
    """Task, model, data, then each step, then the answer and what it took."""
    data = DataFile(path="data/p.csv", source="/p.csv", bytes=13_478, sha256="", kind="CSV")
    shown = story(
        start(data=(data,)),
        ReplyText(text="Count"),
        Acting(number=1, action=step().action),
        Output(number=1, output=PNG),
        step(),
        stop(answer=Answer(text="There are 344."), usage=Usage(prompt_tokens=1200)),
    )
    assert shown.splitlines() == [
        "Task:  How many?",
        "Model: offline",
        "Data:  data/p.csv (CSV, 13.5 kB)",
        "",
        "--- Step 1 ---",
        "Thought: Count the rows.",
        "Code:",
        "    len(df)",
        "Observation:",
        "    344",
        "",
        "Answer",
        "There are 344.",
        "",
        "answered · 1 step · 1.2 s · 1,200 tokens",
    ]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("masked", "what steps 3 to 9 showed became one line each"),
        ("summarised", "steps 3 to 9 became a summary"),
        ("shortened", "what steps 3 to 9 showed was cut to 200 characters each"),
    ],
)
def test_a_shortened_conversation_is_said(kind, text):
    """With what it was and became, and where the whole is."""
    event = Condensation(
        run_id="r", kind=kind, first=3, last=9, max_chars=200, reason="it had outgrown its "
        "allowance", tokens_before=31_900, tokens_after=15_200,
    )  # fmt: skip
    assert story(event) == (
        f"! The conversation was shortened: {text} (about 31,900 to 15,200 tokens; it had "
        "outgrown its allowance). The whole is in the trace.\n"
    )


def test_a_step_from_a_trace_shows_what_led_to_it():
    """Without the event that announced it, a step brings its own thought and code."""
    assert story(step()) == story(Acting(number=1, action=step().action), step())


def test_what_was_said_is_not_said_again():
    """In a second run of the session the sandbox line and the model are known."""
    sandbox = {"statement": "NOT SANDBOXED"}
    first = start(sandbox=sandbox)
    shown = story(first, stop(), start(task="And now?", sandbox=sandbox), stop())
    assert shown.count("NOT SANDBOXED") == 1
    assert shown.count("Model:") == 1
    assert "Task:  And now?" in shown


def test_a_step_without_a_readable_action_is_still_a_step():
    """Its observation says what the model was told."""
    assert "--- Step 4 ---\nObservation:\n    no code found" in story(
        step(4, "no code found", action=None)
    )


def test_calls_of_tools_are_shown_as_calls():
    """Name and arguments, on one line each."""
    calls = Calls(calls=(Call(name="lookup", arguments={"city": "Málaga", "n": 2}),))
    assert f"    lookup(city={json.dumps('Málaga')}, n=2)" in story(step(action=calls))


@pytest.mark.parametrize("status", [s for s in ExitStatus if s is not ExitStatus.ANSWERED])
def test_a_run_without_an_answer_says_why_and_what_was_achieved(status):
    """Whatever the ending."""
    shown = story(stop(status, message="It said no.", partial="The mean is 3.")).splitlines()
    assert shown[0].endswith("It said no.")
    assert shown[1:3] == ["Achieved so far:", "The mean is 3."]
    assert shown[3].startswith(str(status))


@pytest.mark.parametrize(("made", "last"), [(10, "denied"), (11, "! 1 more decisions are")])
def test_ten_decisions_of_a_step_are_told_and_the_others_counted(made, last):
    """What comes after is in the trace."""
    no = Decision(allowed=False, by="person", reason="not to them")
    calls = tuple(
        HostCall(name="pay", arguments={}, ok=False, number=n, decision=no) for n in range(made)
    )
    shown = story(step(result=CellResult(status="ok", calls=calls)))
    told = [line for line in shown.splitlines() if line.startswith("! ")]
    assert sum("was denied" in line for line in told) == 10
    assert last in told[-1]


@pytest.mark.parametrize("edited", [None, "len(df) + 1"])
def test_the_code_that_ran_is_shown_where_a_person_changed_it(edited):
    """Only then: else what was announced is what ran."""
    decision = Decision(allowed=True, by="person", reason="", edited=edited, original="len(df)")
    done = step(action=Code(source=edited or "len(df)"), decision=decision)
    shown = story(Acting(number=1, action=Code(source="len(df)")), done)
    assert shown.count("Code:\n") == (2 if edited else 1)
    assert ("    len(df) + 1\n" in shown) is bool(edited)


@pytest.mark.parametrize(("asked", "rest"), [(10, False), (11, True)])
@pytest.mark.parametrize("allowed", [True, False])
def test_ten_hosts_are_named_and_the_others_counted(asked, rest, allowed):
    """Those that were contacted apart from those that were refused."""
    hosts = [
        Visit(host=f"h{n}.org", port=443, allowed=allowed, requests=1, sent=0, received=0)
        for n in range(asked)
    ]
    [line] = [line for line in story(stop(network=tuple(hosts))).splitlines() if "h0.org" in line]
    assert line.startswith("Network: " if allowed else "Network, refused: ")
    assert line.count(".org:443 (1 request") == 10
    assert line.endswith(", 1 more") is rest
    assert (" out, " in line) is allowed
    [block] = [block for block in Story().blocks(stop(network=hosts)) if "h0.org" in block.text]
    assert block.kind == ("end" if allowed else "warning")


@pytest.mark.parametrize(("read", "rest"), [(5, ""), (6, ", 1 more")])
def test_five_files_that_were_read_are_named_and_the_others_counted(read, rest):
    """Of folders of data, in which there may be thousands."""
    files = tuple(
        DataFile(path=f"{n}.csv", source="", bytes=1, sha256="", kind="CSV") for n in range(read)
    )
    told = story(stop(read=files)).splitlines()
    assert f"Read: 0.csv, 1.csv, 2.csv, 3.csv, 4.csv{rest}" in told


def test_a_step_that_is_an_answer_in_words_adds_nothing_to_the_answer():
    """One that a call gave is a step like any other."""
    assert story(step(action=Final(answer="It is 42.", in_words=True))) == ""
    assert "--- Step 1 ---" in story(step(action=Final(answer="It is 42.")))


def test_at_the_end_a_person_is_told_where_everything_is(tmp_path):
    """The notebook when there is one, the trace, and ten of the files that were made."""
    trace, notebook = tmp_path / "trace.jsonl", tmp_path / "a.ipynb"

    def told(notebook, files):
        return [b.text for b in place_blocks(notebook=notebook, trace=trace, files=files)]

    assert told(None, []) == [f"Trace:    {trace}"]
    assert told(notebook, ["a.csv"]) == [
        f"Notebook: {notebook}",
        f"Trace:    {trace}",
        f"Files:    a.csv (in {tmp_path})",
    ]
    names = [f"{n}.csv" for n in range(11)]
    assert "9.csv (in" in told(None, names[:10])[-1]
    assert "9.csv, … (in" in told(None, names)[-1]


def test_progress_names_each_cap():
    """Only what is capped or was spent stands in the line."""
    assert progress({}, step=1, seconds=2.4, usage=Usage()) == "step 1 · 2 s · Ctrl-C stops"
    budget = {"max_steps": 30, "max_seconds": 900.0, "max_tokens": 50_000, "max_cost": 0.5}
    usage = Usage(prompt_tokens=4000, completion_tokens=120, cost_usd=0.0123)
    assert progress(budget, step=3, seconds=12, usage=usage) == (
        "step 3/30 · 12/900 s · 4,120/50,000 tokens · $0.0123/0.5 · Ctrl-C stops"
    )


HOSTILE = "[red]not red[/red] \x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m \x9b2J \ud800"


def hostile_events():
    action = Code(source=f"x = 1  # {HOSTILE}", thought=HOSTILE)
    return (
        start(task=HOSTILE, model=HOSTILE),
        ReplyText(text=HOSTILE),
        Acting(number=1, action=action),
        Output(number=1, output={"output_type": "stream", "name": "stdout", "text": HOSTILE}),
        step(text=HOSTILE, action=action),
        Notice(text=HOSTILE),
        stop(ExitStatus.MODEL_ERROR, message=HOSTILE, partial=HOSTILE),
        stop(answer=Answer(text=HOSTILE)),
    )


def test_plain_lines_hold_no_escape_sequences_and_no_markup_is_read():
    """What a model or a kernel writes cannot reach the terminal, and brackets stay brackets."""
    shown = story(*hostile_events())
    assert not any(c in shown for c in "\x1b\x07\x9b\ud800")
    assert shown.count("[red]not red[/red]") == 9
    # In code, where nothing may be hidden, they are written out; elsewhere they are gone.
    assert shown.count("title") == shown.count("\\x1b]0;title\\x07") > 0


def test_the_live_view_sends_only_its_own_escape_sequences(monkeypatch):
    """A window title, a cleared screen or a colour of the model's choice never gets through."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = screen(*hostile_events())
    assert "[red]not red[/red]" in shown
    assert "\x1b[1m" in shown or "\x1b[1;" in shown, "its own styles are there"
    for sequence in ("\x1b]0;", "\x07", "\x1b[2J", "\x1b[31mred", "\x9b"):
        assert sequence not in shown


@pytest.mark.parametrize(
    ("event", "passing"),
    [
        (ReplyText(text="Let me look"), "Let me look"),
        (ReplyText(text='python {"code": "a = 1\\nb = \\"2', call=True), 'b = "2'),
        (ReplyText(text='{"thought": "So", "code": "a = 1\\nb = \\"2'), 'b = "2'),
        (Output(number=1, output=PNG), "[figure]"),
        (
            Output(number=1, output={"output_type": "stream", "name": "stdout", "text": "row 17"}),
            "row 17",
        ),
    ],
)
def test_the_live_view_shows_what_passes_by_and_the_progress(monkeypatch, event, passing):
    """The thought as it is written, the output as it arrives, and how much is spent."""
    monkeypatch.setenv("TERM", "xterm")
    shown = screen(start(), event)
    assert passing in shown
    assert "step 1/30 · 0 s" in shown


def test_the_live_view_gives_the_cursor_back(monkeypatch):
    """Also when a run ends without its last event."""
    monkeypatch.setenv("TERM", "xterm")
    shown = screen(start())
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


def test_no_color_is_respected(monkeypatch):
    """A reader who asked for no colour gets none."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    shown = screen(start(), step(), stop())
    assert not any(f"\x1b[{code}m" in shown for code in ("1;36", "36", "33", "1;33", "32", "1;32"))


# Without the controls that overwrite what stands before them.
written = st.text(st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from(" \n\t"))


@given(written, written)
def test_every_word_of_a_thought_and_an_observation_is_shown(thought, text):
    """Whatever is printable in them stays; the view cuts nothing."""
    shown = story(step(text=text, action=Code(source="1", thought=thought)))
    for word in (thought + " " + text).split():
        if word.isascii() and word.isprintable():
            assert word in shown
