"""The panel between a session and a page: its thread, its questions, its end. No browser here."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kernel_agent_extension import panel as module
from kernel_agent_extension.panel import KEPT, VIEW_MIME, Panel

from kernel_agent.notebook import sorting_program
from kernel_agent.records.action import Code
from kernel_agent.records.cell import Decision
from kernel_agent.records.event import Acting, Notice, Question, ReplyText
from kernel_agent.records.trace import RunStart

HERE = Path(__file__).parents[2] / "extension" / "kernel_agent_extension"
START = RunStart(
    run_id="a", task="How many?", time="", model="m", format="fenced", budget={},
    sandbox={"level": "bubblewrap", "statement": "Sandbox: bubblewrap"},
)  # fmt: skip
CELL = Question(kind="cell", number=1, reason="It writes a file.", code="open('x', 'w')")


class Page:
    """A page as the panel knows it: takes messages, says what was pressed."""

    model_id = "m"
    shows_page = True

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.threads: set[str] = set()
        self.closed = False
        self.says: Callable[[Any], None] = lambda _said: None

    def __call__(self, heard: Callable[[Any], None]) -> Page:
        self.says = heard
        return self

    def send(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        self.threads.add(threading.current_thread().name)

    def close(self) -> None:
        self.closed = True

    def notes(self, op: str) -> list[dict[str, Any]]:
        return [note for m in list(self.messages) for note in m["notes"] if note["op"] == op]

    def wait(self, until: Callable[[], Any]) -> Any:
        end = time.monotonic() + 10
        while not (found := until()):
            assert time.monotonic() < end, self.messages
            time.sleep(0.005)
        return found


@pytest.fixture
def page() -> Page:
    return Page()


@pytest.fixture
def displayed() -> list[dict[str, Any]]:
    return []


@pytest.fixture
def pressed() -> list[str]:
    return []


@pytest.fixture
def panel(page: Page, displayed: list[dict[str, Any]], pressed: list[str]) -> Any:
    def publish(data: Any, display_id: str, *, update: bool = False) -> None:
        displayed.append({"data": data, "id": display_id, "update": update})

    panel = Panel(
        task="How many?", sandbox="auto", publish=publish,
        on_stop=lambda: pressed.append("stop"), on_undo=lambda: pressed.append("undo"),
    )  # fmt: skip
    panel.open(page)
    yield panel
    panel.finish()


def test_a_page_that_says_hello_is_told_the_whole_at_once(panel: Panel, page: Page) -> None:
    """When it is first shown, and when it is loaded again in the middle of a run."""
    panel(START)
    panel(Acting(number=1, action=Code(source="1 + 1", thought="I add.")))
    for view in ("first", "again"):
        page.says({"do": "hello", "view": view})
        whole = page.wait(lambda v=view: [m for m in page.messages if m.get("for") == v])[0]
        assert [note["op"] for note in whole["notes"]] == ["run", "act", "spent"]


def test_streamed_text_is_sent_by_one_thread_at_most_twenty_times_a_second(
    panel: Panel, page: Page
) -> None:
    """Whatever the number of pieces and of threads that they come from."""
    panel(START)
    began = time.monotonic()

    def write() -> None:
        for _ in range(500):
            panel(ReplyText(text="word "))
            time.sleep(0.001)

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    page.wait(lambda: sum(len(note["text"]) for note in page.notes("text")) == 5000)
    assert len(page.messages) <= (time.monotonic() - began) / 0.05 + 2
    assert page.threads == {"kernel-agent panel"}
    assert [m["n"] for m in page.messages] == list(range(1, len(page.messages) + 1))


async def asked(panel: Panel, page: Page, said: dict[str, Any]) -> Decision:
    """Ask; let the page answer from another thread, as a front end does."""
    asking = asyncio.ensure_future(panel.approver(CELL))
    note = await asyncio.to_thread(page.wait, lambda: page.notes("ask"))
    await asyncio.to_thread(page.says, {"do": "decide", "id": note[-1]["id"], **said})
    return await asyncio.wait_for(asking, 10)


async def test_a_person_approves_a_cell_as_it_is(panel: Panel, page: Page) -> None:
    """The decision says that it was a person, and how long it took."""
    decision = await asked(panel, page, {"allowed": True, "edited": CELL.code})
    assert (decision.allowed, decision.by, decision.edited) == (True, "person", None)
    assert decision.seconds > 0


async def test_a_person_denies_a_cell_with_a_reason(panel: Panel, page: Page) -> None:
    """The model is told the reason, so it is text without escape sequences."""
    decision = await asked(panel, page, {"allowed": False, "reason": " not\x1b[31m there "})
    assert (decision.allowed, decision.reason) == (False, "not there")


async def test_a_person_edits_a_cell_before_it_runs(panel: Panel, page: Page) -> None:
    """What runs is what the person wrote."""
    decision = await asked(panel, page, {"allowed": True, "edited": "open('y', 'w')"})
    assert (decision.allowed, decision.edited) == (True, "open('y', 'w')")


@pytest.mark.parametrize("allowed", ["true", 1, None, [], {"x": 1}])
async def test_only_true_is_a_yes(panel: Panel, page: Page, allowed: Any) -> None:
    """Nothing else that a page may say lets a cell run."""
    assert not (await asked(panel, page, {"allowed": allowed})).allowed


async def test_two_questions_wait_side_by_side_and_each_gets_its_own_answer(
    panel: Panel, page: Page
) -> None:
    """Calls of one cell may ask at the same time."""
    first = asyncio.ensure_future(panel.approver(CELL))
    second = asyncio.ensure_future(panel.approver(CELL))
    notes = await asyncio.to_thread(page.wait, lambda: page.notes("ask")[1:] and page.notes("ask"))
    page.says({"do": "decide", "id": notes[1]["id"], "allowed": True})
    page.says({"do": "decide", "id": notes[0]["id"], "allowed": False})
    assert (await second).allowed
    assert not (await first).allowed


async def test_stop_ends_the_run_and_answers_what_was_asked_with_no(
    panel: Panel, page: Page, pressed: list[str]
) -> None:
    """Nobody waits for a person who wants the end."""
    asking = asyncio.ensure_future(panel.approver(CELL))
    await asyncio.to_thread(page.wait, lambda: page.notes("ask"))
    await asyncio.to_thread(page.says, {"do": "stop"})
    decision = await asyncio.wait_for(asking, 10)
    assert (decision.allowed, pressed) == (False, ["stop"])


async def test_a_run_that_is_cancelled_takes_its_question_back(panel: Panel, page: Page) -> None:
    """The buttons go away with it."""
    asking = asyncio.ensure_future(panel.approver(CELL))
    await asyncio.to_thread(page.wait, lambda: page.notes("ask"))
    asking.cancel()
    (told,) = await asyncio.to_thread(page.wait, lambda: page.notes("told"))
    assert "said" not in told


def test_the_end_replaces_the_widget_by_the_page(
    panel: Panel, page: Page, displayed: list[dict[str, Any]]
) -> None:
    """The same display, static; a second end changes nothing."""
    panel(START)
    panel.finish("<b>42</b>", "42")
    panel.finish("<b>43</b>")
    panel(Notice(text="late"))
    first, last = displayed
    assert VIEW_MIME in first["data"]
    assert last == {
        "data": {"text/html": "<b>42</b>", "text/plain": "42"}, "id": first["id"], "update": True,
    }  # fmt: skip
    assert "kernel-agent panel" not in {thread.name for thread in threading.enumerate()}


def test_what_can_be_done_with_an_ended_run_is_offered_before_the_page_takes_its_place(
    panel: Panel, page: Page, displayed: list[dict[str, Any]], pressed: list[str]
) -> None:
    """A text goes along, to be copied; a function is called by its name, and nothing else is."""
    panel(START)
    offers = {"Copy code": "a = 1", "Save": lambda: pressed.append("saved")}
    panel.finish("<b>42</b>", "42", offers)
    (message,) = (m for m in page.messages if "offers" in m)
    assert message["offers"] == [{"label": "Copy code", "copy": "a = 1"}, {"label": "Save"}]
    for label in ("Copy code", "Other", ["Save"], None, "Save"):
        page.says({"do": "offer", "label": label})
    assert pressed == ["saved"]
    panel.replace("<b>43</b>")
    assert displayed[-1]["data"]["text/html"] == "<b>43</b>"


def test_without_a_page_the_end_closes_the_widget(panel: Panel, page: Page) -> None:
    """There is nothing that it could still show."""
    panel(START)
    panel.finish(text="The run did not begin.")
    assert page.closed


def test_a_page_whose_output_cannot_be_reached_keeps_the_run_and_is_told_that_it_is_over(
    panel: Panel, page: Page
) -> None:
    """At the end, and when it is loaded again after it."""
    panel(START)
    panel.finish("<p>42</p>", "42")
    page.says({"do": "hello", "view": "again"})
    end, whole = (m for m in page.messages if m.get("over"))
    assert "for" not in end
    assert (whole["for"], whole["undo"]) == ("again", False)
    assert [note["op"] for note in whole["notes"]][:1] == ["run"]
    assert not page.closed


def test_widgets_of_ended_runs_are_closed_when_a_few_newer_ones_have_ended() -> None:
    """A notebook of a hundred runs holds no hundred widgets."""
    pages = [Page() for _ in range(KEPT + 2)]
    for each in pages:
        panel = Panel(task="", sandbox="auto", publish=lambda *_args, **_more: None)
        panel.open(each)
        panel.finish("<p>42</p>")
    assert [each.closed for each in pages] == [True, True, *[False] * KEPT]


def test_a_panel_says_after_a_while_that_the_notebook_is_to_be_saved_until_it_was(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nobody says which notebook it is; a save from before the run does not count."""
    monkeypatch.setattr(module, "SAVE_S", 0.05)
    open_notebook = tmp_path / "a.ipynb"
    open_notebook.write_text("{}")
    os.utime(open_notebook, (1, 1))
    for name in ("", str(tmp_path / "gone.ipynb"), str(open_notebook)):
        monkeypatch.setenv("JPY_SESSION_NAME", name)
        page = Page()
        panel = Panel(task="", sandbox="auto", publish=lambda *_args, **_more: None)
        panel.open(page)
        page.wait(lambda page=page: page.notes("save"))
    os.utime(open_notebook)
    page.wait(lambda: page.notes("save")[1:])
    assert [note["wanted"] for note in page.notes("save")] == [True, False]


