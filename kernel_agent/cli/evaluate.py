"""The command ``eval``: options in, lines as the runs end, a report at the end.

Ctrl-C and SIGTERM stop it; what was finished is kept, and the same command goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_agent.cli.options import FromTable, Settings
from kernel_agent.cli.outlet import warn_of, write_line
from kernel_agent.config import SETTINGS, public_address
from kernel_agent.errors import UsageError

if TYPE_CHECKING:
    from kernel_agent.evaluation import Engine, Outcome, Plan, Store, TaskSet

INCOMPLETE, ARM_FAILED, STOPPED = 3, 4, 130


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of ``kernel-agent eval``."""

    tasks: Annotated[
        str,
        typer.Argument(
            metavar="TASKS",
            help="A .jsonl or .yaml file of tasks.",
        ),
    ]
    formats: Annotated[
        tuple[str, ...],
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="auto, fenced, envelope, tool or json. Repeat it for more arms.",
        ),
    ] = ()
    models: Annotated[
        tuple[str, ...],
        typer.Option(
            "--model", metavar="NAME", help="A model's name, or offline. Repeat it for more arms."
        ),
    ] = ()
    sandboxes: Annotated[
        tuple[str, ...],
        typer.Option(
            "--sandbox", metavar="LEVEL", help="As of kernel-agent run. Repeat it for more arms."
        ),
    ] = ()
    endpoint: Annotated[Settings, FromTable(upto="base_url")]
    trials: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Runs of each task and arm.")
    ] = 1
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Take N tasks, evenly of their kinds.")
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Results and report; an earlier evaluation goes on."),
    ] = None
    at_once: Annotated[
        int | None, typer.Option(min=1, max=1000, metavar="N", help="Runs at a time (default: 2).")
    ] = None
    on: Annotated[str, typer.Option(metavar="ENGINE", help="local or dask[:ADDRESS].")] = "local"
    judge: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model that judges rubrics.")
    ] = None
    judge_base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Its endpoint, if it is another one.")
    ] = None
    limits: Annotated[Settings, FromTable()]
    max_total_cost: Annotated[
        float | None, typer.Option(metavar="USD", help="Of everything; needs --max-cost, too.")
    ] = None
    repeat: Annotated[
        tuple[str, ...],
        typer.Option(metavar="STATUS", help="Run again what ended so, as in model_error."),
    ] = ()
    trust: Annotated[
        bool,
        typer.Option(
            "--trust", help="TASKS may read beyond its folder and bring code: you have read it."
        ),
    ] = False
    report: Annotated[
        bool, typer.Option("--report", help="TASKS is an evaluation's folder: write its report.")
    ] = False


def evaluate(options: Options) -> int:
    """Compare formats, models and sandbox levels on your own tasks.

    Exit code: 0 every run has a result, 3 some have none, 4 an arm could not take part.
    """
    return report(Path(options.tasks)) if options.report else compare(options)


def compare(options: Options) -> int:
    """Carry out an evaluation and write its report; return the exit code, 130 when stopped."""
    from kernel_agent.evaluation import (
        Store,
        arms_markdown,
        compare_folder,
        engine_of,
        write_report,
    )

    plan = _plan(options)
    engine = engine_of(options.on, places=options.at_once)
    for level in dict.fromkeys(arm.sandbox for arm in plan.arms):
        warn_of(level)
    folder = options.out or _folder(plan)
    write_line(f"{_sum(plan)}; results in {folder}")
    with Store(folder) as store:
        outcome = _stoppable(plan, store, engine)
        report = write_report(store.folder)
    if outcome is None:
        write_line(f"stopped: the same command with --out {folder} goes on; so far: {report}")
        return STOPPED
    comparison = compare_folder(folder)
    if comparison.common:
        write_line(f"\nin all arms: {comparison.common}")
    write_line(f"\n{arms_markdown(comparison)}\n")
    for line in comparison.words:
        write_line(line.replace("**", ""))
    write_line(f"\n{outcome.done} of {outcome.planned} runs have a result. Report: {report}")
    if outcome.failed_arms:
        return ARM_FAILED
    return 0 if outcome.complete else INCOMPLETE


def report(folder: Path) -> int:
    """Write the report of a folder again, from the results that are there."""
    from kernel_agent.evaluation import write_report

    write_line(str(write_report(folder)))
    return 0


def _plan(options: Options) -> Plan:
    from kernel_agent.config import load_config
    from kernel_agent.evaluation import Arm, Plan, arms_of
    from kernel_agent.session import is_offline

    config = load_config(tell=write_line).merged(**options.endpoint, **options.limits)
    for address in filter(None, (config.base_url, options.judge_base_url)):
        if "@" in address.partition("?")[0]:
            raise UsageError(
                "an evaluation keeps the endpoint's address in its folder and its tables: put the "
                f"password of {public_address(address)} into OPENAI_API_KEY or a header"
            )
    tasks = _tasks(options)
    if not (options.models or config.model or is_offline(config)):
        raise UsageError("name the model that is evaluated: --model NAME, or --model offline")
    judge = None
    if options.judge:
        judge = Arm(model=options.judge, base_url=options.judge_base_url or config.base_url)
    return Plan(
        tasks=tasks,
        arms=arms_of(
            options.formats or (config.format,),
            options.models or (config.model or "offline",),
            options.sandboxes or (config.sandbox,),
            config.base_url,
        ),
        trials=options.trials,
        settings={name: getattr(config, name) for name, row in SETTINGS.items() if row.shared},
        max_total_cost=options.max_total_cost,
        judge=judge,
        repeat=options.repeat,
    )


def _tasks(options: Options) -> TaskSet:
    from kernel_agent.cli.trust import settle_tasks
    from kernel_agent.evaluation import sample

    given = settle_tasks(options.tasks, trusted=options.trust)
    if options.limit is None:
        return given
    drawn = sample(given, options.limit)
    for remark in drawn.remarks[len(given.remarks) :]:
        write_line(remark)
    return drawn


def _folder(plan: Plan) -> Path:
    from kernel_agent.session import new_folder

    return new_folder(f"eval-{plan.tasks.name}")


def _sum(plan: Plan) -> str:
    left_out = sum(bool(task.excluded) for task in plan.tasks.tasks)
    run = len(plan.tasks.tasks) - left_out
    counts = ((run, "task"), (len(plan.arms), "arm"), (plan.trials, "trial"))
    parts = " x ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts)
    more = f" ({left_out} tasks left out, see the report)" if left_out else ""
    return parts + more


def _stoppable(plan: Plan, store: Store, engine: Engine) -> Outcome | None:
    """Carry the plan out; None when somebody stopped it."""
    import asyncio
    import signal

    from kernel_agent.evaluation import evaluate as carry_out

    async def main() -> Outcome | None:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        try:
            return await carry_out(plan, store, engine, tell=write_line)
        except asyncio.CancelledError:
            return None

    return asyncio.run(main())
