"""What an endpoint's trouble is called, and whether another try may help."""

import json

import pytest

from kernel_agent.errors import ContextLengthError, ModelError
from kernel_agent.models.errors import (
    complaint,
    context_limit,
    from_error_object,
    from_status,
    is_context_length,
    one_line,
    redact,
    retry_after_s,
    shorten,
)

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


def answered(status, body="", headers=None):
    return from_status(status, headers or {}, body, model="m-1", now=NOW)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_what_may_pass_is_tried_again(status):
    """Too busy, overloaded, failing: the same request may succeed later."""
    assert answered(status).retry


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 413, 422])
def test_what_stays_wrong_is_not_tried_again(status):
    """The same request gets the same answer."""
    assert not answered(status).retry


def test_a_quota_that_is_used_up_is_not_tried_again():
    """It comes as 429 like a rate limit, but waiting adds no quota."""
    error = answered(429, '{"error": {"message": "You exceeded", "code": "insufficient_quota"}}')
    assert not error.retry
    assert "billing" in error.advice


@pytest.mark.parametrize(
    ("status", "what", "advice"),
    [
        (401, "refused the key", "OPENAI_API_KEY"),
        (403, "refused access", "key may use"),
        (404, "does not know the model m-1", "--model"),
        (429, "too many requests", "wait"),
        (500, "failed", "later"),
        (418, "refused the request", "options"),
    ],
)
def test_each_status_says_what_happened_and_what_to_do(status, what, advice):
    """One line with the server's own words in it."""
    error = answered(status, '{"error": {"message": "Their\\nown words."}}')
    assert what in error.what
    assert f"({status}: Their own words)" in error.what
    assert advice in error.advice
    assert error.status == status


TOO_LONG = {
    "OpenAI": "This model's maximum context length is 8192 tokens. However, your messages resulted "
    "in 9000 tokens. Please reduce the length of the messages.",
    "OpenAI responses": "Your input exceeds the context window of this model. Please adjust.",
    "vLLM": "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "vLLM input": "Input length (5000) exceeds model's maximum context length (4096).",
    "vLLM fit": "The prompt (total length 5000) is too long to fit into the model (context 4096)",
    "SGLang": "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    "TGI": "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens",
    "TGI less": "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
    "llama.cpp": "the request exceeds the available context size, try increasing it",
    "Ollama": "the input length exceeds the context length",
    "Ollama prompt": "prompt too long; exceeded max context length by 4 tokens",
    "LM Studio": "The number of tokens to keep from the initial prompt is greater than the "
    "context length",
    "LM Studio overflow": "Trying to keep the first 5000 tokens when context the overflows. "
    "However, the model is loaded with context length of only 4096 tokens",
    "Anthropic": "prompt is too long: 210000 tokens > 200000 maximum",
    "Anthropic sum": "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    "Gemini": "The input token count (1200000) exceeds the maximum number of tokens allowed",
    "Mistral": "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 "
    "maximum context length",
    "Cohere": "too many tokens: total number of tokens in the prompt cannot exceed 4081",
    "Groq": "Please reduce the length of the messages or completion.",
    "xAI": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "OpenRouter": "This endpoint's maximum context length is 65536 tokens.",
    "Bedrock": "Input is too long for requested model.",
    "DeepSeek": "This model's maximum context length is 65536 tokens.",
}


@pytest.mark.parametrize("text", TOO_LONG.values(), ids=TOO_LONG.keys())
def test_a_conversation_that_is_too_long_is_recognised_in_every_dialect(text):
    """The loop can shorten the conversation only if it is told that this is the trouble."""
    error = answered(400, json.dumps({"error": {"message": text, "code": None}}))
    assert error.kind is ContextLengthError
    assert not error.retry


NAMED = {
    "OpenAI": (8192, 9000),
    "OpenAI responses": (None, None),
    "vLLM": (4096, 5000),
    "vLLM input": (4096, 5000),
    "vLLM fit": (4096, 5000),
    "SGLang": (4096, 5000),
    "TGI": (4096, 5000),
    "TGI less": (4096, 5000),
    "llama.cpp": (None, None),
    "Ollama": (None, None),
    "Ollama prompt": (None, None),
    "LM Studio": (None, None),
    "LM Studio overflow": (4096, 5000),
    "Anthropic": (200_000, 210_000),
    "Anthropic sum": (200_000, 190_000),
    "Gemini": (None, 1_200_000),
    "Mistral": (32_768, 40_000),
    "Cohere": (4081, None),
    "Groq": (None, None),
    "xAI": (131_072, 537_812),
    "OpenRouter": (65_536, None),
    "Bedrock": (None, None),
    "DeepSeek": (65_536, None),
}


@pytest.mark.parametrize("name", TOO_LONG)
def test_the_limit_is_read_where_it_is_named(name):
    """And the server's own count: the next try then fits."""
    assert context_limit(TOO_LONG[name]) == NAMED[name]


