"""Spans of real runs: with a tracer of the caller's, and over the wire to a real collector."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from servers.collector import Collector, Seen
from support.replies import cell
from support.spans import CELL, RUN, STEP, Kept, forget_the_machine

from kernel_agent import ScriptedModel, Session
from kernel_agent.errors import how_to_install
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.event import Event, Notice
from kernel_agent.session.telemetry import telemetry_for

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
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as started:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", started.url)
        yield started


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


# --- over the wire -------------------------------------------------------------------------------


def tree(spans: list[Seen]) -> list[tuple[int, str]]:
    by_id = {span.span_id: span for span in spans}

    def depth(span: Seen) -> int:
        return 0 if not span.parent_id else depth(by_id[span.parent_id]) + 1

    return [(depth(span), span.name) for span in spans]


# --- a collector that is down, slow, or not meant ------------------------------------------------


def refused_url() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://user:{KEY}@127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, None),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "No traces are sent: the protocol grpc is not spoken, only http/protobuf (port 4318)",
        ),
    ],
)
def test_nothing_is_sent_when_it_is_not_wanted_or_cannot_be(
    environment: dict[str, str], told: str | None
) -> None:
    events: list[Event] = []
    made = telemetry_for(None, events.append, environment)
    assert type(made).__name__ == "Telemetry"
    assert notices(events) == ([told] if told else [])


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


def test_an_extra_that_is_missing_is_said(tmp_path: Path) -> None:
    hidden = "import sys\nsys.modules['opentelemetry'] = None"
    code = f"{hidden}\n{EMBEDDED}\nasyncio.run(main(sys.argv[1]))"
    answer, told = program(code, tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
    assert answer == "7"
    assert told == (
        "No traces are sent: the environment names a collector, and the extra otel is missing "
        f"({how_to_install('otel')})"
    )


def test_a_program_that_has_set_up_opentelemetry_keeps_its_own_way(
    tmp_path: Path, collector: Collector
) -> None:
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
    assert not collector.spans


def command(tmp_path: Path, url: str, *options: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "replies.jsonl"
    script.write_text(json.dumps({"content": cell("final_answer(7)")}) + "\n")
    return subprocess.run(
        [sys.executable, "-m", "kernel_agent", "run", "Seven?", "--model", f"scripted:{script}",
         "--out", str(tmp_path / "out"), *options],
        capture_output=True,
        text=True,
        env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": url},
        check=False,
    )  # fmt: skip


def test_the_command_line_sends_its_run(tmp_path: Path, collector: Collector) -> None:
    done = command(tmp_path, collector.url, "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "7\n", "")
    assert [name for _, name in tree(collector.spans)][:2] == [RUN, STEP]
    assert len(collector.spans) == 4


def test_the_command_line_says_one_line_when_the_collector_is_down(tmp_path: Path) -> None:
    done = command(tmp_path, refused_url(), "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["answer"] == 7
    assert done.stderr.count("Traces could not be sent") == 1
    assert "opentelemetry" not in done.stderr
    assert "Transient" not in done.stderr
    assert KEY not in done.stderr
