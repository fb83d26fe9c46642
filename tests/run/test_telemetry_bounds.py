"""Code in a kernel decides how many texts there are to tell a collector: they have a bound.

A whole program, whose memory is its own; a collector on loopback.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from servers.collector import Collector
from support.spans import CELL, RUN, forget_the_machine

PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from kernel_agent import FakeKernel, ScriptedModel, Session, tool

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)

@tool
def keep(text: str) -> str:
    "Keep a text."
    return text

async def main(code, out):
    model = ScriptedModel([f"Now.\\n\\n```python\\n{code}\\nfinal_answer(7)\\n```"])
    said = []
    async with Session(
        kernel=FakeKernel, model=model, tools=[keep], out=out, on_event=said.append
    ) as session:
        run = await session.run("Seven?")
    return run.answer, [e.text for e in said if type(e).__name__ == "Notice"]

answer, told = asyncio.run(main(sys.argv[1], sys.argv[2]))
status = Path("/proc/self/status").read_text()
peak_mb = int(status.partition("VmHWM:")[2].split()[0]) // 1024
print(json.dumps({"answer": answer, "told": told, "peak_mb": peak_mb}))
"""
FACES = "for _ in range({}):\n    keep('\\N{{GRINNING FACE}}' * 100_000)"
MOST_MB = 350  # 80 without anything to tell; the texts of a run are 32


@dataclass(frozen=True, kw_only=True)
class Done:
    """How the program ended."""

    answer: int
    told: list[str]
    peak_mb: int


@pytest.fixture(autouse=True)
def _only_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_the_machine(monkeypatch)


def program(collector: Collector, code: str, out: Path) -> Done:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, code, str(out)],
        env={
            **os.environ,
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true",
        },
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return Done(**json.loads(done.stdout))


@pytest.mark.long
def test_a_cell_that_calls_without_measure_silences_nothing(tmp_path: Path) -> None:
    """Every span comes, and what the model was asked and said; of the calls some texts."""
    with Collector() as collector:
        done = program(collector, FACES.format(400), tmp_path)
        spans = {span.name: span for span in collector.spans}
        calls = [span for span in collector.spans if span.name == "execute_tool keep"]
    assert done.answer == 7
    assert len(calls) == 400
    assert "Seven?" in spans[RUN].attributes["gen_ai.input.messages"]
    assert "keep(" in spans[CELL].attributes["gen_ai.tool.call.arguments"]
    assert "keep(" in spans["chat scripted"].attributes["gen_ai.output.messages"]
    texts = sum("gen_ai.tool.call." in name for span in calls for name in span.attributes)
    assert 10 < texts < 30
    (told,) = done.told
    bounds = "calls of tools may have 8 MB of them in a run, all else 24 MB"
    assert told == f"{800 - texts} texts are not in the traces: {bounds}."
    assert done.peak_mb < MOST_MB