def test_a_panel_can_be_shown_again_while_its_run_goes_on(
    panel: Panel, displayed: list[dict[str, Any]]
) -> None:
    """In another cell; both outputs become the page."""
    assert panel.show_again()
    panel.finish("<p>42</p>")
    assert not panel.show_again()
    first, second, *ends = displayed
    assert [end["id"] for end in ends] == [first["id"], second["id"]]
    assert first["data"][VIEW_MIME] == second["data"][VIEW_MIME]


def test_a_notebook_that_is_saved_in_mid_run_holds_more_than_a_widget(
    displayed: list[dict[str, Any]], tmp_path: Path
) -> None:
    """The question, and how to get to the page, also where no widget can be shown."""
    panel = Panel(
        task="Why <b>?", sandbox="auto", notebook=tmp_path / "run.ipynb",
        publish=lambda data, *_args, **_more: displayed.append(data),
    )  # fmt: skip
    panel.open(Page())
    panel.finish()
    saved = displayed[0]
    assert "Why &lt;b&gt;?" in saved["text/html"]
    for text in (saved["text/html"], saved["text/plain"]):
        assert "run.ipynb" in text
        assert "%agent show" in text


async def test_a_question_after_the_end_is_denied(panel: Panel) -> None:
    """There is nobody any more who could say yes."""
    panel.finish()
    assert not (await panel.approver(CELL)).allowed


