"""Vendors' wordings for errors and finish reasons: one row a vendor.

Data only, read by :mod:`.errors` (trouble) and :mod:`.draft` (how a reply ends). Each wording is a
row in the tests. The last row holds what several say alike; it is tried after the vendors' own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Words = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Vendor:
    """Wordings of one vendor, server or gateway.

    Parameters
    ----------
    name
        The vendor, server or gateway.
    too_long
        Patterns: the conversation is longer than the model accepts.
    too_long_codes
        The same, as the code of an error.
    limit, used
        Patterns around ``N``, a number: how much the model accepts, how much was counted. The last
        number in a match is meant, and the first pattern that matches counts.
    quota
        Patterns: the account is used up, which waiting does not mend.
    length, stop
        Finish reasons, in lower case, that mean ``length`` and ``stop``. The loop must know,
        because truncated code never runs, and an open block only when the model stopped by itself.
    withheld
        Patterns in finish reasons: the reply was ended for what stands in it.
    broken_off
        Finish reasons: the server gave up on the reply.
    """

    name: str
    too_long: Words = ()
    too_long_codes: Words = ()
    limit: Words = ()
    used: Words = ()
    quota: Words = ()
    length: Words = ()
    stop: Words = ()
    withheld: Words = ()
    broken_off: Words = ()


VENDORS = (
    Vendor(
        name="Anthropic",
        too_long_codes=("model_context_window_exceeded",),
        limit=(r"exceed context limit: N \+ N > N", r"tokens > N maximum"),  # reply counted in
        used=(r"N tokens >", r"exceed context limit: N"),
        quota=(r"(credit )?balance is too low",),
        length=("max_tokens", "model_context_window_exceeded"), stop=("end_turn", "stop_sequence"),
    ),
    Vendor(
        name="OpenAI",
        too_long=(r"tokens exceed the configured limit",
                  r"reduce the length of the (messages|prompt|input)"),
        too_long_codes=("context_length_exceeded",),
        limit=(r"Limit:? N(?=, Requested)",),  # Groq, too: of the tokens of a minute
        used=(r"N in the (?:messages|prompt)",),  # vLLM, too: the reply is counted apart
        quota=(r'"(insufficient_quota|billing_not_active|billing_hard_limit_reached)"',),
        length=("max_output_tokens",), withheld=(r"content_?filter",),  # Azure, too
    ),
    Vendor(
        name="Gemini",
        too_long=(r"input token count.{0,40}exceeds",
                  r"token count.{0,40}(exceeds the limit|only supports)"),
        limit=(r"tokens allowed \(N\)",), used=(r"token count (?:(?:is|of) )?\(?N",),
        withheld=(r"safety|recitation|prohibited|blocklist|spii",),
    ),
    Vendor(
        name="Mistral",
        limit=(r"N(?: tokens?)? maximum",), used=(r"contains(?: at least)? N",),  # vLLM, too
        length=("model_length",),
    ),
    Vendor(
        name="Cohere", too_long=(r"too many tokens: (total|size limit)",),
        limit=(r"cannot exceed N",), stop=("complete",),
    ),
    Vendor(name="xAI", too_long=(r"maximum prompt length",)),
    Vendor(
        name="DeepSeek", quota=(r"insufficient.{0,9}(balance|credit|funds)",),  # MiniMax, too
        broken_off=("insufficient_system_resource",),
    ),
    Vendor(name="Moonshot", quota=(r'"exceeded_current_quota_error"',)),
    Vendor(
        name="Qwen", too_long=(r"range of input length should be",), limit=(r"should be \[1, N\]",),
    ),
    Vendor(
        name="Zhipu", too_long=(r"max length exceeded",),
        withheld=(r"sensitive",), broken_off=("network_error",),
    ),
    Vendor(
        name="GitHub", too_long=(r"max size: \d+ tokens",), limit=(r"Max size: N",),
        too_long_codes=("model_max_prompt_tokens_exceeded", "tokens_limit_reached"),
    ),
    Vendor(
        name="OpenRouter", used=(r"\((?:about )?N of text input",), quota=(r"out of credits",),
    ),
    Vendor(
        name="LiteLLM", used=(r"a total of N",),
        quota=(r'"budget_exceeded"', r"budget has been exceeded"),
    ),
    Vendor(
        name="vLLM", limit=(r"\(context N\)",),
        too_long=(r"(longer|greater) than the (maximum )?(model|context)",),  # SGLang, LM Studio
    ),
    Vendor(
        name="TGI", too_long=(r"`?inputs`?.{0,40}must (be <=|have less than)",),
        limit=(r"must be <= N|must have less than N",), stop=("eos_token",),
    ),
    Vendor(
        name="llama.cpp", too_long_codes=("exceed_context_size_error",),
        limit=(r"\"?n_ctx\"?: ?N", r"context window of N"),  # in a field of its own; for Python
        used=(r"\"n_prompt_tokens\": ?N",),
    ),
    Vendor(name="LM Studio", too_long=(r"context the overflows",)),
    Vendor(name="TabbyAPI", too_long=(r"greater than max_seq_len",)),
    Vendor(name="SGLang", broken_off=("abort",)),
    Vendor(
        name="several",
        too_long=(
            r"context.{0,20}(length|window|size|limit).{0,40}(exceed|overflow|too)",
            r"exceed.{0,60}context.{0,10}(length|window|size|limit)",
            r"exceed.{0,20}(token limit|max(imum)? (allowed )?(input |sequence )?length)",
            r"(maximum|max|model'?s|available).{0,12}context.{0,3}(length|window|size)",
            (r"(prompt|input|request|conversation|messages?).{0,40}(is|are)? ?"
             r"too (long|large) (for|to fit)"),
            r"(prompt|input|conversation) is too long",
            r"too many (input|prompt) tokens",
        ),
        too_long_codes=("context_window_exceeded",),
        limit=(
            r"(?:context|prompt|model) (?:length|window|size|limit)(?: (?:is|of|only))*\W{1,3}N",
            r"(?:limit|max_seq_len|(?:max|maximum|input) length|supports up to)(?: is| of)?:? N",
        ),
        used=(
            r"(?:resulted in|passed|has|[Rr]equested:?|received|first|Given:) N",
            (r"(?:input|request|prompt|tokens|[Ll]ength|n_keep)(?: is)?[ :]{1,2}"
             r"\(?(?:\w+ length )?N"),
        ),
        stop=("eos",),
    ),
)  # fmt: skip


def words(field: str) -> Words:
    """Return all vendors' wordings for one thing, in the order of the rows.

    >>> words("broken_off")
    ('insufficient_system_resource', 'network_error', 'abort')
    """
    return tuple(word for vendor in VENDORS for word in getattr(vendor, field))


TOO_LONG = re.compile("|".join(words("too_long")), re.IGNORECASE | re.DOTALL)
TOO_LONG_CODES = frozenset(words("too_long_codes"))
LIMIT, USED = words("limit"), words("used")
NO_QUOTA = re.compile("|".join(words("quota")), re.IGNORECASE)
REASONS = dict.fromkeys(words("length"), "length") | dict.fromkeys(words("stop"), "stop")
WITHHELD = re.compile("|".join(words("withheld")), re.IGNORECASE)
BROKEN_OFF = frozenset(words("broken_off"))

OVER_QUOTA = re.compile(r"exceeded your current quota", re.IGNORECASE)
"""From OpenAI through a gateway: the account is used up; from Gemini a rate, with the seconds."""

OVER_RATE = re.compile(
    r"request too large.{0,200}Limit:? [\d,]+, Requested:? [\d,]+", re.IGNORECASE | re.DOTALL
)
"""One request alone is more than a minute's tokens: waiting does not help, and less text does."""

BAD_KEY = re.compile(r"api.?key|authorization header", re.IGNORECASE)
"""With status 400, from Gemini and xAI."""

FILTERED = re.compile(r'"content_filter"|content.?(management )?policy|DataInspection|"sensitive"')
NO_PATH = re.compile(r"unexpected endpoint", re.IGNORECASE)  # LM Studio, with status 200

NAMED_WAIT = re.compile(
    r"(?:again in|retry in|retry after|retryDelay\W{1,4}|estimated_time\W{1,3})\s?"
    r"(?:(\d{1,3})h)?(?:(\d{1,4})m(?!s))?(?:(\d{1,9}(?:\.\d+)?) ?(ms|s|,|\}|$))?"
)
"""Time to wait: OpenAI, Groq, Azure and Gemini in words, Gemini in a ``retryDelay``."""

RESET = re.compile(r"RateLimit-Reset\W{1,4}(\d{10})(\d{3})?\b")
"""OpenRouter: the time (in ms) at which the rate begins anew."""

THINKING = ("reasoning_content", "reasoning", "thinking")
"""Fields of a message for the model's thoughts: DeepSeek and most servers, OpenRouter, others."""
