"""The host's side of a kernel that sends anything, loses its connections, or sends too much."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from hostile_kernel import INFO, PEER, Hostile, Wire
from support.waiting import until

from kernel_agent.errors import KernelDied
from kernel_agent.kernel import client as client_module
from kernel_agent.kernel import zmtp
from kernel_agent.kernel.client import KernelClient
from kernel_agent.kernel.process import KernelSession

COUNT = int(os.environ.get("KERNEL_AGENT_TEST_MESSAGES", "2000"))
LEVEL = os.environ.get("KERNEL_AGENT_TEST_SANDBOX", "auto")


async def test_nothing_that_a_kernel_sends_is_an_unexpected_error() -> None:
    """With KERNEL_AGENT_TEST_MESSAGES=100000 for as many messages."""
    figures = await Hostile(seed=COUNT).send(COUNT)
    assert figures.unexpected == []
    assert figures.messages == COUNT
    assert figures.ignored > COUNT / 10  # much of it was hostile enough to be refused
    assert figures.asked > 0


class Connected:
    """A client whose kernel is the test."""

    def __init__(self) -> None:
        self.client = KernelClient(INFO)
        self.wires = {}
        for name, channel in self.client._channels.items():
            self.wires[name] = Wire()
            channel.connection_made(self.wires[name])
            channel.data_received(PEER)

    async def say(self, name: str, kind: str, content: Any, parent: str = "") -> None:
        session = self.client._session
        told = session.msg(kind, content, {"header": {"msg_id": parent}})
        data = zmtp.message(session.serialize(told, ident=b"topic"))
        for start in range(0, len(data), 100_000):
            self.client._channels[name].data_received(data[start : start + 100_000])
        while self.client._channels[name]._chunks and self.wires[name].is_reading():
            await asyncio.sleep(0)


async def test_an_output_that_is_too_large_is_left_out_with_a_note_and_the_cell_goes_on() -> None:
    kernel = Connected()
    cell = kernel.client.execute("1", step=1)
    [asked] = kernel.client._cells
    huge = {"data": {"image/png": "x" * 25_000_000}, "metadata": {}}
    many = {"data": {"a": [0] * 400_000}, "metadata": {}}
    await kernel.say("iopub", "stream", {"name": "stdout", "text": "before"}, asked)
    await kernel.say("iopub", "display_data", huge, asked)
    await kernel.say("iopub", "display_data", many, asked)
    await kernel.say("iopub", "status", {"execution_state": "idle"}, asked)
    await kernel.say("shell", "execute_reply", {"status": "ok"}, asked)
    await cell.over
    before, note = cell.collector.outputs()
    assert before["text"] == "before"
    assert note["text"] == "… 2 outputs of 26.2 MB were left out: too large for one output …\n"
    await kernel.client.close()


async def test_a_reply_that_is_too_large_ends_the_cell_with_an_error() -> None:
    kernel = Connected()
    for reply in ({"evalue": "x" * 25_000_000}, {"evalue": [0] * 400_000}):
        cell = kernel.client.execute("1", step=1)
        [asked] = kernel.client._cells
        await kernel.say("iopub", "status", {"execution_state": "idle"}, asked)
        await kernel.say("shell", "execute_reply", {"status": "ok", **reply}, asked)
        await cell.over
        assert cell.error is not None
        assert "too large" in cell.error.evalue
        kernel.client.forget(cell)
    await kernel.client.close()


async def test_the_kernel_waits_while_the_calls_under_way_are_too_many_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "MAX_UNDER_WAY", 1_000_000)
    kernel, go_on, begun = Connected(), asyncio.Event(), 0

    async def answer(_text: str) -> str:
        nonlocal begun
        begun += 1
        await go_on.wait()
        return "done"

    kernel.client.execute("1", step=1, on_request=answer)
    [asked] = kernel.client._cells
    for _ in range(20):
        await kernel.say("stdin", "input_request", {"prompt": "x" * 100_000}, asked)
    await until(lambda: begun == 10 and not kernel.wires["stdin"].is_reading())
    go_on.set()
    async with asyncio.timeout(60):
        while begun < 20 or not kernel.wires["stdin"].is_reading():
            await asyncio.sleep(0)
    await kernel.client.close()


async def test_a_kernel_that_loses_a_connection_is_ended_and_said_to_be_lost(
    tmp_path: Path,
) -> None:
    """A cell ended the connection, so that the host comes back to a listener of its own."""
    shut = (
        "import os, socket, time\n"
        "app = get_ipython().kernel.parent\n"
        "path = f'{app.ip}-{app.stdin_port}'\n"
        "for number in os.listdir('/proc/self/fd'):\n"
        "    try:\n"
        "        own = socket.socket(fileno=os.dup(int(number)))\n"
        "        if own.getsockname() == path and not own.getsockopt(socket.SOL_SOCKET, 30):\n"
        "            own.shutdown(socket.SHUT_RDWR)\n"
        "    except OSError: pass\n"
        "time.sleep(60)"
    )
    async with KernelSession(cwd=tmp_path, sandbox=LEVEL) as kernel:
        result = await kernel.execute(shut)
        assert result.status == "dead"
        assert result.error is not None
        assert result.error.evalue == (
            "it is not connected to the host any more: the connection ended (stdin)"
        )
        with pytest.raises(KernelDied, match="not connected to the host"):
            await kernel.execute("1")
        await kernel.restart()
        assert (await kernel.execute("1")).ok
