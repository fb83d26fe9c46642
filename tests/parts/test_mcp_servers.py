"""Real MCP servers, good ones and bad ones: what they cannot do to a session."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")

from kernel_agent.errors import ToolError, UsageError
from kernel_agent.tools.mcp.connected import TOOLS_MAX, Servers
from kernel_agent.tools.mcp.foreign import names_for
from kernel_agent.tools.mcp.servers import named_servers

SERVERS = Path(__file__).parents[1] / "servers"
BAD = f"{sys.executable} {SERVERS / 'mcp_over_pipes.py'}"
TIME = f"{sys.executable} -m mcp_server_time --local-timezone UTC"


@asynccontextmanager
async def opened(*given, configured=None, env=None, taken=()):
    """Yield the tools by name, and what was told."""
    told: list[str] = []
    named = named_servers(given, configured or {}, env or {})
    servers = Servers(named, lambda event: told.append(event.text))
    tools = await servers.open(taken)
    try:
        yield {tool.name: tool for tool in tools}, told
    finally:
        await servers.close()


def bad(how, **more):
    """Return the configuration of a server that behaves in that way."""
    return {"bad": {"command": f"{BAD} {how}", **more}}


def alive(command: str) -> bool:
    """Return whether a process is there whose command line begins like that."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (OSError, ValueError):
                continue
            if f"{line.strip()} ".startswith(f"{command} "):
                return True
    return False


async def test_a_published_server_answers_over_stdio():
    """The time server of the protocol's own repository."""
    async with opened(TIME) as (tools, told):
        found = await tools["get_current_time"].call([], {"timezone": "Asia/Tokyo"})
        assert found["timezone"] == "Asia/Tokyo"
        assert tools["get_current_time"].effects is False  # it says that it only reads
        assert tools["get_current_time"].untrusted is True
        with pytest.raises(ToolError, match="Invalid timezone"):
            await tools["get_current_time"].call(["Nowhere"], {})
    assert told == ["MCP server time (stdio): get_current_time, convert_time"]


@asynccontextmanager
async def over_http(token: str = ""):
    """Yield the URL of the same server over streamable HTTP on this machine, and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(SERVERS / "mcp_time_over_http.py"), str(port)]
    process = subprocess.Popen(command, env={**os.environ, "TOKEN": token})
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            await asyncio.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp", process
    finally:
        process.kill()
        process.wait()


async def test_the_same_server_answers_over_streamable_http():
    """On this machine's loopback; when it goes, its calls fail with one line."""
    async with over_http() as (url, process), opened(f"clock={url}") as (tools, told):
        assert told == ["MCP server clock (http): get_current_time, convert_time"]
        found = await tools["get_current_time"].call(["UTC"], {})
        assert found["timezone"] == "UTC"
        process.kill()
        process.wait()
        with pytest.raises(ToolError, match="'clock'"):
            await tools["get_current_time"].call(["UTC"], {})


async def test_a_header_with_a_key_is_sent_and_a_refusal_does_not_show_it():
    """The key is in the environment of the host."""
    table = {"headers": {"Authorization": "Bearer $KEY"}, "start_seconds": 20}
    async with over_http(token="good-key-1") as (url, _):
        configured = {"clock": {"url": f"{url}?secret=abcdef123", **table}}
        async with opened("clock", configured=configured, env={"KEY": "good-key-1"}) as (tools, _):
            assert "get_current_time" in tools
        with pytest.raises(UsageError) as error:
            async with opened("clock", configured=configured, env={"KEY": "wrong-key-2"}):
                pass
    assert str(error.value).startswith("--mcp clock: ")
    assert "wrong-key-2" not in str(error.value)
    assert "abcdef123" not in str(error.value)


