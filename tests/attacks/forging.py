"""Forge traces: change a real one by its structure or by its bytes. For tests and attacks."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernel_agent.records.action import Call, Calls, Code, Final
from kernel_agent.records.cell import (
    Answer,
    CellResult,
    Changes,
    Decision,
    Delegated,
    HostCall,
    Observation,
    Variable,
)
from kernel_agent.records.conversation import Image, Usage
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.trace import (
    Condensation,
    DataFile,
    FormatChange,
    Given,
    Record,
    RunStart,
    RunStop,
    Step,
    Undone,
    Visit,
    to_json,
)

GOLDEN = Path(__file__).parents[1] / "support" / "data" / "golden.jsonl"
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 7, 10**9, -(10**30), 10**400, 2**63, 0.5, -0.0, 1e308,
    float("nan"), float("inf"), "", "x", "1", "ok", "\ud83d", "\x1b]0;t\x07", "a\nb\r\tc",
    "<script>", "../../etc", "9" * 4000, "é" * 300,
    "2026-01-01T00:00:00.000+00:00", "not a time", [], {}, [[]], [{}], [None], [1, "a"],
    ["a", "b"], {"$": "Step"}, {"$": "Nonsense"}, {"$": ["x"]}, {"a": 1}, {"": {"": []}},
    {"output_type": "stream", "name": "stdout", "text": "x"},
    {"output_type": "display_data", "data": {"text/html": "<b>"}, "metadata": None},
    {"output_type": "error", "ename": 1, "evalue": [], "traceback": {}},
    {"$": "Usage", "prompt_tokens": -5}, {"$": "Code", "source": "%%bash\nrm"},
    {"$": "Final", "answer": {"a": [1]}}, {"$": "Calls", "calls": []},
    {"$": "Answer", "text": "t", "value": {"x": [1, None]}},
    {"$": "Image", "media_type": "image/png", "data": "!!!", "width": -1, "height": 0},
)  # fmt: skip


def rich() -> list[bytes]:
    """Return the lines of a trace that has every kind of record, and every field filled."""
    usage = Usage(prompt_tokens=10, completion_tokens=3, calls=1, cost_usd=0.25, estimated=True)
    file = DataFile(path="data/a.csv", source="a.csv", bytes=3, sha256="0" * 64, kind="CSV")
    decision = Decision(allowed=True, by="person", seconds=2.5, edited="1", original="2")
    changes = Changes(added=(Variable(name="df", type="DataFrame", shape="2 x 3"),), removed=("x",))
    agent = Delegated(
        run_id="d", name="helper", folder="agents/1", task="look", status=ExitStatus.ANSWERED,
        answer="4", steps=2, seconds=1.5, usage=usage,
    )  # fmt: skip
    call = HostCall(
        name="ask", arguments={"args": ["a"], "kwargs": {"b": [1]}}, ok=True,
        result={"r": [1, 2.5]}, number=1, decision=decision, untrusted=True, influenced_by=(0,),
        run_id="d",
        delegated=Delegated(**{**agent.__dict__, "agents": (agent,)}), usage=usage,
    )  # fmt: skip
    result = CellResult(
        status="ok", calls=(call,), changes=changes, counted={"flood": 2}, seconds=0.5,
        answer=Answer(text="4", value=[{"a": 1}, {"a": None}], kind="table"),
        outputs=({"output_type": "display_data", "metadata": {"image/png": {"width": 3}},
                  "data": {"text/plain": "4", "text/html": "<b>4</b>", "image/png": "aGk=",
                           "application/json": {"x": [1]}}},),
    )  # fmt: skip
    given = Given(
        name="table", type="DataFrame", shape="2 x 3", about="two rows", source="table = 1",
        fingerprint="f", files=(file,),
    )  # fmt: skip
    start = RunStart(
        run_id="r", task="How many?", time="2026-01-01T00:00:00.000+00:00", model="m", data=(file,),
        format="fenced", sandbox={"level": "bubblewrap", "not_covered": ["a"], "report": {}},
        budget={"max_steps": 5, "max_seconds": 1.5}, tools=("ask",), versions={"python": "3.11"},
        config={"model": "m"}, changes=changes, given=(given,), wanted=("out",),
    )  # fmt: skip
    shown = Observation(
        text="4", images=(Image(media_type="image/png", data="aGk=", width=1, height=1),),
        parts=("4",), held="a number",
    )  # fmt: skip

    def step(number: int, action: Any, **more: Any) -> Step:
        return Step(
            run_id="r", number=number, action=action, observation=shown, usage=usage,
            time="2026-01-01T00:00:01.000+00:00", model_seconds=1.0, cell_seconds=0.5, **more,
        )  # fmt: skip

    records: list[Record] = [
        start,
        step(1, Code(source="df.plot()", thought="Look."), result=result, decision=decision),
        FormatChange(run_id="r", format="envelope", reason="it kept breaking"),
        step(2, Calls(calls=(Call(name="ask", arguments={"b": 1}, id="c1"),)), result=result),
        Condensation(run_id="r", kind="summarised", first=1, last=1, text="done", by="model"),
        step(3, None),
        Undone(
            run_id="r", first=3, last=3, files=("a.png",), given=("table",), withdrawn=("r",),
            differences=("step 1",), changes=changes, cells=2,
        ),
        step(4, Final(answer={"rows": [1]}), result=result),
        RunStop(
            run_id="r", status=ExitStatus.ANSWERED, answer=result.answer, steps=4, seconds=9.5,
            usage=usage, network=(Visit(host="a.example", port=443, allowed=True, requests=1),),
        ),
    ]  # fmt: skip
    return [_line({"v": 3, **to_json(record)}) for record in records]


def deep(levels: int) -> Any:
    """Return a list in a list, and so on."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def forged(lines: list[bytes], chance: random.Random) -> bytes:
    """Return a trace with one to four changes."""
    if chance.random() < 0.1:
        return _in_bytes(b"".join(lines), chance)
    records = [json.loads(line) for line in lines]
    for _ in range(chance.randint(1, 4)):
        chance.choice(CHANGES)(records, chance)
    return b"".join(_line(record) for record in records)


