"""Recorded transcripts through the formats and the kernel: what is read, and what agrees.

    python benchmarks/replay.py FILE… --sandbox LEVEL [--at-once N] [--every N]

Counts what ``kernel-agent eval FILE --replay`` counts and keeps the numbers, without a word of what
was recorded, in ``benchmarks/results/replay.json``. The recorded code is untrusted: it is run at a
sandbox level only. Packages that it imports (sympy for these) should be there, or it cannot agree.
"""

import argparse
import asyncio
import json
import os
import platform
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from kernel_agent.config import load_config
from kernel_agent.evaluation import replay_file, replay_text

RESULTS = Path(__file__).parent / "results" / "replay.json"
FORMATS = ("fenced", "envelope", "tool")


def main() -> None:
    """Replay every file, print the tables, and add the numbers to those that are kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--sandbox", required=True)
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--every", type=int, default=1, help="one episode in so many")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    kept = json.loads(options.out.read_text()) if options.out.exists() else {}
    for path in options.files:
        began = time.perf_counter()
        found = asyncio.run(
            replay_file(
                path, formats=FORMATS, sandbox=options.sandbox, config=load_config(),
                every=options.every, at_once=options.at_once,
            )
        )  # fmt: skip
        print(replay_text(found), end="\n\n", flush=True)
        numbers = asdict(found)
        del numbers["differences"]  # they quote the recording
        who = "root" if os.geteuid() == 0 else "ordinary user"
        kept[f"{path.name.partition('.jsonl')[0]}, {options.sandbox}, {who}"] = numbers | {
            "every": options.every,
            "seconds": round(time.perf_counter() - began, 1),
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
        }
        options.out.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
