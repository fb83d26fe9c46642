"""The commands that run something: a question, or the cells of a notebook."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from kernel_agent.cli.options import FromTable, Settings
from kernel_agent.cli.slips import check_task
from kernel_agent.errors import UsageError

VERBOSE = "Show what the model is shown of each step: variables, types, sizes."
JSON = "Print one JSON object at the end, nothing else."


@dataclass(frozen=True, kw_only=True)
class Question:
    """The options of ``kernel-agent run``."""

    task: Annotated[
        str | None,
        typer.Argument(
            help="Your question. Without one you are asked, again and again, in one session; "
            "or it is read from standard input."
        ),
    ] = None
    data: Annotated[
        tuple[str, ...],  # not Path, which would take an empty name for the working directory
        typer.Option(
            metavar="PATH",
            help="A file to ask about: CSV, JSON, Parquet, Excel, SQLite … Or a folder of them. "
            "Repeat it for more.",
        ),
    ] = ()
    copy_data: Annotated[
        bool,
        typer.Option(
            "--copy-data", help="At the end, put what was read in folders into the run's own."
        ),
    ] = False
    kernel: Annotated[Settings, FromTable(upto="max_operations")]
    tools: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="MODULE|NAME",
            help="A module or .py file with @tool functions that the code may call on this "
            "machine, or a ready-made tool: sql=DATABASE; 'delegate' "
            "for agents of its own, 'llm' to ask the model. Repeat it.",
        ),
    ] = ()
    mcp: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="COMMAND|URL",
            help="A Model Context Protocol server whose tools the code may call, as in "
            "'uvx mcp-server-time' or https://example.org/mcp. Repeat it.",
        ),
    ] = ()
    limits: Annotated[Settings, FromTable()]
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where trace, notebook and pictures go (default: runs/TIME-TASK)."
        ),
    ] = None
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the answer only.")] = False
    answer_only: Annotated[
        bool,
        typer.Option(
            "--answer-only",
            help="Write the answer for a program: a table as CSV, a figure as PNG (> FILE).",
        ),
    ] = False
    as_json: Annotated[bool, typer.Option("--json", help=JSON)] = False
    verbose: Annotated[bool, typer.Option("--verbose", help=VERBOSE)] = False


@dataclass(frozen=True, kw_only=True)
class Cells:
    """The options of ``kernel-agent pipeline``."""

    notebook: Annotated[
        Path,
        typer.Argument(metavar="NOTEBOOK", help="The cells to run."),
    ]
    data: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="PATH",
            help="A file that the cells find in data/. Repeat it.",
        ),
    ] = ()
    settings: Annotated[Settings, FromTable()]
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where trace, notebook and files go.")
    ] = None
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the answer only.")] = False
    as_json: Annotated[bool, typer.Option("--json", help=JSON)] = False
    verbose: Annotated[bool, typer.Option("--verbose", help=VERBOSE)] = False


def run(options: Question) -> int:
    """Answer a question about your data."""
    from kernel_agent.cli import ask

    with ask.failure_as_json(options.task or "", wanted=options.as_json):
        if options.task is not None:
            check_task(options.task)
        chosen = ask.Options(
            data=options.data,
            copy_data=options.copy_data,
            tools=options.tools,
            mcp=options.mcp,
            out=options.out,
            verbose=options.verbose,
            settings={**options.kernel, **options.limits},
        )
        if options.answer_only:
            return ask.ask_for_answer(_task(options.task), chosen)
        if options.as_json:
            return ask.ask_for_json(_task(options.task), chosen, quiet=options.quiet)
        if options.task is None and not options.quiet and _at_terminal():
            return ask.converse(chosen)
        return ask.ask(_task(options.task), chosen, quiet=options.quiet)


def pipeline(options: Cells) -> int:
    """Run the cells of a notebook, without a model, as a run of its own.

    Same kernel, sandbox, limits, trace and notebook as an agent's; the first cell that fails ends
    it (exit code 1), unless it has the tag raises-exception. Files beside the notebook that its
    cells name are copied into the run's folder.
    """
    from kernel_agent.cli import ask
    from kernel_agent.models import ScriptedModel
    from kernel_agent.session import files_beside, read_cells

    with ask.failure_as_json(options.notebook.stem, wanted=options.as_json):
        cells = read_cells(options.notebook)
        chosen = ask.Options(
            data=(*options.data, *files_beside(options.notebook, cells)),
            out=options.out,
            verbose=options.verbose,
            model=ScriptedModel([]),
            settings=options.settings,
        )
        work = ask.ask_for_json if options.as_json else ask.ask
        return work(options.notebook.stem, chosen, quiet=options.quiet, cells=cells)


def _task(task: str | None) -> str:
    """Return the task as given, or else from what is piped in."""
    if task is None and sys.stdin is not None and not sys.stdin.isatty():
        task = sys.stdin.read()
    if task is None or not task.strip():
        raise UsageError(
            'There is no task. Write what you want to know, as in: kernel-agent run "Which month '
            'sold most?" --data sales.csv'
        )
    return task.strip()


def _at_terminal() -> bool:
    return bool(sys.stdin and sys.stdout and sys.stdin.isatty() and sys.stdout.isatty())
