"""The OpenAI-compatible model against a real server on this machine, working and broken."""

import asyncio
import json
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import openai
import pytest
import trustme
from servers.openai_server import (
    FAULTS,
    OpenAIServer,
    error,
    events,
    model_at,
    refused_url,
    text,
    too_many,
    unanswered_url,
)

from kernel_agent.errors import ContextLengthError, ModelError, UsageError
from kernel_agent.models.errors import from_exception
from kernel_agent.models.openai import OpenAIModel
from kernel_agent.models.usage import Prices
from kernel_agent.records.conversation import Image, Message, Reply, RequestOptions, ToolCall, Usage
from kernel_agent.records.event import Notice, ReplyText

KEY = "sk-test-1234567890"
ASK = (Message(role="system", content="Be brief."), Message(role="user", content="Hello?"))
PNG = Image(media_type="image/png", data="AAAA", width=10, height=10)
CALL = {"id": "a", "type": "function", "function": {"name": "python", "arguments": '{"code": "1"}'}}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    """No key, address or proxy of the machine that runs the tests."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


class Asked:
    """A model, what it was told to say, and what came of one or more calls."""

    def __init__(self, base_url, **settings):
        self.events = []
        settings = {"name": "test-model", "api_key": KEY, "backoff_s": 0.001, **settings}
        self.model = model_at(base_url, **settings)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        await self.model.close()

    async def ask(self, messages=ASK, options=None):
        return await self.model.complete(messages, options or RequestOptions(), self.events.append)

    @property
    def notices(self):
        return [event.text for event in self.events if isinstance(event, Notice)]

    @property
    def shown(self):
        shown = (event for event in self.events if isinstance(event, ReplyText))
        return "".join(e.text for e in shown if not (e.reasoning or e.call))


async def ask(*behaviours, options=None, messages=ASK, **settings):
    """Return the reply to one call, and what went over the wire."""
    with OpenAIServer(behaviours) as server:
        async with Asked(server.url, **settings) as asked:
            return await asked.ask(messages, options), asked, server


async def fail(*behaviours, **settings):
    """Return the error that one call ends with, and what went over the wire."""
    with OpenAIServer(behaviours, repeat_last=True) as server:
        async with Asked(server.url, **settings) as asked:
            with pytest.raises(ModelError) as caught:
                await asked.ask()
            line = str(caught.value)
            assert "\n" not in line
            assert KEY not in line + "".join(asked.notices)
            assert server.url in line
            return caught.value, asked, server


# --- what works ------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
async def test_a_reply_is_whole_with_its_reasoning_calls_and_usage(stream):
    """The same reply, streamed or not."""
    content = "Thought é\u2028\n```python\nprint('…')\n```"
    behaviour = text(
        content,
        reasoning="Let me see.",
        tool_calls=[CALL],
        chunk_chars=3,
        usage={
            "prompt_tokens": 30,
            "completion_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 20},
        },
    )
    prices = Prices(prompt_per_million=1.0, completion_per_million=10.0, cached_per_million=0.5)
    reply, asked, server = await ask(behaviour, stream=stream, prices=prices)
    assert reply == Reply(
        content=content,
        reasoning="Let me see.",
        tool_calls=(ToolCall(id="a", name="python", arguments='{"code": "1"}'),),
        finish_reason="tool_calls",
        usage=Usage(
            prompt_tokens=30,
            completion_tokens=9,
            cached_tokens=20,
            calls=1,
            cost_usd=(10 * 1.0 + 20 * 0.5 + 9 * 10.0) / 1e6,
        ),
    )
    assert asked.shown == content
    assert (len(asked.events) > 4) is stream
    assert server.requests[0].body.get("stream", False) is stream


async def test_the_request_is_what_the_protocol_wants():
    """Messages, options, the user's own fields, the key and the user's headers."""
    schema = {"type": "json_schema", "json_schema": {"name": "action"}}
    _, _, server = await ask(
        text("ok"),
        options=RequestOptions(response_format=schema, stop=("</code>",)),
        headers={"x-team": "blue"},
        extra_body={"temperature": 0},
    )
    (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.headers["x-team"] == "blue"
    assert request.headers["content-type"] == "application/json"
    assert request.body == {
        "model": "test-model",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello?"},
        ],
        "response_format": schema,
        "stop": ["</code>"],
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_no_key_is_sent_where_none_is_needed():
    """A local server gets no made-up Authorization header; a given one is kept."""
    _, _, server = await ask(text("ok"), api_key=None)
    assert "authorization" not in server.requests[0].headers
    _, _, server = await ask(text("ok"), api_key=None, headers={"authorization": "Basic abcd"})
    assert server.requests[0].headers["authorization"] == "Basic abcd"


async def test_a_server_that_answers_otherwise_than_asked_is_understood():
    """Plain JSON to a streaming request, and a stream to a plain one."""
    for stream in (True, False):
        reply, _, _ = await ask(text("as I like", stream=not stream), stream=stream)
        assert reply.content == "as I like"


async def test_one_connection_serves_all_calls():
    """Streams are read to their end, so that the next call need not connect again."""
    with OpenAIServer([text("a"), text("b", stream=False), text("c")]) as server:
        async with Asked(server.url) as asked:
            assert [(await asked.ask()).content for _ in range(3)] == ["a", "b", "c"]
        assert server.connections == 1


async def test_a_stream_that_is_never_closed_ends_with_its_reply():
    """A server that says [DONE] and then keeps the line open holds nobody up."""
    reply, _, _ = await ask(text("done", hold_open_s=3600.0))
    assert reply.content == "done"


async def test_usage_is_estimated_when_the_endpoint_reports_none():
    """Token caps hold with such an endpoint too; the record says that it is an estimate."""
    reply, _, _ = await ask(text("12345678", usage=None))
    assert reply.usage == Usage(prompt_tokens=4, completion_tokens=2, calls=1, estimated=True)


async def test_an_empty_reply_is_a_reply():
    """``content: null`` without calls goes to the format, which asks again."""
    for stream in (True, False):
        reply, _, _ = await ask(text(None), stream=stream)
        assert reply.content == ""


@pytest.mark.parametrize("stream", [True, False])
async def test_ten_megabytes_of_reply_are_cut_and_marked(stream):
    """It ends as "length", so that it never runs."""
    reply, _, _ = await ask(FAULTS["long"](), stream=stream)
    assert len(reply.content) == 8_000_000
    assert reply.finish_reason == "length"


async def test_pictures_go_to_models_that_accept_them_only():
    """To the others the text describes them."""
    messages = (Message(role="user", content="look", images=(PNG,)),)
    _, _, server = await ask(text("ok"), messages=messages, name="gpt-4o")
    assert server.requests[0].body["messages"][0]["content"][1]["type"] == "image_url"
    _, _, server = await ask(text("ok"), messages=messages)
    assert server.requests[0].body["messages"][0]["content"] == "look"


async def test_a_proxy_in_the_environment_is_not_used_for_this_machine(monkeypatch):
    """Local servers work although HTTP_PROXY names a proxy and NO_PROXY does not name them."""
    with refused_url() as dead_proxy:
        for name in ("HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, dead_proxy)
        reply, _, _ = await ask(text("direct"))
    assert reply.content == "direct"


async def test_a_proxy_in_the_environment_is_used_for_other_machines(monkeypatch):
    """The user's environment decides, as for every other program."""
    with OpenAIServer([text("through the proxy")]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1"))
        async with Asked("http://model.invalid/v1") as asked:
            assert (await asked.ask()).content == "through the proxy"
        assert proxy.requests[0].headers["host"] == "model.invalid"


async def test_a_pasted_address_works_with_its_tail_and_its_query():
    """The whole URL of the request, and the query that some gateways want."""
    with OpenAIServer([text("ok")]) as server:
        async with Asked(server.url + "/chat/completions?api-version=1") as asked:
            await asked.ask()
        assert server.requests[0].path == "/v1/chat/completions?api-version=1"


async def test_address_and_key_come_from_the_environment(monkeypatch):
    """The variables that every OpenAI-compatible tool reads."""
    with OpenAIServer([text("ok")]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-from-environment\n")
        async with Asked(None, api_key=None) as asked:
            await asked.ask()
        assert server.requests[0].headers["authorization"] == "Bearer sk-from-environment"


async def test_preparing_beforehand_changes_nothing_but_the_wait():
    """Also at the same time as the first call, and also when it cannot succeed."""
    with OpenAIServer([text("ok")]) as server:
        async with Asked(server.url) as asked:
            _, reply = await asyncio.gather(asked.model.prepare(), asked.ask())
        assert reply.content == "ok"
    async with Asked(None, api_key=None) as keyless:
        await keyless.model.prepare()


# --- what is tried again -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [
        too_many(retry_after="0"),
        too_many(),
        FAULTS["500"](),
        FAULTS["503"](),
        FAULTS["cut"](),
        FAULTS["broken-json"](),
        events(b'data: {"error": {"message": "Overloaded"}}\n\n'),
    ],
    ids=["429 with Retry-After", "429", "500", "503", "cut", "half JSON", "error in the stream"],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_passing_trouble_costs_a_notice_and_no_more(trouble, stream):
    """The request is made again, the user is told, and the reply is whole."""
    reply, asked, server = await ask(trouble, text("whole"), stream=stream)
    assert reply.content == "whole"
    assert len(server.requests) == 2
    (notice,) = asked.notices
    assert "trying again in" in notice
    assert "try 2 of 4" in notice
    assert server.requests[0].body == server.requests[1].body


async def test_the_server_says_how_long_to_wait():
    """Retry-After comes before our own backoff."""
    _, asked, _ = await ask(too_many(retry_after="0.02"), text("ok"), backoff_s=30.0)
    assert "trying again in 0.02 s" in asked.notices[0]


async def test_tries_are_bounded_and_counted():
    """429 for ever ends after the tries that were allowed, with what to do."""
    caught, asked, server = await fail(too_many(), max_retries=2)
    assert len(server.requests) == 3
    assert len(asked.notices) == 2
    assert "too many requests (429: Rate limit reached), 3 times: wait" in str(caught)
    assert caught.status_code == 429


async def test_a_stream_that_always_breaks_off_is_an_error():
    """Half a reply is never returned as a whole one."""
    caught, _, server = await fail(FAULTS["cut"](), max_retries=1)
    assert "broke off before its reply was whole" in str(caught)
    assert len(server.requests) == 2


async def test_a_connection_lost_after_the_last_word_loses_nothing():
    """The finish reason had come: the reply is whole although the stream's end is missing."""
    body = b"".join(
        b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"
        for choice in (
            {"delta": {"content": "whole"}, "finish_reason": None},
            {"delta": {}, "finish_reason": "stop"},
        )
    )
    reply, asked, _ = await ask(events(body + b"data: [DONE]\n\n", cut_after=len(body)))
    assert reply.content == "whole"
    assert asked.notices == []


async def test_nothing_listens_there():
    """Refused: says so, and what to check."""
    with refused_url() as url:
        async with Asked(url, max_retries=1) as asked:
            with pytest.raises(ModelError, match=r"refused the connection, 2 times: is the server"):
                await asked.ask()
            assert url in asked.notices[0]


async def test_a_host_that_never_accepts_is_told_from_one_that_never_answers():
    """Connecting and reading have times of their own, and messages of their own."""
    with unanswered_url() as url:
        async with Asked(url, connect_timeout_s=0.05, max_retries=0) as asked:
            with pytest.raises(ModelError, match=r"did not accept a connection within 0\.05 s"):
                await asked.ask()
    caught, _, _ = await fail(FAULTS["hang"](), timeout_s=0.05, max_retries=1)
    assert "sent nothing for 0.05 s, 2 times" in str(caught)


# --- what is not ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("401", r"refused the key \(401: Incorrect API key provided\): check the key \("),
        ("403", r"refused access \(403"),
        ("404", r"does not know the model test-model .*: check --model"),
        ("not-json", r"not a chat reply \(text/html: .*check --base-url"),
        ("no-choices", "without choices"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_lasting_trouble_is_said_at_once(fault, said, stream):
    """One request, one line, what to do."""
    caught, asked, server = await fail(FAULTS[fault](), stream=stream)
    assert len(server.requests) == 1
    assert asked.notices == []
    with pytest.raises(ModelError, match=said):
        raise caught


async def test_a_conversation_that_is_too_long_has_an_error_of_its_own():
    """The loop can shorten it; nothing else is worth trying."""
    caught, _, server = await fail(FAULTS["context"]())
    assert isinstance(caught, ContextLengthError)
    assert len(server.requests) == 1


async def test_no_key_is_said_before_anything_is_sent():
    """OpenAI's own endpoint needs one; the message names the ways out."""
    async with Asked(None, api_key=None) as asked:
        with pytest.raises(ModelError, match=r"no API key: set OPENAI_API_KEY.*--model offline"):
            await asked.ask()


async def test_https_to_a_server_that_speaks_http_says_so():
    """A wrong scheme is not a passing trouble."""
    with OpenAIServer([]) as server:
        async with Asked(server.url.replace("http:", "https:")) as asked:
            with pytest.raises(ModelError, match=r"secure connection .*check http:// or https://"):
                await asked.ask()
            assert asked.notices == []


@pytest.mark.parametrize(
    "settings",
    [
        {"api_key": KEY},
        {"api_key": None, "headers": {"X-Api-Key": KEY}},
        {"api_key": None, "headers": {"Authorization": f"Bearer {KEY}"}},
    ],
)
async def test_no_message_holds_a_secret(settings):
    """Not even when the server sends back what it was sent."""
    echo = error(401, f"Wrong: {KEY}; Authorization: Bearer {KEY}; X-Api-Key={KEY}")
    caught, _, _ = await fail(echo, **settings)
    assert "Wrong: [redacted]" in str(caught)


async def test_a_secret_is_not_shown_in_part_either():
    """A long complaint is shortened after the secrets are out of it, wherever they stood."""
    key = "k" * 40
    for before in range(150, 300, 10):
        caught, _, _ = await fail(error(400, "x" * before + key), api_key=key)
        assert "kk" not in str(caught)


async def test_a_password_in_the_address_is_not_shown():
    """Where the endpoint is may be said, how to get in may not."""
    with refused_url() as url:
        secret = url.replace("http://", "http://me:passw0rd@")
        async with Asked(secret, max_retries=0) as asked:
            with pytest.raises(ModelError) as caught:
                await asked.ask()
    assert url in str(caught.value)
    assert "passw0rd" not in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"base_url": "localhost:8000"},
        {"base_url": "ftp://host/v1"},
        {"base_url": "http://"},
        {"base_url": "http://host:port/v1"},
        {"base_url": "http://[::1/v1"},
        {"name": " "},
        {"api_key": "sk-…"},
        {"headers": {"X-A": "a\nb"}},
    ],
)
def test_what_cannot_be_sent_is_refused_when_the_model_is_made(settings):
    """The caller's mistakes are found before a kernel starts."""
    with pytest.raises(UsageError):
        OpenAIModel(settings.pop("name", "m"), **settings)


