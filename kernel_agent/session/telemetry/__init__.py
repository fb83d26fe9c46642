"""Traces for OpenTelemetry: what a run did, as spans that a collector can show.

Off, a session holds a :class:`Telemetry`, which does nothing and imports nothing. It is on when
the caller gives a tracer, or when the environment names a collector and the extra ``otel`` is
installed; then :mod:`.spans` makes the spans and :mod:`.export` sends them. What a span holds, and
what it never holds, is in ``docs/telemetry.md``.

Nothing here may delay or fail a run: spans are sent by a thread, and what cannot be sent is lost
and said once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Any

from kernel_agent.errors import UsageError
from kernel_agent.models import Model
from kernel_agent.records import Event, Message, Notice, Reply, RequestOptions, Undone
from kernel_agent.tools import Tool

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
EXTRA = "pip install 'kernel-agent[otel]'"

Tell = Callable[[Event], None]


class Telemetry:
    """What a session calls at the places where a span could begin or end; this one makes none."""

    def listener(self, tell: Tell, model: Model | None) -> Tell:  # noqa: ARG002 - for those who listen
        """Return what a run tells its events to; called once a run."""
        return tell

    async def complete(
        self, model: Model, messages: Sequence[Message], options: RequestOptions, tell: Tell
    ) -> Reply:
        """Ask the model; called for every call of one in a run."""
        return await model.complete(messages, options, tell)

    async def call(self, tool: Tool, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a host tool; called by the broker for each."""
        return await tool.call(args, kwargs)

    def undone(self, undone: Undone) -> None:
        """Note that steps were taken back; called by the runner when it is done."""

    def beneath(self) -> Telemetry:
        """Return what a session reports to that works for a call of this one."""
        return Telemetry()

    async def close(self, tell: Tell) -> None:
        """Send what is left, within seconds; called once by the session."""


def telemetry_for(
    tracer: Tracer | None, tell: Tell, environment: Mapping[str, str] | None = None
) -> Telemetry:
    """Return what a session reports to.

    Parameters
    ----------
    tracer
        The caller's. None: one of our own if the environment names a collector.
    tell
        Told when there should be spans and cannot be.

    Raises
    ------
    UsageError
        The caller's: the tracer is none.
    """
    env = os.environ if environment is None else environment
    if tracer is not None:
        return _with_tracer(tracer, env)
    if not _wanted(env):
        return Telemetry()
    try:
        return _with_export(env)
    except Exception as error:  # the environment's or the libraries' fault: the run goes on
        tell(Notice(text=f"No traces are sent: {_reason(error)}"))
        return Telemetry()


def _wanted(env: Mapping[str, str]) -> bool:
    """Whether the environment asks for spans, by the variables that every such program heeds."""
    named = any(env.get(name, "").strip() for name in ENDPOINTS)
    disabled = env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporters = env.get("OTEL_TRACES_EXPORTER", "otlp").lower().replace(" ", "").split(",")
    return named and not disabled and "otlp" in exporters


def _with_tracer(tracer: Tracer, env: Mapping[str, str]) -> Telemetry:
    try:
        from opentelemetry.trace import Tracer

        from kernel_agent.session.telemetry.spans import Spans, takes_content
    except ImportError:
        raise UsageError(f"a tracer needs the extra otel: {EXTRA}") from None
    if not isinstance(tracer, Tracer):
        raise UsageError(f"the tracer is not one of OpenTelemetry's: {type(tracer).__name__}")
    return Spans(tracer, content=takes_content(env))


def _with_export(env: Mapping[str, str]) -> Telemetry:
    protocol = next((env[name] for name in PROTOCOLS if env.get(name)), "http/protobuf")
    if protocol != "http/protobuf":
        raise UsageError(f"the protocol {protocol} is not spoken, only http/protobuf (port 4318)")
    from kernel_agent.session.telemetry.export import Export, application_tracer
    from kernel_agent.session.telemetry.spans import Spans, takes_content

    tracer = application_tracer()  # its owner has set up where spans go, and ends it
    export = Export() if tracer is None else None
    return Spans(
        tracer or export.tracer,  # type: ignore[union-attr]  # one of the two is there
        content=takes_content(env),
        export=export,
    )


def _reason(error: Exception) -> str:
    if isinstance(error, ImportError):
        return f"the environment names a collector, and the extra otel is missing ({EXTRA})"
    return str(error) or type(error).__name__


def version() -> str:
    """Return the version of this package; empty where it is not installed."""
    try:
        return metadata.version("kernel-agent")
    except metadata.PackageNotFoundError:
        return ""
