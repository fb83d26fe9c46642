"""What an evaluation costs beside the runs themselves: 10,000 runs of an instant scripted model.

Each run is the real loop with a scripted reply and no kernel; everything around it is what
``kernel-agent eval`` does: specs on disk, the engine, a result line, the report. Prints a table and
writes ``benchmarks/results/eval_campaign.json``.

    python benchmarks/eval_campaign.py [--runs 10000] [--engines local,dask]
"""

import argparse
import asyncio
import importlib
import json
import os
import platform
import tempfile
import time
from pathlib import Path

from kernel_agent.agent import Agent, Context, ModelDecider
from kernel_agent.evaluation import (
    Arm,
    Here,
    OnDask,
    Plan,
    RunResult,
    Store,
    Task,
    TaskSet,
    evaluate,
    write_report,
)
from kernel_agent.formats import get_format
from kernel_agent.models import ScriptedModel
from kernel_agent.records import (
    Answer,
    Budget,
    CellResult,
    Meter,
    RequestOptions,
    RunStart,
    now,
)

HERE = Path(__file__).parent
WORKERS = 2


async def loop_only(spec):
    """One run of the real loop; the cell is answered at once."""
    fmt = get_format("fenced")
    model = ScriptedModel(["```python\nfinal_answer(1)\n```"])

    async def complete(messages):
        return await model.complete(messages, RequestOptions(), lambda _event: None)

    async def execute(_action, _number):
        return CellResult(status="ok", answer=Answer(text="1", value=1))

    context = Context(fmt.system_prompt(), fmt, max_tokens=32_000)
    agent = Agent(
        ModelDecider(complete, format=fmt, context=context), execute=execute,
        record=lambda _record: None, meter=Meter(Budget()), on_event=lambda _event: None,
    )  # fmt: skip
    start = RunStart(
        run_id=spec.run_id, task=spec.task.turns[0], time=now(), model="scripted",
        format="fenced", sandbox={}, budget={},
    )  # fmt: skip
    stop = await agent.run(start)
    return RunResult(
        run_id=spec.run_id, task_id=spec.task.id, arm=spec.arm.name, trial=spec.trial,
        status=str(stop.status), success=True, steps=stop.steps, seconds=stop.seconds,
    )  # fmt: skip


def loop_only_sync(spec):
    """The same for workers, which have no event loop running."""
    return asyncio.run(loop_only(spec))


def campaign(engine, runs):
    """Seconds of each part, for one engine."""
    tasks = tuple(Task(id=f"t{n}", task="One?", answer=1) for n in range(runs // 2))
    arms = (Arm(format="fenced", sandbox="none"), Arm(format="envelope", sandbox="none"))
    plan = Plan(tasks=TaskSet(name="simulated", tasks=tasks), arms=arms)
    with tempfile.TemporaryDirectory() as folder, Store(folder) as store:
        began = time.perf_counter()
        specs = plan.specs(folder)
        made = time.perf_counter()
        store.plan(plan.to_json(), specs)
        written = time.perf_counter()
        smoked = []

        def tell(line):
            if line.startswith("arm "):
                smoked.append(time.perf_counter())

        outcome = asyncio.run(evaluate(plan, store, engine, at_once=8 * WORKERS, tell=tell))
        done = time.perf_counter()
        assert outcome.complete, outcome
        write_report(folder)
        reported = time.perf_counter()
    return {
        "make_specs_s": made - began,
        "write_specs_s": written - made,
        "start_and_smoke_s": smoked[-1] - written,
        "runs_s": done - smoked[-1],
        "report_s": reported - done,
        "ms_per_run": 1000 * (reported - began) / runs,
        "ms_per_run_under_way": 1000 * (done - smoked[-1]) / runs,
    }


async def alone(runs):
    """Milliseconds of the loop itself, without anything around it."""
    spec = Plan(
        tasks=TaskSet(name="x", tasks=(Task(id="t", task="One?", answer=1),)), arms=(Arm(),)
    ).specs("")[0]
    began = time.perf_counter()
    for _ in range(runs):
        await loop_only(spec)
    return 1000 * (time.perf_counter() - began) / runs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--engines", default="local,dask")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(HERE), os.environ.get("PYTHONPATH", str(HERE.parent))]
    )
    engines = {
        "local": lambda: Here(places=WORKERS, work=loop_only),
        "dask": lambda: OnDask(workers=WORKERS, work=worker()),
    }
    importlib.import_module("nbformat")  # imports are no cost of a campaign
    importlib.import_module("matplotlib.figure")
    loop_ms = asyncio.run(alone(min(options.runs, 2000)))
    print(f"the loop itself: {loop_ms:.2f} ms a run")
    path = HERE / "results" / "eval_campaign.json"
    kept = json.loads(path.read_text())["engines"] if path.exists() else {}
    found = {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load_average_before": os.getloadavg()[0],
        "loop_ms": loop_ms,
        "engines": kept,  # of engines that are not measured now
    }
    for name in options.engines.split(","):
        parts = campaign(engines[name](), options.runs)
        found["engines"][name] = {"runs": options.runs} | parts
        print(f"{name}: " + ", ".join(f"{key} {value:.3f}" for key, value in parts.items()))
    path.write_text(json.dumps(found, indent=1) + "\n")


def worker():
    """The function by a name under which the workers can import it."""
    import eval_campaign

    return eval_campaign.loop_only_sync


if __name__ == "__main__":
    main()
