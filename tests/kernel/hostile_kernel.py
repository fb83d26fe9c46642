"""A kernel that sends anything: valid messages of all kinds, changed at random at every layer.

``python tests/kernel/hostile_kernel.py 100000`` prints what that many did to the client: exceptions
that nobody expected, the longest piece of work on the event loop, the growth of the process.
"""

from __future__ import annotations

import asyncio
import json
import random
import resource
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kernel_agent.kernel import zmtp
from kernel_agent.kernel.client import Cell, KernelClient

INFO = {
    "transport": "ipc", "ip": "/nowhere/s", "key": b"key", "shell_port": 1, "iopub_port": 2,
    "stdin_port": 3, "control_port": 4,
}  # fmt: skip
PEER = zmtp.GREETING + zmtp.ready("ROUTER")
HOSTILE: list[Callable[[random.Random], Any]] = [
    lambda _: None, lambda _: True, lambda _: -1, lambda _: 1e999, lambda _: float("nan"),
    lambda _: 10**400, lambda _: "", lambda _: "\ud800", lambda _: "x" * 20_000, lambda _: [],
    lambda _: {}, lambda _: [[[[]]]], lambda _: {"": {"": {}}}, lambda _: "idle", lambda _: "\x00",
    lambda r: [0] * r.choice((10, 1000, 300_000)), lambda r: r.randbytes(50).decode("latin-1"),
    lambda _: {"header": 5, "msg_id": ["x"]}, lambda _: {"text/plain": ["a", 1, None]},
]  # fmt: skip
CONTENTS: dict[str, dict[str, dict[str, Any]]] = {
    "iopub": {
        "status": {"execution_state": "idle"},
        "iopub_welcome": {"subscription": ""},
        "execute_input": {"code": "1", "execution_count": 1},
        "stream": {"name": "stdout", "text": "some text\n"},
        "display_data": {
            "data": {"text/plain": "x", "image/png": "iVBO"}, "metadata": {"a": {"width": 1}},
            "transient": {"display_id": "d"},
        },
        "update_display_data": {
            "data": {"text/plain": "y"}, "metadata": {}, "transient": {"display_id": "d"},
        },
        "execute_result": {"data": {"text/plain": "2"}, "metadata": {}, "execution_count": 1},
        "error": {"ename": "E", "evalue": "e", "traceback": ["a", "b"]},
        "clear_output": {"wait": True},
        "comm_open": {
            "comm_id": "c", "target_name": "jupyter.widget",
            "data": {"state": {"_model_name": "OutputModel", "msg_id": ""}},
        },
        "comm_msg": {"comm_id": "c", "data": {"method": "update", "state": {"msg_id": "m"}}},
        "comm_close": {"comm_id": "c", "data": {}},
        "debug_event": {},
    },
    "shell": {
        "execute_reply": {
            "status": "ok", "execution_count": 1, "payload": [],
            "user_expressions": {"taken": {"data": {"text/plain": "1"}}},
        },
        "kernel_info_reply": {"status": "ok", "banner": ""},
    },
    "control": {"interrupt_reply": {"status": "ok"}, "execute_reply": {"status": "error"}},
    "stdin": {
        "input_request": {"prompt": 'kernel-agent/1 {"id": 1, "calls": []}', "password": False},
        "comm_msg": {},
    },
}  # fmt: skip


