"""The format that a session finds out; an endpoint on loopback, a kernel in this process."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace

import pytest
from servers.openai_server import OpenAIServer, Writer, error, model_at, refused_url, text

from kernel_agent import Budget, FakeKernel, ScriptedModel, Session
from kernel_agent.formats import get_format
from kernel_agent.models import probe
from kernel_agent.models.openai import OpenAIModel
from kernel_agent.models.probe import Choice, choose_format, memory_file, recall, remember
from kernel_agent.models.usage import Prices
from kernel_agent.records.budget import NO_CAPS
from kernel_agent.records.conversation import Usage
from kernel_agent.records.event import Notice
from kernel_agent.records.store import read_trace
from kernel_agent.records.trace import FormatChange, RunStart

CELLS = ["x = 6", "final_answer(x * 7)"]
LARGE, SMALL = "big-model", "small-7b"
ENVELOPE = get_format("envelope").options().response_format


async def run(server, out, *, name=LARGE, told=None, **options):
    model = model_at(server.url, name, api_key="secret", max_retries=0)
    tell = (lambda _: None) if told is None else told.append
    async with Session(
        kernel=FakeKernel, model=model, format="auto", out=out, on_event=tell, **options
    ) as session:
        return await session.run("What is the answer?")


LADDER = [
    ("native calls work", Writer(), LARGE, "tool", None, 2),
    ("native calls where one is named", Writer(tools="forced"), LARGE, "tool", "forced", 3),
    ("tools refused", Writer(tools="refused"), LARGE, "envelope", None, 3),
    ("tools refused by llama.cpp", Writer(tools="refused", status=500), LARGE, "envelope", None, 3),
    ("tools ignored", Writer(tools="ignored"), LARGE, "envelope", None, 4),
    ("schemas as objects", Writer(tools="ignored", schema="json_object", status=500), LARGE,
     "envelope", "json_object", 5),
    ("both refused", Writer(tools="refused", schema="refused"), LARGE, "fenced", None, 5),
    ("both ignored", Writer(tools="ignored", schema="ignored"), LARGE, "fenced", None, 5),
    ("schemas broken", Writer(tools="refused", breaks={"schema"}), LARGE, "fenced", None, 4),
    ("all broken", Writer(tools="refused", schema="refused", breaks={"text"}), LARGE, "fenced",
     None, 5),
]  # fmt: skip


@pytest.mark.parametrize(
    ("writer", "name", "chosen", "notation", "requests"),
    [c[1:] for c in LADDER],
    ids=[c[0] for c in LADDER],
)
async def test_the_highest_rung_that_works_is_chosen_and_remembered(
    tmp_path, writer, name, chosen, notation, requests
):
    """With as few requests as can tell; the second time, with none."""
    writer = Writer(**{k: v for k, v in vars(writer).items() if k != "kinds"}, kinds=[])
    told = []
    with OpenAIServer(writer) as server:
        for _ in range(2):
            model = model_at(server.url, name, max_retries=3)
            choice = await choose_format(
                model, budget=NO_CAPS, tell=told.append, memory=tmp_path / "formats.json"
            )
            await model.close()
            assert (choice.format, choice.notation) == (chosen, notation)
            assert choice.reason
    assert len(writer.kinds) == requests
    assert all(kind.startswith("try ") for kind in writer.kinds)
    begin, end = (event.text for event in told)
    assert begin == (
        f"Trying out once in which format {name} writes its actions: a few short requests, 60 s at "
        "most (--format NAME chooses one)."
    )
    assert end == f"The format is {chosen}: {choice.reason}."


@pytest.mark.parametrize("breaks", [set(), {"text"}])
async def test_a_small_model_is_not_tried_out(tmp_path, breaks):
    """It gets the least formatting; one that breaks that does not climb to what asks for more."""
    writer, told = Writer(breaks=breaks), []
    with OpenAIServer(writer) as server:
        model = OpenAIModel(SMALL, base_url=server.url)
        memory = tmp_path / "formats.json"
        choice = await choose_format(model, budget=NO_CAPS, tell=told.append, memory=memory)
        await model.close()
    assert (choice.format, writer.kinds, told, memory.exists()) == ("fenced", [], [], False)


@pytest.mark.parametrize(
    ("writer", "field", "sent"),
    [
        (
            Writer(tools="forced"),
            "tool_choice",
            {"type": "function", "function": {"name": "python"}},
        ),
        (
            Writer(tools="refused", schema="json_object"),
            "response_format",
            {"type": "json_object", "schema": ENVELOPE["json_schema"]["schema"]},
        ),
    ],
    ids=["forced", "json_object"],
)
async def test_a_run_asks_in_the_notation_that_was_found_and_so_does_the_next(
    tmp_path, writer, field, sent
):
    """A server that can constrain a reply does so, although it does not know the protocol's way."""
    writer = replace(writer, cells=[*CELLS, *CELLS], kinds=[])
    with OpenAIServer(writer) as server:
        for name in ("one", "two"):
            made = await run(server, tmp_path / name)
            assert (made.status, made.answer) == ("answered", 42)
            assert server.requests[-1].body[field] == sent
    assert sum(kind.startswith("try ") for kind in writer.kinds) in (3, 4)


