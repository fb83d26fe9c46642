"""Slips of a command line that the option parser has no words for: what to type instead."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer
from typer.core import TyperCommand

from kernel_agent.errors import UsageError

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


def check_files(data: Sequence[object]) -> None:
    """Refuse data that is folders only, where no model could choose a file.

    Raises
    ------
    UsageError
        The caller's.
    """
    folders = [str(path) for path in data if str(path) and Path(str(path)).expanduser().is_dir()]
    if folders and len(folders) == len(data):
        shown = folders[0].rstrip("/")
        raise UsageError(
            f"{shown} is a folder, and without a model one file is asked about: name it, as in "
            f"--data {shown}/FILE, or configure a model; kernel-agent data {shown} shows what is "
            "in it"
        )


def check_task(task: str, data: Sequence[str]) -> None:
    """Refuse a question that is a file's name.

    Raises
    ------
    UsageError
        The caller's.
    """
    if len(task) < 300 and not data and Path(task).is_file():
        raise UsageError(
            f"{task} is a file: ask a question about it, as in: "
            f'kernel-agent run "Describe the table" --data {task}'
        )
