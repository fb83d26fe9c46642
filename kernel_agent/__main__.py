"""The first lines of the command: ``kernel-agent`` and ``python -m kernel_agent`` begin here.

They import next to nothing, so that Ctrl-C in the quarter of a second in which the rest is imported
ends the command as it does later: with one line.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command; the entry point of ``kernel-agent``."""
    try:
        from kernel_agent.cli import main as command
    except KeyboardInterrupt:
        sys.stderr.write("kernel-agent: stopped\n")
        sys.exit(130)
    command()


if __name__ == "__main__":
    main()
