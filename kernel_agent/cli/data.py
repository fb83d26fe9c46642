"""The command that looks through folders of data as an agent would, without a model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_agent.cli.outlet import Outlet, warn_of, write_line
from kernel_agent.errors import InputError

if TYPE_CHECKING:
    from kernel_agent.records import Event

NOTHING = 1  # the exit code where no file fits


def data(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder with data.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORDS]…", help="Words, or a question; without any, all layouts."),
    ] = None,
    *,
    most: Annotated[
        int, typer.Option(metavar="N", min=1, max=200, help="How many files are shown.")
    ] = 10,
) -> int:
    """Look through a folder of data: what is in it, and which files fit some words.

    A sandboxed kernel reads the beginning of each file, as for a run. No model is asked.
    """
    from kernel_agent import ScriptedModel, Session
    from kernel_agent.cli.live import looking
    from kernel_agent.config import load_config
    from kernel_agent.safe import at_home, temporary_folder

    if not at_home(folder).is_dir():
        raise InputError(f"{folder} is no folder. A single file is shown by: kernel-agent run")
    warn_of(load_config().sandbox, sys.stderr)
    with (
        temporary_folder("index") as made,
        looking(f"looking through {folder}"),
        Session(model=ScriptedModel([]), data=folder, out=made / "run", on_event=_tell) as session,
    ):
        lines = session.list_data(" ".join(words or ()), most=most)
    write_line("\n".join(lines) or "no file fits these words")
    return 0 if lines else NOTHING


def _tell(event: Event) -> None:
    from kernel_agent.records import Notice

    if isinstance(event, Notice):
        Outlet(sys.stderr).write(f"{event.text}\n")