async def test_a_schema_is_asked_for_in_the_other_notation_also_where_the_user_chose(tmp_path):
    """A server that refuses both gets none, as before, and the run goes on."""
    for schema, requests, way in (("json_object", 3, "schema"), ("refused", 4, "text")):
        writer = Writer(cells=[*CELLS], schema=schema)
        with OpenAIServer(writer) as server:
            model = OpenAIModel(LARGE, base_url=server.url)
            async with Session(
                kernel=FakeKernel, model=model, format="envelope", out=tmp_path / schema
            ) as session:
                made = await session.run("What is the answer?")
        assert (made.status, len(server.requests), writer.kinds[-1]) == ("answered", requests, way)


async def test_trying_out_stays_within_its_share_of_the_budget(tmp_path):
    """Of seconds, of tokens and of money; what it took is the first run's."""
    memory = tmp_path / "formats.json"
    prices = Prices(prompt_per_million=1e6, completion_per_million=0.0)
    for budget, delay_s, requests in (
        (Budget(max_seconds=1.0), 30.0, 1),
        (Budget(max_tokens=20_000), 0.0, 1),
        (Budget(max_cost=50.0), 0.0, 1),
    ):
        writer = Writer(delay_s=delay_s, tokens=9_000)
        with OpenAIServer(writer) as server:
            model = OpenAIModel(LARGE, base_url=server.url, prices=prices)
            choice = await choose_format(model, budget=budget, tell=lambda _: None, memory=memory)
            await model.close()
        assert (choice.format, len(writer.kinds)) == ("fenced", requests)
        assert choice.seconds > 0
        memory.unlink(missing_ok=True)


async def test_the_time_that_trying_out_took_is_the_first_runs(tmp_path):
    """It is within the limit on seconds: what took longer than that leaves the run none."""
    async with Session(
        kernel=FakeKernel, model=ScriptedModel([]), format="auto", out=tmp_path
    ) as session:
        session._runner._unpaid = (Usage(), 1000.0)
        made = await session.run("What is the answer?", budget=Budget(max_seconds=900.0))
    assert made.status == "time_limit"
    assert made.seconds >= 1000


async def test_a_run_says_which_format_it_uses_and_why_and_pays_for_finding_out(tmp_path):
    """In the trace and in a notice; the tokens of measuring are the run's."""
    told = []
    writer = Writer(cells=[*CELLS])
    with OpenAIServer(writer) as server:
        made = await run(server, tmp_path / "out", told=told)
        assert (made.status, made.answer) == ("answered", 42)
        history = server.requests[-1].body["messages"]
    start = read_trace(made.trace)[0]
    assert isinstance(start, RunStart)
    assert (start.format, start.format_reason) == (
        "tool",
        "native calls: 0 of 2 test replies unreadable",
    )
    assert [e.text for e in told if isinstance(e, Notice)][1:] == [
        "The format is tool: native calls: 0 of 2 test replies unreadable."
    ]
    assert writer.kinds == ["try tool", "try tool", "tool", "tool"]
    assert made.usage.calls == 4
    assert made.usage.total_tokens == 4 * 18
    assert [m["role"] for m in history] == ["system", "user", "assistant", "tool"]
    assert history[2]["tool_calls"][0]["id"] == history[3]["tool_call_id"]


async def test_the_next_session_asks_nothing_and_says_nothing(tmp_path):
    """What is remembered stands in its trace all the same."""
    writer, told = Writer(cells=[*CELLS, *CELLS]), []
    with OpenAIServer(writer) as server:
        await run(server, tmp_path / "one")
        made = await run(server, tmp_path / "two", told=told)
    assert writer.kinds.count("try tool") == 2
    assert not [e for e in told if isinstance(e, Notice)]
    assert read_trace(made.trace)[0].format_reason


