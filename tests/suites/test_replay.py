"""Recorded transcripts: what is read of them, and what their cells show here."""

import json
import subprocess
import sys
from pathlib import Path

from support.command import environment

from benchmarks.replay import _run_episode
from kernel_agent.config import Config

ROOT = Path(__file__).parents[2]


def replay(folder, *arguments, code=0):
    """Run the program; return what it printed, and of an error what it complained of."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.replay", *map(str, arguments), "--out", "kept.json"],
        cwd=folder, env=environment(PYTHONPATH=str(ROOT)), capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code else done.stdout


def test_transcripts_are_read_and_where_they_are_run_what_they_show_is_compared(tmp_path):
    """Without a sandbox level replayed code is read only."""
    turns = [
        {"role": "user", "content": "Add"},
        {"role": "assistant", "content": "<execute>\nprint(1 + 1)\n</execute>"},
        {"role": "user", "content": "Observation:\n2\nYou have 4 steps left and 2 chances left.\n"},
        {"role": "assistant", "content": "The answer is two."},
    ]
    path = tmp_path / "turns.jsonl"
    path.write_text(json.dumps({"turns": turns}) + "\n")
    said = replay(tmp_path, path, "--sandbox", "none")
    assert "| fenced | 2 | 1 (50.0%) | missing 1 |" in said
    assert "it is read, not run" in said
    path.write_text('{"turns": 3}\n')
    said = replay(tmp_path, path, "--sandbox", "none", code=1)
    assert "turns.jsonl, line 1: no transcript" in said
    assert len(said.splitlines()) == 1


def test_of_transcripts_as_many_of_each_suite_are_drawn_and_the_rest_is_counted(tmp_path):
    """The file has one suite after the other: its beginning would be one suite."""
    path = tmp_path / "turns.jsonl"
    turns = [{"role": "assistant", "content": "```python\nx = 1\n```"}]
    lines = [{"suite": name, "turns": turns} for name in "aaaaaabb"]
    path.write_text("\n".join(map(json.dumps, lines)))
    said = replay(tmp_path, path, "--sandbox", "none", "--limit", "4")
    told = "4 of 8 transcripts were drawn: 2 of 6 of a, 2 of 2 of b; the others are left out.\n"
    assert said.startswith(told)
    assert "drawn" not in replay(tmp_path, path, "--sandbox", "none")


async def test_replayed_cells_are_compared_with_what_was_recorded(tmp_path):
    """Here with cells of our own, which need no confinement; the program refuses `none`."""
    turns = []
    for source, shown in (
        ("n = 2\nprint(n)", "2"),
        ("n + 1", "3"),
        ("1 / 0", "Traceback:\nZeroDivisionError: division by zero"),
        ("print('now')", "then"),
        ("m = n", "[Executed Successfully with No Output]"),
        ("m, n", "Out[3]: (2, 2)"),
        ("print('not asked for')", "Your answer is wrong."),
    ):
        turns.append({"role": "assistant", "content": f"<execute>\n{source}\n</execute>"})
        turns.append({"role": "user", "content": f"Observation:\n{shown}\nYou have 4 steps left."})
    compared = await _run_episode(turns, "fenced", "none", Config())
    assert compared[:3] == ["", "", ""]
    assert compared[3] == "shows 'now'; recorded: 'then'"
    assert compared[4:] == ["", "", None]  # the last ran, but nothing was recorded of it
