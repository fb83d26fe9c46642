"""Whole sessions of AgentDojo and BFCL: a scripted model plays the gold calls, in two formats.

So tools, state from question to question, answers and the suite's own judgement go through real
runs. The packages have an environment of their own (``make eval-oracle``); elsewhere it is skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.suites import gold_of, read_suite
from kernel_agent.evaluation import sample

pytestmark = pytest.mark.filterwarnings("ignore")  # of the packages

ROOT = Path(__file__).parents[2]
TASKS = 6


def as_calls(calls, answer):
    """Yield the replies of a model that makes one native call after another."""
    for name, arguments in [*calls, ("final_answer", {"answer": answer})]:
        function = {"name": name, "arguments": json.dumps(arguments)}
        yield {"content": "", "tool_calls": [{"id": "c", "type": "function", "function": function}]}


def as_cell(calls, answer):
    """Yield the reply of a model that does it all in one cell."""
    lines = [f"{name}(**{arguments!r})" for name, arguments in calls]
    source = "\n".join([*lines, f"final_answer({answer!r})"])
    yield {"content": f"```python\n{source}\n```"}


WRITERS = {"json": as_calls, "fenced": as_cell}


def scripts(folder, suite, answers):
    """Write a script for each drawn task and format; the last task's does nothing and is wrong."""
    tasks = [task for task in sample(read_suite(suite), TASKS).tasks if not task.excluded]
    gold = {task.id: task for task in gold_of(suite)}
    for name, write in WRITERS.items():
        for task in tasks:
            turns = [[(c.name, c.arguments) for c in turn.calls] for turn in gold[task.id].turns]
            answer = answers(task)
            if task is tasks[-1]:
                turns, answer = [[] for _ in turns], "Nothing was done."
            lines = [json.dumps(reply) for calls in turns for reply in write(calls, answer)]
            (folder / f"{task.id}-{name}.jsonl").write_text("\n".join(lines))
        smoke = [json.dumps(reply) for reply in write([], 3)]
        (folder / f"smoke-{name}.jsonl").write_text("\n".join(smoke))
    return [task.id for task in tasks]


def evaluate(folder, suite):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "KERNEL_AGENT_"))}
    formats = [part for name in WRITERS for part in ("--format", name)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.suites", suite, *formats, "--sandbox", "none",
         "--model", f"scripted:{folder}/{{task}}-{{format}}.jsonl", "--limit", str(TASKS),
         "--out", "out", "--max-steps", "60"],
        cwd=folder, env={**kept, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (folder / "out" / "results.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def held(results, ids):
    """Check that every task was done right in both formats, but for the last, which did nothing."""
    assert len(results) == len(WRITERS) * len(ids)
    for result in results:
        assert result["status"] == "answered", result
        assert result["success"] == (result["task_id"] != ids[-1]), result
    assert {result["tool_calls"] > 0 for result in results} == {True, False}


def test_agentdojo_tasks_are_done_by_gold_calls_in_code_and_in_json(tmp_path):
    """The suite's utility functions say so, of its own environment, after real runs."""
    pytest.importorskip("agentdojo")
    from benchmarks.suites.agentdojo import _suites

    suites = _suites("")

    def answer(task):
        ref = task.origin.ref
        return suites[ref["suite"]].user_tasks[ref["task"]].GROUND_TRUTH_OUTPUT or "Done."

    ids = scripts(tmp_path, "agentdojo", answer)
    held(evaluate(tmp_path, "agentdojo"), ids)


def test_bfcl_tasks_are_done_by_gold_calls_in_code_and_in_json(tmp_path):
    """Several questions in one session; the suite's checker compares the state after each."""
    pytest.importorskip("bfcl_eval")
    pytest.importorskip("mpmath")
    ids = scripts(tmp_path, "bfcl", lambda _task: "Done.")
    held(evaluate(tmp_path, "bfcl"), ids)
