"""``%agent TASK``: a question from a notebook cell; steps, figures and answer below it.

Questions of a notebook share one session, so that a later question builds on an earlier one; a run
in the background has a session of its own. The code runs in the session's kernel, not in the
notebook's: variables go in with ``-i`` and come out with ``-o``, typed and never pickled.

All sessions of a notebook live on one event loop in a thread; a cell only waits
(:mod:`kernel_agent_extension.handle`), so interrupting the notebook's kernel stops the run.
"""

from __future__ import annotations

import asyncio
import atexit
import copy
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from IPython.core.error import UsageError as MagicUsageError
from IPython.core.magic import (
    Magics,
    line_cell_magic,
    magics_class,
    needs_local_scope,
    no_var_expand,
)
from traitlets import Enum

from kernel_agent.errors import KernelAgentError
from kernel_agent.records import UNDO, Event, Notice, person_text
from kernel_agent.session import LoopThread, Run, fingerprint
from kernel_agent_extension.calls import Calls, NotebookTool, tools_named
from kernel_agent_extension.conversation import Talk
from kernel_agent_extension.handle import Handle, is_answered
from kernel_agent_extension.insertion import code_of, offers_of
from kernel_agent_extension.options import HELP, Request, defaults, read_request, traits
from kernel_agent_extension.transform import AwaitCalls, keep_questions
from kernel_agent_extension.views import RunView, has_kernel, load_panel, open_view, show_trace

CLOSE_S = 0.7  # for all kernels to end when the notebook's does; the reaper ends what is left
KEPT = 50  # handles of ended runs that are remembered
UNTIL = "The one before is kept until this one has answered."

T = TypeVar("T")


