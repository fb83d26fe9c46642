"""What the panel costs: until it is there, until the first text, Stop; messages, bytes, memory.

Real runs in a real JupyterLab and Notebook 7 (Chromium on the PATH). Times are the page's own: from
the key that runs the cell until the element is in the document, from the click on Stop until the
panel says that the run is over. Usage: python benchmarks/panel.py [KERNELSPEC ...]
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT), str(ROOT / "extension")]

from browser.jupyter import CHROMIUM_ARGS, Server, Tab, open_notebook, serve  # noqa: E402

ROUNDS = 6
SLEEPS = "I wait.\n\n```python\nimport time\nprint('sleeping')\ntime.sleep(60)\n```"
WATCH = """() => {
  window.seen = {};
  const look = () => {
    const panel = document.querySelector('section.kap-panel');
    if (!panel) return;
    seen.panel ??= performance.now();
    if (panel.querySelector('.kap-draft .kap-thought')?.textContent) seen.token ??= performance.now();
    if (panel.querySelector('.kap-status').textContent === 'Stopped') seen.stopped ??= performance.now();
  };
  new MutationObserver(look).observe(document.body, {childList: true, subtree: true, characterData: true});
  addEventListener('keydown', (e) => { if (e.key === 'Enter') window.seen = {key: performance.now()}; }, true);
  addEventListener('click', (e) => { if (e.target.matches('.kap-stop')) seen.click = performance.now(); }, true);
}"""  # noqa: E501
FRAMES = """() => new Promise((done) => {
  const times = []; let last = performance.now(); const end = last + 4000;
  const list = document.querySelector('.kap-steps');
  const frame = (now) => {
    times.push(now - last); last = now;
    list.scrollTop = (now % 2000) / 2000 * list.scrollHeight;
    now < end ? requestAnimationFrame(frame) : done(times.slice(5));
  };
  requestAnimationFrame(frame);
})"""


def times(tab: Tab) -> list[dict[str, float]]:
    """Begin a run and stop it, some times; the first one loads what the others find loaded."""
    found = []
    tab.page.evaluate(WATCH)
    tab.run(0)
    tab.page.wait_for_timeout(4000)
    for _ in range(ROUNDS):
        tab.run(1)
        tab.panel.get_by_text("fold 3").wait_for(timeout=60_000)
        tab.panel.get_by_role("button", name="Stop", exact=True).click()
        tab.wait("() => seen.stopped")
        seen = tab.page.evaluate("seen")
        found.append(
            {
                "panel_ms": seen["panel"] - seen["key"],
                "first_text_ms": seen["token"] - seen["key"],
                "stop_ms": seen["stopped"] - seen["click"],
            }
        )
        tab.panel.wait_for(state="detached")
        tab.page.wait_for_timeout(500)
    return found


WATCH_MAGIC = """() => {
  window.seen = {};
  const free = () => /\\d/.test(document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')[1].textContent);
  const look = () => {
    if (document.querySelector('section.kap-panel')) seen.panel ??= performance.now();
    else if (seen.click) seen.gone ??= performance.now();
    if (seen.click && free()) seen.free ??= performance.now();
  };
  new MutationObserver(look).observe(document.body, {childList: true, subtree: true, characterData: true});
  addEventListener('keydown', (e) => { if (e.key === 'Enter') window.seen = {key: performance.now()}; }, true);
  addEventListener('click', (e) => { if (e.target.matches('.kap-stop')) seen.click = performance.now(); }, true);
}"""  # noqa: E501


def magic_times(tab: Tab) -> list[dict[str, float]]:
    """The same through ``%agent``: until its page has come, and until the kernel is free."""
    found = []
    tab.page.evaluate(WATCH_MAGIC)
    tab.run(0)
    tab.page.wait_for_timeout(4000)
    for _ in range(ROUNDS):
        tab.run(1)
        tab.panel.get_by_text("sleeping").last.wait_for(timeout=60_000)
        tab.page.wait_for_timeout(700)
        tab.panel.get_by_role("button", name="Stop", exact=True).click()
        tab.wait("() => seen.free && seen.gone")
        seen = tab.page.evaluate("seen")
        found.append(
            {
                "panel_ms": seen["panel"] - seen["key"],
                "stop_page_ms": seen["gone"] - seen["click"],
                "stop_free_ms": seen["free"] - seen["click"],
            }
        )
        tab.page.wait_for_timeout(500)
    return found


def heap(tab: Tab) -> float:
    """Megabytes of the page's scripts and elements, after collecting."""
    client = tab.page.context.new_cdp_session(tab.page)
    client.send("HeapProfiler.collectGarbage")
    return float(client.send("Runtime.getHeapUsage")["usedSize"]) / 1e6


def long_run(tab: Tab) -> dict[str, Any]:
    """Two hundred steps: messages, bytes, frames while scrolling, memory."""
    tab.run(0)
    tab.page.wait_for_timeout(4000)
    before = heap(tab)
    tab.run(1)
    tab.page.get_by_text("all told").last.wait_for(timeout=120_000)
    tab.wait("() => document.querySelectorAll('.kap-step[data-state=ok]').length === 200")
    tab.page.wait_for_timeout(500)
    frames = sorted(tab.page.evaluate(FRAMES))
    told = json.loads(tab.output(1).split("all told ")[1].split("\n")[0])
    return {
        **told,
        "elements": tab.page.evaluate("document.querySelectorAll('section.kap-panel *').length"),
        "frame_ms_median": statistics.median(frames),
        "frame_ms_95": frames[int(0.95 * len(frames))],
        "heap_mb": heap(tab) - before,
    }


COUNT = """
import json
from kernel_agent_extension import panel as module
sent = []
send = module._PageFront.send
module._PageFront.send = lambda self, m: (sent.append(m), send(self, m))
panel = stage.many(200, pause_s=0.06)
import time; time.sleep(0.3)
module._PageFront.send = send
outputs = sum(len(json.dumps(n)) for m in sent for n in m["notes"] if n["op"] == "out")
size = sum(len(json.dumps(m)) for m in sent)
told = {"messages_per_step": len(sent) / 200, "bytes_beyond_outputs": (size - outputs) / 200}
print("all told", json.dumps(told))
"""


def measure(browser: Any, server: Server, kernel: str) -> None:
    """Print the figures of one kernel in both front ends."""
    run = "await stage.ask(stage.WORKING, pause_s=0.002, linger_s=0.3)"
    (server.folder / "wait.jsonl").write_text(json.dumps({"content": SLEEPS}) + "\n")
    ask = "run = %agent --new --model scripted:wait.jsonl Wait"
    kinds = (
        (("from browser import stage", run), times),
        (("%load_ext kernel_agent", ask), magic_times),
        (("%load_ext kernel_agent", f"%%time\n{ask}"), magic_times),
    )
    for front, (cells, timed) in itertools.product(("lab", "notebook"), kinds):
        print(cells[-1].splitlines()[0])
        name = server.write(f"{front}-{time.time_ns()}.ipynb", *cells, kernel=kernel)
        tab = open_notebook(browser, server, name, front=front)
        found = timed(tab)
        for key in found[0]:
            later = [one[key] for one in found[1:]]
            print(f"{kernel:12} {front:9} {key:14} first {found[0][key]:6.0f}  "
                  f"median {statistics.median(later):6.0f}  worst {max(later):6.0f}")  # fmt: skip
        tab.page.context.close()
        server.end_kernel(name)


def main() -> None:
    """Print all figures."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as work, serve(Path(work)) as server, sync_playwright() as p:
        browser = p.chromium.launch(executable_path="/usr/bin/chromium", args=CHROMIUM_ARGS)
        for kernel in sys.argv[1:] or ["python3"]:
            measure(browser, server, kernel)
        name = server.write("long.ipynb", "from browser import stage", COUNT)
        tab = open_notebook(browser, server, name)
        for key, value in long_run(tab).items():
            print(f"{key:32} {value:8.1f}")
        browser.close()


if __name__ == "__main__":
    main()
