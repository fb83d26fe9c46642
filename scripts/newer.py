"""Print the packages of this environment whose versions are not those of ``constraints.txt``."""

import re
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement

LINES = (Path(__file__).parents[1] / "constraints.txt").read_text().splitlines()


def pins() -> dict[str, str]:
    """Return the version of each package that is pinned for this interpreter."""
    wanted = [Requirement(line) for line in LINES if line]
    return {p.name: str(p.specifier) for p in wanted if not p.marker or p.marker.evaluate()}


if __name__ == "__main__":
    pinned = pins()
    for found in sorted(distributions(), key=lambda d: d.name.lower()):
        name = re.sub(r"[-_.]+", "-", found.name).lower()
        if name in pinned and pinned[name] != f"=={found.version}":
            print(f"{name} {pinned[name]} -> {found.version}")
