"""Questions from the command line: one, one whose result is a JSON object, or one after another.

Ctrl-C and SIGTERM stop the run, of which trace and notebook are kept; a second one leaves at once.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from kernel_agent.cli.approve import Prompt
from kernel_agent.cli.live import open_view
from kernel_agent.cli.outlet import Outlet, write_line
from kernel_agent.cli.view import View, show_places, waiting, watch
from kernel_agent.config import load_config
from kernel_agent.errors import KernelAgentError, UndoError, UsageError
from kernel_agent.models import Model
from kernel_agent.records import (
    HOW_TO_ALLOW,
    IN_WORDS,
    NOBODY,
    UNDO,
    Approver,
    Delegated,
    Event,
    ExitStatus,
    Json,
    Notice,
    as_json,
    denials,
    read_trace,
)
from kernel_agent.safe import obeyed_line, one_line, plain
from kernel_agent.sandbox import level_of
from kernel_agent.session import (
    Beside,
    FixedCell,
    Run,
    Session,
    answer_bytes,
    check_endpoint,
    check_tables,
    is_offline,
    keep_answer,
)

WELCOME = (
    "Ask about your data, one question after another.\n"
    "  Ctrl-C stops a run   exit leaves   help shows this again\n"
    "  undo takes the last step back, undo question the whole question;\n"
    "  undo 3: the join was wrong takes three steps, and says why"
)
PROMPT = "\nQuestion> "
STARTING = "starting the kernel"

Cells = Sequence[FixedCell]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The user's choices; ``settings`` are those of :class:`~kernel_agent.config.Config`.

    ``model`` is one that is given, in the place of the one that they name.
    """

    data: tuple[str | Beside, ...] = ()
    copy_data: bool = False
    tools: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()
    out: Path | None = None
    verbose: bool = False
    model: Model | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


def ask(task: str, options: Options, *, quiet: bool, cells: Cells = ()) -> int:
    """Answer one question (or run fixed cells), show how, and return the exit code."""
    shown = nullcontext(_Silent()) if quiet else open_view(sys.stdout, verbose=options.verbose)
    with shown as view:
        run = _answer(task, options, view, cells, may_ask=not quiet)
        show_places(view, run)
    if quiet:
        _print_result(run)
        _warn(run)
    return run.status.exit_code


def ask_for_answer(task: str, options: Options) -> int:
    """Answer one question, write the answer alone, and return the exit code."""
    run = _answer(task, options, _Silent(), (), may_ask=False)
    if run.status is ExitStatus.ANSWERED:
        write_line(_for_a_person(run) if sys.stdout.isatty() else answer_bytes(run))
    else:
        _print_result(run)
    _warn(run)
    return run.status.exit_code


def _for_a_person(run: Run) -> str:
    """Return the answer as a terminal shows it: no cell of a table moves its cursor."""
    try:
        return plain(answer_bytes(run).decode()).removesuffix("\n")
    except UnicodeDecodeError:
        raise UsageError(
            "a terminal shows no picture: name a file (--answer-only > answer.png), "
            f"or look into {run.trace.parent}"
        ) from None


def ask_for_json(task: str, options: Options, *, quiet: bool, cells: Cells = ()) -> int:
    """Answer one question (or run fixed cells), print one JSON object, return the exit code."""
    shown = nullcontext(_Silent()) if quiet else open_view(sys.stderr, verbose=options.verbose)
    with shown as view:
        run = _answer(task, options, view, cells)
    write_line(json.dumps(_as_json(run)))
    return run.status.exit_code


@contextmanager
def failure_as_json(task: str, *, wanted: bool) -> Iterator[None]:
    """Print what fails within as one JSON object where that is wanted."""
    try:
        yield
    except KernelAgentError as error:
        if wanted:
            write_line(json.dumps(_failure(task, error)))
        raise


