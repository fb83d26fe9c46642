"""Run a relay until its standard input ends: ``python -P -m kernel_agent.adapters.jupyter``.

The provisioner starts it beside a kernel and writes one line of JSON, the fields of
:class:`.relay.Told`. When whoever started it ends, whatever the way, so does the relay.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys

from kernel_agent.adapters.jupyter.relay import Relay, Told

MEMORY = 3 << 30  # bytes of address space: a hostile kernel ends its own relay and nothing else


async def main() -> None:
    """Relay until the input ends."""
    told = Told(**json.loads(sys.stdin.readline()))
    relay = asyncio.create_task(Relay(told).run())
    ended = asyncio.create_task(_ended())
    await asyncio.wait({relay, ended}, return_when=asyncio.FIRST_COMPLETED)
    if relay.done():
        relay.result()
    relay.cancel()
    await asyncio.wait({relay})


async def _ended() -> None:
    """Wait until nobody holds the other end of the input."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(1000):
        pass


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    asyncio.run(main())
