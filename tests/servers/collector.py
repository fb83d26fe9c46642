"""A loopback collector: takes OpenTelemetry's protocol over HTTP, and keeps what it was sent.

Real sockets, real protobuf. ``holds`` makes one that takes requests and answers none until it is
closed; ``status`` makes one that refuses.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A span as it came over the wire."""

    name: str
    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    kind: str
    failed: bool
    message: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]
    scope: str


class Collector:
    """A collector on this machine; a context manager."""

    def __init__(
        self,
        *,
        status: int = 200,
        holds: bool = False,
    ) -> None:
        self.spans: list[Seen] = []
        self.bodies: list[bytes] = []
        self.headers: list[Mapping[str, str]] = []
        self.asked = threading.Event()
        self._released = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.asked.set()
                if holds:
                    collector._released.wait()
                    self.close_connection = True
                    return
                if status == 200:
                    collector._keep(self.path, dict(self.headers), body)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _keep(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        assert path == "/v1/traces"
        request = ExportTraceServiceRequest.FromString(body)
        self.bodies.append(body)
        self.headers.append(headers)
        for group in request.resource_spans:
            resource = {a.key: _value(a.value) for a in group.resource.attributes}
            for scoped in group.scope_spans:
                for span in scoped.spans:
                    self.spans.append(
                        Seen(
                            name=span.name,
                            trace_id=span.trace_id,
                            span_id=span.span_id,
                            parent_id=span.parent_span_id,
                            kind=KINDS[span.kind],
                            failed=span.status.code == 2,
                            message=span.status.message,
                            start_ns=span.start_time_unix_nano,
                            end_ns=span.end_time_unix_nano,
                            attributes={a.key: _value(a.value) for a in span.attributes},
                            resource=resource,
                            scope=scoped.scope.name,
                        )
                    )
        self.spans.sort(key=lambda span: span.start_ns)


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None
