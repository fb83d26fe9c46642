"""What a tracer of a caller's has kept, and how a test keeps the machine's own settings out."""

from __future__ import annotations

import os

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

RUN, STEP, CELL = "invoke_agent kernel-agent", "step", "execute_tool python"


def forget_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the machine's own collector, key and proxy out of the environment."""
    for name in [*os.environ]:
        if name.startswith(("OTEL_", "OPENAI_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


class Kept:
    """What a tracer of the caller's has made."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._provider = TracerProvider(shutdown_on_exit=False)
        self._provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = self._provider.get_tracer("caller")

    @property
    def spans(self) -> list[ReadableSpan]:
        found = self._exporter.get_finished_spans()
        return sorted(found, key=lambda span: (span.start_time or 0, -(span.end_time or 0)))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def tree(self) -> list[tuple[int, str]]:
        """Return the spans in the order in which they began, each with its depth."""
        by_id = {span.context.span_id: span for span in self.spans}

        def depth(span: ReadableSpan) -> int:
            parent = by_id.get(span.parent.span_id) if span.parent else None
            return 0 if parent is None else depth(parent) + 1

        return [(depth(span), span.name) for span in self.spans]

    def close(self) -> None:
        self._provider.shutdown()