async def test_a_proxy_setting_that_cannot_be_used_is_named(monkeypatch):
    """It comes from the environment, so the user may not think of it."""
    monkeypatch.setenv("ALL_PROXY", "nonsense://x")
    async with Asked("http://model.invalid/v1") as asked:
        with pytest.raises(ModelError, match=r"cannot be connected to .*: check .*ALL_PROXY"):
            await asked.ask()


# --- on the way ------------------------------------------------------------------------------


def connection_error(cause):
    """The client's error for something that went wrong while connecting."""
    error = openai.APIConnectionError(request=None)
    error.__cause__ = cause
    return error


def read_exception(error):
    return from_exception(error, model="m", timeout_s=5.0, connect_timeout_s=2.0, now=0.0)


@pytest.mark.parametrize(
    ("cause", "what", "retry"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "no such host", False),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), "no such host", True),
        (ConnectionRefusedError(111, "refused"), "refused the connection", True),
        (ExceptionGroup("all", [ConnectionRefusedError(), OSError()]), "refused", True),
        (ssl.SSLCertVerificationError(1, "self-signed certificate"), "self-signed", False),
        (ssl.SSLEOFError(8, "EOF occurred"), "broke off", True),
        (ConnectionResetError(104, "reset by peer"), "broke off", True),
    ],
)
def test_what_goes_wrong_on_the_way_is_named_by_its_first_cause(cause, what, retry):
    """The client only says "Connection error"; the user is told which."""
    read = read_exception(connection_error(cause))
    assert what in read.what
    assert read.retry is retry


