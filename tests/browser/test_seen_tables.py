"""Tables that a person reads, on a page and in a panel: for those who see little, too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from parts.test_answer_views import FRAME, SALES, answer_of, stop_with
from support.golden import start, step

from browser.conftest import Opened
from browser.jupyter import Server
from browser.test_panel_in_jupyter import STAGE
from kernel_agent.inkernel.display import VALUE_MIME, describe_table
from kernel_agent.notebook import page_html
from kernel_agent.records import CellResult, Code

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
PIVOT = SALES.pivot_table(index="region", columns="what", values=["v"])
WIDE = pd.DataFrame([range(30)] * 3)
ANSWERS = {
    "a table": FRAME,
    "a wide table": WIDE,
    "a pivot": PIVOT,
    "names and values": {"best": {"region": "N", "since": pd.Timestamp("2025-01-01")}, "n": 2},
    "text": "## Found\n\n| region | sold |\n|---|---:|\n| N | 1,234.5 |\n\n- `3%` more",
}


def faults(page: Any, context: str) -> list[Any]:
    from axe_playwright_python.sync_playwright import Axe

    rules = {"runOnly": {"type": "tag", "values": TAGS}}
    found = Axe().run(page, context=context, options=rules).response
    return [(v["id"], [n["html"] for n in v["nodes"]]) for v in found["violations"]]


def display(table: pd.DataFrame) -> dict[str, Any]:
    data = {VALUE_MIME: describe_table(table), "text/plain": str(table)}
    return {"output_type": "display_data", "data": data, "metadata": {}}


@pytest.mark.long
def test_an_unfolded_page_with_tables_can_be_read_without_eyes_or_mouse(
    browser: Any, tmp_path: Path
) -> None:
    shown = CellResult(status="ok", outputs=tuple(map(display, (FRAME, PIVOT, WIDE))))
    looked = step(1, Code(source="x = 3", thought="I look at the tables."), shown)
    page = tmp_path / "run.html"
    records = []
    for kind, value in ANSWERS.items():
        ended = replace(stop_with(answer_of(value)), run_id=kind)
        records += [start(kind, f"{kind}?"), replace(looked, run_id=kind), ended]
    page.write_text(page_html(records), encoding="utf-8")
    for scheme in ("light", "dark"):
        size = {"width": 600, "height": 800}
        with browser.new_context(color_scheme=scheme, viewport=size, bypass_csp=True) as context:
            tab = context.new_page()
            tab.goto(page.as_uri())
            tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
            assert (scheme, faults(tab, "body")) == (scheme, [])
            wider = "document.documentElement.scrollWidth - innerWidth"
            assert tab.evaluate(wider) <= 0


@pytest.mark.long
@pytest.mark.parametrize("theme", ["Light", "Dark"])
def test_a_panel_with_tables_can_be_read_without_eyes_or_mouse(
    opened: Opened, server: Server, theme: str
) -> None:
    """While the run goes on."""
    server.theme(f"JupyterLab {theme}")
    tab = opened(
        f"{STAGE}from browser.test_seen_tables import FRAME, PIVOT, WIDE, display\n"
        "panel = stage.begun('I look.')\n"
        "shown = [display(table) for table in (FRAME, PIVOT, WIDE)]\n"
        "for event in stage.step_events(1, 'table', shown, thought='I look.'):\n    panel(event)"
    )
    tab.run()
    tab.wait("() => document.querySelectorAll('.kap-table').length === 3")
    tab.page.wait_for_timeout(500)
    assert faults(tab.page, "section.kap-panel") == []
