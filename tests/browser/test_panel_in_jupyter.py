"""The panel in JupyterLab and Notebook 7, in a real browser, with real runs."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from support.hostile import HOST, TEXTS

from browser.conftest import Opened
from browser.jupyter import Server, Tab

# What one front end shows the other does, too: the gate looks at one.
BOTH = pytest.mark.parametrize("front", ["lab", pytest.param("notebook", marks=pytest.mark.long)])
STAGE = "from browser import stage\n"


def pressed(tab: Tab, name: str) -> None:
    tab.panel.get_by_role("button", name=name, exact=True).click()


def wait_for_text(tab: Tab, text: str, seconds: float = 30) -> None:
    tab.page.get_by_text(text).first.wait_for(timeout=1000 * seconds)


@pytest.mark.long  # the gate looks at the panel of `%agent`
@pytest.mark.parametrize("front", ["lab", "notebook"])
def test_a_run_is_seen_as_it_happens_and_leaves_a_static_summary(
    opened: Opened, front: str
) -> None:
    """Streaming text, output, a table and a picture; then no widget in the notebook."""
    tab = opened(STAGE + "await stage.ask(stage.STORY, linger_s=2)", front=front)
    tab.run()
    tab.panel.get_by_text("Compare the body mass of the species").wait_for()
    assert tab.wait("() => document.querySelector('.kap-draft .kap-thought')?.textContent.length")
    tab.panel.get_by_text("Sandbox: bubblewrap").wait_for()
    tab.panel.get_by_role("cell", name="Torgersen").first.wait_for()
    tab.panel.get_by_text("KeyError: 'kind'", exact=True).wait_for()
    tab.panel.get_by_role("img", name="A figure made by this step").wait_for()
    tab.panel.get_by_text("Gentoo penguins are the heaviest").last.wait_for()
    tab.panel.get_by_text("4 / 20").wait_for()
    tab.page.locator("#summary").wait_for()
    tab.panel.wait_for(state="detached")
    wait_for_text(tab, "answered, 4 steps")
    tab.save()
    notebook = tab.server.saved(tab.name)
    kinds = [sorted(output["data"]) for output in notebook["cells"][0]["outputs"]]
    assert kinds == [["text/html", "text/plain"], ["text/plain"]]
    assert "widgets" not in notebook["metadata"]
    tab.page.reload()
    tab.page.locator("#summary").wait_for()
    assert "model not found" not in tab.output()


@pytest.mark.long
def test_what_is_not_asked_or_held_back_stands_in_the_head(opened: Opened) -> None:
    """Beside the level, and whole also where the panel is narrow."""
    tab = opened(f"{STAGE}panel = stage.eased()")
    tab.run()
    chips = tab.panel.locator(".kap-eased .kap-chip")
    chips.first.wait_for()
    assert chips.first.text_content() == "Asks: never"
    assert str(chips.last.text_content()).startswith("Reaches: api.example.org, a-very-long-name")
    tab.page.set_viewport_size({"width": 600, "height": 700})
    inside = "e => e.scrollWidth <= e.clientWidth"
    assert tab.panel.locator(".kap-head").evaluate(inside)


CODE = 'a = "é\\n"\nb = 2'


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "call"),
    [
        (f"I look.\n\n```python\n{CODE}", ""),
        (json.dumps({"thought": "I look.", "code": CODE})[:-2] + "\\", ""),
        ("I look.", "python " + json.dumps({"code": CODE})[:-2] + "\\u00"),
    ],
    ids=["fenced", "envelope", "tool"],
)
def test_thought_and_code_are_read_while_they_are_written(
    opened: Opened, text: str, call: str
) -> None:
    """In every format of code: without the marks and escapes that it is wrapped in."""
    again = "panel(stage.Notice(text='Asking again.')); panel(stage.ReplyText(text='Once more.'))"
    tab = opened(f"{STAGE}panel = stage.begun({text!r}, {call!r})", again)
    tab.run()
    tab.page.locator(".kap-draft pre", has_text="b = 2").wait_for()
    assert tab.page.locator(".kap-draft .kap-thought").text_content() == "I look."
    assert tab.page.locator(".kap-draft pre").text_content() == CODE
    tab.run(1)
    tab.page.locator(".kap-draft .kap-thought", has_text="Once more.").wait_for()
    assert tab.page.locator(".kap-draft").text_content() == "Once more."


@pytest.mark.parametrize(
    ("text", "seen", "strong"),
    [
        ("I compare **two reg", "I compare two reg", "two reg"),
        ("I compare **", "I compare ", None),
        ("I compare **two regions*", "I compare two regions", "two regions"),
        ("The **mean** of `a ** b", "The mean of a ** b", "mean"),
    ],
)
@pytest.mark.long
def test_a_thought_that_is_being_written_shows_no_marks(
    opened: Opened, text: str, seen: str, strong: str | None
) -> None:
    """What is open is closed; code keeps its stars."""
    tab = opened(f"{STAGE}panel = stage.begun({text!r})")
    tab.run()
    thought = tab.page.locator(".kap-draft .kap-thought")
    tab.wait("(t) => document.querySelector('.kap-draft .kap-thought')?.textContent === t",
             argument=seen)  # fmt: skip
    assert thought.locator("strong").all_text_contents() == ([strong] if strong else [])


@pytest.mark.long
def test_the_live_list_has_the_sentences_of_the_page_and_one_notice(opened: Opened) -> None:
    """A thought is not said twice; a cost is shown where a price is known."""
    notes = "panel.note('first notice')\npanel.note('second notice')"
    tab = opened(f"{STAGE}panel = stage.many(2)\n{notes}")
    tab.run()
    wait_for_text(tab, "second notice")
    assert tab.panel.get_by_text("first notice").count() == 0
    step = tab.panel.locator("details.kap-step").last
    head = step.locator("summary").first.text_content()
    assert head.startswith("I look at part 2 of the tableStep 2 · ")
    assert step.text_content().count("I look at part 2") == 1
    assert tab.panel.get_by_text("Cost").is_visible()
    assert tab.panel.locator("th:empty").count() == 0
    begun = opened(f"{STAGE}panel = stage.begun('I look.')")
    begun.run()
    begun.panel.get_by_text("Tokens").wait_for()
    assert not begun.panel.get_by_text("Cost").is_visible()


SCROLL = """(end) => { for (const e of document.querySelectorAll('.jp-WindowedPanel-outer')) {
  e.scrollTop = end ? e.scrollHeight : 0; } }"""


@pytest.mark.long
@BOTH
def test_state_and_stop_are_in_sight_wherever_a_person_has_scrolled_to(
    opened: Opened, front: str
) -> None:
    """Above the panel and below it; without a person's press nothing stops."""
    above, below = [f"'above {k}'" for k in range(12)], [f"'below {k}'" for k in range(12)]
    tab = opened(*above, f"{STAGE}await stage.ask(stage.WORKING)", *below, front=front, height=600)
    tab.run(12)
    wait_for_text(tab, "fold 2")
    dock = tab.page.locator(".kap-dock")
    for end in (True, False):
        tab.page.evaluate(SCROLL, end)
        dock.get_by_role("button", name="Stop").wait_for()
        told = " ".join(dock.inner_text().split())
        assert told == "Compare the body mass of the species Running the cell step 2 Stop"
        box = dock.bounding_box()
        assert box["y"] > 0
        assert box["y"] + box["height"] < 600
    dock.get_by_role("button", name="Compare the body mass").click()
    dock.wait_for(state="hidden")
    assert tab.panel.locator(".kap-head").is_visible()
    tab.page.evaluate(SCROLL, True)
    tab.page.evaluate("document.querySelector('.kap-dock .kap-stop').click()")
    tab.page.wait_for_timeout(500)
    assert "Running the cell" in dock.inner_text()
    dock.get_by_role("button", name="Stop").click()
    dock.wait_for(state="detached", timeout=10_000)
    assert "interrupted: stopped on request" in tab.output(12)


