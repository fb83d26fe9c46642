"""``kernel-agent eval`` at the terminal: options in, lines as the runs end, a report at the end.

Ctrl-C and SIGTERM stop it; what was finished is kept, and the same command goes on from there.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_agent.cli.trust import settle_settings
from kernel_agent.config import Config, load_config, public_address
from kernel_agent.errors import UsageError

if TYPE_CHECKING:
    from kernel_agent.evaluation import Outcome, Plan, Store, TaskSet

INCOMPLETE, ARM_FAILED, STOPPED = 3, 4, 130

SHARED = (
    "prices", "extra_body", "stream", "api_key_env", "request_timeout_s", "max_retries",
    "cell_seconds", "observation_chars", "context_tokens", "max_steps", "max_seconds",
    "max_tokens", "max_cost",
)  # fmt: skip
"""Settings that every run has from here, wherever it is carried out; no key is among them."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user chose; ``settings`` are those of :class:`~kernel_agent.config.Config`."""

    tasks: str
    formats: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    sandboxes: tuple[str, ...] = ()
    base_url: str | None = None
    trials: int = 1
    limit: int | None = None
    out: Path | None = None
    at_once: int = 2
    on: str = "local"
    judge: str | None = None
    judge_base_url: str | None = None
    max_total_cost: float | None = None
    repeat: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


def evaluate(options: Options, tell: Callable[[str], None]) -> int:
    """Carry out an evaluation and write its report; return the exit code.

    0 every run has a result, 3 some are missing (money, lost workers), 4 an arm took no part,
    130 stopped.
    """
    from kernel_agent.evaluation import Store, write_report

    settle_settings()
    plan = _plan(options, tell)
    folder = options.out or _folder(plan)
    tell(f"{_sum(plan)}; results in {folder}")
    with Store(folder) as store:
        outcome = _stoppable(plan, store, options, tell)
        report = write_report(store.folder)
    if outcome is None:
        tell(f"stopped: the same command with --out {folder} goes on; so far: {report}")
        return STOPPED
    from kernel_agent.evaluation import arms_markdown, compare_folder

    comparison = compare_folder(folder)
    if comparison.common:
        tell(f"\nin all arms: {comparison.common}")
    tell(f"\n{arms_markdown(comparison)}\n")
    for line in comparison.words:
        tell(line.replace("**", ""))
    tell(f"\n{outcome.done} of {outcome.planned} runs have a result. Report: {report}")
    if outcome.failed_arms:
        return ARM_FAILED
    return 0 if outcome.complete else INCOMPLETE


def report(folder: Path, tell: Callable[[str], None]) -> int:
    """Write the report of a folder again, from the results that are there."""
    from kernel_agent.evaluation import write_report

    tell(str(write_report(folder)))
    return 0


def oracle(options: Options, tell: Callable[[str], None]) -> int:
    """Print the turns and tokens that each protocol needs at best, and keep them."""
    from kernel_agent.evaluation import measure, oracle_text, write_oracle

    suite = measure(options.tasks, limit=options.limit)
    tell(oracle_text(suite))
    if options.out is not None:
        tell(str(write_oracle(suite, options.out)))
    return 0


def replay(options: Options, tell: Callable[[str], None]) -> int:
    """Read recorded transcripts with each format, run their cells, and compare what they show."""
    from kernel_agent.evaluation import replay_file, replay_text, write_replay

    settle_settings()
    config = load_config(tell=tell).merged(**options.settings)
    found = asyncio.run(
        replay_file(
            Path(options.tasks),
            formats=options.formats or ("fenced",),
            sandbox=(options.sandboxes or ("auto",))[0],
            config=config,
            limit=options.limit,
            at_once=options.at_once,
            tell=tell,
        )
    )
    tell(replay_text(found))
    if options.out is not None:
        tell(str(write_replay(found, options.out)))
    return 0


def _plan(options: Options, tell: Callable[[str], None]) -> Plan:
    from kernel_agent.evaluation import Arm, Plan, arms_of
    from kernel_agent.formats import get_format

    config = load_config(tell=tell).merged(base_url=options.base_url, **options.settings)
    for name in options.formats:
        get_format(name)  # an unknown one is said before anything is done
    for address in filter(None, (config.base_url, options.judge_base_url)):
        if "@" in address.partition("?")[0]:
            raise UsageError(
                "an evaluation keeps the endpoint's address in its folder and its tables: put the "
                f"password of {public_address(address)} into OPENAI_API_KEY or a header"
            )
    judge = None
    if options.judge:
        judge = Arm(model=options.judge, base_url=options.judge_base_url or config.base_url)
    return Plan(
        tasks=_tasks(options),
        arms=arms_of(
            options.formats or (config.format,),
            options.models or (config.model or "offline",),
            options.sandboxes or (config.sandbox,),
            config.base_url,
        ),
        trials=options.trials,
        settings=_settings(config),
        max_total_cost=options.max_total_cost,
        judge=judge,
        repeat=options.repeat,
    )


def _settings(config: Config) -> dict[str, Any]:
    return {name: getattr(config, name) for name in SHARED}


def _tasks(options: Options) -> TaskSet:
    import dataclasses

    from kernel_agent.evaluation import is_adapter, read_suite, read_tasks

    given = read_suite(options.tasks) if is_adapter(options.tasks) else read_tasks(options.tasks)
    if options.limit is not None:
        if options.limit < 1:
            raise UsageError("--limit must be at least 1")
        given = dataclasses.replace(given, tasks=given.tasks[: options.limit])
    return given


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


def _stoppable(
    plan: Plan, store: Store, options: Options, tell: Callable[[str], None]
) -> Outcome | None:
    """Carry the plan out; None when somebody stopped it."""
    from kernel_agent.evaluation import engine_of
    from kernel_agent.evaluation import evaluate as carry_out

    engine = engine_of(options.on, places=options.at_once)

    async def main() -> Outcome | None:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        at_once = options.at_once if options.on == "local" else None
        try:
            return await carry_out(plan, store, engine, at_once=at_once, tell=tell)
        except asyncio.CancelledError:
            return None

    return asyncio.run(main())
