"""Formats, models and sandbox levels compared on a published suite.

    python -m benchmarks.suites SUITE --model NAME [--format FORMAT …] [--sandbox LEVEL …]

SUITE is ``agentdojo[:SUITE]``, ``bfcl``, ``dabench:CHECKOUT``, ``dseval:CHECKOUT`` or
``m3tooleval:CHECKOUT``. Results, table and report are those of ``kernel-agent eval``; with the same
``--out DIR`` it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from functools import partial

from benchmarks.suites import read_suite
from benchmarks.suites.runs import play
from kernel_agent.config import SETTINGS, load_config
from kernel_agent.errors import KernelAgentError
from kernel_agent.evaluation import (
    Here,
    Plan,
    Store,
    arms_markdown,
    arms_of,
    compare_folder,
    evaluate,
    sample,
    write_report,
)
from kernel_agent.evaluation.runs import carry_out

INCOMPLETE = 3


def main() -> int:
    """Carry the missing runs out and print the table; 3 when some are still missing."""
    options = _read_options()
    plan = _plan_of(options)
    with Store(options.out) as store:
        engine = Here(places=options.at_once, work=partial(carry_out, play=play))
        outcome = asyncio.run(evaluate(plan, store, engine, tell=partial(print, flush=True)))
        report = write_report(store.folder)
    print(f"\n{arms_markdown(compare_folder(options.out))}\n")
    print(f"{outcome.done} of {outcome.planned} runs have a result. Report: {report}")
    return 0 if outcome.complete else INCOMPLETE


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suites")
    parser.add_argument("suite")
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--base-url")
    parser.add_argument("--format", action="append", default=[])
    parser.add_argument("--sandbox", action="append", default=[])
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--out", required=True)
    return parser.parse_args()


def _plan_of(options: argparse.Namespace) -> Plan:
    given = {name: getattr(options, name) for name in ("base_url", "max_steps")}
    config = load_config().merged(**given)
    tasks = read_suite(options.suite)
    return Plan(
        tasks=tasks if options.limit is None else sample(tasks, options.limit),
        arms=arms_of(
            options.format or (config.format,),
            options.model,
            options.sandbox or (config.sandbox,),
            config.base_url,
        ),
        trials=options.trials,
        settings={name: getattr(config, name) for name, row in SETTINGS.items() if row.shared},
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KernelAgentError as error:
        sys.exit(f"suites: {error}")
