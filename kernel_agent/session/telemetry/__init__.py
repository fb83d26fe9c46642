"""Traces for OpenTelemetry: a run as spans that a collector can show.

Off, a session holds a :class:`~.base.Telemetry`, which does nothing and imports nothing. It is on
when the caller gives a tracer, or when the process has set up a provider of tracers, as
``opentelemetry-instrument`` does; then :mod:`.spans` makes the spans. Where they go, and how they
are sent without delay to a run, is the business of whoever has set up the tracer. What a span
holds, and what it never holds, is in ``docs/telemetry.md``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kernel_agent.errors import UsageError, how_to_install
from kernel_agent.records import Notice
from kernel_agent.session.telemetry.base import Telemetry, Tell, version

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
SCOPE = "kernel_agent"

NOT_SENT = (
    "No traces are sent: the environment names a collector, and nothing sends to it. "
    "Start with opentelemetry-instrument kernel-agent … (docs/telemetry.md)"
)


def telemetry_for(
    tracer: Tracer | None, tell: Tell, environment: Mapping[str, str] | None = None
) -> Telemetry:
    """Return the telemetry of a session.

    Parameters
    ----------
    tracer
        The caller's. None: one of the provider that the process has set up, if it has.
    tell
        Told when the environment names a collector, and there is no tracer.

    Raises
    ------
    UsageError
        The caller's: the tracer is not one.
    """
    env = os.environ if environment is None else environment
    if tracer is not None:
        return _with_tracer(tracer, env)
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Telemetry()
    found = _tracer_of_the_process()
    if found is not None:
        return _with_tracer(found, env)
    if any(env.get(name, "").strip() for name in ENDPOINTS):
        tell(Notice(text=NOT_SENT))
    return Telemetry()


def _tracer_of_the_process() -> Tracer | None:
    """Return a tracer of the provider that this process has set up, if it has one."""
    if sys.modules.get("opentelemetry.trace") is None:
        return None  # who sets up a provider has loaded it
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return provider.get_tracer(SCOPE, version())


def _with_tracer(tracer: Tracer, env: Mapping[str, str]) -> Telemetry:
    try:
        from opentelemetry.trace import Tracer

        from kernel_agent.session.telemetry.spans import Spans, takes_content
    except ImportError:
        raise UsageError(f"a tracer needs the extra otel: {how_to_install('otel')}") from None
    if not isinstance(tracer, Tracer):
        raise UsageError(f"the tracer is not one of OpenTelemetry's: {type(tracer).__name__}")
    return Spans(tracer, content=takes_content(env))
