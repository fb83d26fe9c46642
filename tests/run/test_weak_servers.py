"""Servers of one request at a time, small windows, restarts and slow models, on real sockets.

What is played is what llama-cpp-python's server, llama.cpp's, Ollama's and gateways before them
were seen to send.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from servers.openai_server import OpenAIServer, error, events, model_at, overflow, text

from kernel_agent import Budget, Session
from kernel_agent.errors import ContextLengthError, ModelError
from kernel_agent.records.conversation import Message, RequestOptions
from kernel_agent.records.event import Notice
from kernel_agent.records.store import read_trace
from kernel_agent.records.trace import Condensation

ASK = [Message(role="user", content="Hello?")]
ANSWER = "I add.\n```python\nfinal_answer(6 * 7)\n```"
PREFIX = "share = 240\nshare = share / 24"


@asynccontextmanager
async def asking(url, **settings):
    """Yield what asks a model, and what it told meanwhile."""
    told = []
    model = model_at(url, **{"api_key": "x", "backoff_s": 0.001, **settings})

    async def ask():
        return await model.complete(ASK, RequestOptions(), told.append)

    try:
        yield ask, told
    finally:
        await model.close()


def notices(told):
    return [event.text for event in told if isinstance(event, Notice)]


async def answered(server, out, **settings):
    """Run a question to its end against a server."""
    model = model_at(server.url, **{"api_key": "x", "backoff_s": 0.001, **settings})
    budget = Budget(max_steps=5)
    async with Session(
        model=model, format="fenced", sandbox="interpreter", out=out, budget=budget
    ) as session:
        return await session.run("How much is it?")


# --- a stream in which nothing comes -----------------------------------------------------------


async def test_a_refusal_that_a_stream_hides_is_asked_for_without_streaming():
    """At once, so that the limit is read and the conversation can be shortened."""
    with OpenAIServer([overflow(526, 512)] * 2) as server:
        async with asking(server.url, max_retries=0) as (ask, told):
            with pytest.raises(ContextLengthError) as caught:
                await ask()
        assert [r.body.get("stream", False) for r in server.requests] == [True, False]
    assert (caught.value.limit_tokens, caught.value.used_tokens) == (512, 526)
    assert notices(told) == [
        f"{server.url} ended its reply before anything came: asking without streaming"
    ]


@pytest.mark.parametrize("body", [b"", b": ping\n\n", b"data: [DONE]\n\n"])
async def test_what_a_silent_stream_kept_back_is_the_reply(body):
    """Once; the next call is streamed again."""
    silent = events(body, plainly=error(500, "not asked for"))
    with OpenAIServer([silent, text("whole"), text("next")]) as server:
        async with asking(server.url) as (ask, _):
            assert [(await ask()).content for _ in range(2)] == ["whole", "next"]
        assert [r.body.get("stream", False) for r in server.requests] == [True, False, True]


async def test_a_conversation_that_outgrows_a_small_window_is_shortened_while_streaming(tmp_path):
    """A refusal is no end: the run goes on with less, and answers."""
    long = "I look.\n```python\nfor n in range(400): print(n * 'x', n)\n```"
    with OpenAIServer([*[text(long)] * 2, *[overflow(2100, 2048)] * 2, text(ANSWER)]) as server:
        made = await answered(server, tmp_path / "out")
        sizes = [sum(len(m["content"]) for m in r.body["messages"]) for r in server.requests]
    assert (made.status, made.answer) == ("answered", 42)
    assert sizes[4] < sizes[3] == sizes[2]
    assert any(isinstance(r, Condensation) for r in read_trace(made.trace))


async def test_instructions_that_do_not_fit_are_told_with_their_size_and_the_windows(tmp_path):
    """There is nothing to shorten, and less output would not help."""
    with OpenAIServer([overflow(526, 512)], repeat_last=True) as server:
        made = await answered(server, tmp_path / "out")
    assert made.status == "model_error"
    assert made.message == (
        "the instructions alone need 526 tokens, the model's window is 512: start the server with "
        "a larger context, or use another model"
    )


# --- a stream that is ended early --------------------------------------------------------------


@pytest.mark.parametrize(
    "cut",
    [text("", finish_reason=None), text(None, finish_reason=None), text(PREFIX, finish_reason=None),
     text(ANSWER, finish_reason=None)],
    ids=["empty", "null", "a prefix", "a block"],
)  # fmt: skip
async def test_an_endpoint_that_gives_reasons_ended_a_reply_without_one_too_early(cut):
    """Whatever stands in it: it is asked for again, and the notice names the server."""
    with OpenAIServer([text("first"), cut, text("whole")]) as server:
        async with asking(server.url) as (ask, told):
            assert [(await ask()).content for _ in range(2)] == ["first", "whole"]
        assert len(server.requests) == 3
    (notice,) = notices(told)
    assert notice.startswith(
        f"{server.url} ended its reply early (does it serve one request at a time?): trying again"
    )


async def test_an_empty_reply_without_a_reason_is_no_reply_however_often(tmp_path):
    """The run ends as the server's fault; the model is not told that it wrote no code."""
    with OpenAIServer([text("", finish_reason=None)], repeat_last=True) as server:
        made = await answered(server, tmp_path / "out", max_retries=2)
        asked = [r.body["messages"] for r in server.requests]
    assert made.status == "model_error"
    assert "one request at a time?), 3 times: ask it from one place at a time" in made.message
    assert len(asked) == 3
    assert asked[0] == asked[1] == asked[2]


