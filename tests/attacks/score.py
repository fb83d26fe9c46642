"""How the host sees that an attack succeeded, and the verdict that follows."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from attacks.words import Attack, Effect, Report, Result

if TYPE_CHECKING:
    from attacks.stage import Stage

MARGIN = 1.25  # how far a limit may be passed before it counts as not holding
MARGINS = {"disk_mb": 2.5}  # a watchdog looks twice a second and waits a second for the cell to end
STANDSTILL_MS = 500
"""How long the host's loop may stand still before an attack counts as not stopped.

The bound that the program keeps on a quiet machine is 50 ms; here the sandbox, the suite and the
host share two processors, and a loop that is merely not scheduled looks the same.
"""


def returned(*canaries: str) -> Effect:
    """Tell that the secret of one of these canaries came back."""

    def effect(stage: Stage, report: Report) -> str:
        found = [name for name in canaries if stage.secrets[name] in report.text]
        return f"the secret of {', '.join(found)} came back" if found else ""

    effect.looks_for_secrets = True  # type: ignore[attr-defined]  # its text is loot, not a claim
    return effect


def reached(*servers: str) -> Effect:
    """Tell that a server heard the attack's token."""

    def effect(stage: Stage, report: Report) -> str:
        time.sleep(0.05)  # a moment: a server's thread may still be reading
        heard = [s for s in servers if s in stage.servers and _heard(stage, s)]
        return f"the {', '.join(heard)} server was reached" if heard else ""

    return effect


def _heard(stage: Stage, server: str) -> bool:
    return stage.token.encode() in stage.servers[server].heard


def changed(*files: str) -> Effect:
    """Tell that a planted file is not as it was."""

    def effect(stage: Stage, report: Report) -> str:
        seen = [f"{name}: {what}" for name in files if (what := stage.changes(name))]
        return f"changed on the host: {'; '.join(seen)}" if seen else ""

    return effect


def appeared(*places: str) -> Effect:
    """Tell that a file with the attack's token lies in one of these places outside.

    A place is an attribute of the stage (``home``, ``root``), or a path.
    """

    def effect(stage: Stage, report: Report) -> str:
        seen = []
        for place in places:
            top = getattr(stage, place) if not place.startswith("/") else Path(place)
            seen += [path for path in _files(top) if stage.token in path.rpartition("/")[2]]
        for path in seen:
            Path(path).unlink(missing_ok=True)
        where = sorted({path.replace(str(stage.root), "…") for path in seen})
        return f"appeared on the host: {', '.join(where)}" if seen else ""

    return effect


def _files(top: Path) -> Iterator[str]:
    """Yield the files below a folder, however deep."""
    waiting = [str(top)]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as scan:
            for entry in scan:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    yield entry.path


def host_opened(stage: Stage, report: Report) -> str:
    """Tell that somebody opened a file that was watched and that the attack itself did not open."""
    count = stage.opened()
    return f"a file that a cell named was opened {count} times on the host" if count else ""


def runs_as_its_owner(stage: Stage, report: Report) -> str:
    """Tell that a file in the workspace has a mode by which it is run as its owner."""
    seen = [
        f"{path.name}: {mode & 0o7777:o}"
        for path in stage.workspace.rglob("*")
        if stat.S_ISREG(mode := path.lstat().st_mode) and mode & 0o6000
    ]
    return f"left in the workspace: {', '.join(seen)}" if seen else ""


def victim_ended(stage: Stage, report: Report) -> str:
    """Tell that the victim process does not run any more."""
    time.sleep(0.05)  # a moment: in which it would end
    code = stage._victim.poll() if stage._victim else None
    return f"the victim ended with {code}" if code is not None else ""


def victim_changed(stage: Stage, report: Report) -> str:
    """Tell that the victim's memory holds the attack's token."""
    try:
        with Path(f"/proc/{stage.victim.pid}/mem").open("rb") as memory:
            memory.seek(stage.addresses["victim_address"])
            now = memory.read(len(stage.token))
    except OSError:
        return ""
    return "the victim's memory was changed" if now == stage.token.encode() else ""


def signalled(stage: Stage, report: Report) -> str:
    """Tell that the host's process got a signal."""
    return f"the host got {stage.signals} signals" if stage.signals else ""


def held(*kinds: str) -> Effect:
    """Tell that the sandbox's processes now hold a descriptor of a kind that they did not."""

    def effect(stage: Stage, report: Report) -> str:
        now = stage.look()
        more = [k for k in now if k.startswith(kinds) and now[k] > stage.before[k]]
        return f"the kernel holds {', '.join(sorted(more))}" if more else ""

    return effect


def more_than(*limits: str) -> Effect:
    """Tell that more was used, as the host measured it meanwhile, than was allowed."""

    def effect(stage: Stage, report: Report) -> str:
        over = [
            n for n in limits if stage.peak.get(n, 0) > stage.limits[n] * MARGINS.get(n, MARGIN)
        ]
        seen = [f"{name} {stage.peak[name]:,} of {stage.limits[name]:,}" for name in over]
        return f"used more than allowed: {', '.join(seen)}" if seen else ""

    return effect


def stood_still(limit_ms: int = STANDSTILL_MS) -> Effect:
    """Tell that the host's event loop did not turn for longer than this."""

    def effect(stage: Stage, report: Report) -> str:
        worst = stage.peak.get("standstill_ms", 0)
        return f"the host's event loop stood still for {worst:,} ms" if worst > limit_ms else ""

    return effect


def grew(limit_mb: int = 160) -> Effect:
    """Tell that the host's own memory grew by more than this."""

    def effect(stage: Stage, report: Report) -> str:
        worst = stage.peak.get("host_memory_mb", 0)
        return f"the host grew by {worst:,} MB" if worst > limit_mb else ""

    return effect


def never_ended(stage: Stage, report: Report) -> str:
    """Tell that what the host did with the attack had not ended when its time was up."""
    return "the host's process had not ended" if report.ended == "timeout" else ""


def either(*effects: Effect) -> Effect:
    """Tell what the first of several effects that is seen says."""

    def effect(stage: Stage, report: Report) -> str:
        return next((seen for e in effects if (seen := e(stage, report))), "")

    return effect


def verdict(
    attack: Attack,
    report: Report,
    seen: str,
    seconds: float = 0.0,
    measured: dict[str, int] | None = None,
) -> Result:
    """Return the verdict, from what the host saw and how the attack ended.

    What was seen on a canary is never argued away. Without it, an attack that was refused is
    stopped; one that went through, or ended its kernel, harmed only its own sandbox; one that is
    itself broken says nothing.
    """
    measured = measured or {}
    if seen:
        return Result(
            attack=attack.name,
            verdict="not stopped",
            seen=seen,
            seconds=seconds,
            measured=measured,
        )
    text = " ".join(report.text.split())[:160]
    match report.ended:
        case "refused":
            kind, what = "stopped", text
        case "returned" if not text or getattr(attack.effect, "looks_for_secrets", False):
            kind, what = "stopped", "found nothing of the host's"
        case "returned":
            kind, what = "contained", f"no effect outside; inside: {text}"
        case "dead":
            kind, what = "contained", "the kernel ended, nothing else did"
        case "timeout":
            kind, what = "contained", "interrupted; no effect outside"
        case _:
            kind, what = "not run", f"the attack is broken: {text}"
    return Result(
        attack=attack.name,
        verdict=kind,  # type: ignore[arg-type]
        seen=what,
        seconds=seconds,
        measured=measured,
    )
