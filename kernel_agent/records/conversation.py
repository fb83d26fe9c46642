"""A conversation with a model: messages, requests, replies, and their cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Json: TypeAlias = Any
Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"
"""JSON types, for those who read an answer."""

"""A value made of the JSON types only: dict, list, str, int, float, bool, None."""

ABSENT = {"absent": True}
"""Metadata of a field that a trace lacks where it has its default: what is rare costs no line."""

ToolSchema: TypeAlias = Mapping[str, Any]
"""A host tool as endpoints are told of it: ``name``, ``description``, ``parameters`` (a schema)."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The cost of model calls: tokens as the endpoint reported them, money from configured prices.

    ``cost_usd`` is None while no price is configured: it is never guessed. ``estimated`` is true
    when the endpoint reported no token counts and they were derived from text length.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    calls: int = 0
    cost_usd: float | None = None
    estimated: bool = False

    @property
    def total_tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Usage) -> Usage:
        costs = [u.cost_usd for u in (self, other) if u.cost_usd is not None]
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            calls=self.calls + other.calls,
            cost_usd=sum(costs) if costs else None,
            estimated=self.estimated or other.estimated,
        )


@dataclass(frozen=True, kw_only=True)
class Image:
    """A picture for a model that accepts pictures: base64 PNG or JPEG, already downscaled."""

    media_type: str
    data: str
    width: int
    height: int


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A native function call as the endpoint wrote it; ``arguments`` is its raw text, unparsed."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message of the conversation with a model, before any provider's wire form."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    images: tuple[Image, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class ModelWindow:
    """What a model holds at most, prompt and reply together, as far as that is known beforehand.

    ``tokens`` is its size, and ``known_by`` says whose word that is: the field of the endpoint's
    list, for example. ``is_bound`` marks the most that the model was made for, where the server may
    have loaded it with less.
    """

    tokens: int
    known_by: str = ""
    is_bound: bool = False


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """A format's needs of the endpoint beside the messages; empty for plain text."""

    response_format: Mapping[str, Any] | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer of a model. ``finish_reason == "length"`` means that it was cut off.

    ``window_tokens`` is the model's window, prompt and reply together, where the reply ran into
    its end.
    """

    content: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    window_tokens: int | None = None