async def test_instructions_in_a_description_stay_a_quotation():
    """One line of a docstring, attributed, without anything that could end it."""
    async with opened("bad", configured=bad("instructions")) as (tools, _):
        stub = tools["add"].stub()
        assert stub.count('"""') == 2
        assert stub.count("\n") == 1
        assert "It describes itself" in stub
        assert "```" not in stub
        assert "<observation>" not in stub
        assert "PREVIOUS INSTRUCTIONS" not in stub  # a server's instructions are not taken
        assert len(stub) < 600
        assert len(tools["add"].doc) > 2_000  # what help() shows: quoted all the same
        assert tools["add"].doc.isprintable() is False  # the lines between the paragraphs
        assert not set("`<>#\\\x1b\u202e") & set(tools["add"].doc)
        compile(stub, "stub", "exec")
        assert len(tools["add"].schema["parameters"]["properties"]["a"]["description"]) <= 120


async def test_names_that_are_attacks_shadow_nothing():
    """Neither built-ins, nor ours, nor a keyword."""
    async with opened("bad", configured=bad("names"), taken={"echo"}) as (tools, _):
        assert set(tools) == {
            "bad_print", "bad_final_answer", "bad_open", "class_", "x_import_os", "import_", "a_b",
            "bad_a_b", "value", "n9lives", "n", "bad_pd", "bad_echo",
        }  # fmt: skip
        assert await tools["bad_open"].call([], {"text": "x"}) == "open"


async def test_a_server_whose_name_begins_with_a_digit_lends_it_to_its_tools():
    """Two on this machine have the names 127_0_0_1 and 127_0_0_1_2."""
    assert names_for("127_0_0_1", ["echo", "add"], {"echo"}) == ["n127_0_0_1_echo", "add"]


async def test_half_a_character_is_refused_and_does_not_end_the_connection():
    """Text that was cut within an emoji's two halves, also deep in an argument."""
    async with opened("bad", configured=bad("plain")) as (tools, told):
        with pytest.raises(TypeError, match=r"^text: half a character"):
            await tools["echo"].call(["\ud83d"], {})
        with pytest.raises(TypeError, match="half a character"):
            await tools["echo"].call([{"a": ["\ud83d"]}], {})
        assert await tools["echo"].call(["x"], {}) == '{"text": "x"}'
        assert len(told) == 1  # nothing was started again


async def test_the_published_result_of_a_tool_is_in_its_signature():
    """Else the first use of a result is a guess."""
    async with opened("bad", configured=bad("kinds")) as (tools, _):
        assert str(tools["wrapped"].signature) == "(**arguments: Any) -> list"
        assert str(tools["structured"].signature) == "(**arguments: Any)"


async def test_of_a_thousand_tools_the_first_are_taken_and_the_user_is_told():
    """Or those that the configuration names, from any page."""
    async with opened("bad", configured=bad("many")) as (tools, told):
        assert len(tools) == TOOLS_MAX
        assert "1,000 tools" in told[0]
    async with opened("bad", configured=bad("many", tools=["tool_7", "tool_950"])) as (tools, told):
        assert list(tools) == ["tool_7", "tool_950"]
    with pytest.raises(UsageError, match="it has no tool nonsense"):
        async with opened("bad", configured=bad("many", tools=["nonsense"])):
            pass


async def test_a_list_without_an_end_ends():
    """Pages are counted."""
    async with opened("bad", configured=bad("endless")) as (tools, told):
        assert tools == {}
        assert told == ["The MCP server bad offers no tools."]


