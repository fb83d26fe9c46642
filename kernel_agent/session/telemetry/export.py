"""Send spans to a collector without ever holding up a run.

OTLP over HTTP, configured by OpenTelemetry's own environment variables (endpoint, headers, TLS,
timeouts, sampling, batches). A thread of the library's sends batches; when the collector is down
or slow, the run does not notice, closing waits :data:`CLOSE_S` at most, and it is said once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Sequence
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from kernel_agent.session.telemetry.base import ENDPOINTS, version

CLOSE_S = 2.0
"""Wait for the last batch when closing; a collector nearby takes it in milliseconds."""

SCOPE = "kernel_agent"


class Export:
    """A tracer whose spans are sent to the collector that the environment names.

    Raises
    ------
    ValueError
        The user's: a variable that the library cannot read.
    """

    def __init__(self) -> None:
        # The library complains through logging, which without a handler writes to the terminal.
        logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
        self._exporter = _Counting(OTLPSpanExporter())
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self.tracer = self._provider.get_tracer(SCOPE, version())
        self._complained = False

    def complaint(self) -> str | None:
        """Report lost spans, once."""
        if self._complained or not self._exporter.failed:
            return None
        self._complained = True
        return f"Traces could not be sent to {_collector()}: they are lost, the run is not."

    async def close(self) -> None:
        """Send the remaining spans, and give up after :data:`CLOSE_S` seconds."""
        # In a thread that nobody waits for at the end of the process, as a pool's would be.
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, CLOSE_S)
        if ending.is_alive():
            self._exporter.give_up()


class _Counting(SpanExporter):
    """An exporter that remembers whether it failed."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.failed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception:
            self.failed = True
            raise
        self.failed = self.failed or result is not SpanExportResult.SUCCESS
        return result

    def give_up(self) -> None:
        """Stop waiting for the collector; unsent spans are lost."""
        self.failed = True
        self._exporter.shutdown()

    def shutdown(self) -> None:
        self._exporter.shutdown()


def application_tracer() -> trace.Tracer | None:
    """Return a tracer of the program that this runs in, when it has set up OpenTelemetry itself."""
    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return trace.get_tracer(SCOPE, version())
    return None


def _resource() -> Resource:
    named = OTELResourceDetector().detect().attributes.get("service.name", "kernel-agent")
    return Resource.create({"service.name": named, "service.version": version()})


def _collector() -> str:
    """Return the collector's address without its secrets."""
    address = next((os.environ[name] for name in ENDPOINTS if os.environ.get(name)), "")
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else address
