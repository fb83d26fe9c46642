"""What all sessions have in common, told once for all of them: the keys of what they leave.

Of each kind of thing (a note of the panel, a cell, a record of a trace) the keys are told that all
have, and those that some have; of pages, the styles.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from goldens.telling import wrapped


class Shared:
    """Keys by kind, from however many things of that kind."""

    def __init__(self) -> None:
        self._all: dict[str, set[str]] = {}
        self._some: dict[str, set[str]] = {}

    def add(self, kind: str, keys: Iterable[str]) -> None:
        """Take in the keys of one thing."""
        found = set(keys)
        self._all[kind] = self._all.get(kind, found) & found
        self._some.setdefault(kind, set()).update(found)

    def notes(self, told: Iterable[Mapping[str, Any]]) -> None:
        """Take in what the panel is told."""
        for note in told:
            self.add(f"note {note['op']}", note)

    def notebook(self, text: str) -> None:
        """Take in a notebook and its cells."""
        book = json.loads(text)
        self.add("notebook", _deep({**book, "cells": 0}))
        for cell in book["cells"]:
            role = cell["metadata"]["kernel_agent"]["role"]
            shape = "id " + re.sub(r"\d+", "N", cell["id"])
            self.add(f"cell {role}", {*_deep({**cell, "source": 0, "outputs": 0}), shape})

    def trace(self, text: str) -> None:
        """Take in the records of a trace."""
        for line in text.splitlines():
            record = json.loads(line)
            self.add(f"record {record['$']}", record)

    def text(self) -> str:
        """Return all kinds with their keys."""
        lines = []
        for kind, some in sorted(self._some.items()):
            keys = (f"{k}{'' if k in self._all[kind] else ' (not always)'}" for k in sorted(some))
            lines.extend(wrapped(f"=== {kind}", keys))
        return "\n".join(lines) + "\n"


def _deep(value: Mapping[str, Any], path: str = "") -> set[str]:
    """Return the paths of what an object holds, but for names that are not ours to choose."""
    keys: set[str] = set()
    for name, part in value.items():
        at = f"{path}{name}"
        inner = isinstance(part, Mapping) and part and name not in ("texts", "versions")
        keys |= _deep(part, f"{at}.") if inner else {at}
    return keys
