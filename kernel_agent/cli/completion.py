"""Words that a shell completes: models, levels, formats, what is asked about.

Each function is given what is typed so far and returns what it may become. Nothing is started and
no endpoint is asked. Paths are the shell's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

Complete = Callable[[str], list[str]]


def models(incomplete: str) -> list[str]:
    """Return the models that are known without asking: ours, and the configured ones."""
    from kernel_agent.config import load_config
    from kernel_agent.errors import KernelAgentError

    try:
        config = load_config()
    except KernelAgentError:
        return _beginning(["offline", "scripted:"], incomplete)
    named = [config.model] if config.model else []
    return _beginning([*named, *config.prices, "offline", "scripted:"], incomplete)


def levels(incomplete: str) -> list[str]:
    """Return the sandbox levels."""
    from kernel_agent.sandbox import MODULES

    return _beginning(["auto", *MODULES], incomplete)


def formats(incomplete: str) -> list[str]:
    """Return the formats of actions."""
    from kernel_agent.config import SETTINGS

    return _beginning(re.findall(r"`(\w+)`", SETTINGS["format"].about), incomplete)


def approvals(incomplete: str) -> list[str]:
    """Return what may be asked about."""
    from kernel_agent.config import SETTINGS

    return _beginning(SETTINGS["approve"].choices, incomplete)


SETTINGS: dict[str, Complete] = {
    "model": models,
    "sandbox": levels,
    "format": formats,
    "approve": approvals,
}
"""By the name of the setting that an option gives."""


def _beginning(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)]
