"""Interface of telemetry: the calls that a session makes; here, they do nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

from kernel_agent.models import Model
from kernel_agent.records import Event, Message, Reply, RequestOptions, Undone
from kernel_agent.tools import Tool

Tell = Callable[[Event], None]


class Telemetry:
    """Calls that a session makes where a span could begin or end; no span is made here."""

    def listener(self, tell: Tell, model: Model | None) -> Tell:  # noqa: ARG002 - for those who listen
        """Return a listener for a run's events; called once a run."""
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
        """Return the telemetry of a session that works for a call of this one."""
        return Telemetry()

    async def close(self) -> None:
        """End the spans that are open; called once by the session."""


def version() -> str:
    """Return the version of this package; empty where it is not installed."""
    try:
        return metadata.version("kernel-agent")
    except metadata.PackageNotFoundError:
        return ""