def converse(options: Options) -> int:
    """Answer questions that are typed at a terminal, in one session, until the user leaves."""
    with suppress(ImportError):
        import readline  # noqa: F401 - its import gives input() editing and history
    with (
        _signals() as stopping,
        open_view(sys.stdout, verbose=options.verbose) as view,
        _asking(view, may_ask=True) as (shown, approver),
        _session("questions", options, shown, approver) as session,
    ):
        sys.stdout.write(f"{WELCOME}\n")
        taken = [0]  # steps of each question, as far as they stand
        while (question := _question()) is not None:
            if question.lower().strip(" ?/:!") in {"help", ""} and question:
                sys.stdout.write(f"{WELCOME}\n")
            elif asked := UNDO.fullmatch(question):
                steps = int(asked["steps"] or 1) if not asked["question"] else taken[-1]
                with stopping(session.stop):
                    _take_back(taken, _undo(session, steps, asked["reason"] or "", view))
            elif question:
                with stopping(session.stop):
                    run = _keep(watch(session, question, shown), shown)
                taken += [len(run.steps)] * bool(run.steps)
                show_places(view, run)
    return 0


def _undo(session: Session, steps: int, reason: str, view: View) -> int:
    """Undo steps and return how many; say what cannot be undone, and go on."""
    try:
        session.undo_sync(steps, reason=reason, on_event=view)
    except (UndoError, UsageError) as error:
        view(Notice(text=one_line(str(error), 1000).capitalize() + "."))
        return 0
    return steps


def _take_back(taken: list[int], steps: int) -> None:
    """Take steps off the last questions; one without any is none that can be undone."""
    while taken[-1] <= steps and len(taken) > 1:
        steps -= taken.pop()
    taken[-1] -= min(steps, taken[-1])


def _answer(task: str, options: Options, view: View, cells: Cells, *, may_ask: bool = False) -> Run:
    with (
        _signals() as stopping,
        _asking(view, may_ask=may_ask) as (shown, approver),
        _session(task, options, shown, approver) as session,
        stopping(session.stop),
    ):
        work = partial(session.play_sync, cells) if cells else session.run_sync
        return _keep(watch(session, task, shown, work=work), shown)


@contextmanager
def _asking(
    view: View, *, may_ask: bool
) -> Iterator[tuple[Callable[[Event], None], Approver | None]]:
    """Yield the view of a run, and the approver where there is a person to ask."""
    if may_ask and sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        prompt = Prompt(view, sys.stdin, sys.stdout)
        yield prompt, prompt.approver
    else:
        yield view, None


@contextmanager
def _session(
    title: str, options: Options, view: Callable[[Event], None], approver: Approver | None
) -> Iterator[Session]:
    """Yield a session that has started; the view says meanwhile what is waited for."""
    session = _make_session(title, options, view, approver)
    with ExitStack() as open_until_the_end:
        with waiting(view, STARTING):
            open_until_the_end.enter_context(session)
        yield session
    if options.copy_data:
        from kernel_agent.notebook import copy_in_place

        for told in copy_in_place(read_trace(session.trace_path), session.out):
            view(Notice(text=f"not copied: {told}"))


def _make_session(
    title: str, options: Options, view: Callable[[Event], None], approver: Approver | None
) -> Session:
    settings = dict(options.settings)
    for_tools = settings.pop("approve_tools", None)  # what the file says of other tools still holds
    config = load_config(tell=lambda line: view(Notice(text=line))).merged(**settings)
    if options.model is None and is_offline(config):
        check_tables([str(each) for each in options.data] or config.data)
    if options.model is None:
        check_endpoint(config)
    return Session(
        model=options.model,
        config=config,
        approve_tools=for_tools,
        data=options.data,
        tools=options.tools,
        mcp=options.mcp,
        approver=approver,
        out=options.out,
        title=title,
        on_event=view,
    )


def _question() -> str | None:
    """Return the line typed at the prompt; empty after Ctrl-C, None when the user leaves."""
    try:
        question = input(PROMPT).strip()
    except KeyboardInterrupt:
        sys.stdout.write("\n(exit or Ctrl-D leaves)\n")
        return ""
    except EOFError:
        sys.stdout.write("\n")
        return None
    return None if question.lower().removeprefix("/") in {"exit", "quit"} else question


class _Silent:
    """The view of ``--quiet``."""

    def __call__(self, event: Event) -> None:
        pass

    def show(self, shown: object) -> None:
        pass


# --- signals -------------------------------------------------------------------------------------

Stop = Callable[[], None]


