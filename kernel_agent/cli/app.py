"""The command ``kernel-agent``: options in, a session or a file's content out, an exit code.

Each command is thin: it reads its options, calls what does the work, and shows it. Errors of the
package are raised through the commands and become one line and an exit code in :func:`main`, the
only place where everything is caught. Whatever is not needed to print a help text is imported
inside the command that needs it. Options that are settings come from the table of settings
(:mod:`kernel_agent.cli.options`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kernel_agent.cli import data, evaluate, machine, past, run
from kernel_agent.cli.options import command
from kernel_agent.cli.outlet import Outlet, write_line
from kernel_agent.cli.slips import Asking, explain_option, name_option
from kernel_agent.errors import KernelAgentError, UsageError

DEBUG = "KERNEL_AGENT_DEBUG"
UNEXPECTED = 1  # the exit code of an error that should not have happened
STOPPED = 130


class Stopped(Exception):
    """Ctrl-C, where no run was under way that it could stop."""


class Stoppable(TyperGroup):
    """The command with its commands: Ctrl-C passes through the parser, which would say nothing."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the command line."""
        with _stopped():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]  # as in slips.py
        """Run a command."""
        with _stopped():
            return super().invoke(ctx)


@contextmanager
def _stopped() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Stopped from stop


# Plain help texts: drawing boxes around them would double the time of --help.
app = typer.Typer(rich_markup_mode=None, cls=Stoppable)


@app.callback(
    invoke_without_command=True,
    epilog='Try:  kernel-agent run "Describe the table" --data sales.csv',
)
def kernel_agent(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Ask a question about your data.

    The agent answers by running code in a Jupyter kernel, and leaves a notebook to re-run.
    """
    if version:
        from kernel_agent import __version__

        write_line(f"kernel-agent {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        write_line(context.get_help())


# In the order of the help.
app.command(
    "run",
    cls=Asking,
    epilog='Example:  kernel-agent run "Which month sold most?" --data sales.csv '
    "--model gpt-5-mini",
)(command("run", run.Question, run.run))
app.command(
    "pipeline", epilog="Example:  kernel-agent pipeline monthly.ipynb --data sales.csv --out june"
)(command("pipeline", run.Cells, run.pipeline))
app.command(epilog='Example:  kernel-agent data lake "rain in Boston"')(data.data)
app.command(epilog="Example:  kernel-agent show runs/20250131-120000-which-month-sold-most")(
    past.show
)
app.command(epilog="Example:  kernel-agent export runs/20250131-120000-… -o report.ipynb")(
    past.export
)
app.command(epilog="Exit code: 0 it reproduces, 1 it differs, 2 it cannot be read.")(past.verify)
app.command(
    "eval",
    epilog="Example:  kernel-agent eval tasks.yaml --model gpt-5-mini --format fenced --trials 3",
)(command("eval", evaluate.Options, evaluate.evaluate))
app.command()(machine.doctor)
app.command(epilog="Example:  kernel-agent microvm build")(machine.microvm)

kernelspec = typer.Typer(help="Offer the sandboxed kernel to Jupyter applications.")
app.add_typer(kernelspec, name="kernelspec")
kernelspec.command(
    epilog="Then choose 'Python (sandboxed)' in JupyterLab, or: "
    "jupyter nbconvert --execute --ExecutePreprocessor.kernel_name=python-sandboxed FILE"
)(machine.install)
kernelspec.command()(machine.remove)


# --- the border: whatever happens becomes a line and an exit code ------------------------------


def main() -> None:
    """Run the command; called by :mod:`kernel_agent.__main__`."""
    # Both may be closed (>&-), as under some schedulers. What a run leaves matters more.
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 - until the program ends
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115 - the same
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal that cannot show a character shows a question mark, not a traceback.
            stream.reconfigure(errors="replace")
    try:
        code = app(prog_name="kernel-agent", standalone_mode=False)
    except BaseException as error:
        code = _explain(error)
    sys.exit(code if isinstance(code, int) else 0)


def _explain(error: BaseException) -> int:
    """Print one line about an error, and return its exit code."""
    if os.environ.get(DEBUG):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, KernelAgentError):
        return _fail(name_option(str(error)), error.exit_code)
    if isinstance(error, (Stopped, KeyboardInterrupt, typer.Abort)):
        return _fail("stopped", STOPPED)
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else UNEXPECTED
    if hasattr(error, "format_message"):  # the option parser's own errors
        command = getattr(getattr(error, "ctx", None), "command_path", "kernel-agent")
        words = explain_option(error)
        astray = words.startswith(("No such command", "there is no option"))
        if command == "kernel-agent" and astray and "Did you mean" not in words:
            words += ' To ask a question: kernel-agent run "…" --data FILE.'
        return _fail(f"{words} See: {command} --help", UsageError.exit_code)
    reason = f"unexpected {type(error).__name__}: {error}"
    return _fail(f"{reason} (set {DEBUG}=1 to see where)", UNEXPECTED)


def _fail(line: str, code: int) -> int:
    from kernel_agent.safe import one_line

    Outlet(sys.stderr).write(f"kernel-agent: {one_line(line, 1000)}\n")
    return code
