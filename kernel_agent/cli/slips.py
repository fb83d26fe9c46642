"""Slips of a command line that the option parser has no words for: what to type instead."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from kernel_agent.config import SETTINGS
from kernel_agent.errors import UsageError
from kernel_agent.safe import did_you_mean

OTHER_NAMES = {"--timeout": "--max-seconds", "--output": "--out", "--file": "--data"}
"""What other programs call our options."""
LONG = 60  # characters of a question that are said again


class Asking(TyperCommand):
    """The command that takes a question, and says what is wrong with several words."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # the parser's own context is private to typer
        """Read the arguments.

        Raises
        ------
        UsageError
            The caller's: a question in several words, or files without their option.
        """
        ctx.allow_extra_args = True
        rest: list[str] = super().parse_args(ctx, args)
        if ctx.args and not ctx.resilient_parsing:  # which it is for a shell that completes
            task, named = ctx.params.get("task"), ctx.params.get("data") or ()
            raise UsageError(explain_words([*([task] if task else []), *ctx.args], named))
        return rest


def explain_words(words: Sequence[str], named: Sequence[str] = ()) -> str:
    """Say what several words without an option should have been.

    Parameters
    ----------
    words
        As they were typed, or as the shell made them of a pattern.
    named
        The files that have their option.

    Examples
    --------
    >>> explain_words(["How", "many", "rows"])
    'put the question in quotes: kernel-agent run "How many rows"'
    """
    files = [word for word in words if Path(word).is_file()]
    if files:
        files = [*named, *files]
        shown = " ".join(f"--data {name}" for name in files[:4])
        more = " …" if len(files) > 4 else ""
        return f"each file needs an option of its own: {shown}{more}"
    question = " ".join(words).replace('"', "'")
    shown = question if len(question) <= LONG else f"{question[:LONG].rpartition(' ')[0]} …"
    return f'put the question in quotes: kernel-agent run "{shown}"'


def explain_option(error: Any) -> str:
    """Say in our words what the option parser says.

    Parameters
    ----------
    error
        One of its own errors, whose types are private to it.
    """
    words: str = error.format_message()
    if type(error).__name__ == "NoSuchOption":
        name = error.option_name
        flags = (flag for each in error.ctx.command.params for flag in each.opts)
        known = [flag for flag in flags if flag.startswith("-")]
        near = {flag: f" Did you mean {known_as}?" for flag, known_as in OTHER_NAMES.items()}
        return f"there is no option {name}.{near.get(name) or did_you_mean(name, known)}"
    flag = error.param.opts[0] if getattr(error, "param", None) else ""
    for said, ours in (
        ("Input should be a valid integer", "takes a whole number"),
        ("Input should be a valid number", "takes a number"),
        ("Input should be greater than or equal to ", "must be at least "),
    ):
        if flag.startswith("-") and said in words:
            least = words.rpartition(said)[2] if ours.endswith(" ") else ""
            return f"{flag} {ours}{least}."
    return words


def name_option(text: str) -> str:
    """Return an error about a setting with the option that it is on the command line.

    >>> name_option("max_steps must be greater than 0, not 0")
    '--max-steps must be greater than 0, not 0'
    """
    name, blank, rest = text.partition(" ")
    row = SETTINGS.get(name)
    return f"{row.flag}{blank}{rest}" if row is not None and row.option else text


def check_task(task: str) -> None:
    """Refuse a question that is a file's name.

    Raises
    ------
    UsageError
        The caller's.
    """
    if len(task) < 300 and Path(task).is_file():
        raise UsageError(
            f"{task} is a file: ask a question about it, as in: "
            f'kernel-agent run "Describe the table" --data {task}'
        )
