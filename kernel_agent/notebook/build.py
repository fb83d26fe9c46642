"""Records in, notebook out. Pure: the same records give the same bytes.

A notebook of this program is what a colleague reads and runs again: the task, one cell that makes
it run in plain Jupyter, each thought as Markdown over the code that it led to, with the outputs
that the code really had, and the answer last.

What must not run again does not: a step that was interrupted, that took the kernel with it, that
had no readable action, or that a person took back is folded away as Markdown. A step that merely
raised stays a code cell, because later steps may use what it had bound; it is folded, and tagged so
that running all cells goes on past it. Cells are trusted by those who open them, so text of unknown
origin goes through :mod:`kernel_agent.notebook.markdown` and :mod:`kernel_agent.notebook.outputs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernel_agent.errors import NotebookError
from kernel_agent.notebook.agents import agents_markdown
from kernel_agent.notebook.folded import (
    decisions_note,
    failure_text,
    not_run_again,
    undo_reason,
    undone_note,
)
from kernel_agent.notebook.markdown import code_block, markdown, quote_text, verbatim
from kernel_agent.notebook.outputs import full_text, notebook_outputs
from kernel_agent.notebook.setup_cell import (
    call_cell,
    environment_source,
    is_name,
    tools_source,
)
from kernel_agent.records import (
    UNFINISHED,
    Answer,
    Calls,
    CellResult,
    Code,
    DataFile,
    HostCall,
    Record,
    RunRecords,
    RunStart,
    Step,
    Undone,
    Usage,
    agents_of,
    apply_updates,
    minute_text,
    runs_of,
    source_of,
    steps_text,
    with_error,
)
from kernel_agent.safe import encodable, one_line, plain, shorten

if TYPE_CHECKING:
    import nbformat

SCHEMA_VERSION = 1
MAX_THOUGHT = 20_000  # characters
MAX_ANSWER = 100_000

GUARDED = "GuardError"  # the name of the error of both guards (sandbox.guard, inside.counting)

Cell = dict[str, Any]


@dataclass
class _Cells:
    """The cells so far; code cells are numbered as running them all would number them."""

    cells: list[Cell] = field(default_factory=list)
    count: int = 0
    _ids: set[str] = field(default_factory=set)

    def markdown(self, name: str, source: str, **ours: Any) -> None:
        self._add("markdown", name, source, {"kernel_agent": ours})

    def code(
        self,
        name: str,
        source: str,
        *,
        outputs: Iterable[dict[str, Any]] = (),
        tags: Mapping[str, Any] | None = None,
        **ours: Any,
    ) -> None:
        self.count += 1
        self._add("code", name, source, {**(tags or {}), "kernel_agent": ours})
        shown = notebook_outputs(outputs, execution_count=self.count)
        self.cells[-1].update(execution_count=self.count, outputs=shown)

    def _add(self, kind: str, name: str, source: str, metadata: dict[str, Any]) -> None:
        unique = name if name not in self._ids else f"{name}-{len(self.cells)}"
        self._ids.add(unique)
        self.cells.append({"cell_type": kind, "id": unique, "metadata": metadata, "source": source})


def notebook_of(records: Sequence[Record]) -> nbformat.NotebookNode:
    """Return the notebook of a session: each run with its task, its steps and its answer.

    Parameters
    ----------
    records
        A trace, in order; its last run may be unfinished. Delegated runs, which had kernels of
        their own, are left out: what they gave stands in the calls that asked for it.

    Raises
    ------
    NotebookError
        The records hold no run, or what they hold makes no valid notebook.
    """
    from kernel_agent.notebook.library import nbformat

    runs = runs_of(apply_updates(records))
    if not runs:
        raise NotebookError("the trace holds no run, so there is nothing to export")
    cells = _Cells()
    for run in runs:
        cells.markdown(f"run-{run.number}-task", _task(run), **_ours(run, "task"))
        if run is runs[0]:
            _add_environment(cells, runs_of(records))  # what `outputs[k]` gives is as it was
        if run.given:
            _add_given(cells, run)
        for step in run.steps:
            _add_step(cells, run, step)
        cells.markdown(f"run-{run.number}-answer", _answer(run), **_ours(run, "answer"))
    content = {
        "cells": cells.cells,
        "metadata": _metadata(runs),
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    notebook: nbformat.NotebookNode = nbformat.from_dict(_encodable(content))  # type: ignore[no-untyped-call]  # nbformat is untyped
    try:
        nbformat.validate(notebook)
    except nbformat.ValidationError as error:
        raise NotebookError(f"no valid notebook: {one_line(str(error))}") from None
    return notebook


def _runs_again(run: RunRecords, step: Step) -> bool:
    """Whether the step becomes code cells.

    Steps that a person took back or denied, or a guard refused or ended, would now be done, or
    never end.
    """
    result = step.result
    denied = step.decision is not None and not step.decision.allowed
    if step.number in run.undone or denied:
        return False
    if result is None or result.status not in ("ok", "error"):
        return False
    guarded = result.error is not None and result.error.ename == GUARDED
    return isinstance(step.action, Code | Calls) and not guarded


# --- the parts of the notebook, in its order -----------------------------------------------


def _task(run: RunRecords) -> str:
    start = run.start
    task = plain(start.task)
    title = verbatim(one_line(task, 80)) or "Run"
    facts = [
        f"- **Model:** {verbatim(one_line(start.model))}",
        f"- **Date:** {verbatim(minute_text(start.time))}",
        f"- **Status:** {_status(run)}",
        *(f"- **Data:** {_data(file)}" for file in start.data),
    ]
    whole = [] if title == verbatim(task) else [quote_text(task)]
    return "\n\n".join([f"# {title}", *whole, "\n".join(facts), _how(start.model)])


def _data(file: DataFile) -> str:
    path = verbatim(one_line(file.path))
    return f"{path} ({file.bytes:,} bytes, SHA-256 {verbatim(file.sha256[:12])}…)"


def _how(model: str) -> str:
    if model == "offline":
        author = "The code was written by a rule-based analyst, without a language model"
    elif model.startswith("scripted"):
        author = "The code was played back from a file of recorded replies"
    elif model == "fixed cells":
        author = "The code is that of a notebook, written before the run"
    else:
        author = "The code was written by a language model"
    return (
        f"*Made by kernel-agent. {author}, one step at a time; the outputs are what the code "
        "showed when it ran. Steps that failed are folded, not removed. Check it before you rely "
        "on it.*"
    )


def _add_environment(cells: _Cells, runs: Sequence[RunRecords]) -> None:
    steps = [step for run in runs for step in run.steps]
    again = [step for run in runs for step in run.steps if _runs_again(run, step)]
    sources = [step.code for step in again]
    sources += [given.source for run in runs for given in run.given]
    texts = {step.number: full_text(step.result.outputs) for step in steps if step.result}
    hidden = {"jupyter": {"source_hidden": True}}
    made = [call for step in again if step.result for call in step.result.calls]
    calls = sorted(made, key=lambda call: call.number)  # as they were asked for, not answered
    tools = tools_source(calls, _find_tools(runs, sources))
    needed = [*sources, "import pyarrow"] if "'arrow': " in tools else sources  # to rebuild tables
    source = environment_source(
        needed,
        versions=runs[0].start.versions,
        texts=texts,
        refused=any(step.result is not None and _is_refused(step.result) for step in again),
    )
    cells.code("environment", source, tags=hidden, role="environment")
    if tools:
        note = (
            f"The run called tools on its host {_times(calls)}. The next cell replays what they "
            "gave: it does not call them."
        )
        cells.markdown("tools-note", note, role="tools")
        cells.code("tools", tools, tags=hidden, role="tools")


def _is_refused(result: CellResult) -> bool:
    return result.error is not None and " is no answer: " in result.error.evalue


def _add_given(cells: _Cells, run: RunRecords) -> None:
    """Add the cell that sets the variables which the user had put into the kernel."""
    given = run.given
    names = ", ".join(verbatim(one_line(g.name, 60)) for g in given)
    note = f"Put into the kernel by the user, as it was when the question was asked: {names}."
    cells.markdown(f"run-{run.number}-given-note", note, **_ours(run, "given"))
    source = source_of(given)
    cells.code(f"run-{run.number}-given", source, **_ours(run, "given"))


def _times(calls: Sequence[HostCall]) -> str:
    return "once" if len(calls) == 1 else f"{len(calls)} times"


def _find_tools(runs: Sequence[RunRecords], sources: Sequence[str]) -> list[str]:
    """Return the tools that the code names."""
    tools = dict.fromkeys(tool for run in runs for tool in run.start.tools)
    return [t for t in tools if any(re.search(rf"\b{re.escape(t)}\b", s) for s in sources)]


def _add_step(cells: _Cells, run: RunRecords, step: Step) -> None:
    name = f"run-{run.number}-step-{step.number:02d}"
    thought = markdown(shorten(plain(step.thought), MAX_THOUGHT))
    said = [f"### Step {step.number}", thought, decisions_note(step)]
    if not _runs_again(run, step):
        undone = run.undone.get(step.number)
        said.append(undone_note(step, undone) if undone else not_run_again(step))
        role = "step" if step.ok and not undone else "folded"
        cells.markdown(name, "\n\n".join(filter(None, said)), **_ours(run, role, step))
        _add_agents(cells, run, step)
        return
    assert step.result is not None
    tags: dict[str, Any] = {}
    if not step.result.ok:
        said.append(f"*{failure_text(step)}*")
        tags = _FAILED
    cells.markdown(
        f"{name}-thought", "\n\n".join(filter(None, said)), **_ours(run, "thought", step)
    )
    if isinstance(step.action, Calls):
        _add_calls(cells, run, step)
        return
    cells.code(
        f"{name}-code",
        step.code,
        outputs=with_error(step.result.outputs, step.result.error),
        tags=tags,
        **_ours(run, "code", step),
    )
    _add_agents(cells, run, step)


def _add_agents(cells: _Cells, run: RunRecords, step: Step) -> None:
    """Add the tree of the runs that a step delegated."""
    agents = agents_of([step])
    if agents:
        name = f"run-{run.number}-step-{step.number:02d}-agents"
        cells.markdown(name, agents_markdown(agents), **_ours(run, "agents", step))


_FAILED: dict[str, Any] = {
    "tags": ["raises-exception"],
    "collapsed": True,
    "jupyter": {"source_hidden": True, "outputs_hidden": True},
}


def _add_calls(cells: _Cells, run: RunRecords, step: Step) -> None:
    """Add a cell for each call: it calls the tool's replay and shows the result."""
    assert step.result is not None
    for n, call in enumerate(step.result.calls, start=1):
        name = f"run-{run.number}-step-{step.number:02d}-call-{n}"
        if not is_name(call.name):
            cells.markdown(name, verbatim(one_line(f"{call.name}: {call.error}")))
            continue
        source, outputs = call_cell(call)
        cells.code(
            name,
            source,
            outputs=outputs,
            tags={} if call.ok else _FAILED,
            **_ours(run, "code", step),
        )
    _add_agents(cells, run, step)