@pytest.mark.long
def test_a_panel_that_a_reload_would_lose_asks_to_be_saved(opened: Opened) -> None:
    """After some seconds, until the notebook is saved."""
    tab = opened(f"{STAGE}panel = stage.begun('I look.')")
    tab.run()
    hint = tab.panel.get_by_text("Save the notebook (Ctrl+S) to find this run again.")
    tab.panel.get_by_text("I look.").wait_for()
    assert not hint.is_visible()
    hint.wait_for(timeout=15_000)
    tab.save()
    hint.wait_for(state="hidden", timeout=15_000)


@pytest.mark.long
@pytest.mark.parametrize("front", ["lab", "notebook"])
def test_stop_ends_a_running_cell_whether_the_notebooks_cell_awaits_or_blocks(
    opened: Opened, front: str
) -> None:
    """The click reaches the kernel while it is busy."""
    run = "stage.ask(stage.WORKING)"
    tab = opened(f"{STAGE}await {run}", f"{run}.result()", front=front)
    for cell in range(2):
        tab.run(cell)
        tab.panel.get_by_text("fold 3").wait_for()
        pressed(tab, "Stop")
        tab.panel.wait_for(state="detached", timeout=10_000)
        assert "interrupted: stopped on request" in tab.output(cell)


@pytest.mark.long
def test_escape_does_not_stop_a_run_and_the_keyboard_does(opened: Opened) -> None:
    """Shift+S where the panel has the focus; nothing of it reaches Jupyter's own keys."""
    tab = opened(STAGE + "await stage.ask(stage.WORKING)")
    tab.run()
    wait_for_text(tab, "fold 2")
    cells = tab.page.locator(".jp-Cell").count()
    tab.panel.get_by_role("button", name="Stop", exact=True).focus()
    for key in ("Escape", "a", "b", "s"):
        tab.page.keyboard.press(key)
    wait_for_text(tab, "fold 6")
    assert tab.page.locator(".jp-Cell").count() == cells
    tab.page.keyboard.press("Shift+S")
    wait_for_text(tab, "interrupted, 2 steps")


