"""From messages to the bytes of a request, and from reported tokens to usage."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from kernel_agent.errors import UsageError
from kernel_agent.models.openai import sees_images
from kernel_agent.models.request import MessageCache, request_body, request_options
from kernel_agent.models.usage import Prices, estimate_usage, read_usage, usage_of
from kernel_agent.records.conversation import Image, Message, Reply, RequestOptions, ToolCall, Usage

PNG = Image(media_type="image/png", data="AAAA", width=300, height=250)
PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def sent(messages, *, images=False, cache=None):
    body = request_body({"model": "m"}, messages, cache or MessageCache(), images=images)
    return json.loads(body)["messages"]


@pytest.mark.parametrize(
    ("message", "images", "wire"),
    [
        (
            Message(role="system", content="Be brief."),
            False,
            {"role": "system", "content": "Be brief."},
        ),
        (
            Message(role="user", content="plot", images=(PNG,)),
            True,
            {"role": "user", "content": [{"type": "text", "text": "plot"}, PART]},
        ),
        (
            Message(role="user", content="plot", images=(PNG,)),
            False,
            {"role": "user", "content": "plot"},
        ),
        (
            Message(role="user", content="", images=(PNG,)),
            True,
            {"role": "user", "content": [PART]},
        ),
        (
            Message(role="assistant", content="done", images=(PNG,)),
            True,
            {"role": "assistant", "content": "done"},
        ),
        (
            Message(
                role="assistant",
                content="",
                tool_calls=(ToolCall(id="a", name="f", arguments="{"),),
            ),
            False,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{"}}
                ],
            },
        ),
        (
            Message(role="tool", content="3", tool_call_id="a"),
            False,
            {"role": "tool", "content": "3", "tool_call_id": "a"},
        ),
    ],
)
def test_a_message_has_one_wire_form(message, images, wire):
    """Each role and field stands where the protocol wants it."""
    assert sent([message], images=images) == [wire]


def test_pictures_of_tool_answers_follow_the_last_answer_of_the_turn():
    """Nothing stands between the answers to one turn's calls, and no picture is lost."""
    answers = [Message(role="tool", content=n, tool_call_id=n, images=(PNG,)) for n in ("a", "b")]
    after = Message(role="user", content="go on")
    roles_and_pictures = [
        (m["role"], m["content"].count(PART) if isinstance(m["content"], list) else 0)
        for m in sent([*answers, after, answers[0]], images=True)
    ]
    assert roles_and_pictures == [
        ("tool", 0), ("tool", 0), ("user", 2), ("user", 0), ("tool", 0), ("user", 1),
    ]  # fmt: skip


@settings(deadline=None, max_examples=examples(50))  # a loaded machine is not a wrong encoder
@given(st.lists(st.text(), max_size=4))
def test_any_text_arrives_as_it_was(texts):
    """Quotes, control characters and every script survive; surrogates cannot occur here."""
    messages = [Message(role="user", content=text) for text in texts]
    assert [m["content"] for m in sent(messages)] == texts


def test_a_lone_surrogate_does_not_stop_a_request():
    """UTF-8 has no form for it; the rest of the text still arrives."""
    assert sent([Message(role="user", content="a\ud800b")])[0]["content"] == "a?b"


def test_a_message_is_turned_into_json_once():
    """The same object gives the same bytes object; an equal one gives equal bytes."""
    cache = MessageCache()
    message = Message(role="user", content="x" * 1000)
    first = cache.encode(message, images=False)
    assert cache.encode(message, images=False) is first
    assert cache.encode(Message(role="user", content="x" * 1000), images=False) == first


def test_the_cache_is_bounded_and_forgets_the_least_recently_used():
    """However long a run is, the ready bytes stay within their allowance."""
    cache = MessageCache(max_bytes=3500)
    messages = [Message(role="user", content=str(n) * 1000) for n in range(4)]
    encoded = [cache.encode(message, images=False) for message in messages]
    assert cache.encode(messages[3], images=False) is encoded[3]
    assert cache.encode(messages[0], images=False) is not encoded[0]
    assert cache.encode(messages[0], images=False) == encoded[0]


def test_pictures_are_cached_apart_from_the_same_message_without_them():
    """A server that turns out to refuse pictures is not sent them from the cache."""
    cache, message = MessageCache(), Message(role="user", content="x", images=(PNG,))
    assert sent([message], images=True, cache=cache) != sent([message], images=False, cache=cache)


def test_only_the_options_that_a_format_asks_for_are_sent():
    """Empty options add nothing: many servers refuse fields that they do not know."""
    assert request_options(RequestOptions()) == {}
    options = RequestOptions(
        response_format={"type": "json_object"}, tools=({"type": "function"},), stop=("x",)
    )
    assert request_options(options) == {
        "response_format": {"type": "json_object"},
        "tools": [{"type": "function"}],
        "stop": ["x"],
    }