def _status(run: RunRecords) -> str:
    if run.stop is None:
        return f"{UNFINISHED.lower()}: the trace ends in mid-run"
    ended = run.stop.ending.words
    return f"{ended}, then undone" if run.withdrawn else ended


def _answer(run: RunRecords) -> str:
    stop, withdrawn = run.stop, run.withdrawn
    if stop is not None and stop.answer is not None:
        if withdrawn is None:
            return f"## Answer\n\n{_answer_text(stop.answer)}"
        return _withdrawn(stop.answer, withdrawn)
    lines = [f"## No answer: {_status(run)}"]
    if stop is not None and stop.message:
        lines.append(verbatim(plain(stop.message)))
    if stop is not None and stop.partial.strip():
        partial = shorten(plain(stop.partial).strip("\n"), MAX_ANSWER)
        lines += ["What was achieved so far:", code_block(partial)]
    return "\n\n".join(lines)


def _withdrawn(answer: Answer, undone: Undone) -> str:
    them = "was undone by the user, and the answer with it"
    if undone.first != undone.last:
        them = "were undone by the user, and the answer with them"
    text = shorten(plain(answer.text).strip("\n"), MAX_ANSWER)
    summary = "<details>\n<summary>The answer had been</summary>"
    why = undo_reason(undone)
    said = f"{steps_text(undone)} {them}{f': {why}' if why else ''}."
    return "\n\n".join(["## Answer withdrawn", said, summary, code_block(text), "</details>"])


