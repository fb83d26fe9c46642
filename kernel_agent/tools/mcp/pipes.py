"""The stdio transport (MCP 2025-11-25, Transports): a program, one JSON-RPC message a line.

In the place of the client's own, because a line's length and its items are bounded here, what the
program writes to its error channel stays off the terminal, its exit code is known, and it is gone
two seconds after it was asked to go, with all that it started.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from kernel_agent.safe import QUICK_CHARS, count, one_line
from kernel_agent.tools.threads import in_thread

MESSAGE_MAX = 32_000_000  # bytes of one line, as of a reply to the kernel
JUNK_MAX = 1_000  # lines that are no messages: some print their log there, but not for ever
PATIENCE_S = 1.0  # for each way of asking a program to end
_TAIL = 4_000  # characters of the error channel that are kept
# Where the official libraries write the number of the request that a message answers.
_ANSWERS = re.compile(rb'\s*\{"jsonrpc":\s?"2.0",\s?"id":\s?(\d{1,15}),')
_ERROR = re.compile(r"\W*([\w.]*(Error|Exception)\b|npm error code )")


@asynccontextmanager
async def pipes(
    command: Sequence[str], env: Mapping[str, str], ended: Callable[[str], None]
) -> AsyncIterator[Any]:
    """Start a program and yield its two message streams; it is gone when the context is left.

    Parameters
    ----------
    command
        The program and its arguments; no shell is between.
    env
        The whole environment that it is given.
    ended
        Called once, with the reason, when the program stops talking before it was asked to.

    Raises
    ------
    OSError
        The program cannot be started.
    """
    import anyio

    process = await asyncio.create_subprocess_exec(
        *command,
        env=dict(env),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=MESSAGE_MAX,
        start_new_session=True,
    )
    to_client, incoming = anyio.create_memory_object_stream[Any](0)
    outgoing, from_client = anyio.create_memory_object_stream[Any](0)
    errors = bytearray()

    async def read() -> None:
        async with to_client:  # calls fail when it closes, and by then the reason is known
            reason = await _messages(process, to_client)
            if not reason:
                with suppress(TimeoutError):
                    await _wait_for_exit(process, PATIENCE_S)
                reason = _exit_reason(process.returncode, errors)
            ended(reason)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(_write, process, from_client)
        tasks.start_soon(_drain, process, errors)
        try:
            yield incoming, outgoing
        finally:
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await _end(process)
                incoming.close()
                outgoing.close()


async def _write(process: asyncio.subprocess.Process, from_client: Any) -> None:
    """Send the client's messages to the program."""
    assert process.stdin is not None
    async with from_client:
        async for message in from_client:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            with suppress(OSError):  # it does not listen any more: reading finds the end
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()


async def _drain(process: asyncio.subprocess.Process, errors: bytearray) -> None:
    """Keep the end of what the program writes to its error channel."""
    assert process.stderr is not None
    while data := await process.stderr.read(65_536):
        errors.extend(data)
        del errors[:-_TAIL]


async def _messages(process: asyncio.subprocess.Process, to_client: Any) -> str:
    """Pass messages on until the end; return the reason when it is the program's fault."""
    import anyio
    from mcp.shared.message import SessionMessage

    assert process.stdout is not None
    junk = 0
    while True:
        try:
            line = await process.stdout.readline()
        except ValueError:
            return f"it sent a message of more than {MESSAGE_MAX // 1_000_000} MB"
        if not line:
            return ""
        too_many = await excess(line)
        try:
            message = SessionMessage(_too_many(line, too_many) if too_many else _read(line))
        except ValueError:
            junk += 1
            if junk > JUNK_MAX:
                return "it does not speak the protocol"
            continue
        except _Unanswerable:
            return f"it sent a message of {too_many}"
        try:
            await to_client.send(message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return "the session is over"


class _Unanswerable(Exception):
    """A message that is not read, and answers an unknown request."""


def _read(line: bytes) -> Any:
    from mcp_types import jsonrpc_message_adapter
    from pydantic_core import from_json

    # ``validate_json`` would make the values anew for each kind of message that it tries: 105 ms
    # for 74,000 objects in one step, where this takes 3.
    return jsonrpc_message_adapter.validate_python(from_json(line), by_name=False)


def _too_many(line: bytes, what: str) -> Any:
    """Return the error in place of an answer that is not read."""
    from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError

    found = _ANSWERS.match(line)
    if found is None:
        raise _Unanswerable
    error = ErrorData(code=INTERNAL_ERROR, message=f"its answer has {what}")
    return JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error)


async def excess(message: bytes) -> str:
    """Return how far a message exceeds the limits; empty if it does not."""
    try:
        if len(message) <= QUICK_CHARS:
            count(message)
        else:
            await in_thread(count, message)
    except UnicodeDecodeError:
        return ""  # reading it says so
    except ValueError as error:
        return str(error).partition(":")[0]
    return ""


def _exit_reason(code: int | None, errors: bytearray) -> str:
    """Describe how a program ended, with its last complaint."""
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    # npm and node say more after the error: where a log is, a version.
    wrong = [line for line in lines if _ERROR.match(line)] if code else []
    last = f": {one_line((wrong or lines)[-1])}" if lines else ""
    if code is None:
        return f"it closed its output{last}"
    if code < 0:
        return f"it was ended by signal {-code}{last}"
    return f"it ended with exit code {code}{last}"


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a program: close its input, then terminate it, then kill it."""
    assert process.stdin is not None
    process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            _signal(process, number)
        with suppress(TimeoutError):
            await _wait_for_exit(process, PATIENCE_S)
            break
    _signal(process, signal.SIGKILL)  # what it started may be left in its group
    # A descendant in another group may hold the pipes open: nothing public closes them.
    process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def _wait_for_exit(process: asyncio.subprocess.Process, seconds: float) -> None:
    """Wait for the exit code; ``process.wait`` would also wait for others that hold its pipes.

    Not with ``asyncio.timeout``: in a cancelled task that raises nothing before Python 3.11.3.
    """
    now = asyncio.get_running_loop().time
    end = now() + seconds
    while process.returncode is None:
        if now() > end:
            raise TimeoutError
        await asyncio.sleep(0.01)