OTHER_WORDS = {
    "This model's maximum context length is 8192 tokens. However, you requested 9500 "
    "tokens (5500 in the messages, 4000 in the completion). Please reduce the length.": (
        8192,
        5500,
    ),
    "This model's maximum context length is 4096 tokens. However, your request has 5012 "
    "input tokens. Please reduce the length of the input messages.": (4096, 5012),
    "You passed 4097 input tokens and requested 500 output tokens. However, the model's "
    "context length is only 4096 tokens, resulting in a maximum input length of 3596 tokens.": (
        4096,
        4097,
    ),
    '{"error": {"code": 400, "n_prompt_tokens": 14429, "n_ctx": 8192}}': (8192, 14_429),
    "request (5,000 tokens) exceeds the available context size (4,096 tokens)": (4096, 5000),
    "Requested tokens (2285) exceed context window of 2048": (2048, 2285),
    "maximum number of tokens allowed (1048576).": (1_048_576, None),
    "": (None, None),
    "context length is " + "9" * 100_000: (999_999_999_999, None),
}


@pytest.mark.parametrize(("text", "named"), OTHER_WORDS.items(), ids=range(len(OTHER_WORDS)))
def test_limits_in_other_words(text, named):
    """What servers of today say, and what none says."""
    assert context_limit(text) == named


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (400, "", "max_tokens is too large: 100000. This model supports at most 16384 tokens"),
        (400, "", "Invalid value for 'temperature': must be at most 2"),
        (400, "", "Invalid schema for response_format: context is not of type object"),
        (429, "rate_limit_exceeded", "Request too large for gpt-4o: tokens per min (TPM)"),
        (413, "rate_limit_exceeded", "Request too large: tokens per minute (TPM): Limit 6000"),
        (401, "", "Incorrect API key provided"),
        (404, "", "The model `long-context-length` does not exist"),
    ],
)
def test_other_complaints_are_not_taken_for_a_conversation_that_is_too_long(status, code, text):
    """Shortening the conversation would not help."""
    assert not is_context_length(status, code, text)


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "3600"}, 60.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:25 GMT"}, 5.0),
        ({"retry-after": "Tue, 14 Nov 2023 21:00:00 GMT"}, 0.0),
        ({"retry-after": "Wed, 15 Nov 2023 22:13:25 GMT"}, 60.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
    ],
)
def test_retry_after_is_honoured_in_each_of_its_forms(headers, wait_s):
    """Seconds, milliseconds or a date; at most a minute; nonsense is ignored."""
    assert retry_after_s(headers, now=NOW) == wait_s


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"error": {"message": "Slow down.", "code": "busy"}}', ("Slow down", "busy")),
        ('{"error": "no such model"}', ("no such model", "")),
        ('{"detail": "Not Found"}', ("Not Found", "")),
        ('{"message": "gone", "type": "not_found"}', ("gone", "not_found")),
        ('[{"error": {"message": "bad", "code": 400}}]', ("bad", "400")),
        ('{"detail": [{"loc": ["body", "stop"]}]}', ('[{"loc": ["body", "stop"]}]', "")),
        ('"plain"', ("plain", "")),
        ("upstream\r\nfailed", ("upstream failed", "")),
        ("<html><TITLE>502\nBad Gateway</TITLE></html>", ("502 Bad Gateway", "")),
        ("<p>hello", ("a web page", "")),
        ("\x1b[31mred\x1b[0m", ("[31mred [0m", "")),
        ("", ("", "")),
        ("[" * 100_000, ("[" * 3000, "")),
    ],
)
def test_a_servers_words_are_found_and_made_one_line(body, said):
    """Servers put them in different places; a terminal gets no control characters."""
    assert complaint(body) == said


@pytest.mark.parametrize(
    ("error", "retry", "kind"),
    [
        ({"message": "Overloaded", "type": "overloaded_error"}, True, ModelError),
        ({"message": "bad gateway", "code": 502}, True, ModelError),
        ({"message": "slow down", "code": 429}, True, ModelError),
        ({"message": "who are you", "code": 401}, False, ModelError),
        ({"message": "bad", "type": "invalid_request_error"}, False, ModelError),
        ({"message": "x", "code": "context_length_exceeded"}, False, ContextLengthError),
        ("something", True, ModelError),
        (True, True, ModelError),
    ],
)
def test_an_error_object_is_judged_by_its_code(error, retry, kind):
    """The status is 200 by then; only the object says what happened."""
    read = from_error_object(error)
    assert (read.retry, read.kind) == (retry, kind)


# --- words -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("key hunter2 is wrong", "key [redacted] is wrong"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer [redacted]"),
        ("Incorrect API key provided: sk-ab***yz.", "Incorrect API key provided: [redacted]"),
        ("hunter2hunter2", "[redacted][redacted]"),
        ("a task-list of risk-free words", "a task-list of risk-free words"),
    ],
)
def test_no_secret_stays_in_a_message(text, safe):
    """Neither ours nor anything that looks like one."""
    assert redact(text, ["hunter2", ""]) == safe


def test_a_placeholder_key_does_not_blank_out_words():
    """A key of a letter or two is no secret."""
    assert redact("an xylophone", ["x"]) == "an xylophone"


def test_a_long_text_is_shortened_to_one_line():
    """A message stays readable whatever a server sends."""
    line = shorten(one_line("word \n\t" * 10_000))
    assert len(line) == 300
    assert "\n" not in line
    assert line.endswith("…")