async def test_a_prefix_of_bare_code_never_runs(tmp_path):
    """An endpoint that never gives reasons may have ended it anywhere: `n / 24` of `n / 240`.

    It is asked again, until it is clear that no reason will come; then it counts as cut off.
    """
    with OpenAIServer(
        [*[text(PREFIX, finish_reason=None)] * 3, text(ANSWER, finish_reason=None)]
    ) as server:
        made = await answered(server, tmp_path / "out")
    assert (made.status, made.answer, made.message) == ("answered", 42, "")
    [retry] = made.steps[0].retries
    assert retry.content == PREFIX
    assert "cut off" in retry.feedback


@pytest.mark.parametrize(
    ("content", "closed"),
    [
        (ANSWER, True),
        ("```python\nx = 1\n```\nThis sets x.", True),
        ("```\nimport os\nprint(os)\n```", True),
        ("<execute>\nprint(1)\n</execute>", True),
        ('{"thought": "", "code": "print(1)"}', True),
        ('<tool_call>\n{"name": "python", "arguments": {"code": "f()"}}\n</tool_call>', True),
        ("print(1)", False),
        ("x = {'a': 1}", False),
        ("```python\nx = 1", False),
        ('{"thought": "", "code": "print(1', False),
        ("Done.", False),
    ],
)
async def test_without_a_reason_a_reply_is_whole_where_it_closes_what_it_opened(content, closed):
    """Else it counts as cut off, of which nothing runs."""
    with OpenAIServer([text(content, finish_reason=None)], repeat_last=True) as server:
        async with asking(server.url) as (ask, _):
            reply = await ask()
        assert len(server.requests) == (1 if closed else 3)
    assert reply.content == content
    assert (reply.finish_reason != "length") is closed


async def test_a_native_call_without_a_reason_is_whole_where_its_arguments_are():
    """The object closes them; code that stands there bare may go on."""
    for arguments, reason in (('{"code": "f()"}', None), ("f()", "length"), ('{"code', "length")):
        call = {
            "id": "a",
            "type": "function",
            "function": {"name": "python", "arguments": arguments},
        }
        cut = text(None, tool_calls=[call], finish_reason=None)
        with OpenAIServer([cut], repeat_last=True) as server:
            async with asking(server.url) as (ask, _):
                assert (await ask()).finish_reason == reason


async def test_two_that_ask_a_server_of_one_request_at_a_time_both_get_their_replies():
    """Each ends the other's stream; what is asked for in one piece, nobody ends."""
    behaviour = text("word " * 12, chunk_chars=5, chunk_delay_s=0.005)
    with OpenAIServer([behaviour], repeat_last=True, one_slot=True) as server:
        settings = {"max_retries": 12, "backoff_s": 0.01}
        async with asking(server.url, **settings) as one, asking(server.url, **settings) as two:
            replies = await asyncio.gather(*(ask() for ask, _ in (one, two) for _ in range(1)))
    assert [reply.content for reply in replies] == ["word " * 12] * 2
    assert [reply.finish_reason for reply in replies] == ["stop", "stop"]


# --- a server that goes away -------------------------------------------------------------------


@pytest.mark.parametrize("before", [0, 1], ids=["in its first reply", "later"])
async def test_a_server_that_restarts_is_waited_for(before):
    """The run does not notice but for two notices: the break, and that it is waited for."""
    whole, half = [text("before")] * before, text("half " * 99, cut_after=600)
    with OpenAIServer([*whole, half]) as first:
        port = int(first.url.split(":")[2].split("/")[0])
        async with asyncio.timeout(30), asking(first.url) as (ask, told):
            for _ in whole:
                assert (await ask()).content == "before"
            waiting = asyncio.ensure_future(ask())
            while len(first.requests) < before + 1:
                await asyncio.sleep(0.001)
            await asyncio.to_thread(first.__exit__)
            while not any("waiting" in notice for notice in notices(told)):
                await asyncio.sleep(0.001)
            again = [error(503, "Loading model"), error(503, "Loading model"), text("after")]
            with OpenAIServer(again, port=port):
                assert (await waiting).content == "after"
    waits = [notice for notice in notices(told) if "waiting for it to come back" in notice]
    assert waits == [
        f"{first.url} refused the connection: waiting for it to come back, 60 s at most"
    ]


