"""Outputs of every kind as a kernel makes them, and what an observation lacks of them.

Everything in them can be found again: each row, column, cell, item and line has a name of its own.
:func:`losses` compares what a model is shown, and what ``outputs[k]`` keeps, with what there was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pandas as pd

from kernel_agent.agent.observation import observe
from kernel_agent.inkernel.display import DisplayCap
from kernel_agent.inkernel.local import Shell
from kernel_agent.inkernel.outputs import Memory
from kernel_agent.records.cell import CellResult, OutputDict

STEP = 7
ODD_NAMES = (" {}", "{} ", "{}  x", "{}\xa0", "\xa0{}", "{}\n", "{}, {}", "")
_COUNT = re.compile(r"([\d,]+) (?:more (row|column|item)s?|(cell)s? shortened)")
_LEFT_OUT = re.compile(r"… ([\d,]+) characters left out; outputs\[7\] holds the full text …")

_OUTPUTS_OUT = re.compile(r"… \d+ more outputs left out[^\n]*")


@dataclass
class Made:
    """What was put out: its value or text, and every name in it."""

    value: Any
    rows: list[list[str]] = field(default_factory=list)  # the texts of the cells that are texts
    names: list[str] = field(default_factory=list)  # of columns
    items: list[str] = field(default_factory=list)
    text: str = ""


# --- making ----------------------------------------------------------------------------------


def _long(random: Random, name: str) -> str:
    size = random.choice([0, 0, 0, 5, 20, 80, 400, 3000 * (random.random() < 0.1)])
    return f"<{name}{'z' * size}>"


def _rows(random: Random) -> int:
    return random.choice([0, 1, 3, 10, 11, 12, 20, 21, 59, 60, 61, 62, 100, 700])


def make_table(random: Random, number: int) -> Made:
    """Return a table: any number of rows and columns, odd names, long cells, several types."""
    rows = _rows(random)
    width = random.choice([1, 2, 5, 12, 29, 30, 31, 45]) if rows <= 100 else random.choice([1, 4])
    texts = [[_long(random, f"d{number}r{r}c{c}") for c in range(width)] for r in range(rows)]
    names = [f"n{number}c{c}" for c in range(width)]
    for at in range(width):
        if random.random() < 0.1:
            names[at] = random.choice(ODD_NAMES).format(names[at], names[at])
        elif random.random() < 0.05:
            names[at] += "_long" * 8
    frame = pd.DataFrame(texts, columns=names, index=_index(random, rows))
    if width <= 20 and rows:
        for kind in random.sample(["int", "float", "date", "bool", "category"], 2):
            frame[f"k{number}{kind}"] = _column(random, kind, rows)
            names.append(f"k{number}{kind}")
    if random.random() < 0.1:
        frame.columns.name = "kind"
    return Made(frame, rows=texts, names=names)


def _index(random: Random, rows: int) -> Any:
    match random.choice(["plain", "plain", "named", "text", "dates", "several"]):
        case "named":
            return pd.RangeIndex(rows, name="place")
        case "text":
            return [f"row {n}" for n in range(rows)]
        case "dates":
            return pd.date_range("2020", periods=rows)
        case "several":
            return pd.MultiIndex.from_arrays([[n % 3 for n in range(rows)], range(rows)])
    return pd.RangeIndex(rows)


def _column(random: Random, kind: str, rows: int) -> Any:
    match kind:
        case "int":
            return [random.randrange(1000) for _ in range(rows)]
        case "float":
            return [random.choice([random.random(), None, 1e9]) for _ in range(rows)]
        case "date":
            return pd.date_range("1999", periods=rows)
        case "category":
            return pd.Categorical([random.choice("ab") for _ in range(rows)])
    return [random.random() < 0.5 for _ in range(rows)]


def make_series(random: Random, number: int) -> Made:
    """Return a Series of texts."""
    texts = [_long(random, f"d{number}r{r}c0") for r in range(_rows(random))]
    series = pd.Series(texts, name=random.choice([None, f"s{number}", f"s{number} "]), dtype=object)
    named = [] if series.name is None else [str(series.name)]
    return Made(series, rows=[[text] for text in texts], names=named)


def make_array(random: Random, number: int) -> Made:
    """Return an array of numbers that each occur once."""
    shape = random.choice([(5,), (999,), (1001,), (3, 4), (40, 30), (9, 9, 14), (2000,)])
    values = np.arange(int(np.prod(shape))).reshape(shape) + 1_000_000 * (number + 1)
    return Made(values, items=[str(n) for n in values.ravel()])


def make_list(random: Random, number: int) -> Made:
    """Return a list of texts, perhaps a long one."""
    size = random.choice([0, 3, 50, 999, 1000, 1001, 4000])
    texts = [f"<d{number}i{n}>" for n in range(size)]
    return Made(texts, items=texts)


def make_text(random: Random, number: int) -> Made:
    """Return printed text, perhaps of one line."""
    end = random.choice(["\n", "\n", " "])
    size = random.choice([0, 1, 10, 300, 1000, 3000])
    return Made(None, text=end.join(f"<d{number}l{n}>" for n in range(size)) + "\n")


MAKERS: tuple[Callable[[Random, int], Made], ...] = (
    make_table, make_table, make_series, make_array, make_list, make_text
)  # fmt: skip


def make_outputs(random: Random) -> list[Made]:
    """Return what one cell puts out: one thing, or several."""
    count = random.choice([1, 1, 1, 2, 3, 8])
    return [random.choice(MAKERS)(random, number) for number in range(count)]


def put_out(made: list[Made]) -> tuple[tuple[OutputDict, ...], str]:
    """Return the outputs as a host receives them, and what ``outputs[7]`` keeps."""
    shell, memory = Shell(), Memory()
    shell.cap = DisplayCap(memory.append)
    memory.begin(STEP)
    outputs: list[OutputDict] = []
    for one in made:
        if one.value is None:
            memory.append(one.text)
            outputs.append({"output_type": "stream", "name": "stdout", "text": one.text})
            continue
        data, metadata = shell.display_formatter.format(one.value)
        data = json.loads(json.dumps(shell.cap.bound(data)))
        outputs.append({"output_type": "display_data", "data": data, "metadata": metadata})
    return tuple(outputs), memory[STEP]


# --- judging ---------------------------------------------------------------------------------


def losses(made: list[Made], *, max_chars: int = 8000) -> list[str]:
    """Return what an observation lacks and does not say, or says and nobody has."""
    outputs, kept = put_out(made)
    result = CellResult(status="ok", outputs=outputs)
    whole = observe(result, step=STEP, max_chars=10**9).text
    found = [
        loss
        for number, (one, output) in enumerate(zip(made, outputs, strict=True))
        for loss in _losses_of(one, number, output, kept)
    ]
    return found + _cuts(whole, observe(result, step=STEP, max_chars=max_chars).text, kept)


def _losses_of(one: Made, number: int, output: OutputDict, kept: str) -> list[str]:
    alone = CellResult(status="ok", outputs=(output,))
    shown = observe(alone, step=STEP, max_chars=10**9).text
    _, _, note = shown.rpartition("\n… ")
    told, _, but = note.partition("; outputs[7] has all")
    found = [*_compare(one, number, shown, _read(told if but or "; " in note else ""), "shown")]
    found += _compare(one, number, kept, _read(_note_of(output) or but), "kept")
    for name in one.names:
        odd = not name or not name.isprintable() or name != " ".join(name.split())
        if len(name) <= 60 and (repr(name) if odd else name) not in shown:
            found.append(f"the name {name!r} is not to be seen")
    if one.text and one.text.strip() not in shown:
        found.append("printed text is missing")
    return found


def _note_of(output: OutputDict) -> str:
    """Return the last line of what the kernel keeps of one output."""
    described = output.get("data", {}).get("application/vnd.kernel-agent.value+json", {})
    last = str(described.get("whole", "")).rpartition("\n")[2]
    return last if last.startswith("… ") else ""


def _read(note: str) -> dict[str, int]:
    """Return the counts in a note."""
    return {m[2] or m[3]: int(m[1].replace(",", "")) for m in _COUNT.finditer(note)}


def _compare(one: Made, number: int, text: str, told: dict[str, int], where: str) -> list[str]:
    """Count rows, columns, cells and items that a text has not, beside those that it tells of."""
    width = max(map(len, one.rows), default=0)
    begun = set(re.findall(rf"<d{number}r(\d+)c(\d+)", text))
    rows, columns = {int(r) for r, _ in begun}, {int(c) for _, c in begun}
    whole = set(re.findall(rf"<d{number}r(\d+)c(\d+)z*>", text))
    numbers = set(re.findall(r"<d\d+i\d+>|\d+", text))
    lacks = {
        "row": len(one.rows) - len(rows) if width else 0,
        "column": width - len(columns) if one.rows else told.get("column", 0),
        "cell": len(begun - whole),
        "item": sum(item not in numbers for item in one.items),
    }
    return [
        f"{count} {unit}s are not {where}, and {told.get(unit, 0)} are told of"
        for unit, count in lacks.items()
        if count != told.get(unit, 0)
    ]


def _cuts(whole: str, shown: str, kept: str) -> list[str]:
    """Compare a shortened text with the whole: each cut has its right count."""
    pieces = _LEFT_OUT.split(shown)
    texts, counts = pieces[::2], [int(n.replace(",", "")) for n in pieces[1::2]]
    texts = [
        part for text in texts for part in re.split(r"… \d+ more outputs left out[^\n]*", text)
    ]
    if len(texts) == 1:
        return [] if shown == whole else ["it is shorter than it should be, without a word"]
    found, at, lost = [], 0, 0
    for text in texts:
        place = whole.find(text.strip("\n"), at)
        if place < 0:
            return ["what is left is not what was there"]
        lost += place - at
        at = place + len(text.strip("\n"))
    lost += len(whole) - at
    outputs_out = "more outputs left out" in shown
    if not outputs_out and not abs(lost - sum(counts)) <= 2 * len(counts):
        found.append(f"{lost} characters are gone, {sum(counts)} are told of")
    names = set(re.findall(r"<d\d+l\d+>", whole)) - set(re.findall(r"<d\d+l\d+>", shown))
    if names - set(re.findall(r"<d\d+l\d+>", kept)):
        found.append("lines that were left out are not in outputs[7]")
    return found
