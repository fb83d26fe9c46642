"""Find the format that a model behind an endpoint can be asked for: measure once, remember it.

For ``--format auto``. Each rung is tried with two small tasks, with the prompt that runs use, and
the first that the endpoint honours and the model does not break is taken: two short requests in
the usual case, ten at most, without retries. Where the endpoint does not do what a rung needs, it
is asked once in the other notation that servers know (:mod:`.dialect`). It costs a share of what
the first run may cost, and that run pays. What was measured is kept in the user's cache folder, by
endpoint and model, for a month; it holds no key, no header and nothing that was said. That a model
was too slow may be the machine's fault, and is forgotten after hours.

A small model is not tried out: it gets the least formatting whether it breaks that or not, since
what asks for more cannot help it.

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
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernel_agent.errors import BudgetExceeded, ContextLengthError, FormatError, ModelError
from kernel_agent.formats import (
    DEFAULT,
    NOTATIONS,
    RUNGS,
    Measure,
    Notation,
    choose,
    describe_measures,
    get_format,
    honours,
    rungs,
)
from kernel_agent.models.base import Model
from kernel_agent.models.openai import OpenAIModel
from kernel_agent.records import (
    Budget,
    Event,
    FormatChange,
    Json,
    Message,
    Meter,
    Notice,
    RequestOptions,
    Usage,
)

PROBE_S = 60.0
"""The longest that measuring may take; a model that is slower gets the least formatting."""

SHARE_OF_TIME = 0.25
SHARE_OF_MONEY = 0.1
"""Share of the first run's seconds, and of its cost, that measuring may take."""

MIN_TOKENS = 20_000
"""With a smaller cap on tokens nothing is measured: eight requests cost about 8,000."""

SHARE_OF_TOKENS = 0.4

MAX_AGE_S = 30 * 86_400.0
TOO_SLOW_AGE_S = 3 * 3600.0
"""Time for which a measurement that took too long is remembered: the machine may have been busy."""

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
    """A format, the reason for its choice, and the cost of finding out."""

    format: str
    reason: str
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    measured: bool = False
    notation: Notation | None = None
    max_age_s: float = MAX_AGE_S


async def choose_format(
    model: Model,
    *,
    budget: Budget,
    tell: Callable[[Event], None],
    memory: Path,
    limit_s: float = PROBE_S,
) -> Choice:
    """Return the format for a model, remembered or measured; never raises for an endpoint's fault.

    The model is told in which notation it is to ask.

    Parameters
    ----------
    model
        Models that are not behind an endpoint are not measured.
    budget
        What the first run may cost: measuring takes a share of it.
    tell
        Told that the model is tried out, and what was chosen.
    memory
        The file in which it is remembered; see :func:`memory_file`.
    limit_s
        The longest that measuring may take.
    """
    if not isinstance(model, OpenAIModel):
        return Choice(format=DEFAULT, reason="the model is not behind an endpoint")
    if budget.max_tokens is not None and budget.max_tokens < MIN_TOKENS:
        why = f"not measured: only {budget.max_tokens} tokens are allowed"
        return Choice(format=DEFAULT, reason=why)
    choice = recall(memory, endpoint=str(model.endpoint), model=model.name)
    if choice is None and len(rungs(model.name)) == 1:
        return Choice(format=rungs(model.name)[0], reason="its name says that the model is small")
    if choice is None:
        choice = await _tried_out(model, _allowance(budget, limit_s), tell)
        if choice.measured:
            remember(memory, choice, endpoint=str(model.endpoint), model=model.name)
            tell(Notice(text=f"The format is {choice.format}: {choice.reason}."))
    if choice.notation is not None:
        model.use({choice.notation})
    return choice


def _allowance(budget: Budget, limit_s: float) -> Budget:
    """Return the budget of the measurement."""
    seconds, tokens, cost = budget.max_seconds, budget.max_tokens, budget.max_cost
    return Budget(
        max_steps=None,
        max_seconds=limit_s if seconds is None else min(limit_s, SHARE_OF_TIME * seconds),
        max_tokens=None if tokens is None else int(SHARE_OF_TOKENS * tokens),
        max_cost=None if cost is None else SHARE_OF_MONEY * cost,
    )