async def test_hostile_schemas_cost_nothing_and_reach_nobody():
    """Exponential, cyclic, remote, with a regular expression that never ends, or none at all."""
    async with opened("bad", configured=bad("schemas")) as (tools, _):
        began = time.monotonic()
        for name in ("laughs", "cycle", "remote", "wrong"):
            assert await tools[name].call([], {"x": {}}) == '{"x": {}}'
        long = "a" * 40 + "!"
        assert long in await tools["regex"].call([long], {})
        assert time.monotonic() - began < 20
        assert await tools["output"].call([], {}) == {"x": "a" * 40 + "!"}
        odd = tools["odd"]
        assert list(odd.signature.parameters) == ["class_", "a_b", "self"]
        assert await odd.call([], {"class": "x"}) == '{"class": "x"}'
        assert await odd.call([], {"class_": "x", "a_b": "x"}) == '{"class": "x", "a b": "x"}'
        with pytest.raises(TypeError, match="'z' is not one of"):
            await odd.call(["x", "z"], {})


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (f"{BAD} mute", "it did not answer within 1 s"),
        (f"{BAD} killed", "it was ended by signal 9"),
        (f"{BAD} unfinished", "it ended with exit code 1: Error: Cannot find module 'zod'"),
        # An argument may be a key.
        (f"{BAD} nonsense", "it ended with exit code 1: KeyError: '[secret]'"),
        (
            f"{BAD} odd",
            "what it sent is malformed: tools.0.inputSchema.required: Input should be a valid list",
        ),
        ("no-such-program-here", "there is no such program"),
        pytest.param("true", "it ended with exit code 0", marks=pytest.mark.long),
        ("yes no message", "it does not speak the protocol"),
    ],
)
async def test_a_server_that_does_not_start_is_one_line_and_leaves_nothing(command, said):
    """An error of the user's, with the reason."""
    configured = {"bad": {"command": command, "start_seconds": 1 if "mute" in command else 20}}
    with pytest.raises(UsageError) as error:
        async with opened("bad", configured=configured):
            pass
    assert str(error.value) == f"--mcp bad: {said}"
    assert not alive(command)


async def test_one_that_does_not_start_takes_the_others_along():
    """The session has not begun; nothing is left running."""
    with pytest.raises(UsageError, match="no such program"):
        async with opened(f"{BAD} plain", "no-such-program-here"):
            pass
    assert not alive(f"{BAD} plain")


async def test_a_url_that_nobody_answers_at_is_one_line():
    """Without the URL, which may hold a key."""
    with pytest.raises(UsageError) as error:
        async with opened("wiki=http://127.0.0.1:9/mcp?key=s3cret-key"):
            pass
    assert str(error.value) == "--mcp wiki: nothing answers at its URL"


async def test_a_call_that_hangs_ends_in_time_and_the_next_one_works_or_says_so():
    """The session goes on, and closing does not wait for the server."""
    async with opened("bad", configured=bad("hangs", call_seconds=1)) as (tools, _):
        with pytest.raises(ToolError, match="did not answer within 1 s") as error:
            await tools["wait"].call(["x"], {})
        assert error.value.kind == "TimeoutError"
        began = time.monotonic()
    assert time.monotonic() - began < 60
    assert not alive(f"{BAD} hangs")


async def test_a_server_that_neither_answers_nor_goes_is_ended_with_its_children():
    """Its input closes, it is asked, it is killed; so is what it started."""
    async with opened("bad", configured=bad("deaf")) as (tools, _):
        assert alive(f"{BAD} deaf")
        assert await tools["echo"].call(["x"], {}) == '{"text": "x"}'
    assert not alive(f"{BAD} deaf")
    assert not alive("import time; time.sleep(600)")


async def test_a_server_that_dies_in_a_call_is_started_again_three_times():
    """The call says why; the next one has a new server, without the old one's memory."""
    async with opened("bad", configured=bad("dies")) as (tools, told):
        first = await tools["echo"].call(["x"], {})
        for _ in range(3):
            with pytest.raises(ToolError, match="exit code 3: out of cheese") as error:
                await tools["die"].call(["x"], {})
            assert error.value.kind == "ConnectionError"
            assert await tools["echo"].call(["x"], {}) != first
        assert told[1:] == ["The MCP server bad was gone and was started again."] * 3
        with pytest.raises(ToolError, match="exit code 3"):
            await tools["die"].call(["x"], {})
        with pytest.raises(ToolError, match="do without it"):
            await tools["echo"].call(["x"], {})