@pytest.mark.long
def test_a_person_approves_denies_or_edits_what_is_to_run(opened: Opened) -> None:
    """The decision reaches the run that waits for it; keys work where a person is."""
    tab = opened(STAGE, *["print(await stage.approval())"] * 3)
    tab.run(0)

    def asked(cell: int) -> None:
        tab.run(cell)
        tab.panel.get_by_text("It sends data to a host: api.example.org.").first.wait_for()
        assert tab.panel.locator(".kap-status").inner_text() == "Waits for you"
        tab.panel.locator("button:enabled").get_by_text("Approve").wait_for()

    def said(cell: int) -> dict[str, Any]:
        tab.page.get_by_text('"by": "person"').nth(cell - 1).wait_for()
        found = re.search(r'\{"allowed".*\}', tab.output(cell))
        assert found is not None
        tab.panel.wait_for(state="detached")
        return dict(json.loads(found[0]))

    person = {"waited": True, "by": "person"}
    asked(1)
    tab.panel.get_by_role("button", name="Approve").focus()
    tab.page.keyboard.press("Shift+A")
    assert said(1) == {"allowed": True, "reason": "", "edited": None, **person}
    asked(2)
    tab.panel.get_by_role("textbox", name="Reason").fill("Not to that host.")
    tab.page.keyboard.press("Enter")
    assert said(2) == {"allowed": False, "reason": "Not to that host.", "edited": None, **person}
    asked(3)
    pressed(tab, "Edit, then run")
    editor = tab.panel.get_by_role("textbox", name="The cell, to be edited")
    editor.fill("print('mine')")
    editor.press("Control+Enter")
    assert said(3) == {"allowed": True, "reason": "", "edited": "print('mine')", **person}


@pytest.mark.long
@BOTH
def test_a_page_that_is_loaded_again_shows_the_whole_run(opened: Opened, front: str) -> None:
    """The kernel keeps what was said; the notebook only knows which widget it was."""
    cells = (STAGE + "panel = stage.many(5)", "panel.note('still here')")
    tab = opened(*cells, front=front)
    tab.run()
    wait_for_text(tab, "line 19 of step 5")
    before = tab.panel.locator(".kap-step-title").all_text_contents()
    tab.save()
    tab.page.reload()
    wait_for_text(tab, "line 19 of step 5", 60)
    assert tab.panel.locator(".kap-step-title").all_text_contents() == before
    assert "5 / 250" in tab.panel.inner_text()
    tab.run(1)
    wait_for_text(tab, "still here")


