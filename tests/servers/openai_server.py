"""A loopback server that speaks the OpenAI chat-completions protocol, and can break it.

Real sockets, standard library only. It answers ``POST …/chat/completions`` with the behaviours it
was given, one a request, in order. When there are no more it repeats the last one if told so by
``repeat_last``, else it answers 500 and says so. What it was sent is kept in ``requests``, or
handed to ``keep``.

In a test::

    with OpenAIServer([too_many(retry_after="1"), text("final_answer(42)")]) as server:
        OpenAIModel("any", base_url=server.url)

As a program, for tests of the whole command line; it prints its URL and serves until it is ended::

    python tests/servers/openai_server.py --port 0 --replies FILE.jsonl [--repeat-last]

With ``--record FILE`` it writes what it was sent to that file, one JSON object a request.
Each line of the file is a reply (``{"content": "…"}``, ``"tool_calls"``, ``"reasoning"``,
``"usage"``, ``"finish_reason"``, ``"delay_s"``, ``"chunk_chars"``, ``"chunk_delay_s"``) or a
fault: ``{"fault": "429", "retry_after": "1"}``, with one of the names in ``FAULTS``. In a reply,
``"refuses"`` names request fields that get a 400 first.

What an endpoint does with tools and schemas is tried out with a :class:`Writer` instead of a list:
it writes each cell in the way that the request asks for, or fails to in the ways that servers do.
"""

from __future__ import annotations

import argparse
import itertools
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self