async def _tried_out(
    model: OpenAIModel, allowance: Budget, tell: Callable[[Event], None]
) -> Choice:
    meter = Meter(allowance)
    tell(
        Notice(
            text=f"Trying out once in which format {model.name} writes its actions: a few short "
            f"requests, {allowance.max_seconds:.3g} s at most (--format NAME chooses one)."
        )
    )
    choice = await _measure_all(model, meter)
    return replace(choice, usage=meter.usage, seconds=meter.seconds)


async def _measure_all(model: OpenAIModel, meter: Meter) -> Choice:
    measures: list[Measure] = []
    try:
        async with asyncio.timeout(meter.seconds_left):
            for name in rungs(model.name):
                measures.append(await _measure(model, name, meter))
                if measures[-1].flawless:
                    break
    except TimeoutError:
        took = f"measuring took longer than {meter.budget.max_seconds:.3g} s"
        return Choice(format=DEFAULT, reason=took, measured=True, max_age_s=TOO_SLOW_AGE_S)
    except BudgetExceeded as error:
        return Choice(format=DEFAULT, reason=f"not measured to the end: {error}")
    except ModelError:
        measures.clear()  # it is down, or refuses the key: the run will say so
    chosen = choose(measures)
    if chosen is None:
        return Choice(format=DEFAULT, reason="not measured: the endpoint answered with an error")
    return Choice(
        format=chosen.format,
        reason=describe_measures(measures),
        measured=True,
        notation=chosen.notation,
    )


async def _measure(model: OpenAIModel, name: str, meter: Meter) -> Measure:
    """Try one format: as the protocol has it, and then in the other notation that may help.

    Raises
    ------
    ModelError
        The endpoint failed for another reason than what the format asks for.
    BudgetExceeded
        Measuring may cost no more.
    """
    measure = await _measure_in(model, name, None, meter)
    other = OTHER_NOTATION.get((name, measure.outcome))
    if other is None:
        return measure
    second = await _measure_in(model, name, other, meter)
    return second if second.supported else measure


OTHER_NOTATION: dict[tuple[str, str], Notation] = {
    ("envelope", "refused"): "json_object",
    ("tool", "ignored"): "forced",
}


async def _measure_in(
    model: OpenAIModel, name: str, notation: Notation | None, meter: Meter
) -> Measure:
    asking = model.once([notation] if notation else [])
    made = get_format(name)
    options = made.options()
    unreadable = 0
    for task in TASKS:
        messages = [
            Message(role="system", content=made.system_prompt()),
            Message(role="user", content=f"<task>\n{task}\n</task>"),
        ]
        meter.check()
        try:
            reply = await asking.complete(messages, options, lambda _: None)
        except ContextLengthError:
            raise
        except ModelError as error:
            if error.status_code in _SAYS_UNSUPPORTED and options != RequestOptions():
                return Measure(format=name, outcome="refused")
            raise
        meter.charge(reply.usage)
        if not honours(options, reply):
            return Measure(format=name, outcome="ignored")
        try:
            made.parse(reply)
        except FormatError:
            unreadable += 1
    return Measure(format=name, notation=notation, replies=len(TASKS), unreadable=unreadable)


# --- what is remembered --------------------------------------------------------------------


def memory_file() -> Path:
    """Return where choices are kept: in the user's cache folder."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("kernel-agent")) / FILE_NAME


def recall(path: Path, *, endpoint: str, model: str) -> Choice | None:
    """Return an earlier choice for a model; None when it is unknown, old or unreadable."""
    entry = _read(path).get(_key(endpoint, model))
    if not isinstance(entry, dict):
        return None
    name, reason, at = entry.get("format"), entry.get("reason"), entry.get("time")
    if name not in RUNGS or not isinstance(reason, str) or not isinstance(at, (int, float)):
        return None
    kept_s, notation = entry.get("max_age_s", MAX_AGE_S), entry.get("notation")
    if not isinstance(kept_s, (int, float)) or not 0 <= time.time() - at < min(kept_s, MAX_AGE_S):
        return None
    known = next((known for known in NOTATIONS if known == notation), None)
    return Choice(format=name, reason=reason[:500], notation=known)


def remember(path: Path, choice: Choice, *, endpoint: str, model: str) -> None:
    """Keep a choice. A file that cannot be written is left alone: then it is measured again."""
    entries = _read(path)
    entries.pop(_key(endpoint, model), None)
    entries[_key(endpoint, model)] = {
        "format": choice.format, "reason": choice.reason, "time": time.time(),
        "notation": choice.notation, "max_age_s": choice.max_age_s,
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
