"""The command ``kernel-agent``: options in, a session or a file's content out, an exit code.

Each command is thin: it reads its options, calls what does the work, and shows it. Errors of the
package are raised through the commands and become one line and an exit code in :func:`main`, the
only place where everything is caught. Whatever is not needed to print a help text is imported
inside the command that needs it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_agent.errors import KernelAgentError, UsageError

if TYPE_CHECKING:
    from kernel_agent.records import Record
    from kernel_agent.session import Report

DEBUG = "KERNEL_AGENT_DEBUG"
UNEXPECTED = 1  # the exit code of an error that should not have happened
STOPPED = 130

# Plain help texts: drawing boxes around them would double the time of --help.
app = typer.Typer(add_completion=False, rich_markup_mode=None)


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

        _print(f"kernel-agent {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        _print(context.get_help())


@app.command(
    epilog='Example:  kernel-agent run "Which month sold most?" --data sales.csv --model gpt-5-mini'
)
def run(
    task: Annotated[
        str | None,
        typer.Argument(
            help="Your question. Without one you are asked, again and again, in one session; "
            "or it is read from standard input."
        ),
    ] = None,
    *,
    data: Annotated[
        list[str] | None,  # not Path, which would take an empty name for the working directory
        typer.Option(
            metavar="PATH",
            help="A file to ask about: CSV, TSV, JSON, Parquet, Excel … Repeat it for more files.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A model's name at your endpoint; 'offline' for the built-in rule-based analyst; "
            "'scripted:FILE.jsonl' to play back replies.",
        ),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Your OpenAI-compatible endpoint, as in http://localhost:8000/v1.",
        ),
    ] = None,
    format: Annotated[  # noqa: A002 - the option's name is a contract
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="How the model writes its actions: auto, fenced, envelope, tool or json.",
        ),
    ] = None,
    sandbox: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="How the kernel is confined: auto (the best of bubblewrap, namespaces and "
            "landlock that works here), or by name one of these, container, gvisor, microvm, "
            "interpreter, remote or none. See kernel-agent doctor.",
        ),
    ] = None,
    memory_mb: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="MB", help="Memory of the kernel (default: 75 % of the machine's)."
        ),
    ] = None,
    disk_mb: Annotated[
        int | None,
        typer.Option(min=1, metavar="MB", help="What the kernel may write (default: 2048)."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST[:PORT]",
            help="Let the code reach this host on the network, and no other. Repeat it.",
        ),
    ] = None,
    guard_imports: Annotated[
        str | None,
        typer.Option(
            metavar="MODULES",
            help="Refuse cells that import anything else, as in pandas,numpy,matplotlib. A guard "
            "against mistakes, not a boundary.",
        ),
    ] = None,
    max_operations: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="End a cell after so many turns of loops and calls of its own functions. A guard "
            "against mistakes.",
        ),
    ] = None,
    tools: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE|NAME",
            help="A module or .py file with @tool functions that the code may call on this "
            "machine, or a ready-made tool: sql=DATABASE, files=FOLDER, fetch=HOST; 'delegate' "
            "for agents of its own, 'llm' to ask the model. Repeat it.",
        ),
    ] = None,
    mcp: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COMMAND|URL",
            help="A Model Context Protocol server whose tools the code may call, as in "
            "'uvx mcp-server-time' or https://example.org/mcp. Repeat it.",
        ),
    ] = None,
    approve: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            help="What you are asked about: never, risky (calls of tools that have effects "
            "outside; the default) or always (also each cell). Without a terminal: denied.",
        ),
    ] = None,
    approve_tool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=allow|ask|deny", help="What holds for a single tool instead. Repeat it."
        ),
    ] = None,
    untrusted_data: Annotated[
        bool,
        typer.Option(
            "--untrusted-data", help="The data comes from others: mark it so for the model."
        ),
    ] = False,
    max_steps: Annotated[
        int | None, typer.Option(metavar="N", help="Stop after so many steps.")
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(metavar="S", help="Stop after so many seconds.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Stop after so many tokens.")
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option(metavar="USD", help="Stop after so many US dollars; needs configured prices."),
    ] = None,
    cell_seconds: Annotated[
        float | None,
        typer.Option(metavar="S", help="Interrupt a single cell after so many seconds."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where trace, notebook and pictures go (default: runs/TIME-TASK).",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the answer only.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end, nothing else.")
    ] = False,
) -> int:
    """Answer a question about your data."""
    from kernel_agent.cli import ask

    options = ask.Options(
        data=tuple(data or ()),
        tools=tuple(tools or ()),
        mcp=tuple(mcp or ()),
        out=out,
        settings={
            "model": model,
            "base_url": base_url,
            "format": format,
            "sandbox": sandbox,
            "allow_hosts": tuple(allow_host) if allow_host else None,
            "memory_mb": memory_mb,
            "disk_mb": disk_mb,
            "guard_imports": None
            if guard_imports is None
            else [name.strip() for name in guard_imports.split(",") if name.strip()],
            "max_operations": max_operations,
            "approve": approve,
            "approve_tools": ask.verdicts(approve_tool or ()),
            "untrusted_data": untrusted_data or None,
            "max_steps": max_steps,
            "max_seconds": max_seconds,
            "max_tokens": max_tokens,
            "max_cost": max_cost,
            "cell_seconds": cell_seconds,
        },
    )
    if as_json:
        return ask.ask_for_json(_task(task), options, quiet=quiet)
    if task is None and not quiet and _at_terminal():
        return ask.converse(options)
    return ask.ask(_task(task), options, quiet=quiet)


@app.command(epilog="Example:  kernel-agent pipeline monthly.ipynb --data sales.csv --out june")
def pipeline(
    notebook: Annotated[Path, typer.Argument(metavar="NOTEBOOK", help="The cells to run.")],
    *,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="A file that the cells find in data/. Repeat it."),
    ] = None,
    sandbox: Annotated[
        str | None,
        typer.Option(metavar="LEVEL", help="How the kernel is confined; as of kernel-agent run."),
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(metavar="S", help="Stop after so many seconds.")
    ] = None,
    cell_seconds: Annotated[
        float | None,
        typer.Option(metavar="S", help="Interrupt a single cell after so many seconds."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where trace, notebook and files go.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the last line only.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object at the end, nothing else.")
    ] = False,
) -> int:
    """Run the cells of a notebook, without a model, as a run of its own.

    Same kernel, sandbox, limits, trace and notebook as an agent's; the first cell that fails ends
    it (exit code 1), unless it has the tag raises-exception. Files beside the notebook that its
    cells name are copied into the run's folder.
    """
    from kernel_agent.cli import ask
    from kernel_agent.session import files_beside, read_cells

    cells = read_cells(notebook)
    options = ask.Options(
        data=(*(data or ()), *files_beside(notebook, cells)),
        out=out,
        settings={
            "model": "offline",
            "sandbox": sandbox,
            "max_seconds": max_seconds,
            "cell_seconds": cell_seconds,
        },
    )
    work = ask.ask_for_json if as_json else ask.ask
    return work(notebook.stem, options, quiet=quiet, cells=cells)


@app.command(epilog="Example:  kernel-agent show runs/20250131-120000-which-month-sold-most")
def show(
    trace: Annotated[Path, typer.Argument(metavar="TRACE|DIR", help="A trace, or its folder.")],
    steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Show the last N steps only.")
    ] = None,
    *,
    html: Annotated[bool, typer.Option("--html", help="Write it as a web page, one file.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The page (default: run.html beside the trace)."
        ),
    ] = None,
) -> None:
    """Show a past run again, step by step."""
    from kernel_agent.cli.live import open_view
    from kernel_agent.records import Notice, Step, load

    records, cut = load(trace)
    numbers = [r.number for r in records if isinstance(r, Step)]
    first = numbers[-steps] if steps and steps < len(numbers) else 0
    if html:
        _print(str(_page([r for r in records if not isinstance(r, Step) or r.number >= first],
                         trace, output, cut=cut)))  # fmt: skip
        return
    if output is not None:
        raise UsageError("-o names the file of the page: add --html")
    with open_view(sys.stdout, live=False) as view:
        for record in records:
            if not isinstance(record, Step) or record.number >= first:
                view(record)
        if cut:
            view(Notice(text="The last record is incomplete: its writing was interrupted."))


def _page(records: list[Record], trace: Path, output: Path | None, *, cut: bool) -> Path:
    """Write the page of a run; it links to the notebook where that lies beside it."""
    from kernel_agent.notebook import page_html, write_page
    from kernel_agent.records import locate

    target = output or locate(trace).with_name("run.html")
    beside = target.with_name("run.ipynb").is_file()
    notebook = "run.ipynb" if beside else None
    return write_page(page_html(records, notebook=notebook, cut=cut), target)


@app.command(epilog="Example:  kernel-agent export runs/20250131-120000-… -o report.ipynb")
def export(
    trace: Annotated[Path, typer.Argument(metavar="TRACE|DIR", help="A trace, or its folder.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The notebook (default: run.ipynb beside the trace).",
        ),
    ] = None,
) -> None:
    """Write the notebook of a past run."""
    from kernel_agent.notebook import export as write
    from kernel_agent.records import locate

    source = locate(trace)
    _print(str(write(source, output or source.with_name("run.ipynb"))))


@app.command(epilog="Exit code: 0 it reproduces, 1 it differs, 2 it cannot be read.")
def verify(
    notebook: Annotated[
        Path, typer.Argument(metavar="NOTEBOOK|DIR", help="A notebook, or a run's folder.")
    ],
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of a table.")
    ] = False,
) -> int:
    """Run a notebook again and compare what its cells show."""
    import json

    from kernel_agent.session import verify as examine

    report = examine(notebook / "run.ipynb" if notebook.is_dir() else notebook)
    _print(json.dumps(report.to_json()) if as_json else _table(report))
    return 0 if report.reproduces else 1


def _left_out(report: Report) -> list[str]:
    """Return a line on what was not copied; the JSON has all of it."""
    names = report.left_out
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return [f"not copied: {', '.join(names[:5])}{more}"] if names else []


def _table(report: Report) -> str:
    """Return the verdicts as lines: place, role, verdict, and what differs below it."""
    from kernel_agent.safe import plain

    rows = [f"{'cell':>4}  {'role':<12} {'verdict':<10} {'seconds':>7}"]
    for cell in report.cells:
        rows.append(f"{cell.index:>4}  {cell.role:<12} {cell.verdict:<10} {cell.seconds:>7.2f}")
        rows += [f"        {line}" for line in cell.detail.splitlines()]
    return plain(
        "\n".join([*rows, *_left_out(report), *report.notes, f"{report.path} {report.summary}"])
    )


kernelspec = typer.Typer(help="Offer the sandboxed kernel to Jupyter applications.")
app.add_typer(kernelspec, name="kernelspec")


@kernelspec.command(
    epilog="Then choose 'Python (sandboxed)' in JupyterLab, or: "
    "jupyter nbconvert --execute --ExecutePreprocessor.kernel_name=python-sandboxed FILE"
)
def install(
    *,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="The name by which programs start it.")
    ] = "python-sandboxed",
    level: Annotated[
        str, typer.Option(metavar="LEVEL", help="The sandbox: auto, or a level.")
    ] = "auto",
    prefix: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Install below this directory instead of for you alone."),
    ] = None,
    sys_prefix: Annotated[
        bool, typer.Option("--sys-prefix", help="Install in this Python environment.")
    ] = False,
) -> None:
    """Install the kernel 'Python (sandboxed)' for every Jupyter application.

    Its cells may read and write the folder that their notebook is in, and nothing else of yours.
    """
    from kernel_agent.cli.kernelspec import install as install_spec

    place = Path(sys.prefix) if sys_prefix else prefix
    _print(install_spec(name, level=level, prefix=place))


@kernelspec.command()
def remove(
    name: Annotated[str, typer.Argument(metavar="NAME")] = "python-sandboxed",
) -> None:
    """Remove a kernel that install has made."""
    from kernel_agent.cli.kernelspec import remove as remove_spec

    _print(remove_spec(name))


@app.command(
    name="eval",
    epilog="Example:  kernel-agent eval tasks.yaml --model gpt-5-mini --format fenced --trials 3",
)
def evaluate(
    tasks: Annotated[
        str,
        typer.Argument(
            metavar="TASKS",
            help="A .jsonl or .yaml file of tasks, or a suite: agentdojo[:SUITE], bfcl, "
            "dabench:CHECKOUT, dseval:CHECKOUT, m3tooleval:CHECKOUT.",
        ),
    ],
    *,
    format: Annotated[  # noqa: A002 - the option's name is a contract
        list[str] | None,
        typer.Option(
            metavar="FORMAT",
            help="auto, fenced, envelope, tool or json. Repeat it for more arms.",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A model's name, or offline. Repeat it for more arms."),
    ] = None,
    sandbox: Annotated[
        list[str] | None,
        typer.Option(metavar="LEVEL", help="As of kernel-agent run. Repeat it for more arms."),
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Your OpenAI-compatible endpoint.")
    ] = None,
    trials: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Runs of each task and arm.")
    ] = 1,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Take the first N tasks only.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Results and report; an earlier evaluation goes on."),
    ] = None,
    at_once: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Runs (or own workers) at a time.")
    ] = 2,
    on: Annotated[
        str,
        typer.Option(metavar="ENGINE", help="local, dask[:ADDRESS] or ray[:ADDRESS]."),
    ] = "local",
    judge: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model that judges rubrics.")
    ] = None,
    judge_base_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Its endpoint, if it is another one.")
    ] = None,
    max_steps: Annotated[int | None, typer.Option(metavar="N", help="Of one run.")] = None,
    max_seconds: Annotated[float | None, typer.Option(metavar="S", help="Of one run.")] = None,
    max_tokens: Annotated[int | None, typer.Option(metavar="N", help="Of one run.")] = None,
    max_cost: Annotated[float | None, typer.Option(metavar="USD", help="Of one run.")] = None,
    max_total_cost: Annotated[
        float | None, typer.Option(metavar="USD", help="Of everything; needs --max-cost, too.")
    ] = None,
    repeat: Annotated[
        list[str] | None,
        typer.Option(metavar="STATUS", help="Run again what ended so, as in model_error."),
    ] = None,
    oracle: Annotated[
        bool,
        typer.Option("--oracle", help="What each protocol needs at best, from gold calls."),
    ] = False,
    replay: Annotated[
        bool,
        typer.Option("--replay", help="TASKS are recorded transcripts: parse and run them again."),
    ] = False,
    report: Annotated[
        bool, typer.Option("--report", help="TASKS is an evaluation's folder: write its report.")
    ] = False,
) -> int:
    """Compare formats, models and sandbox levels on your own tasks.

    Exit code: 0 every run has a result, 3 some have none, 4 an arm could not take part.
    """
    from kernel_agent.cli import evaluate

    if oracle + replay + report > 1:
        raise UsageError("--oracle, --replay and --report exclude each other")
    options = evaluate.Options(
        tasks=tasks,
        formats=tuple(format or ()),
        models=tuple(model or ()),
        sandboxes=tuple(sandbox or ()),
        base_url=base_url,
        trials=trials,
        limit=limit,
        out=out,
        at_once=at_once,
        on=on,
        judge=judge,
        judge_base_url=judge_base_url,
        max_total_cost=max_total_cost,
        repeat=tuple(repeat or ()),
        settings={
            "max_steps": max_steps,
            "max_seconds": max_seconds,
            "max_tokens": max_tokens,
            "max_cost": max_cost,
        },
    )
    if report:
        return evaluate.report(Path(tasks), _print)
    if oracle:
        return evaluate.oracle(options, _print)
    return evaluate.replay(options, _print) if replay else evaluate.evaluate(options, _print)


@app.command()
def doctor() -> int:
    """Check that everything works on this machine.

    Looks at the packages, the model's configuration, the sandbox and the output folder, and starts
    a kernel. Nothing is sent to a model.
    """
    from kernel_agent.cli.doctor import examine
    from kernel_agent.cli.trust import settle_settings

    with suppress(KernelAgentError):  # what is wrong with the settings is one of the findings
        settle_settings()
    return examine(_print)


@app.command(epilog="Example:  kernel-agent microvm build")
def microvm(
    action: Annotated[
        str, typer.Argument(metavar="build|status", help="Build the machine image, or look at it.")
    ] = "status",
) -> int:
    """Prepare the sandbox level microvm: a machine of its own for each kernel.

    Its image is built from this computer's interpreter, packages and Linux kernel, without a
    network, and lies in your cache directory. Build it again when packages have changed.
    """
    from kernel_agent.sandbox import microvm as level

    if action not in ("build", "status"):
        raise UsageError(f"there is no {action!r}: build or status")
    if action == "build":
        level.build(_print)
    found = level.probe()
    _print("\n".join(level.status(found)))
    return 0 if found.works else UNEXPECTED


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


def _print(text: str) -> None:
    from kernel_agent.cli.view import Outlet

    outlet = Outlet(sys.stdout)
    outlet.write(text + "\n")
    outlet.check()


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
        return _fail(str(error), error.exit_code)
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return _fail("stopped", STOPPED)
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else UNEXPECTED
    told = getattr(error, "format_message", None)
    if told is not None:  # the option parser's own errors
        command = getattr(getattr(error, "ctx", None), "command_path", "kernel-agent")
        return _fail(f"{told()} See: {command} --help", UsageError.exit_code)
    reason = f"unexpected {type(error).__name__}: {error}"
    return _fail(f"{reason} (set {DEBUG}=1 to see where)", UNEXPECTED)


def _fail(line: str, code: int) -> int:
    from kernel_agent.cli.view import Outlet
    from kernel_agent.safe import one_line

    Outlet(sys.stderr).write(f"kernel-agent: {one_line(line, 1000)}\n")
    return code
