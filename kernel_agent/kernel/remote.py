"""A kernel that somebody else's provisioner starts, on another machine.

It is a stock ipykernel, reached over TCP with signed messages. The agent's additions
(``final_answer``, ``outputs[k]``, host tools) are sent to it as source when it has started. There
is no common folder: small inputs are sent, and what cells write stays there.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jupyter_client.manager import AsyncKernelManager

from kernel_agent.errors import InputError, KernelError, KernelStartError
from kernel_agent.kernel.process import KernelSession

INSIDE = Path(__file__).resolve().parent.parent / "inkernel"
# In the order of their imports.
MODULES = (
    "outputs", "variables", "answers", "room", "schemas", "frames", "tables", "values", "plain",
    "preview", "hints", "display", "rpc", "delegate", "stream", "opcount", "transfer",
    "app", "attach",
)  # fmt: skip
SENT_MAX = 50_000_000  # bytes of inputs
PIECE = 1_000_000
SHUTDOWN_GRACE_S = 5.0

_LOAD = """\
import json as _json, sys as _sys, types as _types
_package = _sys.modules["_kernel_agent_inside"] = _types.ModuleType("_kernel_agent_inside")
_package.__path__ = []
for _name, _source in _json.loads({sources!r}):
    _module = _types.ModuleType("_kernel_agent_inside." + _name)
    _module.__package__ = "_kernel_agent_inside"
    _sys.modules[_module.__name__] = _module
    setattr(_package, _name, _module)
    _module.__file__ = "_kernel_agent_inside/" + _name + ".py"
    exec(compile(_source, _module.__file__, "exec"), _module.__dict__)
_package.attach.adopt(_json.loads({settings!r}))
del _json, _sys, _types, _package, _name, _source, _module
"""


class RemoteKernel(KernelSession):
    """A kernel of a kernelspec that is configured, as an async context manager.

    Parameters
    ----------
    sandbox
        Its level.
    kernelspec
        The name of the kernelspec; its provisioner starts the kernel.
    environment
        What the provisioner and the kernel are told: it leaves this machine, so no keys.
    inputs
        Files to send, by the path at which cells find them.
    cwd, tools, max_operations
        As in :class:`KernelSession`; ``cwd`` is a folder of this machine.
    """

    poll_s = 2.0  # each look is a message to another machine
    misses = 3  # a busy machine may not answer one
    way_s = 3.0

    def __init__(
        self,
        *,
        sandbox: str,
        kernelspec: str,
        environment: Mapping[str, str],
        inputs: Mapping[str, Path],
        cwd: Path,
        tools: Sequence[dict[str, Any]] = (),
        max_operations: int | None = None,
    ) -> None:
        super().__init__(cwd=cwd, sandbox=sandbox, tools=tools, max_operations=max_operations)
        self._kernelspec = kernelspec
        self._environment = dict(environment)
        self._inputs = inputs

    def _make_manager(self, directory: Path) -> AsyncKernelManager:
        size = sum(path.stat().st_size for path in self._inputs.values())
        if size > SENT_MAX:
            raise InputError(
                f"the inputs have {size:,} bytes; a remote kernel is sent at most {SENT_MAX:,}: "
                "put them where it can read them, and name the place in the task"
            )
        return AsyncKernelManager(
            kernel_name=self._kernelspec, connection_file=str(directory / "k.json")
        )

    async def _launch(self, manager: AsyncKernelManager, _log: Path) -> None:
        await manager.start_kernel(env=self._environment)

    async def _settle(self) -> None:
        sources = [[name, (INSIDE / f"{name}.py").read_text()] for name in MODULES]
        await self._prepare(
            _LOAD.format(sources=json.dumps(sources), settings=json.dumps(self._settings))
        )
        for name, path in self._inputs.items():
            data = await asyncio.to_thread(path.read_bytes)
            for start in range(0, len(data) or 1, PIECE):
                piece = base64.b64encode(data[start : start + PIECE]).decode()
                await self._prepare(
                    "__import__('sys').modules['_kernel_agent_inside.attach']"
                    f".receive({name!r}, {piece!r})"
                )
        provisioner: Any = self._manager.provisioner if self._manager else None
        self.sandbox_report = {
            "level": self.sandbox,
            "holds": {},
            "facts": {"kernelspec": self._kernelspec, "provisioner": type(provisioner).__name__},
        }

    async def _prepare(self, source: str) -> None:
        try:
            await self._run_ours(source)
        except KernelError as error:
            raise KernelStartError(f"the remote kernel could not be prepared: {error}") from None

    async def _end(self, manager: AsyncKernelManager) -> None:
        if manager.provisioner is not None:
            await manager.provisioner.kill()
            await manager.provisioner.cleanup()
        await manager.cleanup_resources()
