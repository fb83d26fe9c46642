"""Traces for OpenTelemetry: a run as spans that a collector can show.

Off, a session holds a :class:`~.base.Telemetry`, which does nothing and imports nothing. It is on
when the caller gives a tracer, or when the environment names a collector and the extra ``otel`` is
installed; then :mod:`.spans` makes the spans and :mod:`.export` sends them. What a span holds, and
what it never holds, is in ``docs/telemetry.md``.

Nothing here may delay or fail a run: spans are sent by a thread, and what cannot be sent is lost
and said once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kernel_agent.errors import UsageError, how_to_install
from kernel_agent.records import Notice
from kernel_agent.session.telemetry.base import ENDPOINTS, Telemetry, Tell

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def telemetry_for(
    tracer: Tracer | None, tell: Tell, environment: Mapping[str, str] | None = None
) -> Telemetry:
    """Return the telemetry of a session.

    Parameters
    ----------
    tracer
        The caller's. None: one of our own if the environment names a collector.
    tell
        Told when there should be spans and cannot be.

    Raises
    ------
    UsageError
        The caller's: the tracer is not one.
    """
    env = os.environ if environment is None else environment
    if tracer is not None:
        return _with_tracer(tracer, env)
    if not _is_wanted(env):
        return Telemetry()
    try:
        return _with_export(env)
    except Exception as error:  # the environment's or the libraries' fault: the run goes on
        tell(Notice(text=f"No traces are sent: {_reason(error)}"))
        return Telemetry()


def _is_wanted(env: Mapping[str, str]) -> bool:
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
        raise UsageError(f"a tracer needs the extra otel: {how_to_install('otel')}") from None
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
        missing = "the environment names a collector, and the extra otel is missing"
        return f"{missing} ({how_to_install('otel')})"
    return str(error) or type(error).__name__
