"""The relay: the application on one side, its sandboxed kernel on the other.

::

    application == zmq, the application's key ==> relay == ZMTP, the kernel's key ==> kernel

It listens where the application was told that the kernel is, and connects to where the kernel is.
Requests go on as they are, once their signature holds. What the kernel says is checked, read
within bounds (:mod:`kernel_agent.kernel.messages`), made anew (:mod:`.content`) and signed with a
key that no kernel knows. A reply goes to whoever has asked, once; a question to whoever runs the
cell.

Nothing here grows with what a kernel sends: it is read no faster than the application takes it. A
reader that does not read for some seconds misses outputs, which the others are told.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import uuid
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import zmq
import zmq.asyncio
from jupyter_client.session import DELIM, Session

from kernel_agent.adapters.jupyter.content import OUTPUTS, Content, left_out, passed_on, refusal
from kernel_agent.adapters.jupyter.publisher import Publisher, send_now
from kernel_agent.kernel import (
    Channel,
    Envelope,
    Message,
    TooCostly,
    content_of,
    headers_of,
    open_envelope,
)
from kernel_agent.safe import size_text

ASKED = ("shell", "control")  # channels of requests and replies
MAX_MESSAGE = 32_000_000  # bytes of one message that are kept; a picture has at most 24 million
MAX_BEAT = 1_000
MAX_TOPIC = 1_000
MAX_REQUESTS = 10_000  # of which it is known who has asked
WAITING = 50  # messages for one reader, beside what its own socket holds
LINGER_MS = 200
SHOWN = (
    "This kernel shows text, pictures and tables; all else could act in the browser with your "
    "rights."
)
FAULTS = (ValueError, TypeError, KeyError, RecursionError)


@dataclass(frozen=True, kw_only=True)
class Told:
    """Where both sides are: each a base path of ``ipc`` sockets, or an address, and a key.

    Parameters
    ----------
    ports
        Number of each channel: of shell, iopub, stdin, hb and control.
    scheme
        How messages are signed, on both sides.
    """

    application: str
    application_key: str
    kernel: str
    kernel_key: str
    ports: Mapping[str, int]
    scheme: str


@dataclass(kw_only=True)
class Request:
    """Something that the application has asked, and whether it has its answer."""

    by: bytes
    channel: str
    kind: str
    header: dict[str, Any]
    answered: bool = False


class Relay:
    """Passes messages on between an application and its kernel, until it is cancelled."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._application = _session(told.application_key, told.scheme)
        self._kernel = _session(told.kernel_key, told.scheme)
        self._identity = uuid.uuid4().hex.encode()
        self._context = zmq.asyncio.Context()
        self._sockets: dict[str, zmq.asyncio.Socket] = {}
        self._channels: dict[str, Channel] = {}
        self._requests: OrderedDict[str, Request] = OrderedDict()
        self._publisher = Publisher(self._hold)
        self._noted = False

    async def run(self) -> None:
        """Listen, connect, and pass on."""
        try:
            for name in self._told.ports:
                self._sockets[name] = self._listen(name)
            self._publisher.socket = self._sockets["iopub"]
            for name in self._told.ports:
                self._channels[name] = self._connect(name)
                self._channels[name].open()
            takers: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
                "iopub": self._welcome,
                "hb": self._take_beats,
            }
            async with asyncio.TaskGroup() as group:
                for name in self._told.ports:
                    group.create_task(takers.get(name, partial(self._take, name))())
                group.create_task(self._publisher.run())
        finally:
            for channel in self._channels.values():
                await channel.close()
            self._context.destroy(linger=LINGER_MS)

    def _listen(self, name: str) -> zmq.asyncio.Socket:
        socket = self._context.socket(zmq.XPUB if name == "iopub" else zmq.ROUTER)
        if name == "iopub":
            socket.setsockopt(zmq.XPUB_VERBOSE, 1)
            socket.setsockopt(zmq.XPUB_NODROP, 1)
        else:
            socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        socket.setsockopt(zmq.SNDHWM, WAITING)
        socket.setsockopt(zmq.LINGER, LINGER_MS)
        socket.bind(f"ipc://{self._told.application}-{self._told.ports[name]}")
        return socket

    def _connect(self, name: str) -> Channel:
        handlers: dict[str, Callable[[Message], None]] = {
            "iopub": self._on_output,
            "stdin": self._on_question,
            "hb": self._on_beat,
        }
        return Channel(
            f"{self._told.kernel}-{self._told.ports[name]}",
            kind="SUB" if name == "iopub" else "DEALER",
            identity=self._identity if name in (*ASKED, "stdin") else b"",
            most=lambda: MAX_BEAT if name == "hb" else MAX_MESSAGE,
            on_message=partial(_at_the_border, handlers.get(name, partial(self._on_reply, name))),
            on_lost=lambda _: None,  # the process is watched by who has started it
        )

    def _hold(self, *, held: bool) -> None:
        self._channels["iopub"].hold(held=held)

    # --- from the application ------------------------------------------------------------------

    async def _take(self, name: str) -> None:
        """Pass on what the application asks, if it is signed with its key."""
        while True:
            frames: list[Any] = await self._sockets[name].recv_multipart()
            try:
                (by, *_), signed = self._application.feed_identities(frames)
                signature, *parts = cast("list[bytes]", signed[:5])
                if not hmac.compare_digest(signature, self._application.sign(parts)):
                    continue
                header = json.loads(parts[0])
                request = Request(by=by, channel=name, kind=str(header["msg_type"]), header=header)
            except FAULTS:  # not the application's
                continue
            if name in ASKED:
                self._remember(str(header.get("msg_id")), request)
            sent = [DELIM, self._kernel.sign(parts), *parts, *signed[5:]]
            if not self._channels[name].send(sent) and name in ASKED:
                self._answer(request, refusal("the kernel does not read its messages"))

    def _remember(self, name: str, request: Request) -> None:
        self._requests[name] = request
        while len(self._requests) > MAX_REQUESTS:
            self._requests.popitem(last=False)

    async def _take_beats(self) -> None:
        while True:
            self._channels["hb"].send(await self._sockets["hb"].recv_multipart())

    async def _welcome(self) -> None:
        """Greet who subscribes, as a kernel does: from then on it misses nothing."""
        while True:
            first, *more = await self._sockets["iopub"].recv_multipart()
            if first[:1] == b"\x01" and len(first) <= MAX_TOPIC and not more:
                content = {"subscription": first[1:].decode(errors="replace")}
                self._publish("iopub_welcome", content, None, topic=first[1:])

    # --- from the kernel -----------------------------------------------------------------------

    def _on_beat(self, message: Message) -> None:
        if message.complete:
            self._send("hb", [bytes(frame) for frame in message.frames])

    def _on_output(self, message: Message) -> None:
        """Make an output anew and publish it."""
        try:
            envelope, content = self._read(message)
        except TooCostly:
            self._tell_of_a_large_one(message)
            return
        except FAULTS:
            return
        made = passed_on(envelope.kind, content) if envelope.kind in OUTPUTS else None
        if made is None:
            return
        request = self._requests.get(envelope.answers)
        parent = request.header if request else _outline(envelope.parent)
        self._publish(envelope.kind, made, parent)
        lost = left_out(made)
        if lost and not self._noted:
            self._noted = True
            self._note(f"Not shown: {', '.join(lost[:5])}. {SHOWN}", parent)

    def _tell_of_a_large_one(self, message: Message) -> None:
        found = self._asked_for(message)
        if found is not None and found[0] in OUTPUTS - {"status"}:
            self._note(f"An output of {size_text(message.size)} was left out.", found[1].header)

    def _asked_for(self, message: Message) -> tuple[str, Request] | None:
        """Return the kind of a message that is too large to be read, and who waits for it."""
        try:
            header, parent = headers_of(message.frames)
            return str(header["msg_type"]), self._requests[str(parent["msg_id"])]
        except FAULTS:
            return None

    def _on_reply(self, name: str, message: Message) -> None:
        """Give the answer to who has asked; a second one is dropped."""
        try:
            envelope, content = self._read(message)
            request = self._requests[envelope.answers]
            made = passed_on(_reply_to(request), content)
            answer = refusal("no reply of this kind is passed on") if made is None else made
        except TooCostly:
            found = self._asked_for(message)
            if found is None:
                return
            request = found[1]
            answer = refusal(f"a reply of {size_text(message.size)} was left out")
        except FAULTS:
            return
        if not request.answered and request.channel == name:
            self._answer(request, answer)

    def _on_question(self, message: Message) -> None:
        """Ask who runs the cell."""
        try:
            envelope, content = self._read(message)
        except FAULTS:
            return
        request = self._requests.get(envelope.answers)
        made = passed_on("input_request", content)
        if request and not request.answered and request.kind == "execute_request" and made:
            self._send("stdin", [request.by, *self._sign("input_request", made, request.header)])

    def _read(self, message: Message) -> tuple[Envelope, Content]:
        """Check a message's signature and read it.

        Raises
        ------
        TooCostly
            It is too large.
        ValueError, TypeError, KeyError, RecursionError
            It is not the kernel's, or not a message.
        """
        if not message.complete:
            raise TooCostly
        envelope = open_envelope(message.frames, self._kernel.sign)
        return envelope, content_of(envelope.content)

    # --- to the application --------------------------------------------------------------------

    def _answer(self, request: Request, content: Content) -> None:
        request.answered = True
        signed = self._sign(_reply_to(request), content, request.header)
        self._send(request.channel, [request.by, *signed])

    def _note(self, text: str, parent: Mapping[str, Any]) -> None:
        self._publish("stream", {"name": "stderr", "text": f"[{text}]\n"}, parent)

    def _publish(
        self, kind: str, content: Content, parent: Mapping[str, Any] | None, *, topic: bytes = b""
    ) -> None:
        def signed(kind: str, content: Content) -> list[bytes]:
            return [topic or kind.encode(), *self._sign(kind, content, parent)]

        self._publisher.publish(signed(kind, content), partial(signed, "stream"))

    def _sign(self, kind: str, content: Content, parent: Mapping[str, Any] | None) -> list[bytes]:
        message = self._application.msg(kind, content=content)
        message["parent_header"] = dict(parent or {})
        frames: list[bytes] = self._application.serialize(message)
        return frames

    def _send(self, name: str, frames: list[bytes]) -> None:
        """Send at once; who does not read what it has asked for loses it."""
        send_now(self._sockets[name], frames)


def _at_the_border(handle: Callable[[Message], None], message: Message) -> None:
    """Handle a kernel's message; one over which the relay stumbles is lost, and nothing else."""
    try:
        handle(message)
    except Exception:
        logging.getLogger(__name__).exception("a message of the kernel was dropped")


def _session(key: str, scheme: str) -> Session:
    return Session(key=key.encode(), signature_scheme=scheme, username="")


def _reply_to(request: Request) -> str:
    return request.kind.removesuffix("_request") + "_reply"


def _outline(parent: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is shown of a request that nobody knows here: an older one, or none."""
    names = ("msg_id", "msg_type", "session")
    return {name: parent[name][:200] for name in names if isinstance(parent.get(name), str)}