@magics_class
class AgentMagics(Magics):
    """The magics of one notebook, and the sessions behind them.

    The traits are defaults for all questions, set with ``%config AgentMagics.model = "…"``.

    Parameters
    ----------
    shell
        The notebook's IPython.
    """

    locals().update(traits())  # a class's namespace is read from here (Python's reference says so)
    panel = Enum(("auto", "on", "off"), "auto", help="Whether runs are shown as a panel.").tag(
        config=True
    )

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._shell = shell
        self._loop: LoopThread | None = None
        self._talk: Talk | None = None  # that questions go on with
        self._talks: list[Talk] = []  # all that have a kernel
        self._handles: list[Handle] = []
        self._closing: dict[Talk, asyncio.Future[None]] = {}  # of sessions that are replaced
        self._calls = Calls(interrupted=self._stop_waited)
        self._waited = set[Handle]()  # whose cells wait for them
        shell.input_transformers_cleanup.append(keep_questions)
        if has_kernel(shell):
            shell.input_transformers_post.append(AwaitCalls(shell))
        load_panel(shell)
        atexit.register(self._close)

    @no_var_expand  # a variable's value would be read as if the person had typed it
    @needs_local_scope
    @line_cell_magic
    def agent(
        self, line: str, cell: str | None = None, local_ns: Mapping[str, Any] | None = None
    ) -> Handle | None:
        """Ask about your data."""
        handle = _tell_mistakes(lambda: self._begin(line, cell, local_ns or {}))
        if handle in self._waited:
            assert handle is not None
            _tell_mistakes(handle.result)
        return handle

    @no_var_expand
    @needs_local_scope
    @line_cell_magic
    async def agent_awaited(
        self, line: str, cell: str | None = None, local_ns: Mapping[str, Any] | None = None
    ) -> Handle | None:
        """Stand for %agent where the cell can wait without holding the kernel."""
        handle = _tell_mistakes(lambda: self._begin(line, cell, local_ns or {}))
        if handle in self._waited:
            assert handle is not None
            try:
                await handle
            except KernelAgentError as error:
                raise MagicUsageError(str(error)) from None
        return handle

    # --- what a line asks for --------------------------------------------------------------

    def _begin(self, line: str, cell: str | None, local: Mapping[str, Any]) -> Handle | None:
        """Carry out a line; return the run, if it asks for one."""
        names = {*self._shell.user_ns, *local} - self._shell.user_ns_hidden.keys()
        request = read_request(line, cell, names=names)
        if request == Request(task=""):
            self._explain()
        elif request == Request(task="stop"):
            self._stop()
        elif request == Request(task="show"):
            self._show()
        elif request == Request(task="status"):
            sys.stdout.write("\n".join(map(repr, self._running())) or "Nothing runs.")
            sys.stdout.write("\n")
        elif undo := UNDO.fullmatch(request.task):
            self._undo(None if undo["question"] else int(undo["steps"] or 1), undo["reason"] or "")
        elif not request.task:
            raise MagicUsageError("There is no task, as in: %agent --data sales.csv How many rows?")
        else:
            settings = {**defaults(self), **request.settings}
            return self._ask(replace(request, settings=settings), local)
        return None

    def _explain(self) -> None:
        sys.stdout.write(f"{HELP}\n")
        if self._handles:
            last = self._handles[-1]
            sys.stdout.write(f"\nThe last run: {last!r}\n  {last.task}\n")
            with suppress(KernelAgentError):
                if last.done:
                    sys.stdout.write(f"  {last.text or last.message}\n  {last.notebook}\n")

    def _show(self) -> None:
        """Show the running run, or the page of the last one: from its trace, on any page."""
        if any(handle.show_again() for handle in reversed(self._running())):
            return
        busy = [talk for talk in self._talks if talk.busy]
        if busy:
            show_trace(busy[-1].session.trace_path)
            return
        for handle in reversed(self._handles):
            with suppress(KernelAgentError):  # it did not begin
                run = handle.result()
                show_trace(run.trace, run_id=run.run_id)
                return
        traces = sorted(Path("runs").glob("*/trace.jsonl"), key=lambda path: path.stat().st_mtime)
        if not traces:
            raise MagicUsageError("There is no run to show: ask a first question.")
        show_trace(traces[-1])

    def _running(self) -> list[Handle]:
        return [handle for handle in self._handles if not handle.done]

    def _stop(self) -> None:
        running = self._running()
        for handle in running:
            handle.stop()
        sys.stdout.write(f"Stopping {len(running)}.\n" if running else "Nothing runs.\n")

    def _stop_waited(self) -> None:
        """End the runs that cells wait for: a person has interrupted a function of theirs."""
        for handle in self._running():
            if handle in self._waited:
                handle.stop()

    def _undo(self, steps: int | None, reason: str) -> None:
        if self._talk is None or self._loop is None:
            raise MagicUsageError("There is nothing to undo: ask a first question.")
        sys.stdout.write(f"{person_text(self._loop.result(self._talk.undo(steps, reason)))}\n")

    # --- one question ----------------------------------------------------------------------

    def _ask(self, request: Request, local: Mapping[str, Any]) -> Handle:
        before = self._talk
        talk = self._talk_for(request, local)
        given = [name for name in self._carried(talk, before) if name in self._shell.user_ns]
        values = self._values((*given, *request.given), local)
        view = open_view(
            self._shell,
            task=request.task,
            panel=self.panel,
            background=request.background,
            stop=talk.stop,
            undo=talk.press_undo,
            notebook=talk.session.notebook_path,
            sandbox=talk.session.sandbox,
            started=talk.started,
        )
        # From here on it may take a while: what is large is looked through, or copied.
        changed, gone = self._find_changed(talk)
        for name in gone:
            view.note(f"{name} cannot be passed in as it is now: the kernel's copy stays.")
        if talk is not before and talk.started and (eased := talk.options.eased):
            view.note(f"The session goes on in which this was said: {', '.join(eased)}.")
        for name in self._outdated(talk):
            view.note(f"{name} is another tool now: --new --tools {name} uses it as it is.")
        values |= self._values(changed, local)
        if request.background:
            values = {name: copy.deepcopy(value) for name, value in values.items()}
        return self._start(talk, request, values, view, before=before)

    def _talk_for(self, request: Request, local: Mapping[str, Any]) -> Talk:
        """Return a session that there is, or a new one when the request asks for or needs one."""
        now = self._talk
        because = now.new_kernel_for(request) if now is not None else ""
        if request.goes_on:
            _check_goes_on(now, because)
        if request.background and not request.goes_on:
            return self._new_talk(request, local, once=True)
        if now is None:
            return self._new_talk(request, local)
        if request.new:
            return self._new_talk(request, local, opening=f"A new session begins. {UNTIL}")
        if because:
            return self._other_talk(request, local, now, because)
        if now.busy:
            raise MagicUsageError(
                "The session is busy with another question: wait for it (run.result()), "
                "%agent stop, or ask with --new."
            )
        return now

    def _other_talk(
        self, request: Request, local: Mapping[str, Any], now: Talk, because: str
    ) -> Talk:
        """Return the session before if it fits; else a new one with what this one was given."""
        for kept in reversed(self._shared()):
            if not kept.busy and not kept.new_kernel_for(request):
                return kept
        whole = request.after(now.options)
        names = [name for name in now.given if name in self._shell.user_ns]
        taken = [*(Path(path).name for path in whole.data), *names]
        carried = [option for option in whole.eased if option not in request.eased]
        return self._new_talk(whole, local, opening=_opening(because, taken, now.made, carried))

    def _new_talk(
        self, request: Request, local: Mapping[str, Any], *, once: bool = False, opening: str = ""
    ) -> Talk:
        space = {**self._shell.user_ns, **local}
        tools = tools_named(request.tools, space, self._calls)
        return Talk(request, once=once, tools=tools, opening=opening)

    def _shared(self) -> list[Talk]:
        """Return the sessions that questions may go on with: the present one, and kept ones."""
        return [talk for talk in self._talks if not talk.once and not talk.session.closed]

    def _carried(self, talk: Talk, before: Talk | None) -> Iterable[str]:
        """Return the variables that a session takes over from the one in whose place it stands."""
        fresh = before is None or talk.started or talk.once or talk.request.new
        return () if fresh or before is None else before.given

    def _outdated(self, talk: Talk) -> list[str]:
        """Let tools follow their functions; return those whose functions are of another kind."""
        own = [tool for tool in talk.tools if isinstance(tool, NotebookTool)]
        return [tool.variable for tool in own if not tool.follow(self._shell.user_ns)]

    def _start(
        self,
        talk: Talk,
        request: Request,
        values: Mapping[str, Any],
        view: RunView,
        *,
        before: Talk | None,
    ) -> Handle:
        """Begin the work on the sessions' loop; return its handle."""
        events: SimpleQueue[Event | None] = SimpleQueue()
        talk.begin(view)
        if talk not in self._talks:
            self._talks.append(talk)
        if not talk.once:
            self._talk = talk
        self._loop = self._loop or LoopThread()
        names = self._shell.user_ns

        tell = view if view.direct else events.put

        async def work() -> Run:
            run = None
            try:
                run = await talk.answer(request, values, tell=tell, names=names)
            finally:
                self._settle(talk, before, run, tell)
            return run

        self._calls.belong_here()
        future = talk.future = self._loop.begin(work())
        handle = Handle(
            request.task,
            future,
            events=events,
            stop=talk.stop,
            show=view,
            finish=lambda run, why: self._finish(request, talk, view, run, why),
            cell=self._shell.execution_count,
            calls=self._calls,
        )
        self._handles = [*self._handles[-KEPT:], handle]
        if request.background:
            future.add_done_callback(lambda _: handle.settle())
        else:
            self._waited.add(handle)
        return handle

    def _settle(
        self, talk: Talk, before: Talk | None, run: Run | None, tell: Callable[[Event], None]
    ) -> None:
        """Let the sessions before go when a new one has answered; keep them if it came to nothing.

        Called on the sessions' loop.
        """
        others = [other for other in self._shared() if other is not talk]
        if talk.once:
            return
        if is_answered(run):
            self._let_go(*others)
        elif self._talk is talk and not talk.has_worked and (before in others or run is None):
            self._talk = before if before in others else None
            self._let_go(talk)
            if self._talk is not None and talk.started:
                tell(Notice(text="The session before goes on with the next question."))

    def _let_go(self, *talks: Talk) -> None:
        for talk in talks:
            talk.once = True  # no question goes on with it from now on
            self._closing[talk] = asyncio.ensure_future(self._end(talk))

    async def _end(self, talk: Talk) -> None:
        with suppress(Exception):  # a part that cannot be closed was told of; the rest is closed
            await talk.close()
        self._closing.pop(talk, None)
        self._talks = [other for other in self._talks if not other.session.closed]

    def _finish(
        self, request: Request, talk: Talk, view: RunView, run: Run | None, why: str
    ) -> None:
        """Show the lasting summary of a run below the cell."""
        if run and self._loop:
            view.offers = offers_of(talk, run, self._loop.begin)
        view.finish(run, why)
        talk.view = None
        self._talks = [other for other in self._talks if not other.session.closed]
        if run is not None and request.insert:
            self._shell.set_next_input(code_of(run, talk.session.files), replace=False)

    # --- variables -------------------------------------------------------------------------

    def _values(self, names: Iterable[str], local: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for name in dict.fromkeys(names):
            space = local if name in local else self._shell.user_ns
            if name not in space:
                raise MagicUsageError(
                    f"There is no variable {name} here to pass in.{_like(name, space)}"
                )
            found[name] = space[name]
        return found

    def _find_changed(self, talk: Talk) -> tuple[list[str], list[str]]:
        """Return variables that changed since they were passed in, and those without a form now."""
        changed, gone = [], []
        for name, known in talk.given.items():
            if name not in self._shell.user_ns:
                continue
            try:
                if fingerprint(self._shell.user_ns[name]) != known:
                    changed.append(name)
            except (TypeError, ValueError):
                gone.append(name)
        return changed, gone

    # --- the end ---------------------------------------------------------------------------

    def _close(self) -> None:
        """End every session; called when the notebook's kernel ends."""
        if self._loop is None:
            return
        for handle in self._running():
            handle.stop()
        with suppress(TimeoutError, KernelAgentError):
            self._loop.result(self._close_all())
        self._loop.end()
        self._loop = None

    async def _close_all(self) -> None:
        closing = [talk.session.close() for talk in self._talks]
        ends = asyncio.gather(*closing, *self._closing.values(), return_exceptions=True)
        await asyncio.wait_for(ends, CLOSE_S)


def _tell_mistakes(work: Callable[[], T]) -> T:
    """Run a function; show the user's mistakes as one line, not as a traceback."""
    try:
        return work()
    except KernelAgentError as error:
        raise MagicUsageError(str(error)) from None


def _opening(
    because: str, again: Sequence[str], made: Sequence[str], carried: Sequence[str]
) -> str:
    """Return the line on a session that takes another one's place, and what it takes from there."""
    takes = f", with {', '.join(again)}" if again else ""
    lacks = ", ".join(made[:3]) + (f" and {len(made) - 3:,} more" if len(made) > 3 else "")
    lacks = f", without what cells made there ({lacks})" if made else ""
    line = f"{because} needs a new kernel: a new session begins{takes}{lacks}. {UNTIL}"
    return line + (
        f" What was said there holds here, too: {', '.join(carried)}." if carried else ""
    )


def _check_goes_on(talk: Talk | None, because: str) -> None:
    if talk is None:
        raise MagicUsageError(
            "There is no session to continue: ask a first question without --continue."
        )
    if because:
        raise MagicUsageError(
            f"The session so far has another {because}: leave {because} out, or --continue."
        )


def _like(name: str, space: Mapping[str, Any]) -> str:
    import difflib

    close = difflib.get_close_matches(name, [n for n in space if not n.startswith("_")], n=1)
    return f" Did you mean {close[0]}?" if close else ""


AgentMagics.agent.__doc__ = f"Ask about your data.\n\n{HELP}"