async def test_a_flood_ends_the_server_or_is_dropped_and_never_fills_the_host():
    """Lines that are no messages, one line without an end, an error channel without one."""
    async with opened("bad", configured=bad("floods")) as (tools, _):
        assert await tools["errors"].call([], {}) == "done"
        with pytest.raises(ToolError, match="does not speak the protocol"):
            await tools["junk"].call([], {})
        with pytest.raises(ToolError, match="a message of more than 32 MB"):
            await tools["line"].call([], {})
        assert await tools["errors"].call([], {}) == "done"


async def test_a_large_result_comes_whole():
    """Five million characters."""
    async with opened("bad", configured=bad("huge")) as (tools, _):
        assert await tools["echo"].call(["5000000"], {}) == "x" * 5_000_000


async def test_results_become_plain_values():
    """Structured first, then text; pictures are decoded on the host; errors are errors."""
    configured = bad("kinds", env={"SECRET_KEY": "sk-0123456789"})
    async with opened("bad", configured=configured) as (tools, _):

        async def result(name):
            return await tools[name].call([], {})

        assert (await result("picture")).size == (1, 1)
        assert (await result("repeated")).size == (1, 1)  # no base64 beside it
        assert await result("broken") == b"no picture"
        assert await result("structured") == {"a": [1, 2.5, None]}
        assert await result("wrapped") == [1, 2]
        assert await result("two") == "a\nb"
        text, picture = await result("mixed")
        assert (text, picture.size) == ("a", (1, 1))
        assert await result("nothing") is None
        assert await result("bad_bytes") == b"\0\1"
        with pytest.raises(ToolError, match=r"^no such thing at all$"):
            await result("fails")
        with pytest.raises(ToolError, match="the MCP server 'bad' says: not today"):
            await tools["refused"].call(["x"], {})
        with pytest.raises(ToolError, match="the MCP server 'bad' failed: what it sent is"):
            await result("lies")
        with pytest.raises(ToolError, match=r"^the key \[secret\] is wrong$"):
            await result("key")


async def test_a_shape_of_results_that_cannot_be_shown_is_left_out():
    """It is not relied upon: the tools are there and their results arrive."""
    async with opened("bad", configured=bad("outputs")) as (tools, _):
        assert set(tools) == {"cut", "bare", "content"}
        assert await tools["bare"].call([], {}) == 3


async def test_many_wrong_pieces_fail_their_call_and_the_server_goes_on():
    """They are counted before the client would name all that is wrong with each of them."""
    async with opened("bad", configured=bad("wrong")) as (tools, _):
        for _ in range(2):
            with pytest.raises(ToolError, match="its answer has 9,000 content, at most 1,000"):
                await tools["many"].call([], {})