def model_at(url: str, name: str = "m", **settings: Any) -> Any:
    """Return the real client of a server; time limits and retries by their names in Transport."""
    from kernel_agent.models import OpenAIModel, Transport

    names = set(settings) & set(Transport.__dataclass_fields__)
    transport = Transport(**{name: settings.pop(name) for name in names})
    return OpenAIModel(name, base_url=url, transport=transport, **settings)


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """What the server does with one request.

    ``message`` is the assistant's message, streamed when the request asks for it (or always or
    never, by ``stream``). ``body`` is sent as it is instead. ``cut_after`` ends the connection
    after that many bytes of the body. ``refuses`` names request fields that get a 400. ``plainly``
    is what a request that does not ask for a stream gets instead.
    """

    message: Mapping[str, Any] = field(default_factory=dict)
    finish_reason: str | None = "stop"
    usage: Mapping[str, Any] | None = field(
        default_factory=lambda: {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    )
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    media_type: str | None = None
    stream: bool | None = None
    chunk_chars: int = 16
    delay_s: float = 0.0
    chunk_delay_s: float = 0.0
    cut_after: int | None = None
    hold_open_s: float = 0.0
    says_done: bool = True
    refuses: tuple[str, ...] = ()
    plainly: Behaviour | None = None


def text(content: str | None, **more: Any) -> Behaviour:
    """An ordinary reply."""
    reasoning, calls = more.pop("reasoning", ""), more.pop("tool_calls", None)
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
        more.setdefault("finish_reason", "tool_calls")
    return Behaviour(message=message, **more)


def error(status: int, message: str, *, code: str | None = None, **more: Any) -> Behaviour:
    """An error in the protocol's form."""
    body = {"error": {"message": message, "type": "error", "param": None, "code": code}}
    return Behaviour(status=status, body=json.dumps(body).encode(), **more)


def too_many(retry_after: str | None = None, **more: Any) -> Behaviour:
    """429, with ``Retry-After`` if given."""
    headers = {"Retry-After": retry_after} if retry_after is not None else {}
    return error(429, "Rate limit reached", code="rate_limit_exceeded", headers=headers, **more)


def raw(body: bytes, media_type: str = "application/json", **more: Any) -> Behaviour:
    """A body as it is, whatever was asked for."""
    return Behaviour(body=body, media_type=media_type, **more)


def events(body: bytes, **more: Any) -> Behaviour:
    """A stream as it is."""
    return raw(body, "text/event-stream", **more)


def overflow(used: int, limit: int) -> Behaviour:
    """A conversation that is too long, as llama-cpp-python's server has it.

    Without streaming it refuses. With it, it has begun to answer before it finds out: a stream in
    which nothing comes.
    """
    refusal = error(
        400,
        f"This model's maximum context length is {limit} tokens. However, you requested {used} "
        f"tokens ({used} in the messages, None in the completion). Please reduce the length.",
        code="context_length_exceeded",
    )
    return events(b"", plainly=refusal)


@dataclass(kw_only=True)
class Writer:
    """An endpoint and its model, which write cells in the way that a request asks for.

    ``tools`` and ``schema`` say what becomes of a request with tools or a ``response_format``:
    ``honoured``, ``refused`` (with ``status``), or ``ignored`` (answered in plain text). Tools can
    also be ``forced`` (ignored, unless ``tool_choice`` names one), and schemas ``json_object``
    (refused, but for a ``json_object`` with a ``schema``, as llama-cpp-python's server has it).
    ``breaks`` names the ways (``tool``, ``schema``, ``text``) in which the model writes nothing
    that can be read. ``cells`` are the model's turns; a request that only tries out a format takes
    none of them. ``tokens`` is what each costs. ``kinds`` records the way of each request.
    """

    cells: list[str] = field(default_factory=list)
    tools: str = "honoured"
    schema: str = "honoured"
    breaks: set[str] = field(default_factory=set)
    status: int = 400
    delay_s: float = 0.0
    tokens: int = 18
    kinds: list[str] = field(default_factory=list)

    def __call__(self, request: Request) -> Behaviour:
        way = self._way(request.body)
        tries_out = "only tries out" in json.dumps(request.body["messages"][-1])
        self.kinds.append(f"try {way}" if tries_out else way)
        for asked, done in (("tools", self.tools), ("response_format", self.schema)):
            if asked in request.body and (done == "refused" or self._is_other(request.body, done)):
                return error(self.status, f"{asked} is not supported by this model")
        usage = {"prompt_tokens": self.tokens - 7, "completion_tokens": 7}
        more = {"delay_s": self.delay_s, "usage": usage}
        if way in self.breaks:
            return text("I would rather talk about it.", **more)
        code = "print(42)" if tries_out else self.cells.pop(0)
        if way == "tool":
            function = {"name": "python", "arguments": json.dumps({"code": code})}
            calls = [{"id": "call_1", "type": "function", "function": function}]
            return text(None, tool_calls=calls, **more)
        if way == "schema":
            return text(json.dumps({"thought": "", "code": code}), **more)
        return text(f"Next.\n```python\n{code}\n```", **more)

    def _is_other(self, body: Any, done: str) -> bool:
        """Whether a schema is asked for in another notation than this server's."""
        asked = body.get("response_format") or {}
        return done == "json_object" and not (asked["type"] == done and "schema" in asked)

    def _way(self, body: Any) -> str:
        forced = isinstance(body.get("tool_choice"), dict)
        if "tools" in body and (self.tools == "honoured" or (self.tools == "forced" and forced)):
            return "tool"
        return "schema" if "response_format" in body and self.schema != "ignored" else "text"


FAULTS: dict[str, Callable[..., Behaviour]] = {
    "401": lambda: error(401, "Incorrect API key provided", code="invalid_api_key"),
    "403": lambda: error(403, "You may not use this model"),
    "404": lambda: error(404, "The model `x` does not exist", code="model_not_found"),
    "429": too_many,
    "500": lambda: error(500, "The server had an error"),
    "503": lambda: error(503, "Overloaded"),
    "not-json": lambda: raw(b"<html><title>Welcome</title>It works</html>", "text/html"),
    "broken-json": lambda: raw(b'{"choices": [{"message": {"cont'),
    "cut": lambda: text("Half of this reply never comes. " * 40, cut_after=600),
    "no-choices": lambda: raw(b'{"id": "x", "object": "chat.completion", "choices": []}'),
    "null": lambda: text(None),
    "long": lambda: text("x" * 10_000_000, chunk_chars=100_000),
    "context": lambda: error(
        400, "This model's maximum context length is 4096 tokens", code="context_length_exceeded"
    ),
    "hang": lambda: text("too late", delay_s=3600.0),
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the server was sent."""

    path: str
    headers: Mapping[str, str]
    body: Any


class OpenAIServer:
    """The server; a context manager, which serves in threads of its own while the block lasts."""

    def __init__(
        self,
        behaviours: Iterable[Behaviour] | Writer,
        *,
        port: int = 0,
        repeat_last: bool = False,
        keep: Callable[[Request], None] | None = None,
        models: Any = None,
        listing: Behaviour | None = None,
        one_slot: bool = False,
    ) -> None:
        self.one_slot = one_slot
        """Whether a request ends the reply that is under way, as at llama-cpp-python's server."""
        self.arrived = 0
        self.open: set[socket.socket] = set()
        self.models = {"object": "list", "data": []} if models is None else models
        self.listing = listing
        """How the list is sent; by default as JSON, at once."""
        self.listed: list[Mapping[str, str]] = []
        """The headers of each request for the list of models."""
        self.requests: list[Request] = []
        self._keep = keep or self.requests.append
        self.connections = 0
        self.served = 0
        self._writer = behaviours if isinstance(behaviours, Writer) else None
        self._behaviours = iter(() if isinstance(behaviours, Writer) else behaviours)
        self._repeat_last = repeat_last
        self._last: Behaviour | None = None
        self._lock = threading.Lock()
        self.closing = threading.Event()
        self._http = _Http(("127.0.0.1", port), _Handler)
        self._http.owner = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        """The base URL for clients."""
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        for connection in list(self.open):  # else a client could go on asking over one
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def next_behaviour(self, request: Request) -> Behaviour:
        """Record a request and say what happens to it."""
        with self._lock:
            self._keep(request)
            self.served += 1
            if self._writer is not None:
                return self._writer(request)
            behaviour = next(self._behaviours, self._last if self._repeat_last else None)
            self._last = behaviour
        if behaviour is None:
            return error(500, f"the test server has no behaviour for request {self.served}")
        unknown = [name for name in behaviour.refuses if name in request.body]
        if unknown:
            with self._lock:  # the behaviour itself is for the request that comes without
                self._behaviours = itertools.chain([behaviour], self._behaviours)
            return error(400, f"Unrecognized request argument supplied: {unknown[0]}")
        return behaviour


@contextmanager
def refused_url() -> Iterator[str]:
    """A base URL on which nothing listens, and nothing else can start to."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound, so the port stays ours; not listening, so it refuses
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/v1"


@contextmanager
def unanswered_url() -> Iterator[str]:
    """A base URL whose host never accepts: its queue of connections is full (Linux)."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        for one in waiting:
            one.close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    owner: OpenAIServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that goes away in the middle is what half of the tests are about.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http

    def setup(self) -> None:
        super().setup()
        self.server.owner.connections += 1
        self.server.owner.open.add(self.connection)

    def finish(self) -> None:
        self.server.owner.open.discard(self.connection)
        super().finish()

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        owner = self.server.owner
        owner.listed.append({name.lower(): value for name, value in self.headers.items()})
        behaviour = owner.listing or Behaviour(body=json.dumps(owner.models).encode())
        owner.closing.wait(behaviour.delay_s)
        self._send(behaviour.body or b"", behaviour, behaviour.media_type or "application/json")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(path=self.path, headers=headers, body=json.loads(body))
        self.turn = self.server.owner.arrived = self.server.owner.arrived + 1
        behaviour = self.server.owner.next_behaviour(request)
        if behaviour.plainly is not None and not request.body.get("stream"):
            behaviour = behaviour.plainly
        if not self.path.split("?")[0].endswith("/v1/chat/completions"):
            behaviour = error(404, f"no such path: {self.path}")
        # The wait ends early when the test does.
        self.server.owner.closing.wait(behaviour.delay_s)
        asked = bool(request.body.get("stream"))
        streams = asked if behaviour.stream is None else behaviour.stream
        if behaviour.body is not None and behaviour.chunk_delay_s:
            pieces = [piece + b"\n\n" for piece in behaviour.body.split(b"\n\n") if piece]
            self._stream(pieces, behaviour)
        elif behaviour.body is not None:
            self._send(behaviour.body, behaviour, behaviour.media_type or "application/json")
        elif streams:
            with_usage = (request.body.get("stream_options") or {}).get("include_usage", False)
            self._stream(_chunks(behaviour, with_usage=with_usage), behaviour)
        else:
            self._send(_whole(behaviour), behaviour, "application/json")

    def _send(self, body: bytes, behaviour: Behaviour, media_type: str) -> None:
        self._head(behaviour, {"Content-Type": media_type, "Content-Length": str(len(body))})
        self.wfile.write(body[: behaviour.cut_after])
        if behaviour.cut_after is not None:
            self._hang_up()

    def _stream(self, pieces: Iterable[bytes], behaviour: Behaviour) -> None:
        left = behaviour.cut_after
        self._head(behaviour, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        for piece in pieces:
            if left is not None and len(piece) >= left:
                self.wfile.write(b"%x\r\n%s" % (len(piece), piece[:left]))
                return self._hang_up()
            left = None if left is None else left - len(piece)
            ended = self.server.owner.one_slot and self.server.owner.arrived != self.turn
            sent = b"data: [DONE]\n\n" if ended else piece
            self.wfile.write(b"%x\r\n%s\r\n" % (len(sent), sent))
            if ended:
                break
            if behaviour.chunk_delay_s and b'"content": ""' not in piece:
                self.server.owner.closing.wait(behaviour.chunk_delay_s)
        self.server.owner.closing.wait(behaviour.hold_open_s)
        self.wfile.write(b"0\r\n\r\n")
        return None

    def _head(self, behaviour: Behaviour, headers: Mapping[str, str]) -> None:
        self.send_response(behaviour.status)
        for name, value in {**headers, **behaviour.headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _hang_up(self) -> None:
        self.wfile.flush()
        self.close_connection = True


def _whole(behaviour: Behaviour) -> bytes:
    choice = {
        "index": 0,
        "message": behaviour.message,
        "finish_reason": behaviour.finish_reason,
    }
    reply = {"id": "x", "object": "chat.completion", "model": "test", "choices": [choice]}
    if behaviour.usage is not None:
        reply["usage"] = behaviour.usage
    return json.dumps(reply).encode()


def _chunks(behaviour: Behaviour, *, with_usage: bool) -> Iterator[bytes]:
    message = behaviour.message
    yield _event({"role": "assistant", "content": ""})
    for name in ("reasoning_content", "reasoning", "content"):
        whole = message.get(name) or ""
        for start in range(0, len(whole), behaviour.chunk_chars):
            yield _event({name: whole[start : start + behaviour.chunk_chars]})
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        head = {**call, "index": index, "function": {**function, "arguments": ""}}
        yield _event({"tool_calls": [head]})
        for start in range(0, len(function["arguments"]), behaviour.chunk_chars):
            piece = function["arguments"][start : start + behaviour.chunk_chars]
            yield _event({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    if behaviour.finish_reason is not None:
        yield _event({}, behaviour.finish_reason)
    if behaviour.usage is not None and with_usage:
        yield _data({"choices": [], "usage": behaviour.usage})
    if behaviour.says_done:
        yield b"data: [DONE]\n\n"


def _event(delta: Mapping[str, Any], finish_reason: str | None = None) -> bytes:
    return _data({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


def _data(chunk: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps({"object": "chat.completion.chunk", **chunk}).encode() + b"\n\n"


def read_behaviours(path: Path) -> list[Behaviour]:
    """Read a file of replies and faults, one JSON object a line."""
    lines = path.read_text(encoding="utf-8").split("\n")
    return [_behaviour(json.loads(line)) for line in lines if line.strip()]


def _behaviour(line: dict[str, Any]) -> Behaviour:
    options = {
        name: line[name] for name in ("delay_s", "chunk_delay_s", "chunk_chars") & line.keys()
    }
    if "fault" in line:
        arguments = [line["retry_after"]] if "retry_after" in line else []
        return replace(FAULTS[line["fault"]](*arguments), **options)
    for name in ("tool_calls", "reasoning", "usage", "finish_reason", "refuses"):
        if name in line:
            options[name] = line[name]
    return text(line.get("content"), **options)


def main() -> None:
    """Serve a file of replies until the process is ended."""
    parser = argparse.ArgumentParser(description="A loopback OpenAI-compatible server for tests.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--replies", type=Path, required=True)
    parser.add_argument("--repeat-last", action="store_true")
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()

    def keep(request: Request) -> None:
        if options.record:
            with options.record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(vars(request)) + "\n")

    behaviours = read_behaviours(options.replies)
    server = OpenAIServer(behaviours, port=options.port, repeat_last=options.repeat_last, keep=keep)
    with server:
        print(server.url, flush=True)
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    main()
