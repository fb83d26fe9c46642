"""Cost of a model call: tokens as the endpoint reported them, money from configured prices.

Nothing here guesses money. Tokens are estimated only when an endpoint reports none, and the
:class:`~kernel_agent.records.Usage` then says so. Pure: data in, data out.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernel_agent.errors import UsageError
from kernel_agent.records import Json, Message, Reply, RequestOptions, Usage

PLAIN = RequestOptions()
"""A request without tools."""

CHARS_PER_TOKEN = 4
"""The rule of thumb for English and code; good enough for a cap, and marked as an estimate."""

PIXELS_PER_TOKEN = 750
"""Pixels for one token of a picture (Anthropic's published rule: w * h / 750)."""


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices that the user configured, in US dollars per million tokens.

    Parameters
    ----------
    prompt_per_million, completion_per_million
        Reasoning tokens are completion tokens.
    cached_per_million
        For the part of the prompt that the endpoint had cached; None means the prompt's price.
    """

    prompt_per_million: float
    completion_per_million: float
    cached_per_million: float | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            price = getattr(self, field.name)
            if price is not None and not price >= 0:
                raise UsageError(f"the price {field.name} must be 0 or more, not {price!r}")

    def cost_usd(self, usage: Usage) -> float:
        """Return the cost of these tokens.

        >>> prices = Prices(prompt_per_million=2.0, completion_per_million=8.0)
        >>> prices.cost_usd(Usage(prompt_tokens=500_000, completion_tokens=250_000))
        3.0
        """
        cached_price = self.cached_per_million
        if cached_price is None:
            cached_price = self.prompt_per_million
        fresh_tokens = usage.prompt_tokens - usage.cached_tokens
        dollars = (
            fresh_tokens * self.prompt_per_million
            + usage.cached_tokens * cached_price
            + usage.completion_tokens * self.completion_per_million
        )
        return dollars / 1_000_000


def usage_of(
    reported: Json,
    messages: Iterable[Message],
    reply: Reply,
    prices: Prices | None,
    options: RequestOptions = PLAIN,
) -> Usage:
    """Return the usage of one call: as reported, else estimated from the text; priced if known."""
    usage = read_usage(reported) or estimate_usage(messages, reply, options)
    if prices is None:
        return usage
    return dataclasses.replace(usage, cost_usd=prices.cost_usd(usage))


def window_met(reply: Reply, usage: Usage) -> int | None:
    """Return the model's window where a reply ended because it was full; None where it cannot tell.

    Called for requests that bound the reply's length in no way. Then what ends it is the window,
    or a bound of the server's own: that is a round number of tokens by itself, while a window is
    round together with the prompt.

    >>> cut = Reply(content="", finish_reason="length")
    >>> window_met(cut, Usage(prompt_tokens=904, completion_tokens=120, calls=1))
    1024
    >>> window_met(cut, Usage(prompt_tokens=5003, completion_tokens=4096, calls=1)) is None
    True
    """
    if reply.finish_reason != "length" or usage.estimated or not usage.prompt_tokens:
        return None
    window, written = usage.total_tokens, usage.completion_tokens
    is_bound = written % 64 == 0 or written % 100 == 0
    return None if is_bound and window % 256 else window


def read_usage(reported: Json) -> Usage | None:
    """Read an OpenAI ``usage`` object; None when it is absent or counts nothing."""
    if not isinstance(reported, Mapping):
        return None
    prompt = _count(reported, "prompt_tokens")
    completion = _count(reported, "completion_tokens")
    if not prompt and not completion:
        return None
    cached = (
        _count(reported.get("prompt_tokens_details"), "cached_tokens")
        or _count(reported, "prompt_cache_hit_tokens")  # DeepSeek's name for it
        or _count(reported, "cached_tokens")
    )
    reasoning = _count(reported.get("completion_tokens_details"), "reasoning_tokens") or _count(
        reported, "reasoning_tokens"
    )
    # Gemini and xAI count what was thought in the total alone; it is paid for like the rest. What
    # some gateways count there alone is the cache.
    beside = max(_count(reported, "total_tokens") - prompt - completion, 0)
    thought = beside if prompt and beside != cached else 0
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion + thought,
        cached_tokens=min(cached, prompt),
        reasoning_tokens=reasoning or thought,
        calls=1,
    )


def estimate_usage(
    messages: Iterable[Message], reply: Reply, options: RequestOptions = PLAIN
) -> Usage:
    """Estimate tokens from the length of the text and of tools' schemas, and the pictures' size."""
    chars, pixels = len(json.dumps(options.tools, default=dict)) if options.tools else 0, 0
    for message in messages:
        chars += len(message.content) + sum(len(call.arguments) for call in message.tool_calls)
        pixels += sum(image.width * image.height for image in message.images)
    written = len(reply.content) + sum(len(call.arguments) for call in reply.tool_calls)
    return Usage(
        prompt_tokens=-(-chars // CHARS_PER_TOKEN) + pixels // PIXELS_PER_TOKEN,
        completion_tokens=-(-(written + len(reply.reasoning)) // CHARS_PER_TOKEN),
        reasoning_tokens=-(-len(reply.reasoning) // CHARS_PER_TOKEN),
        calls=1,
        estimated=True,
    )


def _count(counts: Json, name: str) -> int:
    value = counts.get(name) if isinstance(counts, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e15:
        return 0
    return int(value)
