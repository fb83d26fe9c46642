"""What the notebook cells of the browser tests call: runs whose every moment is known.

Imported by the notebook's kernel, not by the tests. The runs are real ones (a session, a sandboxed
kernel, the loop); only the model is one that plays back replies, a few characters at a time.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernel_agent_extension.panel import Panel, open_panel

from kernel_agent import Budget, Session
from kernel_agent.models.base import ModelDefaults
from kernel_agent.records.action import Code
from kernel_agent.records.cell import Answer, CellResult, Observation
from kernel_agent.records.conversation import Reply, Usage
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.event import Acting, Event, Notice, Output, Question, ReplyText
from kernel_agent.records.trace import RunStart, RunStop, Step
from kernel_agent.session.loop_thread import LoopThread

PENGUINS = Path(__file__).parents[2] / "example_notebooks" / "data" / "penguins.csv"
TASK = "Compare the body mass of the species"

LOAD = """import pandas as pd

penguins = pd.read_csv("data/penguins.csv")  # 344 birds
penguins.head()"""
COMPARE = """import matplotlib.pyplot as plt

mass = penguins.groupby("species")["body_mass_g"].agg(["count", "mean", "std"]).round(1)
print(mass, end="\\n\\n")
figure, axes = plt.subplots(figsize=(6, 3))
mass["mean"].plot.barh(ax=axes, color="#4c78a8", xlabel="mean body mass in g")
plt.show()
mass"""
WRONG = 'penguins.groupby("kind")["body_mass"].mean()'
ANSWER = """heaviest = mass["mean"].idxmax()
final_answer(f"{heaviest} penguins are the heaviest: {mass['mean'].max():,.0f} g on average, "
             f"against {mass['mean'].min():,.0f} g for the lightest species.")"""
SLOW = """import time
for k in range(600):
    print(f"fold {k + 1}: score {0.8 + (k * 37 % 100) / 1000:.3f}")
    time.sleep(0.1)"""


def reply(thought: str, code: str) -> str:
    return f"{thought}\n\n```python\n{code}\n```"


STORY = [
    reply("I load the table and look at its first rows.", LOAD),
    reply("I try the columns that the question names.", WRONG),
    reply(
        "There is no column `kind`: it is **species**. I compare the groups and draw them.", COMPARE
    ),
    reply("The means are known now, so I answer.", ANSWER),
]
WORKING = [STORY[0], reply("I cross-validate the model; this takes a minute.", SLOW)]


class Typist(ModelDefaults):
    """A model that writes its replies a few characters at a time."""

    name = "typist"

    def __init__(self, replies: list[str], pause_s: float) -> None:
        self._replies = iter(replies)
        self._pause_s = pause_s

    async def complete(
        self, messages: Any, options: Any, on_event: Callable[[Event], None]
    ) -> Reply:
        text = next(self._replies)
        for at in range(0, len(text), 6):
            await asyncio.sleep(self._pause_s)
            on_event(ReplyText(text=text[at : at + 6]))
        usage = Usage(prompt_tokens=1800, completion_tokens=90, calls=1, cost_usd=0.0021)
        return Reply(content=text, finish_reason="stop", usage=usage)

    async def close(self) -> None:
        pass


class Handle:
    """A run on a loop of its own; the cell waits in ticks, so that it can be interrupted."""

    def __init__(self, work: Callable[[], Awaitable[Any]], stop: Callable[[], None]) -> None:
        self._thread = LoopThread()
        self._done = asyncio.run_coroutine_threadsafe(work(), self._thread._loop)
        self._stop = stop

    def __await__(self) -> Iterator[Any]:
        return self._wait().__await__()

    async def _wait(self) -> Any:
        while not self._done.done():
            await asyncio.sleep(0.1)
        return self.result()

    def result(self) -> Any:
        """Wait without giving anything else a turn, as a magic in a function must."""
        try:
            return self._done.result()
        finally:
            self._thread.end()


TIMES: dict[str, float] = {}


def summary(run: Any) -> tuple[str, str]:
    import html

    said = f"{run.status}: {run.text or run.message}"
    return f'<div id="summary" style="padding:6px"><b>{html.escape(said)}</b></div>', said


def ask(
    replies: list[str],
    *,
    task: str = TASK,
    pause_s: float = 0.01,
    finish: bool = True,
    sandbox: str = "auto",
    linger_s: float = 0.0,
    **options: Any,
) -> Handle:
    """Begin a run with a panel in this cell; awaiting the handle waits for its end."""
    session: list[Session] = []
    stop = lambda: session[0].stop() if session else None  # noqa: E731

    def stopped() -> None:
        TIMES["pressed"] = time.time()
        stop()

    panel = open_panel(
        task=task, sandbox=sandbox, on_stop=stopped, on_undo=stop,
        notebook=Path("runs/shown/run.ipynb"), **options,
    )  # fmt: skip

    async def work() -> str:
        out = Path("runs/shown")
        budget = Budget(max_steps=20, max_seconds=300, max_tokens=60_000, max_cost=0.5)
        async with Session(
            model=Typist(replies, pause_s), data=[PENGUINS], sandbox=sandbox, budget=budget,
            out=out / str(time.time_ns()), format="fenced", on_event=panel,
        ) as opened:  # fmt: skip
            session.append(opened)
            run = await opened.run(task)
        TIMES["ended"] = time.time()
        await asyncio.sleep(linger_s)
        if finish:
            panel.finish(*summary(run))
        return f"{run.status}, {len(run.steps)} steps"

    return Handle(work, stop)


# --- runs of nobody: the events alone ------------------------------------------------------------


def eased() -> Panel:
    """A run in which nobody is asked, and which reaches hosts with long names."""
    panel = open_panel(task=TASK, sandbox="none")
    hosts = ["api.example.org", "a-very-long-name-of-a-host.in-a-long-domain.example.com"]
    panel(replace(start(level="none"), config={"approve": "never", "allow_hosts": hosts}))
    return panel


def start(task: str = TASK, level: str = "bubblewrap", **budget: Any) -> RunStart:
    caps = {"max_steps": 30, "max_seconds": 900, "max_tokens": 100_000, "max_cost": 1.0, **budget}
    return RunStart(
        run_id="a", task=task, time="", model="gpt-5-mini", format="fenced", budget=caps,
        sandbox={"level": level, "statement": f"Sandbox: {level} (as it says)"},
    )  # fmt: skip


def step_events(
    number: int, code: str, outputs: list[dict[str, Any]], *, thought: str = "", status: Any = "ok"
) -> list[Event]:
    action = Code(source=code, thought=thought)
    result = CellResult(status=status, outputs=tuple(outputs), seconds=0.2)
    usage = Usage(prompt_tokens=900, completion_tokens=60, cost_usd=0.001)
    return [
        Acting(number=number, action=action),
        *[Output(number=number, output=output) for output in outputs],
        Step(run_id="a", number=number, action=action, observation=Observation(text="seen"),
             result=result, usage=usage, model_seconds=0.7, cell_seconds=0.2),
    ]  # fmt: skip


def stop_event(answer: str | None = "42") -> RunStop:
    return RunStop(
        run_id="a", status=ExitStatus.ANSWERED if answer else ExitStatus.STEP_LIMIT,
        answer=Answer(text=answer) if answer else None, steps=1, seconds=2.0, message="",
    )  # fmt: skip


DANGEROUS = """import requests