@pytest.mark.long
def test_two_views_of_one_run_show_the_same(opened: Opened) -> None:
    """A panel that is shown once more, as in a window of its own, is told the whole."""
    again = "from IPython.display import display\ndisplay(panel._front._widget)"
    tab = opened(STAGE + "panel = stage.many(4)", again)
    tab.run()
    wait_for_text(tab, "line 19 of step 4")
    tab.run(1)
    tab.wait("() => document.querySelectorAll('section.kap-panel').length === 2")
    tab.page.wait_for_timeout(500)
    first, second = (
        panel.locator(".kap-step-title").all_text_contents() for panel in tab.panel.all()
    )
    assert first == second == [f"I look at part {k} of the table" for k in range(1, 5)]


def test_nothing_that_a_model_or_a_kernel_wrote_comes_to_life(opened: Opened) -> None:
    """No dialog, no request, no element that is not ours; the same text does act as HTML."""
    payloads = [text for text in TEXTS if len(text) < 1000]
    canary = (
        "<img src=x onerror=\"fetch('/api/contents?canary');window.canary=1\">",
        "<script>fetch('/api/status?canary');window.canary=1</script>",
        "<style>@import '/api/status?canary'; .kap-panel{display:none}</style>",
        '<img src="/api/status?canary">',
    )
    cell = (
        "from support.hostile import TEXTS, hostile_outputs\n"
        f"canary = {canary!r}\n"
        "texts = [*canary, *(t for t in TEXTS if len(t) < 1000)]\n"
        "shows = [{'output_type': 'display_data', 'data': {kind: text}, 'metadata': {}}\n"
        "         for text in canary for kind in ('text/html', 'text/markdown', 'text/plain',\n"
        "         'image/svg+xml', 'text/latex', 'application/javascript')]\n"
        "panel = stage.hostile(texts, [*shows, *hostile_outputs()])\n"
        "print('told', len(texts))"
    )
    tab = opened(STAGE + cell, f"from IPython.display import HTML\nHTML({canary[0]!r})")
    tab.run()
    steps = len(payloads) + len(canary)
    wait_for_text(tab, f"told {steps}", 60)
    tab.wait(f"() => document.querySelectorAll('.kap-step').length >= {steps}", seconds=60)
    # All at once, unfolded, so that everything there is has been shown.
    tab.page.evaluate("document.querySelectorAll('.kap-step').forEach((d) => { d.open = true; })")
    tab.page.wait_for_timeout(2500)
    names = tab.page.evaluate(
        "[...new Set([...document.querySelectorAll('section.kap-panel *')].map((e) => e.tagName))]"
    )
    ours = "A BUTTON CODE DETAILS DIV FIGURE HEADER P PRE SECTION SPAN STRONG SUMMARY TABLE TBODY"
    assert set(names) <= {*ours.split(), "TD", "TH", "THEAD", "TR", "IMG"}
    handlers = "[...document.querySelectorAll('section.kap-panel *')].flatMap((e) =>"
    handlers += " [...e.attributes].map((a) => a.name)).filter((n) => n.startsWith('on'))"
    assert tab.page.evaluate(handlers) == []
    sources = "[...document.querySelectorAll('section.kap-panel img')].map((i) => i.src)"
    assert all(url.startswith("data:image/") for url in tab.page.evaluate(sources))
    caused = [url for url in tab.requests if HOST in url or "canary" in url]
    assert (caused, tab.dialogs, tab.page.evaluate("window.canary")) == ([], [], None)
    tab.run(1)  # the control: as HTML of the notebook it does act
    tab.wait("() => window.canary === 1")
    assert [url for url in tab.requests if "canary" in url]


