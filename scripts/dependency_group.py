"""Print the packages of a dependency group, those of the groups that it includes among them.

Only recent versions of pip know ``--group``.
"""

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

GROUPS = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())


def packages(group: str) -> Iterator[str]:
    for entry in GROUPS["dependency-groups"][group]:
        if isinstance(entry, dict):
            yield from packages(entry["include-group"])
        else:
            yield entry


if __name__ == "__main__":
    print(*packages(sys.argv[1]), sep="\n")