@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        (None, None),
        ({}, None),
        ("many", None),
        ({"prompt_tokens": 0, "completion_tokens": 0}, None),
        ({"prompt_tokens": 5, "completion_tokens": None}, Usage(prompt_tokens=5, calls=1)),
        ({"prompt_tokens": 5.0, "completion_tokens": -3}, Usage(prompt_tokens=5, calls=1)),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "prompt_tokens_details": {"cached_tokens": 64},
                "completion_tokens_details": {"reasoning_tokens": 12},
            },
            Usage(
                prompt_tokens=100,
                completion_tokens=20,
                cached_tokens=64,
                reasoning_tokens=12,
                calls=1,
            ),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": None},
            Usage(prompt_tokens=9, completion_tokens=1, calls=1),
        ),
        (
            {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 4},
            Usage(prompt_tokens=9, completion_tokens=1, cached_tokens=4, calls=1),
        ),
    ],
)
def test_reported_usage_is_read_in_every_form_met(reported, usage):
    """Missing, null, zero and odd counts never break a run."""
    assert read_usage(reported) == usage


def test_an_estimate_counts_text_calls_and_pictures_and_says_that_it_is_one():
    """Four characters a token; a picture by its size."""
    call = ToolCall(id="a", name="f", arguments="abcd")
    messages = [Message(role="user", content="12345", images=(PNG,), tool_calls=(call,))]
    usage = estimate_usage(messages, Reply(content="abcd", reasoning="ab", tool_calls=(call,)))
    assert usage == Usage(
        prompt_tokens=3 + 100, completion_tokens=3, reasoning_tokens=1, calls=1, estimated=True
    )


def test_an_estimate_counts_the_schemas_that_go_with_a_request():
    """Else a protocol that describes its tools there would seem to cost less than it does."""
    schema = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    asked = [Message(role="user", content="1234")]
    plain = usage_of(None, asked, Reply(content=""), None)
    offered = usage_of(None, asked, Reply(content=""), None, RequestOptions(tools=(schema,)))
    more = offered.prompt_tokens - plain.prompt_tokens
    assert more == pytest.approx(len(json.dumps([schema])) / 4, abs=1)
    counted = {"prompt_tokens": 9, "completion_tokens": 1}
    told = usage_of(counted, asked, Reply(content=""), None, RequestOptions(tools=(schema,)))
    assert (told.prompt_tokens, told.estimated) == (9, False)


def test_cost_follows_the_configured_prices_only():
    """Cached tokens have their own price, or the prompt's; without prices there is no cost."""
    reported = {
        "prompt_tokens": 1_000_000,
        "completion_tokens": 500_000,
        "prompt_tokens_details": {"cached_tokens": 400_000},
    }
    reply = Reply(content="")
    dear = Prices(prompt_per_million=2.0, completion_per_million=8.0)
    cached = Prices(prompt_per_million=2.0, completion_per_million=8.0, cached_per_million=0.5)
    assert usage_of(reported, [], reply, dear).cost_usd == pytest.approx(6.0)
    assert usage_of(reported, [], reply, cached).cost_usd == pytest.approx(5.4)
    assert usage_of(reported, [], reply, None).cost_usd is None


def test_a_negative_price_is_refused():
    """The caller's mistake is named."""
    with pytest.raises(UsageError, match="completion_per_million must be 0 or more"):
        Prices(prompt_per_million=1.0, completion_per_million=-1.0)


@pytest.mark.parametrize(
    "name",
    [
        "gpt-4o", "gpt-4o-mini-2024-07-18", "openai/gpt-4.1", "gpt-5-mini", "o3", "o4-mini", "o1",
        "claude-3-5-sonnet-20241022", "anthropic/claude-sonnet-4", "gemini-2.5-flash",
        "qwen2.5-vl-7b-instruct", "Qwen/Qwen2.5-VL-72B", "qwen3-vl:8b", "llava:13b",
        "pixtral-12b", "llama-3.2-11b-vision", "llama4", "gemma3:12b", "gpt-4-turbo",
    ],
)  # fmt: skip
def test_models_known_to_see_are_sent_pictures(name):
    """The well-known families, in the spellings of their hosts."""
    assert sees_images(name)


@pytest.mark.parametrize(
    "name",
    [
        "gpt-3.5-turbo", "gpt-4", "o3-mini", "o1-mini", "gpt-4o-audio-preview", "claude-2.1",
        "gpt-oss-120b", "deepseek-chat", "deepseek-r1", "qwen2.5-coder", "llama3.1:8b",
        "mistral-large", "phi-4", "gemini-embedding-001", "gemma3:1b", "scripted", "offline", "",
    ],
)  # fmt: skip
def test_an_unknown_model_is_not_sent_pictures(name):
    """The text of an observation describes its pictures, so a no is always safe."""
    assert not sees_images(name)
