"""The command: the help of each, output, errors, exit codes.

It runs in this process, which saves its start, and three times as a shell would start it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from goldens.normal import normal
from goldens.play import command
from goldens.telling import Item, flat, item, plain, shown

TABLE = "month,sold\nMay,3\nJune,5\n"
LOAD = "Read it.\n```python\nimport pandas as pd\ndf = pd.read_csv('data/sales.csv')\ndf\n```"
PLOT = "```python\nimport matplotlib.pyplot as plt\ndf.plot.bar()\nplt.savefig('sold.png')\n```"
ANSWER = "```python\nfinal_answer({'best': 'June', 'share': float('nan')})\n```"
PRINT = "```python\nprint(1)\n```"
SCRIPTS: dict[str, list[str | dict[str, Any]]] = {
    "good.jsonl": [LOAD, PLOT, ANSWER],
    "short.jsonl": [PRINT],
    "limits.jsonl": [PRINT, PRINT],
    "tool.jsonl": ["```python\nfinal_answer(double(21))\n```"],
    "pay.jsonl": ["```python\npay('a@b.example')\n```"] * 9,
    "dies.jsonl": ["```python\nimport os; os._exit(9)\n```"],
    "slow.jsonl": ["```python\nprint(1)\nimport time; time.sleep(60)\n```"],
    "talk.jsonl": ["Only talk."] * 20,
    "monty.jsonl": ["```python\nfinal_answer(6 * 7)\n```"],
    "total.jsonl": [{"for": "total", "content": "```python\nfinal_answer(8)\n```"}],
    "costly.jsonl": [{"content": PRINT, "usage": {"prompt_tokens": 10**6}}] * 3,
}  # fmt: skip
TOOLS = '''
from kernel_agent import tool

@tool
def double(n: int) -> int:
    """Double a number."""
    return 2 * n

@tool(effects=True)
def pay(to: str) -> str:
    """Pay somebody."""
    return "paid"
'''
TASKS = [
    {
        "id": "sum",
        "task": "What is the total?",
        "data": "sales.csv",
        "check": "number",
        "answer": 8,
    },
    {
        "id": "rows",
        "task": "How many rows?",
        "data": "sales.csv",
        "check": "number",
        "answer": 2,
    },
]
PIPELINE = ["open('data/sales.csv').read()", "print('done')"]
FAILING = ["x = 1", "x / 0", "print('never')"]
ASK = "run x --model scripted:good.jsonl"
BARE = "run x --sandbox none"
RUN = "run x --sandbox none --data sales.csv"
PURE = "run x --sandbox interpreter"  # starts in a moment; what is shown is the same

# In a process of their own: what a shell sees of an answer, of a slip, and of no answer.
PROCESSES = (
    f"{RUN} --model scripted:good.jsonl --out good --json", "nothing",
    f"{PURE} --model scripted:limits.jsonl --max-steps 1 --out cut",
)  # fmt: skip

# What each needs is left by those before it.
STARTED = (
    f"{PURE} --model scripted:short.jsonl --out short_json --json",
    f"{PURE} --model scripted:short.jsonl --out short_quiet --quiet",
    f"{BARE} --model scripted:slow.jsonl --max-seconds 4 --out seconds --json",
    f"{PURE} --model scripted:limits.jsonl --max-tokens 100 --out tokens --json",
    f"{RUN} --model scripted:limits.jsonl --max-cost 1 --out no_prices",
    f"{PURE} --model scripted:costly.jsonl --max-cost 1 --out cost --json",
    f"{PURE} --model scripted:talk.jsonl --out talk",
    f"{BARE} --model scripted:dies.jsonl --out lost --json",
    f"{PURE} --model scripted:pay.jsonl --tools mine.py --out denied --json",
    f"{PURE} --model scripted:pay.jsonl --tools mine.py --approve-tool pay=deny --out policy",
    f"{PURE} --model scripted:tool.jsonl --tools mine --out tool --quiet",
    f"{PURE} --model scripted:monty.jsonl --out monty",
    f"{PURE} --model scripted:monty.jsonl --out monty_json --json",
    "run 'How many rows?' --data sales.csv --sandbox none --model offline --out offline",
    "run x --model m --base-url http://127.0.0.1:9/v1 --sandbox none --out refused",
    f"{RUN} --model scripted:good.jsonl --out good",
    "doctor --verbose",
    "show good", "show good/trace.jsonl --steps 1", "show good --steps 0", "show good --html",
    "show short_json", "show lost", "export good", "export good -o again.ipynb",
    "export good -o missing/again.ipynb",
    "pipeline monthly.ipynb --data sales.csv --sandbox none --out june",
    "pipeline failing.ipynb --sandbox none --out failing_json --json",
    "eval tasks.jsonl --model scripted:total.jsonl --sandbox interpreter --out evaluated",
    "verify june --json", "verify lost", "verify changed.ipynb --json", "eval evaluated --report",
    "show evaluated",
)  # fmt: skip

# Uses that fail before anything is started.
QUICK = (
    "nothing", "--nothing", "run --nothing", "run", "run ''", "run x --data missing.csv",
    "run x --data .", "run x --data empty.csv", "run x --model scripted:missing.jsonl",
    "run x --model scripted:bad.jsonl", f"{ASK} --sandbox nothing", f"{ASK} --format nothing",
    f"{ASK} --max-steps 0", "run x --max-steps many", f"{ASK} --max-seconds=-1", "run x",
    f"{ASK} --approve sometimes", f"{ASK} --approve-tool pay", f"{ASK} --approve-tool pay=maybe",
    f"{ASK} --tools nothing_of_this_name", f"{ASK} --tools sales.csv", f"{ASK} --tools sql=",
    f"{ASK} --mcp nothing-of-this-name", f"{ASK} --allow-host 'a b'", "run x --memory-mb 0",
    f"{ASK} --guard-imports '' --sandbox interpreter", "run x --model m --base-url nonsense",
    "run x --model scripted:good.jsonl --sandbox remote --out remote",
    "run x y", "show", "show missing", "show empty.csv", "show sales.csv",
    "export missing", "verify missing", "verify sales.csv", "verify missing --json",
    "pipeline missing.ipynb", "pipeline sales.csv", "pipeline monthly.ipynb --max-seconds 0",
    "eval missing.jsonl", "eval empty.jsonl", "eval tasks.jsonl --trials 0",
    "eval tasks.jsonl --on nothing", "eval tasks.jsonl --max-total-cost 1",
    "kernelspec remove --nothing", "microvm nothing", "kernelspec nothing", "--version",
)  # fmt: skip


def commands(folder: Path) -> dict[str, str]:
    """Run everything in a folder, which is the working directory; return the recordings."""
    _prepare(folder)
    told: list[tuple[str, Iterable[Item]]] = [*_helps("")]
    said: set[str] = set()
    for line in PROCESSES:
        told.append((f"$ kernel-agent {line} # a process", _told(line, said, *_process(line))))
    for line in (*STARTED, *QUICK):
        told.append((f"$ kernel-agent {line}", _told(line, said, *command(*shlex.split(line)))))
    files: dict[str, dict[str, list[Item]]] = {}
    for line, items in told:
        views = files.setdefault(_file(line), {})
        views[line if line not in views else f"{line} # again"] = list(items)
    return {f"commands/{name}": normal(shown(views, {}), folder) for name, views in files.items()}


def _file(line: str) -> str:
    words = shlex.split(line, comments=True)[2:]
    if "--help" in words:
        return "help.txt"
    return f"{words[0]}.txt" if words and not words[0].startswith("-") else "others.txt"


def _helps(path: str) -> Iterator[tuple[str, list[Item]]]:
    """Yield the help of a command and of all below it, as the help itself names them."""
    _, out, err = command(*path.split(), "--help")
    yield f"$ kernel-agent {path} --help", [*plain(out + err)]
    below = re.search(r"^Commands:\n((?:  .*\n)+)", out, re.MULTILINE)
    for name in re.findall(r"^  (\S+) ", below.group(1), re.MULTILINE) if below else ():
        yield from _helps(f"{path} {name}".strip())


def _process(line: str) -> tuple[object, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "kernel_agent", *shlex.split(line)],
        capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
        env=os.environ,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def _told(line: str, said: set[str], code: object, out: str, err: str) -> Iterator[Item]:
    yield f"exit code {code}", ""
    if err:
        yield "stderr", ""
        yield from plain(err)
    if line == "doctor --verbose":
        out = _constant(out)
    if "--json" in line and out.strip():
        first, _, out = out.partition("\n")
        value = json.loads(first)
        if "python" in value:
            value["python"] = value["version"] = "<version>"
        yield from _new("JSON", flat(value), said)
    if out:
        yield "stdout", ""
        yield from plain(out)


def _new(head: str, pairs: Iterable[tuple[str, Any]], said: set[str]) -> Iterator[Item]:
    """Yield what no JSON before has said; the rest is only counted."""
    named = {normal(f"{path}={value}"): (path, value) for path, value in pairs}
    yield from item(head, (named[word] for word in named if word not in said))
    if known := sum(word in said for word in named):
        yield f"  · {known} as before", ""
    said.update(named)


def _constant(out: str) -> str:
    """Return what the doctor says on every machine: what it looks at, and what levels cover."""
    lines = []
    for line in out.splitlines():
        level = re.match(r"(?:ok|-|!) +(level \w+)", line)
        if level:
            lines.append(level.group(1))
        elif re.match(r" +(not covered|covered) ", line):
            lines.append(line)
        elif known := re.match(r"\S+ +(\S+)", line):
            lines.append(known.group(1))
    return "\n".join(lines) + "\n"


def _prepare(folder: Path) -> None:
    for name, replies in SCRIPTS.items():
        lines = [reply if isinstance(reply, dict) else {"content": reply} for reply in replies]
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "sales.csv").write_text(TABLE)
    (folder / "mine.py").write_text(TOOLS)
    (folder / "empty.csv").touch()
    (folder / "empty.jsonl").touch()
    (folder / "bad.jsonl").write_text("[]\n")
    (folder / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in TASKS))
    _notebook(folder / "monthly.ipynb", PIPELINE)
    _notebook(folder / "failing.ipynb", FAILING)
    _notebook(folder / "changed.ipynb", ["print('new')"], shown="old\n")


def _notebook(path: Path, cells: list[str], shown: str = "") -> None:
    outputs = [{"output_type": "stream", "name": "stdout", "text": shown}] if shown else []
    made = [
        {"cell_type": "code", "id": f"c{n}", "metadata": {}, "execution_count": None,
         "source": source, "outputs": outputs}
        for n, source in enumerate(cells)
    ]  # fmt: skip
    made.insert(0, {"cell_type": "markdown", "id": "m", "metadata": {}, "source": "## First"})
    whole = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": made}
    path.write_text(json.dumps(whole))
