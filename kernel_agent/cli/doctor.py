"""Check this machine: look at every part, and really start a kernel.

Nothing is sent to a model, and of a key only whether it is set is said.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import re
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from kernel_agent.config import Config, load_config
from kernel_agent.errors import KernelAgentError
from kernel_agent.models import ScriptedModel
from kernel_agent.safe import one_line, temporary_folder
from kernel_agent.sandbox import MODULES, level_of, probe
from kernel_agent.session import Session, allowance_line

UNUSABLE = 1

_NEEDED = (
    "ipykernel", "ipython", "jupyter_client", "nbformat", "pandas", "matplotlib", "openai",
    "pydantic", "typer", "rich", "ipywidgets",
)  # fmt: skip
_READERS = {"pyarrow": "Parquet", "openpyxl": "Excel"}
SHORT = 57  # characters beside the name: a line of a terminal of 80 columns


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check; ``needed`` says that nothing works without it.

    ``detail`` marks what explains the finding before it and is neither good nor bad.
    """

    name: str
    text: str
    ok: bool = True
    needed: bool = True
    detail: bool = False


def examine(say: Callable[[str], None], *, verbose: bool = False) -> int:
    """Check everything, say the verdict and then each finding, and return the exit code.

    Parameters
    ----------
    say
        Takes a line.
    verbose
        Whether every package has a line of its own, and every level says what it covers.
    """
    found = list(findings())
    usable = all(finding.ok or not finding.needed for finding in found)
    say("Everything that is needed works." if usable else "Something that is needed is missing.")
    say("")
    for finding in found if verbose else summarise(found):
        mark = "" if finding.detail else "ok" if finding.ok else "BAD" if finding.needed else "-"
        say(f"{mark:<4} {finding.name:<16} {_fitted(finding, verbose=verbose)}")
    if not verbose:
        say("\nMore of each: kernel-agent doctor --verbose")
    return 0 if usable else UNUSABLE


def _fitted(finding: Finding, *, verbose: bool) -> str:
    """Return a finding's text in one line; what is short ends after a word, but a list is whole."""
    text = one_line(finding.text, 2000)
    if verbose or (not finding.ok and finding.needed):
        return text
    if finding.name.startswith("levels"):
        return f"\n{'':<22}".join(textwrap.wrap(text, SHORT))
    return textwrap.shorten(text, SHORT, placeholder=" …")


def summarise(found: Sequence[Finding]) -> Iterator[Finding]:
    """Yield a line for each thing: packages and levels that work share one."""
    told = set()
    for finding in found:
        kind = _KINDS.get(finding.name) or finding.name.partition(" ")[0]
        if finding.detail:
            continue
        if kind not in _SHARED:
            yield finding
        elif kind not in told:
            told.add(kind)
            group = [f for f in found if (_KINDS.get(f.name) or f.name.partition(" ")[0]) == kind]
            yield from _SHARED[kind](group)


def _packages(group: Sequence[Finding]) -> Iterator[Finding]:
    """Yield one line where all are there, and one for each that is not."""
    there = [finding for finding in group if finding.ok]
    if there:
        yield Finding(name="packages", text=f"{len(there)} of {len(group)} that are needed")
    yield from (finding for finding in group if not finding.ok)


def _readers(group: Sequence[Finding]) -> Iterator[Finding]:
    there = [_READERS[finding.name] for finding in group if finding.ok]
    if there:
        yield Finding(name="files", text=f"CSV, JSON, {', '.join(there)}")
    yield from (finding for finding in group if not finding.ok)


def _level_names(group: Sequence[Finding]) -> Iterator[Finding]:
    for works, name in ((True, "levels"), (False, "levels not here")):
        names = [finding.name.removeprefix("level ") for finding in group if finding.ok is works]
        if names:
            yield Finding(name=name, text=", ".join(names), ok=works, needed=False)


def findings() -> Iterator[Finding]:
    """Yield one finding after another."""
    yield Finding(name="python", text=f"{platform.python_version()} ({sys.executable})")
    yield from map(_package, _NEEDED)
    yield from (_reader(name, kind) for name, kind in _READERS.items())
    try:
        told: list[str] = []
        config = load_config(tell=told.append)
    except KernelAgentError as error:
        yield Finding(name="configuration", text=str(error), ok=False)
        return
    yield from (Finding(name="configuration", text=line) for line in told)
    yield from _model(config)
    yield from _levels(config)
    yield from _kernel(dataclasses.replace(config, data=()))
    yield _output_folder(Path("runs"))