class Wire(asyncio.Transport):
    """Takes what the client sends and keeps none of it."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self.sent = 0
        self._reads = True

    def write(self, data: Any) -> None:
        """Count it."""
        self.sent += len(data)

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def abort(self) -> None:
        """Be closed."""
        self.closed = True

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self.closed

    def is_reading(self) -> bool:
        """Whether more may come."""
        return self._reads

    def pause_reading(self) -> None:
        """Nothing comes by itself."""
        self._reads = False

    def resume_reading(self) -> None:
        """Nothing comes by itself."""
        self._reads = True


@dataclass
class Figures:
    """What so many messages did."""

    messages: int = 0
    connections_lost: int = 0
    ignored: int = 0
    asked: int = 0
    unexpected: list[str] = field(default_factory=list)
    longest_ms: float = 0.0
    longest: str = ""


class Hostile:
    """Sends to one client after the other, each in a state of its own.

    Parameters
    ----------
    seed
        Of what is sent.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.figures = Figures()

    async def send(self, count: int) -> Figures:
        """Send so many messages."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(
            lambda _, context: self.figures.unexpected.append(repr(context)[:500])
        )
        while self.figures.messages < count:
            await self._one_client(min(200, count - self.figures.messages))
        loop.set_exception_handler(None)
        return self.figures

    async def _one_client(self, count: int) -> None:
        client = KernelClient(INFO)
        wires = {}
        for name, channel in client._channels.items():
            wires[name] = Wire()
            channel.connection_made(wires[name])
            channel.data_received(PEER)
        cells: list[Cell] = []
        for _ in range(count):
            self._change_state(client, cells)
            name = self.random.choice(list(wires))
            if wires[name].closed:
                break
            self._deliver(client, name, self._bytes(client, name, cells))
            self.figures.messages += 1
            if self.random.random() < 0.2:
                await asyncio.sleep(0)
        for cell in cells:
            cell.collector.outputs()
            _ = cell.error
        self.figures.ignored += client.ignored
        self.figures.connections_lost += client.lost.done()
        await asyncio.sleep(0)
        await client.close()

    def _change_state(self, client: KernelClient, cells: list[Cell]) -> None:
        if self.random.random() < 0.1:

            async def answer(text: str) -> str:
                self.figures.asked += 1
                await asyncio.sleep(0)
                return text[:10]

            cells.append(
                client.execute(
                    "1", step=1, on_request=self.random.choice((None, answer)),
                    expressions=self.random.choice((None, {"taken": "1"})),
                )
            )  # fmt: skip
        if cells and self.random.random() < 0.1:
            client.forget(self.random.choice(cells))

    def _deliver(self, client: KernelClient, name: str, data: bytes) -> None:
        cut = self.random.randrange(len(data) + 1) if self.random.random() < 0.3 else len(data)
        before = time.thread_time()
        try:
            for part in (data[:cut], data[cut:]):
                if part:
                    client._channels[name].data_received(part)
        except Exception as error:
            self.figures.unexpected.append(f"{name}: {error!r}")
        took = (time.thread_time() - before) * 1000
        if took > self.figures.longest_ms:
            self.figures.longest_ms = took
            self.figures.longest = f"{name}, {len(data):,} bytes: {data[:60]!r}"

    def _bytes(self, client: KernelClient, name: str, cells: list[Cell]) -> bytes:
        kind = self.random.choice(list(CONTENTS[name]))
        parent = {"header": {"msg_id": self.random.choice([*client._cells, "none"])}}
        message = client._session.msg(kind, json.loads(json.dumps(CONTENTS[name][kind])), parent)
        message["metadata"] = {"kernel_agent": {"variables": {"added": [["a", "int", "", 1]]}}}
        for _ in range(self.random.choice((0, 1, 1, 2))):
            self._change(message)
        frames = [
            json.dumps(message[part], default=str).encode()
            for part in ("header", "parent_header", "metadata", "content")
        ]
        if self.random.random() < 0.2:
            place = self.random.randrange(4)
            frames[place] = self._changed_bytes(frames[place])
        signature = client._session.sign(frames)
        sent = [b"topic", b"<IDS|MSG>", signature, *frames]
        if self.random.random() < 0.1:
            place = self.random.randrange(len(sent))
            sent[place] = self._changed_bytes(sent[place])
        if self.random.random() < 0.05:
            del sent[self.random.randrange(len(sent))]
        if self.random.random() < 0.05:
            sent.insert(self.random.randrange(len(sent)), self.random.randbytes(9))
        data = zmtp.message(sent)
        return self._changed_bytes(data) if self.random.random() < 0.02 else data

    def _change(self, value: Any) -> None:
        """Put something hostile somewhere into a value."""
        while isinstance(value, dict | list) and value:
            key = self.random.choice(list(value) if isinstance(value, dict) else range(len(value)))
            if isinstance(value[key], dict | list) and value[key] and self.random.random() < 0.7:
                value = value[key]
                continue
            value[key] = self.random.choice(HOSTILE)(self.random)
            return

    def _changed_bytes(self, data: bytes) -> bytes:
        changed = bytearray(data or b"x")
        match self.random.randrange(4):
            case 0:
                changed[self.random.randrange(len(changed))] = self.random.randrange(256)
            case 1:
                del changed[self.random.randrange(len(changed)) :]
            case 2:
                at = self.random.randrange(len(changed))
                changed[at:at] = self.random.choice((b'"', b"[" * 5000, b"\\", b",", b"{", b"\xff"))
            case 3:
                changed += self.random.randbytes(20)
        return bytes(changed)


def main() -> None:
    """Send as many messages as the command line says, and print the figures."""
    warnings.simplefilter("error")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures = asyncio.run(Hostile(seed=7).send(int(sys.argv[1])))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    print(figures, f"grown by {grown} MB")


if __name__ == "__main__":
    main()