@pytest.mark.long
def test_two_hundred_steps_stay_smooth_and_light(opened: Opened) -> None:
    """Old steps are folded, and a folded step has no elements."""
    tab = opened(STAGE + "panel = stage.many(200)\nprint('all told')")
    tab.run()
    wait_for_text(tab, "all told", 60)
    tab.wait("() => document.querySelectorAll('.kap-step[data-state=ok]').length === 200")
    assert tab.panel.locator("details.kap-step[open]").count() <= 4
    assert tab.page.evaluate("document.querySelectorAll('section.kap-panel *').length") < 3000
    first = tab.panel.locator("details.kap-step").first
    first.locator("summary").first.click()
    assert "line 0 of step 1" in first.get_by_text("line 19 of step 1").inner_text()
    # What a person unfolded stays so, and in view: the panel does not jump to its end.
    tab.page.wait_for_timeout(300)
    assert tab.page.evaluate("document.querySelector('.kap-steps').scrollTop") < 200
    tab.panel.get_by_role("button", name="Newest step").click()
    tab.wait("() => { const s = document.querySelector('.kap-steps');"
             " return s.scrollHeight - s.scrollTop - s.clientHeight < 5; }")  # fmt: skip


@pytest.mark.long
def test_nothing_sticks_out_at_any_width(opened: Opened) -> None:
    """Long words, wide code and wide tables scroll in their own places."""
    tab = opened(STAGE + "h = stage.approval()\nprint(await h)", front="notebook")
    tab.run()
    tab.panel.get_by_role("button", name="Approve").wait_for()
    for width in (1100, 600, 400):
        tab.page.set_viewport_size({"width": width, "height": 900})
        tab.page.wait_for_timeout(300)
        out = tab.page.evaluate(
            """() => { const panel = document.querySelector('section.kap-panel');
            const box = panel.getBoundingClientRect();
            return [...panel.querySelectorAll('*')].filter((e) => e.checkVisibility() &&
              !e.closest('pre, .kap-table, .kap-unseen') &&
              e.getBoundingClientRect().right > box.right + 1).map((e) => e.className); }"""
        )
        assert (width, out) == (width, [])
    pressed(tab, "Deny")


@pytest.mark.long
def test_the_panel_can_be_read_and_used_without_eyes_or_mouse(
    opened: Opened, server: Server
) -> None:
    """axe finds nothing: names, roles, contrast, focus; in the light and in the dark theme."""
    from axe_playwright_python.sync_playwright import Axe

    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
    rules = {"runOnly": {"type": "tag", "values": tags}}
    style = "getComputedStyle(document.querySelector('.kap-panel')).backgroundColor"
    for theme in ("Light", "Dark"):
        server.theme(f"JupyterLab {theme}")
        tab = opened(STAGE + "print(await stage.approval())")
        tab.run()
        tab.panel.get_by_role("button", name="Approve").wait_for()
        tab.page.wait_for_timeout(500)
        shade = [int(part) for part in re.findall(r"\d+", tab.page.evaluate(style))[:3]]
        assert (max(shade) < 80) == (theme == "Dark")
        found = Axe().run(tab.page, context="section.kap-panel", options=rules).response
        wrong = [(v["id"], [n["html"] for n in v["nodes"]]) for v in found["violations"]]
        assert (theme, wrong) == (theme, [])
        assert {"color-contrast", "button-name"} <= {rule["id"] for rule in found["passes"]}
    live = tab.panel.get_by_role("status")
    assert live.text_content() == "Approval wanted: It sends data to a host: api.example.org."
    # From the first button, Tab goes on to Edit, Deny and the reason.
    tab.panel.get_by_role("button", name="Approve").focus()
    order = []
    for _ in range(3):
        tab.page.keyboard.press("Tab")
        focused = "(({textContent, placeholder}) => textContent || placeholder)"
        order.append(tab.page.evaluate(f"{focused}(document.activeElement)"))
    assert order[:2] == ["Edit, then run", "Deny"]
    assert order[2].startswith("Reason")
    pressed(tab, "Deny")


@pytest.mark.long
def test_the_notebook_is_offered_where_it_is(opened: Opened) -> None:
    """As an address of the server that the page came from."""
    cell = (
        "from pathlib import Path\nfrom kernel_agent_extension.panel import open_panel\n"
        "made = Path('runs/a b')\nmade.mkdir(parents=True, exist_ok=True)\n"
        "(made / 'run.ipynb').write_text('{}')\n"
        "panel = open_panel(task='x', notebook=made / 'run.ipynb')"
    )
    tab = opened(cell)
    tab.run()
    link = tab.panel.get_by_role("link", name="Open notebook")
    link.wait_for()
    assert link.get_attribute("href") == "/lab/tree/runs/a%20b/run.ipynb"