async def test_a_server_is_given_little_of_the_environment(monkeypatch):
    """What the client's library thinks safe, and what the user named."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-yours")
    configured = bad("environment", env={"WANTED": "$THIS"})
    async with opened("bad", configured=configured, env={"THIS": "that"}) as (tools, _):
        seen = await tools["env"].call([], {})
    assert "sk-not-yours" not in seen
    assert '"WANTED": "that"' in seen


async def test_only_the_word_that_it_reads_spares_a_question():
    """A tool without the hint counts as one that changes something."""
    async with opened("bad", configured=bad("plain")) as (tools, _):
        assert (tools["echo"].effects, tools["change"].effects) == (False, True)


@asynccontextmanager
async def endpoint(answer):
    """Yield the URL of an endpoint that answers each request in that way, and then hangs up."""
    serving = set()

    async def serve(reader, writer):
        serving.add(asyncio.current_task())
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            (length,) = [
                line.partition(b":")[2]
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            ] or [b"0"]
            body = await reader.readexactly(int(length))
            await answer(head, json.loads(body or b"{}"), writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    finally:
        server.close()
        if serving:
            await asyncio.wait(serving, timeout=60)


def reply(result, number, more=""):
    """Return a whole HTTP answer that holds a JSON-RPC result."""
    text = json.dumps({"jsonrpc": "2.0", "id": number, "result": result})
    return (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{more}"
        f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}"
    ).encode()


HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "x", "version": "1"},
}


@pytest.mark.parametrize(
    ("status", "said"),
    [(401, "HTTP 401"), (404, "HTTP 404: no streamable HTTP is spoken there"), (503, "HTTP 503")],
)
async def test_an_endpoint_that_refuses_is_quoted_with_its_status(status, said):
    """A wrong key, an address of the older transport, a server that is down."""

    async def refuses(_head, _message, writer):
        writer.write(f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode())

    async with endpoint(refuses) as url:
        with pytest.raises(UsageError, match=f"^--mcp wiki: its URL answered {said}"):
            async with opened("wiki", configured={"wiki": {"url": url}}):
                pass


async def test_an_endpoint_that_says_nothing_is_given_up():
    """In the time that it has to start."""
    never = asyncio.Event()

    async def silent(_head, _message, writer):
        while not writer.is_closing() and not never.is_set():
            await asyncio.sleep(0.05)

    async with endpoint(silent) as url:
        configured = {"wiki": {"url": url, "start_seconds": 0.5}}
        with pytest.raises(UsageError, match=r"--mcp wiki: it did not answer within 0\.5 s"):
            async with opened("wiki", configured=configured):
                pass
        never.set()


async def test_an_answer_that_is_compressed_unasked_is_not_unpacked():
    """A megabyte of it may stand for a gigabyte."""
    asked = []

    async def answer(head, message, writer):
        asked.append(head.lower())
        if message.get("method") == "initialize":
            writer.write(reply(HELLO, message["id"]))
        elif message.get("method") == "tools/list":
            tool = {"name": "echo", "inputSchema": {"type": "object"}}
            writer.write(reply({"tools": [tool]}, message["id"]))
        elif message.get("method") == "tools/call":
            result = {"content": [{"type": "text", "text": "a" * 10_000_000}]}
            told = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            packed = gzip.compress(json.dumps(told).encode())
            lines = f"Content-Encoding: gzip\r\nContent-Length: {len(packed)}\r\nConnection: close"
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{lines}".encode())
            writer.write(b"\r\n\r\n" + packed)
        else:
            writer.write(b"HTTP/1.1 202 Yes\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()

    async with (
        endpoint(answer) as url,
        opened("wiki", configured={"wiki": {"url": url}}) as (tools, _),
    ):
        with pytest.raises(ToolError, match="its answer is compressed, which was not asked for"):
            await tools["echo"].call([], {})
    assert asked
    assert all(b"accept-encoding: identity" in head for head in asked)


@pytest.mark.parametrize("way", [pytest.param("hangs", marks=pytest.mark.long), "floods"])
async def test_an_endpoint_that_never_ends_its_answer_costs_one_call(way):
    """Nor does the end of the session wait for it: its farewell is not answered."""
    over = asyncio.Event()

    async def answer(head, message, writer):
        method = message.get("method")
        if head.startswith(b"DELETE"):
            await over.wait()
        elif method == "initialize":
            writer.write(reply(HELLO, message["id"], "Mcp-Session-Id: 1\r\n"))
        elif method == "tools/list":
            tool = {"name": "echo", "inputSchema": {"type": "object"}}
            writer.write(reply({"tools": [tool]}, message["id"]))
        elif method == "tools/call":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
            while not over.is_set():
                if way == "floods":
                    writer.write(b" " * 1_000_000)
                    await writer.drain()
                else:
                    await asyncio.sleep(0.05)
        elif "id" in message:
            writer.write(b"HTTP/1.1 400 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 202 Yes\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()

    async with endpoint(answer) as url:
        seconds = 1 if way == "hangs" else 30
        configured = {"wiki": {"url": url, "call_seconds": seconds, "start_seconds": 10}}
        async with opened("wiki", configured=configured) as (tools, _):
            with pytest.raises(ToolError, match="the MCP server 'wiki'"):
                await tools["echo"].call([], {})
            began = time.monotonic()
        assert time.monotonic() - began < 25
        over.set()
