"""A script on the page beside a panel that asks a person: as a display of another notebook has it.

The panel's own page in a real browser, with a question that waits. What counts is what the panel
sends as the person's decision. Another panel that is told that all events are real is the control.
"""

from __future__ import annotations

import asyncio
import http.server
import json
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from attacks.browse import BROWSERS, _Canary, _open
from attacks.words import Report, host_attack

if TYPE_CHECKING:
    from attacks.stage import Stage

PANEL = Path(__file__).resolve().parents[3] / "extension/kernel_agent_extension/panel.js"
NOTE = {"op": "ask", "id": 1, "step": 1, "kind": "cell", "reason": "Each cell is asked about",
        "rest": "and all others", "cut": False, "code": "steal()", "hues": ""}  # fmt: skip
PAGE = """<!doctype html><body><div id="at"></div><script type="module">
PROGRAM
const heard = [];
makePanel().render({ el: document.getElementById("at"), model: {
  on: (name, hear) => heard.push(hear), off: () => {},
  send: (said) => {
    if (said.do === "hello") {
      const whole = { n: 1, for: said.view, undo: false, notes: [NOTE] };
      setTimeout(() => heard.forEach((hear) => hear(whole)), 100);
    }
    if (said.do === "decide") fetch(`ADDRESS/NAME-${said.allowed}`);
  } } });
const press = () => {
  for (const each of document.querySelectorAll("button")) {
    if (!each.textContent.includes("Approve")) continue;
    fetch("ADDRESS/NAME-asked");
    each.click();
    each.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    each.dispatchEvent(new KeyboardEvent("keydown", { key: "A", shiftKey: true, bubbles: true }));
    each.focus();
    each.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
    const event = new MouseEvent("click", { bubbles: true });
    try { Object.defineProperty(event, "isTrusted", { value: true }); } catch { }
    each.dispatchEvent(event);
  }
};
for (const wait of [200, 700, 1500]) setTimeout(press, wait);
setTimeout(() => fetch("ADDRESS/NAME-over"), 2000);
</script>"""


def _told(stage: Stage, report: Report) -> str:
    return report.text if report.text.startswith("pressed: ") else ""


@host_attack("host-confusion", _told, timeout_s=100)
async def press_by_a_script(folder: Path) -> str:
    """Question in the panel: a script on the page presses Approve, by clicks and by keys"""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise KeyError("no browser is here")
    asked: set[str] = set()
    handler = type("Canary", (_Canary,), {"asked": asked})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    program = PANEL.read_text().replace("export default ", "const makePanel = ")
    pages = {"panel": program, "control": program.replace("event.isTrusted", "true")}
    for name, source in pages.items():
        page = PAGE.replace("NOTE", json.dumps(NOTE)).replace("ADDRESS", address)
        (folder / f"{name}.html").write_text(page.replace("NAME", name).replace("PROGRAM", source))
    frames = "".join(f'<iframe src="{name}.html"></iframe>' for name in pages)
    wait = f"<script>setTimeout(() => fetch('{address}/opened'), 6000)</script>"
    (folder / "index.html").write_text(f"<!doctype html><body>{frames}{wait}")
    try:
        await asyncio.to_thread(_open, browser, folder, address, asked)
    finally:
        server.shutdown()
        server.server_close()
    if not {"panel-asked", "panel-over", "control-true"} <= asked:
        raise KeyError(f"it shows nothing: {sorted(asked)}")
    if "panel-true" in asked:
        return "pressed: a script approved a cell"
    raise PermissionError(1, "no press of the script's was taken")