class Turning(Writer):
    """A model that can do it when it is tried out, and not in the run."""

    def __call__(self, request):
        if "only tries out" not in json.dumps(request.body["messages"][-1]) and (
            self._way(request.body) == "tool"
        ):
            self.kinds.append("broken")
            return text('{"thougt": "I would rather talk about it.", "cod": 1}')
        return super().__call__(request)


async def test_a_model_that_keeps_breaking_its_format_goes_down_a_rung_in_the_run(tmp_path):
    """The conversation is written again in the new format, and the next session begins there."""
    writer, told = Turning(cells=[*CELLS, *CELLS]), []
    with OpenAIServer(writer) as server:
        made = await run(server, tmp_path / "one", told=told)
        history = server.requests[-1].body["messages"]
        asked_again = server.requests[5].body["messages"]
        await run(server, tmp_path / "two")
    assert (made.status, made.answer, len(made.steps)) == ("answered", 42, 2)
    assert writer.kinds == ["try tool"] * 2 + ["broken"] * 3 + ["schema"] * 4
    [change] = [r for r in read_trace(made.trace) if isinstance(r, FormatChange)]
    assert (change.format, change.reason) == ("envelope", "3 of 3 replies in tool unreadable")
    assert change in told
    assert len(made.steps[0].retries) == 3
    assert "exactly one JSON object" in history[0]["content"]
    assert json.loads(history[2]["content"])["code"] == "x = 6"
    assert [m["role"] for m in asked_again] == ["system", "user"]  # nothing of the old format


async def test_a_format_that_the_user_chose_is_kept(tmp_path):
    """It is asked for again, and then it is a failed step, however often."""
    writer = Turning(cells=[])
    with OpenAIServer(writer) as server:
        model = OpenAIModel(LARGE, base_url=server.url)
        out = tmp_path / "out"
        async with Session(
            kernel=FakeKernel, model=model, format="tool", out=out, budget=Budget(max_steps=2)
        ) as session:
            made = await session.run("What is the answer?")
    assert writer.kinds == ["broken"] * 6
    assert made.status == "step_limit"


async def test_a_model_that_is_not_behind_an_endpoint_is_not_tried_out(tmp_path):
    """Every reply of a script is a turn of the run."""
    model = ScriptedModel([f"```python\n{cell}\n```" for cell in CELLS])
    async with Session(kernel=FakeKernel, model=model, format="auto", out=tmp_path) as session:
        made = await session.run("What is the answer?")
    start = read_trace(made.trace)[0]
    assert (made.answer, start.format) == (42, "fenced")
    assert "not behind an endpoint" in start.format_reason


async def test_a_small_budget_is_not_spent_on_trying_out(tmp_path):
    """The run gets all of it."""
    writer = Writer(cells=[*CELLS])
    with OpenAIServer(writer) as server:
        made = await run(server, tmp_path / "out", budget=Budget(max_tokens=1000))
    assert writer.kinds == ["text", "text"]
    assert made.answer == 42


@pytest.mark.parametrize("fault", [error(401, "Incorrect API key"), error(503, "Overloaded")])
async def test_an_endpoint_that_is_down_is_asked_once_and_then_by_the_run(tmp_path, fault):
    """Nothing is remembered of it, and the error that is told is the run's."""
    with OpenAIServer([fault], repeat_last=True) as server:
        made = await run(server, tmp_path / "out")
        assert len(server.requests) == 2
    assert made.status == "model_error"
    assert not memory_file().exists()


async def test_an_endpoint_that_is_not_there_does_not_keep_the_session_from_starting(tmp_path):
    """No retries while trying out."""
    with refused_url() as url:
        model = model_at(url, LARGE, max_retries=0)
        async with Session(
            kernel=FakeKernel, model=model, format="auto", out=tmp_path / "out"
        ) as session:
            made = await session.run("What is the answer?")
    assert made.status == "model_error"


async def test_a_model_that_is_too_slow_gets_the_least_formatting(tmp_path):
    """That is remembered for hours: the next session must not wait, a busy day must not last."""
    memory = tmp_path / "formats.json"
    with OpenAIServer(Writer(delay_s=30.0)) as server:
        model = OpenAIModel(LARGE, base_url=server.url)
        for hours, requests in ((0, 1), (1, 1), (4, 2)):
            age(memory, hours / 24)
            choice = await choose_format(
                model, budget=NO_CAPS, tell=lambda _: None, memory=memory, limit_s=0.5
            )
            assert choice.format == "fenced"
            assert "took longer" in choice.reason
            assert len(server.requests) == requests
        await model.close()