async def test_a_server_that_does_not_come_back_is_given_up_with_all_that_was_met():
    """What it did is told kind by kind."""
    with OpenAIServer([text("before")]) as server:
        async with asyncio.timeout(30), asking(server.url, restart_s=0.05) as (ask, told):
            await ask()
            await asyncio.to_thread(server.__exit__)
            with pytest.raises(
                ModelError, match=r"refused the connection, \d+ times: is the server"
            ):
                await ask()
    assert len([n for n in notices(told) if "waiting for it" in n]) == 1


async def test_stopping_ends_the_wait_for_a_server_at_once():
    """Ctrl-C, Stop and the limits cancel the call, wherever it is."""
    with OpenAIServer([text("before")]) as server:
        async with asyncio.timeout(30), asking(server.url) as (ask, told):
            await ask()
            await asyncio.to_thread(server.__exit__)
            waiting = asyncio.ensure_future(ask())
            while not notices(told):
                await asyncio.sleep(0.001)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(waiting, timeout=5)


# --- a model that is slow ----------------------------------------------------------------------


async def test_a_reply_in_one_piece_that_takes_too_long_is_asked_for_once():
    """The server goes on working on each; the message names the settings."""
    with OpenAIServer([text("late", delay_s=60.0)], repeat_last=True) as server:
        async with asking(server.url, stream=False, timeout_s=0.1) as (ask, told):
            with pytest.raises(ModelError) as caught:
                await ask()
        assert len(server.requests) == 1
    assert str(caught.value).endswith(
        "nothing for 0.1 s: raise request_timeout_s, or let replies come piece by piece (stream)"
    )
    assert notices(told) == []


# --- a window that is full ---------------------------------------------------------------------


def cut_at(prompt, written, content="I think " * 200):
    """A reply that ended because the window was full."""
    usage = {"prompt_tokens": prompt, "completion_tokens": written}
    return text(content, finish_reason="length", usage=usage)


async def test_a_reply_that_fills_the_window_shortens_the_conversation(tmp_path):
    """Before it overflows; what was cut off is shown back in part, and stays whole in the trace."""
    long = "I look.\n```python\nfor n in range(60): print(n * 'x')\n```"
    with OpenAIServer([*[text(long)] * 2, cut_at(1904, 144), text(ANSWER)]) as server:
        made = await answered(server, tmp_path / "out")
        cut, again = (r.body["messages"] for r in server.requests[2:])
    assert (made.status, made.answer) == ("answered", 42)
    [shortened] = [r for r in read_trace(made.trace) if isinstance(r, Condensation)][:1]
    assert shortened.reason == "a reply had no room left in the model's window"
    assert size(again) < size(cut)
    assert len(again[-2]["content"]) <= 400
    assert made.steps[-1].retries[0].content == "I think " * 200


async def test_a_reply_that_the_user_bounded_says_nothing_of_the_window(tmp_path):
    """Nor does one that met a bound of the server's own."""
    long = "I look.\n```python\nfor n in range(60): print(n * 'x')\n```"
    for name, behaviour, extra in (
        ("own", cut_at(1904, 144), {"max_tokens": 144}),
        ("server's", cut_at(1905, 4096), {}),
    ):
        with OpenAIServer([*[text(long)] * 2, behaviour, text(ANSWER)]) as server:
            made = await answered(server, tmp_path / name, extra_body=extra)
        assert made.status == "answered"
        assert not [r for r in read_trace(made.trace) if isinstance(r, Condensation)]


async def test_a_window_without_room_for_a_reply_is_told(tmp_path):
    """The instructions fit, and nothing else does."""
    with OpenAIServer([cut_at(490, 22)], repeat_last=True) as server:
        made = await answered(server, tmp_path / "out")
        assert len(server.requests) == 1
    assert made.status == "model_error"
    assert "the instructions alone take 490 of the 512 tokens of the model's window" in made.message


async def test_a_re_ask_that_does_not_fit_is_left_out(tmp_path):
    """The conversation itself fits: it is asked for as at first, without what was unreadable."""
    with OpenAIServer([text("Hm."), *[overflow(530, 512)] * 2, text(ANSWER)]) as server:
        made = await answered(server, tmp_path / "out")
        asked = [r.body["messages"] for r in server.requests]
    assert (made.status, made.answer) == ("answered", 42)
    assert asked[3] == asked[0]
    assert len(asked[1]) == len(asked[0]) + 2


def size(messages):
    """Return how long a request's messages are."""
    return sum(len(message["content"]) for message in messages)
