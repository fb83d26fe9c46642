"""Spans of real runs: with a tracer of the caller's, and over the wire to a real collector."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from servers.collector import Collector
from support.replies import cell
from support.spans import CELL, RUN, STEP, Kept, forget_the_machine

from kernel_agent import ScriptedModel, Session
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.event import Event, Notice
from kernel_agent.session.telemetry import NOT_SENT, telemetry_for

CHAT = "chat scripted:replies.jsonl"


@pytest.fixture(autouse=True)
def _only_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """No collector, key or proxy of the machine that runs the tests."""
    forget_the_machine(monkeypatch)


@pytest.fixture
def kept() -> Iterator[Kept]:
    made = Kept()
    yield made
    made.close()


async def ask(
    replies: list[Any], out: Path, task: str = "Ten dollars?", **options: Any
) -> tuple[ExitStatus, list[Event]]:
    """Do one run in a session of its own, and return how it ended and what was told."""
    events: list[Event] = []
    model = options.pop("model", None) or ScriptedModel(replies)
    options.setdefault("sandbox", "interpreter")  # which starts in a moment
    async with Session(model=model, out=out, on_event=events.append, **options) as session:
        run = await session.run(task)
    return run.status, events


def notices(events: list[Event]) -> list[str]:
    return [e.text for e in events if isinstance(e, Notice)]


def failure(span: ReadableSpan) -> tuple[bool, Any]:
    assert span.attributes is not None
    return not span.status.is_ok, span.attributes.get("error.type")


async def test_a_lost_kernel_fails_its_cell_and_the_run(tmp_path: Path, kept: Kept) -> None:
    await ask([cell("import os; os._exit(1)")], tmp_path, sandbox="auto", tracer=kept.tracer)
    assert failure(kept.one(CELL)) == (True, "dead")
    assert failure(kept.one(RUN)) == (True, "kernel_lost")


# --- a collector without a provider --------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, []),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, [NOT_SENT]),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, [NOT_SENT]),
    ],
)
def test_a_collector_that_nothing_sends_to_is_said(
    environment: dict[str, str], told: list[str]
) -> None:
    events: list[Event] = []
    made = telemetry_for(None, events.append, environment)
    assert type(made).__name__ == "Telemetry"
    assert notices(events) == told


# --- whole programs ------------------------------------------------------------------------------

EMBEDDED = """
import asyncio, sys
from kernel_agent import ScriptedModel, Session

async def main(out):
    model = ScriptedModel(["Now.\\n\\n```python\\nfinal_answer(7)\\n```"])
    said = []
    async with Session(model=model, out=out, on_event=said.append) as session:
        print((await session.run("Seven?")).answer)
    for event in said:
        if type(event).__name__ == "Notice":
            print(event.text)
"""


def program(code: str, out: Path, **environment: str) -> list[str]:
    """Run a program; return the lines that it prints, on whichever channel."""
    done = subprocess.run(
        [sys.executable, "-c", code, str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
        check=True,
    )
    return done.stdout.splitlines()


def test_without_a_collector_nothing_of_opentelemetry_is_loaded(tmp_path: Path) -> None:
    code = f"{EMBEDDED}\nasyncio.run(main(sys.argv[1]))\nprint('opentelemetry' in sys.modules)"
    assert program(code, tmp_path) == ["7", "False"]


@pytest.mark.long
def test_a_program_that_has_set_up_opentelemetry_has_the_spans_in_its_own(tmp_path: Path) -> None:
    code = f"""{EMBEDDED}
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

provider = TracerProvider()
provider.add_span_processor(
    SimpleSpanProcessor(ConsoleSpanExporter(formatter=lambda span: f"span {{span.name}}\\n"))
)
trace.set_tracer_provider(provider)
asyncio.run(main(sys.argv[1]))
with provider.get_tracer("mine").start_as_current_span("still open"):
    pass
"""
    lines = program(code, tmp_path)
    assert [line for line in lines if line.startswith("span")] == [
        "span chat scripted",
        f"span {CELL}",
        f"span {STEP}",
        f"span {RUN}",
        "span still open",
    ]


def command(
    tmp_path: Path, url: str, *before: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "replies.jsonl"
    script.write_text(json.dumps({"content": cell("final_answer(7)")}) + "\n")
    return subprocess.run(
        [*before, sys.executable, "-m", "kernel_agent", "run", "Seven?", "--json",
         "--model", f"scripted:{script}", "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": url, **environment},
        check=False,
    )  # fmt: skip


INSTRUMENT = str(Path(sys.executable).with_name("opentelemetry-instrument"))


@pytest.mark.long
def test_the_command_of_the_document_sends_its_run(tmp_path: Path) -> None:
    with Collector() as collector:
        done = command(
            tmp_path, collector.url, INSTRUMENT,
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf", OTEL_SERVICE_NAME="nightly-report",
        )  # fmt: skip
    assert done.returncode == 0
    assert json.loads(done.stdout)["answer"] == 7
    assert {span.name for span in collector.spans} == {RUN, STEP, CELL, CHAT}
    assert {span.resource["service.name"] for span in collector.spans} == {"nightly-report"}


@pytest.mark.long
def test_the_command_alone_says_how_its_run_is_sent(tmp_path: Path) -> None:
    with Collector() as collector:
        done = command(tmp_path, collector.url)
    assert done.returncode == 0
    assert json.loads(done.stdout)["answer"] == 7
    assert " ".join(done.stderr.split()).count("opentelemetry-instrument kernel-agent") == 1
    assert not collector.bodies