async def test_replies_that_were_ended_early_decide_nothing(tmp_path):
    """A server of one request at a time that others ask, too, is not the model's fault."""
    memory = tmp_path / "formats.json"
    with OpenAIServer([text("", finish_reason=None)], repeat_last=True) as server:
        model = OpenAIModel(LARGE, base_url=server.url)
        choice = await choose_format(model, budget=NO_CAPS, tell=lambda _: None, memory=memory)
        await model.close()
    assert (choice.measured, memory.exists(), len(server.requests)) == (False, False, 1)


async def test_trying_out_can_be_cancelled(tmp_path):
    """Nothing is remembered of half a measurement."""
    memory = tmp_path / "formats.json"
    with OpenAIServer(Writer(delay_s=30.0)) as server:
        model = OpenAIModel(LARGE, base_url=server.url)
        trying = asyncio.ensure_future(
            choose_format(model, budget=NO_CAPS, tell=lambda _: None, memory=memory)
        )
        while not server.requests:
            await asyncio.sleep(0.01)
        trying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await trying
        await model.close()
    assert not memory.exists()


# --- what is remembered --------------------------------------------------------------------

CHOICE = Choice(format="tool", reason="it works", measured=True)


def age(path, days):
    """Make what is remembered as old as that."""
    if path.exists():
        stored = json.loads(path.read_text())
        for entry in stored["models"].values():
            entry["time"] = time.time() - days * 86_400
        path.write_text(json.dumps(stored))


def kept(path):
    return recall(path, endpoint="http://a/v1", model="m")


@pytest.mark.parametrize(
    "damage",
    [
        "", "{", "[]", "null", '{"version": 99, "models": {}}', '{"version": 1, "models": []}',
        '{"version": 1, "models": {"http://a/v1 m": 5}}', "\0", "[" * 100_000,
        '{"version": 1, "models": {"http://a/v1 m": {"format": "json", "reason": "", "time": 1}}}',
        '{"version": 1, "models": {"http://a/v1 m": {"format": "tool", "reason": 1, "time": 1}}}',
        '{"version": 1, "models": {"http://a/v1 m": {"format": [], "reason": "", "time": "x"}}}',
        '{"version": 1, "models": {"http://a/v1 m": {"format": "tool", "max_age_s": "x"}}}',
    ],
)  # fmt: skip
def test_a_damaged_memory_is_as_good_as_none_and_is_replaced(tmp_path, damage):
    """It is a cache: whatever is in it, nothing fails."""
    path = tmp_path / "formats.json"
    path.write_text(damage)
    assert kept(path) is None
    remember(path, CHOICE, endpoint="http://a/v1", model="m")
    assert kept(path).format == "tool"
    assert [p.name for p in tmp_path.iterdir()] == ["formats.json"]


def test_a_choice_is_forgotten_after_a_month_and_when_the_clock_was_wrong(tmp_path):
    """Endpoints change what they support."""
    path = tmp_path / "formats.json"
    remember(path, CHOICE, endpoint="http://a/v1", model="m")
    for days, known in ((1, True), (29, True), (31, False), (-1, False)):
        age(path, days)
        assert (kept(path) is not None) is known


def test_a_notation_that_is_none_is_not_asked_in(tmp_path):
    """The memory is a file that anybody may have written."""
    path = tmp_path / "formats.json"
    for notation in ("nonsense", ["forced"], 5, {}):
        remember(path, CHOICE, endpoint="http://a/v1", model="m")
        stored = json.loads(path.read_text())
        stored["models"]["http://a/v1 m"]["notation"] = notation
        path.write_text(json.dumps(stored))
        assert kept(path).notation is None


def test_a_memory_that_cannot_be_written_is_done_without(tmp_path):
    """A file where the folder should be; a folder where the file should be."""
    (tmp_path / "file").write_text("")
    remember(tmp_path / "file" / "formats.json", CHOICE, endpoint="http://a/v1", model="m")
    (tmp_path / "folder").mkdir()
    remember(tmp_path / "folder", CHOICE, endpoint="http://a/v1", model="m")
    assert list((tmp_path / "folder").iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


def test_the_memory_does_not_grow_without_end(tmp_path):
    """The oldest entries go first."""
    path = tmp_path / "formats.json"
    for n in range(probe.MAX_ENTRIES + 5):
        remember(path, CHOICE, endpoint="http://a/v1", model=str(n))
    assert len(json.loads(path.read_text())["models"]) == probe.MAX_ENTRIES
    assert recall(path, endpoint="http://a/v1", model="0") is None
    assert recall(path, endpoint="http://a/v1", model=str(probe.MAX_ENTRIES)) is not None