def test_a_bug_is_not_taken_for_the_endpoints_fault():
    """Only the client library's own errors are translated."""
    assert read_exception(KeyError("x")) is None
    assert read_exception(OSError("disk")) is None


# --- options that a server does not know ---------------------------------------------------------


async def test_an_option_that_the_server_does_not_know_is_left_out_and_said_once():
    """The next call does not try it again."""
    refuses = ("stream_options", "response_format")
    options = RequestOptions(response_format={"type": "json_object"})
    with OpenAIServer([text("a", refuses=refuses), text("b", refuses=refuses)]) as server:
        async with Asked(server.url, max_retries=0) as asked:
            first = await asked.ask(options=options)
            second = await asked.ask(options=options)
    assert (first.content, second.content) == ("a", "b")
    assert len(server.requests) == 4
    assert [notice.partition(" does")[2] for notice in asked.notices] == [
        " not accept stream_options: left out",
        " not accept response_format: left out",
    ]


async def test_streaming_itself_is_left_out_where_it_is_not_allowed():
    """Some accounts may not stream; the reply then comes in one piece."""
    no = error(400, "Your organization must be verified to stream this model.")
    reply, _, server = await ask(no, text("in one piece"))
    assert reply.content == "in one piece"
    assert "stream" not in server.requests[1].body
    assert "stream_options" not in server.requests[1].body