def _answer_text(answer: Answer) -> str:
    """Return text as the Markdown that it may be, and any other value as it was printed."""
    text = shorten(plain(answer.text).strip("\n"), MAX_ANSWER)
    if answer.kind in ("text", "str"):
        return markdown(text)
    return code_block(text) if "\n" in text else verbatim(text)


# --- metadata ------------------------------------------------------------------------------


def _ours(run: RunRecords, role: str, step: Step | None = None) -> dict[str, Any]:
    ours: dict[str, Any] = {"run": run.number, "role": role}
    return {**ours, "step": step.number} if step else ours


def _metadata(runs: Sequence[RunRecords]) -> dict[str, Any]:
    first = runs[0].start
    version = first.versions.get("python", "3")
    return {
        "kernelspec": {
            "display_name": "Python 3 (ipykernel)",
            "language": "python",
            "name": "python3",
        },
        "language_info": {
            "codemirror_mode": {"name": "ipython", "version": 3},
            "file_extension": ".py",
            "mimetype": "text/x-python",
            "name": "python",
            "nbconvert_exporter": "python",
            "pygments_lexer": "ipython3",
            "version": version,
        },
        "kernel_agent": {
            "schema": SCHEMA_VERSION,
            "runs": [_run_metadata(run) for run in runs],
            "inputs": list(_inputs(runs)),
            "sandbox": {k: v for k, v in first.sandbox.items() if k in ("level", "statement")},
            "versions": dict(first.versions),
        },
    }