def _package(name: str) -> Finding:
    version = _version(name)
    return Finding(name=name, text=version or "not installed", ok=version is not None)


def _reader(name: str, kind: str) -> Finding:
    version = _version(name)
    missing = f"not installed: {kind} files cannot be read (pip install {name})"
    text = f"{version} (reads {kind} files)" if version else missing
    return Finding(name=name, text=text, ok=version is not None, needed=False)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _model(config: Config) -> Iterator[Finding]:
    key = bool(os.environ.get(config.api_key_env))
    endpoint = re.sub("//[^/]*@", "//…@", config.base_url or "")  # it may carry a password
    yield Finding(name="key", text=f"{config.api_key_env} is {'set' if key else 'not set'}")
    yield Finding(
        name="endpoint", text=endpoint or ("the OpenAI API" if key else "none configured")
    )
    if key or config.base_url or config.context_tokens:
        yield Finding(name="context", text=allowance_line(config))
    if config.model:
        yield Finding(name="model", text=config.model)
    elif key or config.base_url:
        text = "none named: the one that the endpoint serves, or name one with --model"
        yield Finding(name="model", text=text)
    else:
        text = "offline, the built-in rule-based analyst; for a real one set a key and --model"
        yield Finding(name="model", text=text)


def _levels(config: Config) -> Iterator[Finding]:
    """Try every sandbox level, and say what each covers."""
    who = "root" if os.geteuid() == 0 else f"user {os.geteuid()}"
    for name in MODULES:
        level = level_of(name)
        if not level.confines:
            continue
        tried = probe(config.sandbox if config.sandbox.startswith(f"{name}:") else name)
        works = "works" if tried.works else "does not work"
        text = f"{works} for {who}: {tried.reason}. {'' if tried.works else tried.advice}"
        yield Finding(name=f"level {name}", text=text, ok=tried.works, needed=False)
        yield Finding(name="  covered", text="; ".join(level.covered), detail=True)
        yield Finding(name="  not covered", text="; ".join(level.not_covered), detail=True)


def _self_test(report: Mapping[str, Any]) -> str:
    """Return the self-test's measurements in words."""
    holds = report.get("holds", {})
    facts = report.get("facts", {})
    good = ", ".join(name for name, held in holds.items() if held)
    bad = ", ".join(name for name, held in holds.items() if not held)
    lacking = f"; does not hold: {bad}" if bad else ""
    return f"holds: {good or 'nothing'}{lacking}; uid {facts.get('uid', os.getuid())}"


def _kernel(config: Config) -> Iterator[Finding]:
    """Start a kernel as a run does, and let it compute something."""
    with temporary_folder("tried") as folder:
        began = time.monotonic()
        try:
            with Session(model=ScriptedModel([]), config=config, out=folder) as session:
                result = session.execute_sync("1 + 1")
                seconds = time.monotonic() - began
                yield Finding(name="sandbox", text=session.sandbox_line.removeprefix("Sandbox: "))
                yield Finding(
                    name="  self-test", text=_self_test(session.sandbox_report), detail=True
                )
        except KernelAgentError as error:
            yield Finding(name="kernel", text=str(error), ok=False)
            return
    shown = [output.get("data", {}).get("text/plain") for output in result.outputs]
    text = f"started, and computed 1 + 1 = {shown[0] if shown else '?'}, in {seconds:.2f} s"
    yield Finding(name="kernel", text=text, ok=shown == ["2"])


def _output_folder(folder: Path) -> Finding:
    """Look at where runs go by default, without leaving anything there."""
    nearest = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            return Finding(name="output folder", text=str(folder.absolute()))
    except OSError as error:
        text = f"{folder.absolute()}: {error.strerror}; use --out DIR"
        return Finding(name="output folder", text=text, ok=False, needed=False)


_KINDS = {**dict.fromkeys(_NEEDED, "packages"), **dict.fromkeys(_READERS, "readers")}
_SHARED = {"packages": _packages, "readers": _readers, "level": _level_names}