def test_leaving_the_panel_in_an_error_finishes_it(page: Page) -> None:
    """Whatever went wrong around it, no widget is left in the notebook."""
    panel = Panel(task="", sandbox="auto", publish=lambda *_args, **_more: None)
    panel.open(page)
    with pytest.raises(ZeroDivisionError), panel:
        1 // 0  # noqa: B018 - the error
    assert page.closed


@pytest.mark.parametrize(
    "said", [None, "stop", [], {}, {"do": ["stop"]}, {"do": "decide", "id": {}}, {"do": "hello"}]
)
def test_what_a_page_says_and_nobody_understands_is_ignored(
    panel: Panel, page: Page, pressed: list[str], said: Any
) -> None:
    """The kernel's log is no place for a page's mistakes."""
    page.says(said)
    assert pressed == []


def test_a_button_whose_work_fails_says_so_in_the_panel(panel: Panel, page: Page) -> None:
    """One line, where it was pressed."""
    panel.on_undo = lambda: 1 // 0  # type: ignore[assignment,return-value]
    page.says({"do": "undo"})
    (note,) = page.wait(lambda: page.notes("note"))
    assert note["text"].startswith("Undoing failed: ")


def test_the_page_has_no_way_to_interpret_text() -> None:
    """No HTML from text, no code from text, no address from a message."""
    program = (HERE / "panel.js").read_text()
    ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|srcdoc"
    network = r"import\(|fetch\(|XMLHttpRequest|WebSocket|EventSource|sendBeacon|importScripts"
    assert re.findall(rf"{ways}|DOMParser|createContextualFragment|{network}", program) == []
    assert re.findall(r"(?:\.src|\.href) = (.*)", program) == [
        "`data:${note.type};base64,${note.data}`;",
        "found;",
    ]


def test_no_letter_is_a_command_where_a_person_types() -> None:
    """In the fields of the panel, and in the search of a table that it shows."""
    program = (HERE / "panel.js").read_text()
    (typed,) = re.findall(r'target\.matches\("(.+)"\)', program)
    made = set(re.findall(r'\.type = "(\w+)"', sorting_program() + program))
    assert made - {"button", "checkbox"} == set(re.findall(r"type=(\w+)", typed))
    assert "textarea" in typed


def test_the_page_and_its_style_are_beside_the_code() -> None:
    """They are part of what is installed; the style asks for nothing from anywhere."""
    style = (HERE / "panel.css").read_text()
    assert "url(" not in style
    assert "@import" not in style