def _line(record: Any) -> bytes:
    text = json.dumps(record, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace") + b"\n"


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container below with each of its keys."""
    found, waiting = [], [value]
    while waiting:
        item = waiting.pop()
        keys = list(item) if isinstance(item, dict) else range(len(item))
        for key in keys:
            found.append((item, key))
            if isinstance(item[key], (dict, list)):
                waiting.append(item[key])
    return found


def _replace(records: list[Any], chance: random.Random) -> None:
    places = _places(records)
    if places:
        container, key = chance.choice(places)
        value = deep(chance.choice((5, 150, 400))) if chance.random() < 0.03 else None
        container[key] = value if value is not None else copy.deepcopy(chance.choice(VALUES))


def _alike(records: list[Any], chance: random.Random) -> None:
    """Put another value of the same kind into a place: what a check of types lets through."""
    places = [(c, k) for c, k in _places(records) if c[k] is not None and k != "$"]
    if places:
        container, key = chance.choice(places)
        kind = type(container[key])
        values = [value for value in VALUES if type(value) is kind]
        container[key] = copy.deepcopy(chance.choice(values or [container[key]]))


def _delete(records: list[Any], chance: random.Random) -> None:
    places = _places(records)
    if places:
        container, key = chance.choice(places)
        del container[key]


def _duplicate(records: list[Any], chance: random.Random) -> None:
    if records:
        records.insert(chance.randint(0, len(records)), copy.deepcopy(chance.choice(records)))


def _shuffle(records: list[Any], chance: random.Random) -> None:
    chance.shuffle(records)


def _exchange(records: list[Any], chance: random.Random) -> None:
    """Put a value that stands elsewhere into a place."""
    places = _places(records)
    if places:
        (into, key), (source, other) = chance.choice(places), chance.choice(places)
        into[key] = copy.deepcopy(source[other])


CHANGES: tuple[Callable[[list[Any], random.Random], None], ...] = (
    _alike, _alike, _alike, _alike, _alike, _replace, _delete, _duplicate, _shuffle, _exchange,
)  # fmt: skip


def _in_bytes(content: bytes, chance: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[at] = chance.randrange(256)
            case 1:
                del data[at : at + chance.randint(1, 40)]
            case 2:
                data[at:at] = data[at : at + chance.randint(1, 60)]
            case 3:
                data[at:at] = bytes(chance.randrange(256) for _ in range(3))
        if not data:
            break
    return bytes(data[: chance.randint(1, len(data))] if chance.random() < 0.1 and data else data)
