"""How long a table takes into the kernel and out: ``python benchmarks/variables.py [LEVEL]``."""

import asyncio
import json
import statistics
import sys
import tempfile
import time

import numpy as np
import pandas as pd

from kernel_agent import ScriptedModel, Session

ROWS, COLUMNS, TIMES = 1_000_000, 5, 5


async def main(level: str) -> None:
    """Print the medians as JSON."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.random((ROWS, COLUMNS)), columns=list("abcde"))
    into, out = [], []
    with tempfile.TemporaryDirectory() as folder:
        async with Session(model=ScriptedModel([]), sandbox=level, out=f"{folder}/out") as session:
            for _ in range(TIMES):
                began = time.perf_counter()
                await session.put({"table": table})
                put = time.perf_counter()
                back = (await session.take(["table"]))["table"]
                taken = time.perf_counter()
                assert back.equals(table)
                into.append(put - began)
                out.append(taken - put)
    print(
        json.dumps(
            {
                "level": session.sandbox,
                "table": [ROWS, COLUMNS],
                "in_s": round(statistics.median(into), 2),
                "out_s": round(statistics.median(out), 2),
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or ["auto"]))