def _run_metadata(run: RunRecords) -> dict[str, Any]:
    start, stop = run.start, run.stop
    return {
        "run_id": start.run_id,
        "task": start.task,
        "model": start.model,
        "format": start.format,
        "time": start.time,
        "status": str(stop.status) if stop else "unfinished",
        "steps": len(run.steps),
        "seconds": stop.seconds if stop else None,
        "usage": _usage(stop.usage) if stop else None,
        "answered": run.is_answered,
        **({"undone": sorted(run.undone)} if run.undone else {}),
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "calls": usage.calls,
        "cost_usd": usage.cost_usd,
        "estimated": usage.estimated,
    }


def _inputs(runs: Sequence[RunRecords]) -> Iterator[dict[str, Any]]:
    """Yield each input once; where it came from on the author's machine is left out."""
    files = {file.path: file for run in runs for file in _files(run.start)}
    for path, file in files.items():
        yield {"path": path, "bytes": file.bytes, "sha256": file.sha256, "kind": file.kind}


def _files(start: RunStart) -> Iterator[DataFile]:
    yield from start.data
    yield from (file for given in start.given for file in given.files)


def _encodable(value: Any) -> Any:
    """Replace lone surrogates, which no file can hold, all through the notebook."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, Mapping):
        return {encodable(str(key)): _encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value
