"""Runs that outgrow what the model reads; a kernel in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import pytest
from servers.openai_server import Behaviour, OpenAIServer, error, model_at, raw, text
from support.replies import cell
from typer.testing import CliRunner

from kernel_agent import Budget, FakeKernel, ScriptedModel, Session
from kernel_agent.agent.context import BYTES_PER_TOKEN
from kernel_agent.cli.app import app
from kernel_agent.config import Config
from kernel_agent.models.openai import OpenAIModel
from kernel_agent.records.conversation import Message
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.store import read_trace
from kernel_agent.records.trace import Condensation, Step

FREE = Budget(max_steps=None, max_seconds=None)


def condensations(trace: Path) -> list[Condensation]:
    return [record for record in read_trace(trace) if isinstance(record, Condensation)]


# --- hundreds of steps ---------------------------------------------------------------------

PRINTED = (
    "rows = [f'{{n}},{{n * {k}}},größe\\n' for n in range(3000)]\n"
    "print(''.join(rows)[:20_000], end='')"
)
RECOVERED = """steps = {steps}

def printed(k):
    return "".join(f"{{n}},{{n * k}},größe\\n" for n in range(3000))[:20_000]

lost = [k for k in steps if outputs[k] != printed(k) or f"n * {{k}}" not in outputs.code(k)]
final_answer({{"lost": lost, "characters": sum(len(outputs[k]) for k in steps)}})
"""


def share_unchanged(requests: Sequence[Sequence[Message]]) -> float:
    """The share of all that was sent that had been sent just so in the request before."""
    texts = ["\x00".join(f"{m.role}\x01{m.content}" for m in request) for request in requests]
    same = total = 0
    for before, after in pairwise(texts):
        low, high = 0, min(len(before), len(after))
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if before[:middle] == after[:middle] else (low, middle - 1)
        same, total = same + low, total + len(after)
    return same / total


@pytest.mark.parametrize("steps", [60, pytest.param(200, marks=pytest.mark.long)])
async def test_steps_of_20000_characters_fit_and_nothing_is_lost(
    tmp_path: Path, steps: int
) -> None:
    """Every prompt is under 32,000 tokens, most of it cached, and every output is there."""
    numbers = range(1, steps + 1)
    replies = [cell(PRINTED.format(k=k)) for k in numbers]
    model = ScriptedModel([*replies, cell(RECOVERED.format(steps=numbers))], keep_requests=True)
    async with Session(kernel=FakeKernel, model=model, out=tmp_path, budget=FREE) as session:
        run = await session.run("Print.")
    assert run.status is ExitStatus.ANSWERED, run.message
    assert run.answer == {"lost": [], "characters": steps * 20_000}
    sizes = [sum(len(m.content.encode()) for m in request) for request in model.requests]
    assert len(sizes) == steps + 1
    assert max(sizes) / BYTES_PER_TOKEN < 32_000
    assert share_unchanged(model.requests) > 0.8
    assert steps / 20 < len(condensations(run.trace)) < steps * 0.3
    told = [record for record in read_trace(run.trace) if isinstance(record, Step)]
    outputs = [step.result.outputs[0]["text"] for step in told[:steps] if step.result]
    assert all(len(output) == 20_000 for output in outputs)  # the trace has all of it, too


# --- a model that accepts less -------------------------------------------------------------

LIMIT = 9_000  # tokens of the endpoint, a byte and a half each: not what we estimate


def bodies(message: str, **fields: object) -> bytes:
    return json.dumps({"error": {"message": message, **fields}}).encode()


WORDINGS: dict[str, Callable[[int, int], Behaviour]] = {
    "OpenAI": lambda used, limit: error(
        400,
        f"This model's maximum context length is {limit} tokens. However, your messages resulted "
        f"in {used} tokens. Please reduce the length of the messages.",
        code="context_length_exceeded",
    ),
    "Anthropic": lambda used, limit: raw(
        json.dumps(
            {
                "type": "error",
                "error": {
                    "type": "invalid_request_error",
                    "message": f"prompt is too long: {used} tokens > {limit} maximum",
                },
            }
        ).encode(),
        status=400,
    ),
    "vLLM": lambda used, limit: raw(
        json.dumps(
            {
                "object": "error",
                "message": f"This model's maximum context length is {limit} tokens. However, you "
                f"requested {used + 500} tokens ({used} in the messages, 500 in the completion). "
                "Please reduce the length of the messages or completion.",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            }
        ).encode(),
        status=400,
    ),
    "llama.cpp": lambda used, limit: raw(
        bodies(
            "the request exceeds the available context size. try increasing the context size or "
            "enable context shift",
            code=400,
            type="exceed_context_size_error",
            n_prompt_tokens=used,
            n_ctx=limit,
        ),
        status=400,
    ),
    "llama.cpp with status 200": lambda used, limit: raw(
        bodies(
            "the request exceeds the available context size, try increasing it",
            code=400,
            type="exceed_context_size_error",
            n_prompt_tokens=used,
            n_ctx=limit,
        )
    ),
    "OpenAI, one minute's tokens": lambda used, limit: error(
        429,
        f"Request too large for m on tokens per min (TPM): Limit {limit}, Requested {used}. The "
        "input or output tokens must be reduced in order to run successfully.",
        code="rate_limit_exceeded",
    ),
    "Qwen": lambda used, limit: error(
        400, f"InternalError.Algo.InvalidParameter: Range of input length should be [1, {limit}]"
    ),
    "Ollama": lambda used, limit: raw(
        bodies("the input length exceeds the context length", type="api_error"), status=400
    ),
    "Ollama prompt": lambda used, limit: raw(
        bodies(f"prompt too long; exceeded max context length by {used - limit} tokens"),
        status=400,
    ),
}


class Window:
    """An endpoint with a window: it counts what it is sent, and refuses what is too long."""

    def __init__(
        self, replies: Sequence[str], refuse: Callable[[int, int], Behaviour], limit: int
    ) -> None:
        self.accepted: list[int] = []
        self.refused: list[int] = []
        self._replies, self._refuse, self._limit = replies, refuse, limit
        self.server = OpenAIServer(self._behaviours())

    def _behaviours(self) -> Iterator[Behaviour]:
        replies = iter(self._replies)
        while True:
            body: Any = self.server.requests[-1].body
            used = int(sum(len(m["content"].encode()) for m in body["messages"]) / 1.5)
            if used > self._limit:
                self.refused.append(used)
                yield self._refuse(used, self._limit)
            else:
                self.accepted.append(used)
                yield text(next(replies))


def endpoint(server: OpenAIServer) -> OpenAIModel:
    model = model_at(server.url, api_key="none", backoff_s=0.01)
    model.writes_prose = False
    return model


@pytest.mark.parametrize("wording", WORDINGS)
async def test_a_model_that_accepts_less_than_was_thought_is_no_end(
    tmp_path: Path, wording: str
) -> None:
    """The limit is learned from the refusal, or found by halving; then the run goes on."""
    replies = [cell(f"print('row {n} ' * 500)") for n in range(10)]
    window = Window([*replies, cell("final_answer(len(outputs))")], WORDINGS[wording], LIMIT)
    with window.server as server:
        async with Session(
            kernel=FakeKernel, model=endpoint(server), out=tmp_path, budget=FREE
        ) as session:
            run = await session.run("Print.")
    assert run.status is ExitStatus.ANSWERED, run.message
    assert run.answer == 11
    assert len(run.steps) == 11
    assert window.refused
    assert len(window.refused) <= 3  # it is learned, not met at every step
    assert max(window.accepted) <= LIMIT
    assert {c.reason for c in condensations(run.trace)} >= {"it was too long for the model"}


async def test_a_window_that_holds_not_even_the_task_is_a_model_error(tmp_path: Path) -> None:
    """Nothing is left to shorten: one clear ending, not a loop."""
    window = Window([], WORDINGS["OpenAI"], 100)
    with window.server as server:
        async with Session(
            kernel=FakeKernel, model=endpoint(server), out=tmp_path, budget=FREE
        ) as session:
            run = await session.run("Print.")
    assert run.status is ExitStatus.MODEL_ERROR
    assert "the instructions alone need" in run.message
    assert "the model's window is 100: start the server with a larger" in run.message
    assert len(window.refused) == 1


# --- summaries by the model ----------------------------------------------------------------


class Writer(OpenAIServer):
    """An endpoint that writes cells, and notes when it is asked for notes."""

    def __init__(self, replies: Sequence[str], notes: Sequence[str | Behaviour]) -> None:
        self._cells, self._notes = iter(replies), iter(notes)
        self.asked_for_notes: list[Any] = []
        super().__init__(self._write())

    def _write(self) -> Iterator[Behaviour]:
        while True:
            body = self.requests[-1].body
            if body["messages"][0]["content"].startswith("You keep the notes"):
                self.asked_for_notes.append(body)
                note = next(self._notes)
                yield text(note) if isinstance(note, str) else note
            else:
                yield text(next(self._cells))


async def summarised(out: Path, notes: Sequence[str | Behaviour], **options: Any) -> Any:
    code = "frame_{n} = [{n}]\n" + "# a comment that makes the code long\n" * 12
    replies = [cell(code.format(n=n)) for n in range(40)]
    with Writer([*replies, cell("final_answer('done')")], notes) as server:
        model = model_at(server.url, api_key="none", backoff_s=0.01)
        config = Config(context_tokens=4_000, format="fenced")
        budget = options.get("budget", FREE)
        async with Session(
            kernel=FakeKernel, model=model, out=out, budget=budget, config=config
        ) as session:
            run = await session.run("Go on.")
    return run, server


HOLDS = f"`frame_0` is a list of one{', which was looked at' * 14}."


async def test_the_model_summarises_and_is_checked_against_the_kernel(tmp_path: Path) -> None:
    """Asked again once about names that do not exist; what then still names one is dropped."""
    notes = ["`frame_0` is a list. `frame_99` is another.",
             f"{HOLDS} `nothing_here` is bad."] * 9  # fmt: skip
    run, server = await summarised(tmp_path, notes)
    assert run.status is ExitStatus.ANSWERED, run.message
    made = [c for c in condensations(run.trace) if c.kind == "summarised"]
    assert made
    for one in made:
        assert (one.by, one.text) == ("model", HOLDS)
        assert one.dropped == ("`nothing_here` is bad.",)
        assert one.usage.calls == 2
    assert len(server.asked_for_notes) == 2 * len(made)
    assert "frame_99" in server.asked_for_notes[1]["messages"][-1]["content"]
    last = server.requests[-1].body["messages"]
    assert HOLDS in last[1]["content"]
    assert "nothing_here" not in json.dumps(last)
    assert run.usage.calls == server.served  # metered, all of it


async def test_without_a_usable_summary_the_rules_make_one(tmp_path: Path) -> None:
    """Refused, empty, or of nothing but invented names: the run goes on all the same."""
    notes: list[str | Behaviour] = [error(400, "No."), "", "`a1b2`.", "`a1b2`."] * 9
    run, server = await summarised(tmp_path, notes)
    assert run.status is ExitStatus.ANSWERED, run.message
    made = [c for c in condensations(run.trace) if c.kind == "summarised"]
    assert len(made) >= 2
    assert {one.by for one in made} == {"rules"}
    assert "Step 1: Next." in json.dumps(server.requests[-1].body["messages"][1])


async def test_a_summary_is_paid_from_the_budget(tmp_path: Path) -> None:
    note = text("`frame_0` is a list.", usage={"prompt_tokens": 5_000, "completion_tokens": 9})
    run, server = await summarised(
        tmp_path, [note] * 9, budget=Budget(max_steps=None, max_tokens=4_000)
    )
    assert run.status is ExitStatus.TOKEN_LIMIT
    assert len(server.asked_for_notes) == 1
    assert run.usage.total_tokens == 5_009 + 18 * (server.served - 1)
    assert run.steps  # what was done before is there


# --- what others make of it ----------------------------------------------------------------


async def test_show_and_export_know_what_was_shortened(tmp_path: Path) -> None:
    replies = [cell(f"print('row {n} ' * 1500)") for n in range(12)]
    model = ScriptedModel([*replies, cell("final_answer(1)")])
    config = Config(context_tokens=8_000)
    async with Session(
        kernel=FakeKernel, model=model, out=tmp_path, config=config, budget=FREE
    ) as session:
        run = await session.run("Print.")
    assert condensations(run.trace)
    shown = CliRunner().invoke(app, ["show", str(tmp_path)])
    assert shown.exit_code == 0
    assert "The conversation was shortened: what steps 1 to " in shown.stdout
    notebook = nbformat.read(run.notebook, as_version=4)
    assert sum(c.cell_type == "code" for c in notebook.cells) == 14  # with the environment's
    assert sum(len(o["text"]) for c in notebook.cells for o in c.get("outputs", [])
               if o["output_type"] == "stream") > 100_000  # fmt: skip


# --- what a person changed -----------------------------------------------------------------


async def test_the_model_is_told_what_a_person_changed_between_two_runs(tmp_path: Path) -> None:
    model = ScriptedModel(
        [
            cell("import pandas as pd\ndf = pd.DataFrame({'a': [1, 2]})\nold = 1\nfinal_answer(1)"),
            cell("final_answer(2)"),
            cell("final_answer(3)"),
        ],
        keep_requests=True,
    )
    async with Session(kernel=FakeKernel, model=model, out=tmp_path) as session:
        await session.run("First.")
        await session.execute("df.loc[0, 'a'] = 5")
        await session.execute("del old\nnew = 'x'\nbrief = 1")
        await session.execute("del brief")
        second = await session.run("Second.")
        await session.run("Third.")
    told = model.requests[1][-1].content
    assert told.startswith("<task>\nSecond.\n</task>")
    assert "[variables: new new str 1 characters; changed df DataFrame 2 x 1; removed old]" in told
    assert model.requests[2][-1].content == "<task>\nThird.\n</task>"
    start = next(r for r in read_trace(second.trace) if getattr(r, "task", "") == "Second.")
    assert [v.name for v in start.changes.changed] == ["df"]
