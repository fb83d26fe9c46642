"""Spans of runs; a kernel in this process, a collector on loopback."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind
from servers.collector import Collector
from servers.openai_server import FAULTS, OpenAIServer, text
from support.replies import cell
from support.spans import CELL, RUN, STEP, Kept, forget_the_machine

from kernel_agent import Budget, FakeKernel, ScriptedModel, Session, tool
from kernel_agent.errors import TraceError, UsageError
from kernel_agent.models.openai import OpenAIModel
from kernel_agent.records.conversation import Reply, Usage
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.event import Acting, Event, Notice, Output
from kernel_agent.records.trace import RunStart
from kernel_agent.session.pipeline import read_cells

CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
KEY = "sk-secret-1234567890"


@pytest.fixture(autouse=True)
def _only_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """No collector, key or proxy of the machine that runs the tests."""
    forget_the_machine(monkeypatch)


@pytest.fixture
def kept() -> Iterator[Kept]:
    made = Kept()
    yield made
    made.close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as started:
        yield started


def provider_of(collector: Collector, **options: int) -> TracerProvider:
    """Return a caller's provider that sends to a collector, as the SDK's documents say."""
    provider = TracerProvider(shutdown_on_exit=False)
    exporter = OTLPSpanExporter(f"{collector.url}/v1/traces", timeout=1)
    provider.add_span_processor(BatchSpanProcessor(exporter, **options))
    return provider


@tool
def rate(currency: str) -> float:
    """Return the value of a currency in euros."""
    return {"USD": 0.9}[currency]


async def ask(
    replies: list[Any], out: Path, task: str = "Ten dollars?", **options: Any
) -> tuple[ExitStatus, list[Event]]:
    """Do one run in a session of its own, and return how it ended and what was told."""
    events: list[Event] = []
    model = options.pop("model", None) or ScriptedModel(replies)
    async with Session(
        kernel=FakeKernel, model=model, out=out, on_event=events.append, **options
    ) as session:
        run = await session.run(task)
    return run.status, events


def notices(events: list[Event]) -> list[str]:
    return [e.text for e in events if isinstance(e, Notice)]


def failure(span: ReadableSpan) -> tuple[bool, Any]:
    assert span.attributes is not None
    return not span.status.is_ok, span.attributes.get("error.type")


# --- what spans there are ------------------------------------------------------------------------


async def test_run_step_model_call_cell_and_tool_call_are_spans_within_each_other(
    tmp_path: Path, kept: Kept
) -> None:
    replies = [
        "No code.",
        cell("rate('USD')\nrate('USD')"),
        cell("final_answer(10 * rate('USD'))"),
    ]
    await ask(replies, tmp_path, tools=[rate], tracer=kept.tracer)
    assert kept.tree() == [
        (0, RUN),
        (1, STEP),
        (2, "chat scripted"),
        (2, "chat scripted"),
        (2, CELL),
        (3, "execute_tool rate"),
        (3, "execute_tool rate"),
        (1, STEP),
        (2, "chat scripted"),
        (2, CELL),
        (3, "execute_tool rate"),
    ]
    assert len({span.context.trace_id for span in kept.spans}) == 1
    first, second = kept.named(STEP)
    assert first.attributes["kernel_agent.step.unreadable_replies"] == 1
    assert second.attributes["kernel_agent.step.number"] == 2
    by_id = {span.context.span_id: span for span in kept.spans}
    for span in kept.spans:
        if span.parent:
            parent = by_id[span.parent.span_id]
            assert parent.start_time <= span.start_time <= span.end_time <= parent.end_time


async def test_a_call_ends_within_its_cell_though_the_cell_begins_late(
    tmp_path: Path, kept: Kept
) -> None:
    def take_long(event: Event) -> None:
        if isinstance(event, Acting):
            time.sleep(0.05)  # a moment: of a listener's

    model = ScriptedModel([cell("final_answer(rate('USD'))")])
    async with Session(
        kernel=FakeKernel, model=model, out=tmp_path, tools=[rate], tracer=kept.tracer,
        on_event=take_long,
    ) as session:  # fmt: skip
        await session.run("Ten dollars?")
    call, around = kept.one("execute_tool rate"), kept.one(CELL)
    assert call.end_time is not None
    assert around.end_time is not None
    assert call.end_time <= around.end_time


async def test_a_run_says_what_it_is_how_it_ended_and_what_it_used(
    tmp_path: Path, kept: Kept
) -> None:
    reply = Reply(
        content=cell("final_answer(1)"),
        finish_reason="stop",
        usage=Usage(prompt_tokens=11, completion_tokens=7, cached_tokens=5, calls=1, cost_usd=0.25),
    )
    _, events = await ask([reply], tmp_path, tracer=kept.tracer)
    start = next(e for e in events if isinstance(e, RunStart))
    used = {
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 5,
        "kernel_agent.usage.cost_usd": 0.25,
        "kernel_agent.usage.estimated": False,
    }
    run = dict(kept.one(RUN).attributes)
    assert run.pop("gen_ai.agent.version")
    assert run.pop("kernel_agent.sandbox.level") == start.sandbox["level"]
    assert run == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "kernel-agent",
        "gen_ai.conversation.id": start.run_id,
        "gen_ai.request.model": "scripted",
        "gen_ai.provider.name": "kernel-agent",
        "kernel_agent.run.id": start.run_id,
        "kernel_agent.format": "fenced",
        "kernel_agent.run.status": "answered",
        "kernel_agent.run.steps": 1,
        **used,
    }
    assert dict(kept.one("chat scripted").attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": start.run_id,
        "gen_ai.request.model": "scripted",
        "gen_ai.provider.name": "kernel-agent",
        "gen_ai.output.type": "text",
        "gen_ai.response.finish_reasons": ("stop",),
        **used,
    }
    assert not any(failed for failed, _ in map(failure, kept.spans))


async def test_runs_of_a_session_are_traces_of_one_conversation(tmp_path: Path, kept: Kept) -> None:
    model = ScriptedModel([cell("final_answer(1)"), cell("final_answer(2)")])
    async with Session(kernel=FakeKernel, model=model, out=tmp_path, tracer=kept.tracer) as session:
        first = await session.run("One?")
        await session.run("Two?")
    runs = kept.named(RUN)
    assert len({run.context.trace_id for run in runs}) == 2
    assert {run.attributes["gen_ai.conversation.id"] for run in runs} == {first.run_id}


async def test_fixed_cells_are_a_workflow_without_a_model(tmp_path: Path, kept: Kept) -> None:
    import nbformat

    cells = [nbformat.v4.new_code_cell(source) for source in ("x = 1", "x / 0")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "fixed.ipynb")
    async with Session(
        kernel=FakeKernel, model="offline", out=tmp_path / "out", tracer=kept.tracer
    ) as session:
        await session.play(read_cells(tmp_path / "fixed.ipynb"), "fixed")
    assert kept.tree() == [(0, "invoke_workflow"), (1, STEP), (2, CELL), (1, STEP), (2, CELL)]
    assert failure(kept.one("invoke_workflow")) == (True, "cell_failed")
    assert "gen_ai.request.model" not in kept.one("invoke_workflow").attributes


async def test_a_run_is_a_part_of_what_its_caller_does_and_tools_are_parts_of_it(
    tmp_path: Path, kept: Kept
) -> None:
    @tool
    def look_up(name: str) -> str:
        """Ask a service that makes spans, too."""
        with kept.tracer.start_as_current_span("the service"):
            return name

    @tool
    async def look_up_slowly(name: str) -> str:
        """Ask another."""
        with kept.tracer.start_as_current_span("the other service"):
            await asyncio.sleep(0)
            return name

    replies = [cell("look_up('a'); look_up_slowly('b'); final_answer(1)")]
    with kept.tracer.start_as_current_span("the caller"):
        await ask(replies, tmp_path, tools=[look_up, look_up_slowly], tracer=kept.tracer)
    tree = kept.tree()
    assert tree[:2] == [(0, "the caller"), (1, RUN)]
    assert tree[-4:] == [
        (4, "execute_tool look_up"),
        (5, "the service"),
        (4, "execute_tool look_up_slowly"),
        (5, "the other service"),
    ]


def test_a_run_waited_for_in_a_plain_program_is_a_part_of_its_caller(
    tmp_path: Path, kept: Kept
) -> None:
    model = ScriptedModel([cell("final_answer(1)")])
    with (
        Session(kernel=FakeKernel, model=model, out=tmp_path, tracer=kept.tracer) as session,
        kept.tracer.start_as_current_span("the caller"),
    ):
        session.run_sync("One?")
    assert kept.tree()[:2] == [(0, "the caller"), (1, RUN)]


# --- how things end ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind", "status"),
    [
        ("1 / 0", "ZeroDivisionError", "error"),
        ("raise type('not a name: secret', (Exception,), {})", "_OTHER", "error"),
        ("import time; time.sleep(60)", "timeout", "timeout"),
    ],
)
async def test_a_cell_that_failed_says_how(
    tmp_path: Path, kept: Kept, code: str, kind: str, status: str
) -> None:
    from kernel_agent.config import Config

    replies = [cell(code), cell("final_answer(1)")]
    config = Config(cell_seconds=1.0)
    ended, _ = await ask(replies, tmp_path, tracer=kept.tracer, config=config)
    assert ended is ExitStatus.ANSWERED
    failed, good = kept.named(CELL)
    assert failure(failed) == (True, kind)
    assert failed.attributes["kernel_agent.cell.status"] == status
    assert failure(good) == (False, None)
    assert failure(kept.one(RUN)) == (False, None)


async def test_a_model_that_says_nothing_more_fails_call_step_and_run(
    tmp_path: Path, kept: Kept
) -> None:
    await ask([cell("x = 1")], tmp_path, tracer=kept.tracer)
    assert [failure(span) for span in kept.named("chat scripted")] == [
        (False, None),
        (True, "ModelError"),
    ]
    assert [failure(span) for span in kept.named(STEP)] == [(False, None), (True, "model_error")]
    assert failure(kept.one(RUN)) == (True, "model_error")


async def test_replies_that_cannot_be_read_fail_the_step(tmp_path: Path, kept: Kept) -> None:
    replies = ["I will look.", "Let me look.", "No?!", cell("final_answer(1)")]
    await ask(replies, tmp_path, tracer=kept.tracer)
    assert [failure(span) for span in kept.named(STEP)] == [(True, "format_error"), (False, None)]


async def test_a_limit_is_named(tmp_path: Path, kept: Kept) -> None:
    await ask([cell("1")], tmp_path, tracer=kept.tracer, budget=Budget(max_steps=1))
    assert failure(kept.one(RUN)) == (True, "step_limit")


async def test_a_tool_that_raised_says_what(tmp_path: Path, kept: Kept) -> None:
    replies = [cell("try:\n    rate('XXX')\nexcept KeyError:\n    final_answer(0)")]
    await ask(replies, tmp_path, tools=[rate], tracer=kept.tracer)
    assert failure(kept.one("execute_tool rate")) == (True, "KeyError")
    assert failure(kept.one(CELL)) == (False, None)


async def test_a_run_that_is_stopped_or_cancelled_leaves_no_span_open(
    tmp_path: Path, kept: Kept
) -> None:
    running = asyncio.Event()

    def watch(event: Event) -> None:
        if isinstance(event, Output):
            running.set()

    model = ScriptedModel([cell("import time\nprint('on')\ntime.sleep(60)")] * 2)
    async with Session(
        kernel=FakeKernel, model=model, out=tmp_path, tracer=kept.tracer, on_event=watch
    ) as session:
        for end in ("stop", "cancel"):
            running.clear()
            run = asyncio.create_task(session.run("Wait"))
            await running.wait()
            session.stop() if end == "stop" else run.cancel()
            await asyncio.wait([run])
    assert [name for _, name in kept.tree()] == [RUN, STEP, "chat scripted", CELL] * 2
    assert [failure(span) for span in kept.named(CELL)] == [(True, "interrupted")] * 2
    assert [failure(span) for span in kept.named(RUN)] == [(True, "interrupted")] * 2


async def test_a_run_whose_trace_cannot_be_written_is_ended_with_the_session(
    tmp_path: Path, kept: Kept
) -> None:
    model = ScriptedModel([cell("final_answer(1)")])
    async with Session(kernel=FakeKernel, model=model, out=tmp_path, tracer=kept.tracer) as session:
        assert session._parts is not None
        session._parts.trace._file.close()
        session._parts.trace._file = open("/dev/full", "ab")  # noqa: PTH123, SIM115 - a full disk
        with pytest.raises(TraceError):
            await session.run("One?")
    assert kept.named(RUN) == []  # its first record could not be kept: it never began


# --- what is in them -----------------------------------------------------------------------------


SECRETS = (b"Ten pesos?", b"marsupial", b"Be careful", b"wombat", KEY.encode())


async def endpoint_run(tmp_path: Path, collector: Collector) -> None:
    """Do a run with an endpoint and a key, whose texts are all easy to find."""
    provider = provider_of(collector)
    tracer = provider.get_tracer("caller")
    replies = [
        text(cell("# marsupial\nprint('wom' + 'bat')\nrate('XXX')")),
        text(cell("final_answer('wom' + 'bat')")),
    ]
    with OpenAIServer(replies) as server:
        model = OpenAIModel("gpt-x", base_url=server.url, api_key=KEY)
        await ask([], tmp_path, "Ten pesos?", model=model, tools=[rate], tracer=tracer)
    await asyncio.to_thread(provider.shutdown)


async def test_texts_and_keys_stay_out_of_spans(tmp_path: Path, collector: Collector) -> None:
    await endpoint_run(tmp_path, collector)
    assert collector.spans
    for secret in (*SECRETS, b"XXX"):
        assert all(secret not in body for body in collector.bodies), secret


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("true", True), ("SPAN_ONLY", True), ("span_and_event", True), ("event_only", False),
     ("NO_CONTENT", False), ("false", False), ("", False)],
)  # fmt: skip
async def test_texts_are_in_spans_when_the_user_says_so(
    tmp_path: Path, kept: Kept, monkeypatch: pytest.MonkeyPatch, value: str, *, wanted: bool
) -> None:
    monkeypatch.setenv(CONTENT, value)
    await ask([cell("final_answer(1)")], tmp_path, tracer=kept.tracer)
    has_texts = {name for span in kept.spans for name in span.attributes} & {
        "gen_ai.system_instructions",
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
    }
    assert len(has_texts) == (5 if wanted else 0)


async def test_texts_have_the_form_of_the_conventions_and_still_no_key(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONTENT, "true")
    await endpoint_run(tmp_path, collector)

    def texts(name: str, attribute: str) -> Any:
        return json.loads(next(s for s in collector.spans if s.name == name).attributes[attribute])

    asked = texts("chat gpt-x", "gen_ai.input.messages")
    assert asked[0]["role"] == "user"
    assert "Ten pesos?" in asked[0]["parts"][0]["content"]
    assert texts("chat gpt-x", "gen_ai.system_instructions")[0]["type"] == "text"
    (replied,) = texts("chat gpt-x", "gen_ai.output.messages")
    assert (replied["role"], replied["finish_reason"]) == ("assistant", "stop")
    assert "marsupial" in replied["parts"][0]["content"]
    assert "marsupial" in texts(CELL, "gen_ai.tool.call.arguments")["code"]
    assert "wombat" in texts(CELL, "gen_ai.tool.call.result")["result"]
    assert texts("execute_tool rate", "gen_ai.tool.call.arguments") == {"currency": "XXX"}
    (answered,) = texts(RUN, "gen_ai.output.messages")
    assert answered["parts"] == [{"type": "text", "content": "wombat"}]
    assert all(KEY.encode() not in body for body in collector.bodies)


async def test_a_long_result_of_a_tool_is_cut(
    tmp_path: Path, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool
    def much() -> str:
        """Return a lot."""
        return "x" * 1_000_000

    monkeypatch.setenv(CONTENT, "true")
    await ask([cell("final_answer(len(much()))")], tmp_path, tools=[much], tracer=kept.tracer)
    result = kept.one("execute_tool much").attributes["gen_ai.tool.call.result"]
    assert json.loads(result)["text"].startswith('{"result": "xxx')
    assert len(result) < 101_000


@pytest.mark.parametrize("action_format", ["fenced", "tool"])
async def test_a_long_text_of_the_model_is_cut(
    tmp_path: Path, kept: Kept, monkeypatch: pytest.MonkeyPatch, action_format: str
) -> None:
    """Its reasoning, its code, and the arguments of a native call."""
    long = "x" * 300_000
    code = f"final_answer(len('{long}'))"
    call = {"id": "a", "function": {"name": "python", "arguments": json.dumps({"code": code})}}
    more = {"tool_calls": [call]} if action_format == "tool" else {}
    reply = {"content": "Now." if more else cell(code), "reasoning": long, **more}
    monkeypatch.setenv(CONTENT, "true")
    status, _ = await ask([reply], tmp_path, format=action_format, tracer=kept.tracer)
    assert status is ExitStatus.ANSWERED
    said = json.loads(kept.one("chat scripted").attributes["gen_ai.output.messages"])[0]["parts"]
    texts = [part[key] for part in said for key in ("content", "arguments") if key in part]
    texts.append(json.loads(kept.one(CELL).attributes["gen_ai.tool.call.arguments"])["code"])
    assert sum(len(text) > 100_000 for text in texts) == 3
    assert max(map(len, texts)) < 100_010


# --- the endpoint --------------------------------------------------------------------------------


async def test_a_call_of_an_endpoint_says_where_it_went(tmp_path: Path, kept: Kept) -> None:
    with OpenAIServer([text(cell("final_answer(rate('USD'))"))]) as server:
        model = OpenAIModel("gpt-x", base_url=server.url, api_key=KEY)
        port = int(server.url.split(":")[2].split("/")[0])
        status, events = await ask([], tmp_path, model=model, tools=[rate], tracer=kept.tracer)
    assert (status, notices(events)) == (ExitStatus.ANSWERED, [])
    assert kept.tree() == [
        (0, RUN),
        (1, STEP),
        (2, "chat gpt-x"),
        (2, CELL),
        (3, "execute_tool rate"),
    ]
    chat = kept.one("chat gpt-x")
    assert chat.kind is SpanKind.CLIENT
    assert {span.kind for span in kept.spans if span is not chat} == {SpanKind.INTERNAL}
    expected = {
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-x",
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.response.finish_reasons": ("stop",),
        "server.address": "127.0.0.1",
        "server.port": port,
    }
    assert expected.items() <= dict(chat.attributes).items()


async def test_an_endpoint_that_refuses_is_told_by_its_status(tmp_path: Path, kept: Kept) -> None:
    with OpenAIServer([FAULTS["401"]()], repeat_last=True) as server:
        model = OpenAIModel("gpt-x", base_url=server.url, api_key=KEY)
        status, _ = await ask([], tmp_path, model=model, tracer=kept.tracer)
    assert status is ExitStatus.MODEL_ERROR
    chat = kept.one("chat gpt-x")
    assert failure(chat) == (True, "401")
    assert not chat.status.description


# --- the caller's exporter -----------------------------------------------------------------------


async def test_what_cannot_be_encoded_does_not_take_the_other_spans_with_it(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONTENT, "true")
    replies = [
        Reply(
            content=cell("print('\\ud800'); final_answer('\\udfff')") + "\ud800",
            finish_reason="\udc00",
            usage=Usage(prompt_tokens=10**30, calls=1),
        )
    ]
    provider = provider_of(collector)
    await ask(replies, tmp_path, task="Half \ud83d?", tracer=provider.get_tracer("caller"))
    await asyncio.to_thread(provider.shutdown)
    chat = next(span for span in collector.spans if span.name == "chat scripted")
    assert len(collector.spans) == 4
    assert chat.attributes["gen_ai.usage.input_tokens"] == 2**63 - 1
    assert "\\ud800" in chat.attributes["gen_ai.output.messages"]


@pytest.mark.parametrize("fault", [{"status": 400}, {"holds": True}])
async def test_a_collector_that_fails_neither_fails_a_run_nor_holds_it_up(
    tmp_path: Path, fault: dict[str, Any]
) -> None:
    """The first run's spans are being sent, and fail, while the second one works."""
    with Collector(**fault) as collector:
        provider = provider_of(collector, schedule_delay_millis=10)
        events: list[Event] = []
        async with Session(
            kernel=FakeKernel,
            model=ScriptedModel([cell("final_answer(1)")] * 2),
            out=tmp_path,
            on_event=events.append,
            tracer=provider.get_tracer("caller"),
        ) as session:
            await session.run("One?")
            await asyncio.to_thread(collector.asked.wait)
            began = time.monotonic()
            run = await session.run("Two?")
            took_s = time.monotonic() - began
    await asyncio.to_thread(provider.shutdown)
    assert (run.status, notices(events)) == (ExitStatus.ANSWERED, [])
    assert took_s < 1


async def test_what_is_no_tracer_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    session = Session(kernel=FakeKernel, model="offline", out=tmp_path / "out", tracer="yes")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(UsageError, match="not one of OpenTelemetry's: str"):
        await session.start()
    assert not (tmp_path / "out").exists()