async def test_pictures_are_left_out_when_the_model_turns_out_not_to_see():
    """The text that describes them goes on alone."""
    no = error(400, "Invalid content type. image_url is only supported by certain models.")
    messages = (Message(role="user", content="look", images=(PNG,)),)
    reply, asked, server = await ask(no, text("ok"), messages=messages, accepts_images=True)
    assert reply.content == "ok"
    assert server.requests[1].body["messages"][0]["content"] == "look"
    assert asked.model.accepts_images is False
    assert "pictures" in asked.notices[0]


async def test_an_option_that_matters_is_not_left_out():
    """A complaint about something else is the user's to solve."""
    caught, asked, _ = await fail(error(400, "Invalid value for 'temperature'"))
    assert "'temperature'" in str(caught)
    assert asked.notices == []


# --- stopping ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "has_come_so_far"),
    [
        (FAULTS["hang"](), lambda server, asked: server.requests),
        (text("slow " * 9, chunk_delay_s=3600.0, chunk_chars=5), lambda _, asked: asked.shown),
        (too_many(retry_after="3600"), lambda server, asked: asked.notices),
    ],
    ids=["before the reply", "within the reply", "between two tries"],
)
async def test_cancelling_ends_a_call_at_once(behaviour, has_come_so_far):
    """Wherever it is: it does not wait for the server, nor for the next try."""
    with OpenAIServer([behaviour]) as server:
        async with Asked(server.url) as asked:
            task = asyncio.create_task(asked.ask())
            while not has_come_so_far(server, asked):
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, timeout=5)


