"""A Jupyter application with one sandboxed kernel, as jupyter_client makes both."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.ioloop.manager import AsyncIOLoopKernelManager

from kernel_agent.cli.kernelspec import specification

Messages = list[dict[str, Any]]


class App:
    """A Jupyter application with one kernel, as jupyter_client makes both."""

    def __init__(self, manager: AsyncIOLoopKernelManager, client: AsyncKernelClient) -> None:
        self.manager = manager
        self.client = client

    async def run(self, code: str, **more: Any) -> tuple[Messages, dict[str, Any]]:
        """Run a cell; return its outputs, and the content of its reply."""
        asked = self.client.execute(code, **more)
        outputs: Messages = []
        while True:
            message = await self.client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != asked:
                continue
            if message["content"].get("execution_state") == "idle":
                break
            if message["msg_type"] not in ("status", "execute_input"):
                outputs.append(message)
        return outputs, await self.reply(asked)

    async def reply(self, asked: str) -> dict[str, Any]:
        while True:
            message = await self.client.get_shell_msg(timeout=60)
            if message["parent_header"].get("msg_id") == asked:
                return dict(message["content"])

    async def text(self, code: str) -> str:
        """Run a cell; return what it has printed."""
        outputs, _ = await self.run(code)
        return "".join(m["content"]["text"] for m in outputs if m["msg_type"] == "stream")


@asynccontextmanager
async def application(
    folder: Path, level: str, *, live: bool = False, **traits: Any
) -> AsyncIterator[App]:
    place = folder / "share" / "kernels" / "boxed"
    place.mkdir(parents=True)
    (place / "kernel.json").write_text(json.dumps(specification(level, live_displays=live)))
    (folder / "work").mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder / "share"))
        manager = AsyncIOLoopKernelManager(kernel_name="boxed", **traits)
        await manager.start_kernel(cwd=str(folder / "work"))
        client = manager.client()
        client.start_channels()
        try:
            await client.wait_for_ready(timeout=90)
            yield App(manager, client)
        finally:
            client.stop_channels()
            await manager.shutdown_kernel(now=True)