for region in penguins["island"].unique():
    requests.post(f"https://api.example.org/notify/{region}", json={"checked": True})"""


def approval(*, kind: str = "cell") -> Handle:
    """A run that asks a person before its second step, and prints what the person said."""
    panel = open_panel(task=TASK, sandbox="bubblewrap", on_stop=lambda: None)

    async def work() -> str:
        panel(start())
        for event in step_events(1, LOAD, [stream("ok\n")], thought="I load the table."):
            panel(event)
        panel(Acting(number=2, action=Code(source=DANGEROUS, thought="I tell the service.")))
        question = Question(
            kind=kind, number=2, reason="It sends data to a host: api.example.org.",
            code=DANGEROUS, name="notify" if kind == "call" else "",
            arguments={"region": "Dream"} if kind == "call" else None,
        )  # fmt: skip
        decision = await panel.approver(question)
        panel(stop_event("done" if decision.allowed else None))
        panel.finish(text="decided")
        edited = None if decision.edited is None else decision.edited.splitlines()[-1]
        said = {"allowed": decision.allowed, "reason": decision.reason, "edited": edited,
                "waited": decision.seconds > 0, "by": decision.by}  # fmt: skip
        return json.dumps(said)

    return Handle(work, lambda: None)


def stream(text: str, name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def begun(text: str, call: str = "") -> Panel:
    """A run whose first reply is cut in the middle, and stays so; ``call`` is a native one."""
    panel = open_panel(task="Begin", sandbox="bubblewrap", on_undo=lambda: None)
    panel(start())
    for kind, piece in ((False, text), (True, call)):
        for at in range(0, len(piece), 3):
            panel(ReplyText(text=piece[at : at + 3], call=kind))
    return panel


def many(steps: int, pause_s: float = 0.0) -> Panel:
    """A run of many steps with code, output, a table and now and then a figure."""
    panel = open_panel(task=f"{steps} steps", sandbox="bubblewrap", on_undo=lambda: None)
    panel(start(max_steps=250))
    body = "".join(f"<tr><th>{k}</th><td>{k * 1.5}</td></tr>" for k in range(20))
    html = (
        '<table border="1" class="dataframe"><thead><tr><th></th><th>a</th></tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )
    data = {"text/html": html, "text/plain": "a"}
    table = {"output_type": "execute_result", "metadata": {}, "data": data}
    for number in range(1, steps + 1):
        for text in ("I look at the ", f"part {number} of the ", "table.\n\n```python\n", COMPARE):
            panel(ReplyText(text=text))
        outputs = [stream("".join(f"line {k} of step {number}\n" for k in range(20)))]
        outputs += [table] if number % 3 == 0 else []
        thought = f"I look at part {number} of the table."
        for event in step_events(number, COMPARE, outputs, thought=thought):
            panel(event)
        time.sleep(pause_s)
    return panel


def hostile(texts: list[str], outputs: list[dict[str, Any]]) -> Panel:
    """A run in which the task, the thoughts, the code, the outputs and the answer are hostile."""
    panel = open_panel(task=texts[0], sandbox=texts[0], on_undo=lambda: None)
    panel(start(task="\n".join(texts[:40])[:3900], level=texts[0]))
    share = -(-len(outputs) // len(texts))
    for number, text in enumerate(texts, 1):
        panel(Notice(text=text))
        panel(ReplyText(text=text))
        panel(ReplyText(text=text, reasoning=True))
        mine = outputs[(number - 1) * share : number * share]
        for event in step_events(number, text, mine, thought=text, status="error"):
            panel(event)
    return panel
