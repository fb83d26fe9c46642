"""Send spans to a collector without ever holding up a run.

OTLP over HTTP, configured by OpenTelemetry's own environment variables (endpoint, headers, TLS,
timeouts, sampling, batches). A thread of the library's sends batches; when the collector is down
or slow, the run does not notice, closing waits :data:`CLOSE_S` at most, and it is said once.

How much is made is for code in a kernel to decide, so what waits is bounded by number and by bytes,
and tool calls leave room for the spans around them; a request holds some of a batch, and of a reply
nothing is kept but its head. What is lost is counted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import requests
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from kernel_agent.session.telemetry.base import ENDPOINTS, version
from kernel_agent.session.telemetry.content import size_of

CLOSE_S = 2.0
"""Wait for the last batch when closing; a collector nearby takes it in milliseconds."""

WAITING_BYTES = 40_000_000  # of spans that are not sent yet; more than the texts of a run
REQUEST_BYTES = 4_000_000  # a collector takes 20 MB by default, and other programs 4
REPLY_BYTES = 65_536  # an answer to spans has some hundred
SPAN_BYTES = 500  # of a span without attributes: names, numbers, times
QUEUE = 2048  # the library's default
KEPT_FREE = 128  # places in the queue that calls of tools do not take

SCOPE = "kernel_agent"
CELL_SPAN = "execute_tool python"


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
        self._exporter = _Counting(OTLPSpanExporter(session=_session()))
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(_Bounded(self._exporter))
        self.tracer = self._provider.get_tracer(SCOPE, version())
        self._complained = False

    def complaint(self) -> str | None:
        """Report lost spans, once."""
        lost = self._exporter.lost
        if self._complained or not lost:
            return None
        self._complained = True
        spans = "1 span is" if lost == 1 else f"{lost:,} spans are"
        return f"Traces could not be sent to {_collector()}: {spans} lost, the run is not."

    async def close(self) -> None:
        """Send the remaining spans, and give up after :data:`CLOSE_S` seconds."""
        # In a thread that nobody waits for at the end of the process, as a pool's would be.
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, CLOSE_S)
        if ending.is_alive():
            self._exporter.give_up()


class _Counting(SpanExporter):
    """An exporter that sends a batch in requests of a size, and counts what waits and is lost."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._lock = threading.Lock()
        self._given_up = False
        self.waiting = 0
        self.waiting_bytes = 0
        self.lost = 0

    def admit(self, span: ReadableSpan, most: int) -> bool:
        """Take a span among those that wait, if there is room; else it is lost."""
        size = _size(span)
        with self._lock:
            fits = self.waiting < most and self.waiting_bytes + size <= WAITING_BYTES
            if self._given_up or not fits:
                self.lost += 1
                return False
            self.waiting += 1
            self.waiting_bytes += size
            return True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        results = [self._send(part) for part in _parts(spans)]
        failed = any(result is not SpanExportResult.SUCCESS for result in results)
        return SpanExportResult.FAILURE if failed else SpanExportResult.SUCCESS

    def _send(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            with self._lock:
                self.waiting -= len(spans)
                self.waiting_bytes -= sum(map(_size, spans))
                if result is not SpanExportResult.SUCCESS and not self._given_up:
                    self.lost += len(spans)
        return result

    def give_up(self) -> None:
        """Stop waiting for the collector; unsent spans are lost."""
        with self._lock:
            self._given_up = True
            self.lost += self.waiting
        self._exporter.shutdown()

    def shutdown(self) -> None:
        self._exporter.shutdown()


class _Bounded(BatchSpanProcessor):
    """The library's processor, which is given no more than may wait."""

    def __init__(self, exporter: _Counting) -> None:
        super().__init__(exporter)
        self._waits = exporter
        most = os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE", "")
        self._most = int(most) if most.isdecimal() else QUEUE  # as the library reads it

    def on_end(self, span: ReadableSpan) -> None:
        if not (span.context and span.context.trace_flags.sampled):
            return
        of_call = span.name.startswith("execute_tool ") and span.name != CELL_SPAN
        kept_free = min(KEPT_FREE, self._most // 2) if of_call else 0
        if self._waits.admit(span, self._most - kept_free):
            super().on_end(span)


def _parts(spans: Sequence[ReadableSpan]) -> Iterator[list[ReadableSpan]]:
    """Yield spans by requests: as many as fit, or one that is larger."""
    part, size = list[ReadableSpan](), 0
    for span in spans:
        more = _size(span)
        if part and size + more > REQUEST_BYTES:
            yield part
            part, size = [], 0
        part.append(span)
        size += more
    if part:
        yield part


def _size(span: ReadableSpan) -> int:
    return SPAN_BYTES + size_of(span.attributes) + len(span.status.description or "") * 4


def _session() -> requests.Session | None:
    """Return a session that reads no more than a short reply; None where the user names theirs."""
    if any(name.endswith("_CREDENTIAL_PROVIDER") and os.environ[name] for name in os.environ):
        return None
    session = requests.Session()
    session.hooks["response"].append(_bound_reply)
    return session


def _bound_reply(response: requests.Response, **_: object) -> None:
    """Leave the body of a reply unread when it has no length, a large one, or is compressed."""
    length = response.headers.get("Content-Length", "")
    short = length.isdecimal() and len(length) < 7 and int(length) <= REPLY_BYTES
    if not short or response.headers.get("Content-Encoding"):
        response.close()


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