@contextmanager
def _signals() -> Iterator[Callable[[Stop], Any]]:
    """Handle Ctrl-C and SIGTERM; yield a context that says what the first of them stops.

    Outside that context, where nothing is under way, a signal raises ``KeyboardInterrupt``.
    """
    current: Stop | None = None

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal current
        if current is None:
            raise KeyboardInterrupt
        stop, current = current, _leave
        stop()

    @contextmanager
    def stopping(stop: Stop) -> Iterator[None]:
        nonlocal current
        current = stop
        try:
            yield
        finally:
            current = None

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave() -> None:
    """Leave without waiting for anything; the kernel ends by itself when its host is gone."""
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), b"\x1b[?25h\n")  # the cursor that the live view has hidden
    os._exit(ExitStatus.INTERRUPTED.exit_code)


# --- results -------------------------------------------------------------------------------------


def _keep(run: Run, view: Callable[[Event], None]) -> Run:
    """Write the answer as a file, where it is one, and return the run with it among its files."""
    try:
        name = keep_answer(run)
    except OSError as error:
        view(Notice(text=f"The answer could not be written as a file: {error.strerror}."))
        return run
    return replace(run, files=(*run.files, name)) if name else run


def _print_result(run: Run) -> None:
    """Print the answer, or the reason for its absence on the error channel."""
    if run.status is ExitStatus.ANSWERED:
        write_line(plain(run.text))
        if run.in_words or run.note:  # beside the answer, which a program may read
            write_line(IN_WORDS if run.in_words else f"Note: {plain(run.note)}", sys.stderr)
    else:
        reason = one_line(f"not answered ({run.status}): {run.message}", 1000)
        write_line(f"kernel-agent: {reason}", sys.stderr)


def _warn(run: Run) -> None:
    """Say on the error channel what nobody was shown while the run went on."""
    if any(NOBODY in d["reason"] for d in as_json(run.steps)):
        count = sum(len(denials(step)) for step in run.steps)
        Outlet(sys.stderr).write(f"kernel-agent: denied: {count}. {HOW_TO_ALLOW}\n")
    if run.obeyed:
        Outlet(sys.stderr).write(f"kernel-agent: {obeyed_line(run.obeyed)}\n")
    if not level_of(run.sandbox).confines:
        Outlet(sys.stderr).write(f"{run.sandbox_report['statement']}\n")


def _as_json(run: Run) -> dict[str, Json]:
    return {
        "status": str(run.status),
        "answer": _strict(run.answer),
        "text": run.text,
        "note": run.note,
        "in_words": run.in_words,
        "steps": len(run.steps),
        "usage": {**asdict(run.usage), "total_tokens": run.usage.total_tokens},
        "seconds": round(run.seconds, 3),
        "trace": str(run.trace),
        "notebook": str(run.notebook) if run.notebook else None,
        "sandbox": run.sandbox,
        "sandbox_report": dict(run.sandbox_report),
        "run_id": run.run_id,
        "task": run.task,
        "message": run.message,
        "partial": run.partial,
        "decisions": as_json(run.steps),
        "files": list(run.files),
        "obeyed": list(run.obeyed),
        "agents": [_agent(agent) for agent in run.agents],
    }


def _agent(agent: Delegated) -> dict[str, Json]:
    usage = {**asdict(agent.usage), "total_tokens": agent.usage.total_tokens}
    seconds, agents = round(agent.seconds, 3), [_agent(beneath) for beneath in agent.agents]
    return {**asdict(agent), "usage": usage, "seconds": seconds, "agents": agents}


def _failure(task: str, error: KernelAgentError) -> dict[str, Json]:
    """Return the object of a run that did not begin, with the keys of one that did."""
    statuses = {4: "model_error", 5: "kernel_lost"}
    nothing = dict.fromkeys(("answer", "trace", "notebook", "sandbox", "sandbox_report", "run_id"))
    return {
        "status": statuses.get(error.exit_code, "usage_error"),
        **nothing,
        "text": "",
        "note": "",
        "in_words": False,
        "steps": 0,
        "usage": {},
        "seconds": 0.0,
        "task": task,
        "message": str(error),
        "partial": "",
        "decisions": [],
        "files": [],
        "obeyed": [],
        "agents": [],
    }


def _strict(value: Json) -> Json:
    """Return a JSON value without the numbers that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return value
