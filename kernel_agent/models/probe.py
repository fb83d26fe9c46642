"""Which format a model behind an endpoint can be asked for: measured once, then remembered.

For ``--format auto``. Each rung is tried with two small tasks, with the prompt that runs use, and
the first that the endpoint honours and the model does not break is taken: two short requests in
the usual case, six at most, without retries. What was measured is kept in the user's cache
folder, by endpoint and model, for a month; it holds no key, no header and nothing that was said.

Nothing here fails a run. An endpoint that does not answer is not measured, and the run itself
then says what is wrong with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kernel_agent.errors import FormatError, ModelError
from kernel_agent.formats import DEFAULT, get_format
from kernel_agent.formats.ladder import RUNGS, Measure, choose, honoured, rungs
from kernel_agent.models.base import Model
from kernel_agent.models.openai import OpenAIModel
from kernel_agent.records import Event, FormatChange, Json, Message, Notice, RequestOptions, Usage

PROBE_S = 60.0
"""The longest that measuring may take; a model that is slower gets the least formatting."""

MIN_TOKENS = 20_000
"""With a smaller cap on tokens nothing is measured: six requests cost about 6,000."""

MAX_AGE_S = 30 * 86_400.0
MAX_ENTRIES = 500
VERSION = 1
FILE_NAME = "formats.json"

TASKS = (
    "This only tries out how you write a turn: write the one cell that prints the number 42.",
    r"""This only tries out how you write a turn: write one cell that sets a variable to the text
it's a "test", prints it, and then prints whether it matches the expression \w+'s\s.""",
)
"""The second has quotes and backslashes, which is where JSON strings with code in them break."""

_SAYS_UNSUPPORTED = {400, 404, 405, 415, 422, 500, 501}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A format, why it was chosen, and what finding out cost."""

    format: str
    reason: str
    usage: Usage = field(default_factory=Usage)
    measured: bool = False


async def choose_format(
    model: Model,
    *,
    max_tokens: int | None,
    tell: Callable[[Event], None],
    memory: Path,
    limit_s: float = PROBE_S,
) -> Choice:
    """Return the format for a model, remembered or measured; never raises for an endpoint's fault.

    Parameters
    ----------
    model
        Models that are not behind an endpoint are not measured.
    max_tokens
        The budget's cap.
    tell
        Told what was chosen when it was measured now.
    memory
        The file in which it is remembered; see :func:`memory_file`.
    limit_s
        The longest that measuring may take.
    """
    if not isinstance(model, OpenAIModel):
        return Choice(format=DEFAULT, reason="the model is not behind an endpoint")
    if max_tokens is not None and max_tokens < MIN_TOKENS:
        return Choice(format=DEFAULT, reason=f"not measured: only {max_tokens} tokens are allowed")
    known = recall(memory, endpoint=str(model.endpoint), model=model.name)
    if known is not None:
        return known
    choice = await _measured(model, limit_s)
    if choice.measured:
        remember(memory, choice, endpoint=str(model.endpoint), model=model.name)
        tell(Notice(text=f"The format is {choice.format}: {choice.reason}."))
    return choice


async def _measured(model: OpenAIModel, limit_s: float) -> Choice:
    once = model.once()
    spent: list[Usage] = []
    measures: list[Measure] = []
    reason = ""
    try:
        async with asyncio.timeout(limit_s):
            for name in rungs(model.name):
                measures.append(await _measure(once, name, spent))
                if measures[-1].flawless:
                    break
    except TimeoutError:
        reason = f"measuring took longer than {limit_s:g} s"
    except ModelError:
        measures.clear()  # it is down, or refuses the key: the run will say so
    usage = sum(spent, Usage())
    if reason:
        return Choice(format=DEFAULT, reason=reason, usage=usage, measured=True)
    chosen = choose(measures)
    if chosen is None:
        told = "not measured: the endpoint answered with an error"
        return Choice(format=DEFAULT, reason=told, usage=usage)
    return Choice(format=chosen[0], reason=chosen[1], usage=usage, measured=True)


async def _measure(model: OpenAIModel, name: str, spent: list[Usage]) -> Measure:
    """Try one format.

    Raises
    ------
    ModelError
        The endpoint failed for another reason than what the format asks for.
    """
    made = get_format(name)
    options = made.options()
    unreadable = 0
    for task in TASKS:
        messages = [
            Message(role="system", content=made.system_prompt()),
            Message(role="user", content=f"<task>\n{task}\n</task>"),
        ]
        try:
            reply = await model.complete(messages, options, lambda _: None)
        except ModelError as error:
            if error.status_code in _SAYS_UNSUPPORTED and options != RequestOptions():
                return Measure(format=name, supported=False)
            raise
        spent.append(reply.usage)
        if not honoured(options, reply):
            return Measure(format=name, supported=False)
        try:
            made.parse(reply)
        except FormatError:
            unreadable += 1
    return Measure(format=name, supported=True, replies=len(TASKS), unreadable=unreadable)


# --- what is remembered --------------------------------------------------------------------


def memory_file() -> Path:
    """Return where choices are kept: in the user's cache folder."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("kernel-agent")) / FILE_NAME


def recall(path: Path, *, endpoint: str, model: str) -> Choice | None:
    """Return what was chosen for a model before; None when it is unknown, old or unreadable."""
    entry = _read(path).get(_key(endpoint, model))
    if not isinstance(entry, dict):
        return None
    name, reason, at = entry.get("format"), entry.get("reason"), entry.get("time")
    if name not in RUNGS or not isinstance(reason, str) or not isinstance(at, (int, float)):
        return None
    if not 0 <= time.time() - at < MAX_AGE_S:
        return None
    return Choice(format=name, reason=reason[:500])


def remember(path: Path, choice: Choice, *, endpoint: str, model: str) -> None:
    """Keep a choice. A file that cannot be written is left alone: then it is measured again."""
    entries = _read(path)
    entries.pop(_key(endpoint, model), None)
    entries[_key(endpoint, model)] = {
        "format": choice.format, "reason": choice.reason, "time": time.time(),
    }  # fmt: skip
    kept = dict(list(entries.items())[-MAX_ENTRIES:])
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, json.dumps({"version": VERSION, "models": kept}, indent=1))


def remember_change(path: Path, change: FormatChange, *, model: Model) -> None:
    """Keep that a model went down a rung in a run, so that the next session begins there."""
    if isinstance(model, OpenAIModel):
        choice = Choice(format=change.format, reason=f"in an earlier run, {change.reason}")
        remember(path, choice, endpoint=str(model.endpoint), model=model.name)


def _key(endpoint: str, model: str) -> str:
    return f"{endpoint} {model}"


def _read(path: Path) -> dict[str, Json]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(stored, dict) or stored.get("version") != VERSION:
        return {}
    models = stored.get("models")
    return models if isinstance(models, dict) else {}


def _write(path: Path, text: str) -> None:
    """Replace the file as a whole: a reader sees the old one or the new one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".new")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
