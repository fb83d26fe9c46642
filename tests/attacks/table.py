# ruff: noqa: RUF001 - a dash stands for "not run"
"""``docs/attacks.md``, made from ``docs/attacks.json``: ``python -m attacks.table`` writes it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from attacks.words import BOUNDARY, CATEGORIES, VERDICTS

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "attacks.json"
WHENCE = "Made by `make attacks`. How it is measured: [how security is measured](how-measured.md)."
PAGE = ROOT / "docs" / "attacks.md"
SHORT = {"stopped": "stopped", "contained": "contained", "not stopped": "**NOT**", "not run": "–"}

LEGEND = """| word | says |
|---|---|
| stopped | refused, or it found nothing |
| contained | it went through, but harmed only its own sandbox |
| not stopped, **NOT** | the host saw an effect on a canary |
| not run, – | not played there, or its control does not succeed on this machine |
| two words in a cell | as an ordinary user / as root |
| `none` | the control: an ordinary user without any sandbox |
| not stopped of the boundary | of these, the attacks on what a level must hold |"""


def columns(told: dict[str, Any]) -> str:
    """Return why the rows of the counts do not add up to the same number, as Markdown."""
    first, wide = len(told["attacks"]), sorted({len(p["results"]) for p in told["played"]} - {0})
    whole = [f"`{part['level']}`" for part in told["played"] if len(part["results"]) == first]
    return (
        f"A row adds up to the attacks that were played there. All {first} were played by an "
        f"ordinary user at {' and '.join(whole)}. Elsewhere those are "
        "left out that the session stops and not the sandbox (a hostile server, table or file "
        "meets the program; what a browser shows): they come out the same at every level. "
        "Where a row adds up to fewer yet, some have not been played there (–). "
        "The sums of the rows: "
        f"{', '.join(map(str, wide))}."
    )


def page(told: dict[str, Any]) -> str:
    """Return all results as a page of Markdown, with a row for each attack."""
    levels = list(dict.fromkeys(part["level"] for part in told["played"]))
    parts = (
        "# Attacks",
        WHENCE,
        _played(told),
        "## The counts",
        LEGEND,
        _counts(told),
        columns(told),
        "## Each attack",
        *(_rows(told, category, levels) for category in CATEGORIES),
        _reasons(told),
    )
    return "\n\n".join(parts) + "\n"


def _played(told: dict[str, Any]) -> str:
    machine = told["machine"]
    days = sorted({part["date"] for part in told["played"]})
    return (
        f"{len(told['attacks'])} attacks, played on {' and '.join(days)}: Linux "
        f"{machine['kernel']}, {machine['processors']} processors, {machine['memory_gb']} GB, "
        f"Python {machine['python']}. What was seen of each stands in `docs/attacks.json`."
    )


def _counts(told: dict[str, Any]) -> str:
    lines = [
        "| level | started by | " + " | ".join(VERDICTS) + " | not stopped of the boundary |",
        "|---|---|" + "---|" * (len(VERDICTS) + 1),
    ]
    boundary = {a["name"] for a in told["attacks"] if a["category"] in BOUNDARY}
    for part in told["played"]:
        who = "root" if part["user"] == "root" else "an ordinary user"
        if not part["started"]:
            why = " ".join(part.get("reason", "").split())[:140].replace("|", "/")
            lines.append(f"| {part['level']} | {who} | did not start: {why} |" + " |" * 4)
            continue
        counts = Counter(r["verdict"] for r in part["results"])
        crossed = sum(
            r["verdict"] == "not stopped" and r["attack"] in boundary for r in part["results"]
        )
        numbers = [str(counts[verdict]) for verdict in VERDICTS] + [str(crossed)]
        lines.append(f"| {part['level']} | {who} | " + " | ".join(numbers) + " |")
    names = ", ".join(BOUNDARY)
    return "\n".join(lines) + f"\n\nThe boundary: {names} attacks."


def _rows(told: dict[str, Any], category: str, levels: list[str]) -> str:
    verdicts = {
        (part["level"], part["user"], r["attack"]): r["verdict"]
        for part in told["played"]
        for r in part["results"]
    }
    lines = [f"| {category} | " + " | ".join(levels) + " |", "|---|" + "---|" * len(levels)]
    for attack in told["attacks"]:
        if attack["category"] == category:
            cells = [_cell(verdicts, level, attack["name"]) for level in levels]
            lines.append(f"| {attack['title'].replace('|', '/')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(verdicts: dict[tuple[str, str, str], str], level: str, attack: str) -> str:
    both = [verdicts.get((level, user, attack), "not run") for user in ("user", "root")]
    if level == "none" or both[0] == both[1]:
        return SHORT[both[0]]
    return " / ".join(SHORT[verdict] for verdict in both)


def _reasons(told: dict[str, Any]) -> str:
    """Say which attacks could not succeed without a sandbox, and why."""
    by_reason: dict[str, list[str]] = {}
    for attack in told["attacks"]:
        if attack["no_control"]:
            by_reason.setdefault(attack["no_control"], []).append(attack["title"])
    lines = [f"- {reason}: {'; '.join(titles)}." for reason, titles in by_reason.items()]
    return "Attacks that cannot be shown to work for an ordinary user without a sandbox:\n\n" + (
        "\n".join(lines)
    )


def write() -> None:
    """Write the page of the results."""
    PAGE.write_text(page(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    write()