async def test_an_error_of_the_live_view_is_not_taken_for_the_endpoints():
    """A bug in a callback is seen as what it is."""

    def broken(event):
        raise KeyError("in the view")

    with OpenAIServer([text("ok")]) as server:
        async with Asked(server.url) as asked:
            with pytest.raises(KeyError, match="in the view"):
                await asked.model.complete(ASK, RequestOptions(), broken)


# --- weight --------------------------------------------------------------------------------------


def test_the_models_are_imported_without_the_client_library():
    """The import of openai costs a second; it waits until a call needs it."""
    code = (
        "import sys, kernel_agent.models.openai, kernel_agent.models.scripted\n"
        "heavy = {'openai', 'httpx', 'httpx2', 'pydantic', 'pandas', 'IPython'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_server_serves_a_file_as_a_program(tmp_path):
    """What the tests of the command line rely on: it prints its URL, then replies and fails."""
    replies = tmp_path / "replies.jsonl"
    lines = [{"fault": "429", "retry_after": "0"}, {"content": "played"}]
    replies.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    program = Path(__file__).parents[1] / "servers" / "openai_server.py"
    record = tmp_path / "record.jsonl"
    command = [sys.executable, str(program), "--replies", str(replies), "--record", str(record)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        url = server.stdout.readline().strip()

        async def play():
            async with Asked(url) as asked:
                return await asked.ask()

        reply = asyncio.run(play())
        server.terminate()
    assert reply.content == "played"
    assert len(record.read_text().splitlines()) == 2


async def test_a_server_of_this_machine_may_have_a_certificate_of_the_machine_s_own(
    tmp_path, monkeypatch
):
    """With an authority that the environment names, and with no other."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    said = json.dumps({"choices": [{"message": {"role": "assistant", "content": "Hi"}}]})

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(said)}"
        writer.write(f"{head}\r\nConnection: close\r\n\r\n{said}".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "localhost", 0, ssl=context) as server:
        address = f"https://localhost:{server.sockets[0].getsockname()[1]}/v1"
        async with Asked(address, max_retries=0) as asked:
            with pytest.raises(ModelError, match="CERTIFICATE_VERIFY_FAILED"):
                await asked.ask()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
        async with Asked(address, max_retries=0) as asked:
            assert (await asked.ask()).content == "Hi"
