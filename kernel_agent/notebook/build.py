"""Records in, notebook out. Pure: the same records give the same bytes.

A notebook of this program is what a colleague reads and runs again: the question, the answer and
its figure, then how it came about, each thought as Markdown over the code that it led to, with the
outputs that the code really had; model, date, data and environment last. Several questions of a
session have one head, one setup cell and one appendix.

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
    FAILED,
    HIDDEN,
    SHOWN_ONLY,
    decisions_note,
    failure_text,
    not_run_again,
    step_tags,
    undone_note,
)
from kernel_agent.notebook.headings import rest_of_thought, step_sentence
from kernel_agent.notebook.markdown import markdown, verbatim
from kernel_agent.notebook.matter import (
    alt_text,
    answer,
    appendix,
    figure,
    head,
    heading,
    question,
    way,
)
from kernel_agent.notebook.outputs import full_text, notebook_outputs
from kernel_agent.notebook.read import fingerprints
from kernel_agent.notebook.setup_cell import (
    REPEATED,
    REPLAY,
    Needs,
    Setup,
    call_cell,
    is_name,
    make_setup,
)
from kernel_agent.notebook.tracebacks import short_error
from kernel_agent.records import (
    Calls,
    CellResult,
    Code,
    DataFile,
    Final,
    HostCall,
    Record,
    RunRecords,
    RunStart,
    Step,
    Undone,
    Usage,
    agents_of,
    apply_updates,
    as_text,
    role_of,
    runs_of,
    source_of,
    with_error,
)
from kernel_agent.safe import FORMATS, encodable, one_line, plain, shorten

if TYPE_CHECKING:
    import nbformat

SCHEMA_VERSION = 1
MAX_THOUGHT = 20_000  # characters

GUARDED = "GuardError"  # the name of the error of both guards (sandbox.guard, inside.counting)

Cell = dict[str, Any]


@dataclass
class _Cells:
    """The cells so far; code cells are numbered as running them all would number them."""

    cells: list[Cell] = field(default_factory=list)
    count: int = 0
    numbers: dict[int, int] = field(default_factory=dict)
    """The number of each step's cell, by which its traceback knows it."""
    _ids: set[str] = field(default_factory=set)

    def markdown(self, name: str, source: str, **ours: Any) -> None:
        self._add("markdown", name, source, {"kernel_agent": ours})

    def figure(self, name: str, source: str, output: dict[str, Any], **ours: Any) -> None:
        """Add a picture as the output of a cell that is not run: every reader shows an output."""
        self._add("code", name, source, {**SHOWN_ONLY, "kernel_agent": ours})
        self.cells[-1].update(execution_count=None, outputs=[output])

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


@dataclass(frozen=True, kw_only=True)
class Document:
    """A notebook and the source of the module of replays beside it, empty when it needs none."""

    notebook: nbformat.NotebookNode
    replay: str


def notebook_of(records: Sequence[Record]) -> nbformat.NotebookNode:
    """Return the notebook of a session; see :func:`document_of`."""
    return document_of(records).notebook


def document_of(records: Sequence[Record], *, module: str = REPLAY) -> Document:
    """Return the notebook of a session: each run with its question, its answer and its steps.

    Parameters
    ----------
    records
        A trace, in order; its last run may be unfinished. Delegated runs, which had kernels of
        their own, are left out: what they gave stands in the calls that asked for it.
    module
        The name of the module of replays beside the notebook, without its ending.

    Raises
    ------
    NotebookError
        The records hold no run, or what they hold makes no valid notebook.
    """
    from kernel_agent.notebook.library import nbformat

    runs = runs_of(apply_updates(records))
    if not runs:
        raise NotebookError("the trace holds no run, so there is nothing to export")
    calls = _calls(runs)
    setup = _setup(runs, runs_of(records), calls, module)  # `outputs[k]` gives what was shown then
    cells = _Cells()
    _add_runs(cells, runs, setup)
    replays = f"{_times(calls)}; {_given_again(setup, module)}" if calls else ""
    cells.markdown("appendix", appendix(runs, replays), role="appendix")
    content = {
        "cells": cells.cells,
        "metadata": _metadata(runs, replay=f"{module}.py" if setup.replay else ""),
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    content = _encodable(content)
    content["metadata"]["kernel_agent"]["texts"] = fingerprints(content["cells"])
    notebook: nbformat.NotebookNode = nbformat.from_dict(content)  # type: ignore[no-untyped-call]  # nbformat is untyped
    try:
        nbformat.validate(notebook)
    except nbformat.ValidationError as error:
        raise NotebookError(f"no valid notebook: {one_line(str(error))}") from None
    return Document(notebook=notebook, replay=setup.replay)


def _add_runs(cells: _Cells, runs: Sequence[RunRecords], setup: Setup) -> None:
    deep = len(runs) > 1
    if deep:
        cells.markdown("head", head(runs), role="head")
    for run in runs:
        name = f"run-{run.number}"
        cells.markdown(f"{name}-task", question(run, deep=deep), **_ours(run, "task"))
        cells.markdown(f"{name}-answer", answer(run, deep=deep), **_ours(run, "answer"))
        if shown := figure(run):
            cells.figure(f"{name}-figure", *shown, **_ours(run, "figure"))
        steps = [step for step in run.steps if not _is_told(run, step)]
        if steps or run is runs[0]:
            cells.markdown(f"{name}-way", way(run, deep=deep), **_ours(run, "way"))
        if run is runs[0]:
            cells.code("environment", setup.cell, tags=HIDDEN, role="environment")
        if run.given:
            _add_given(cells, run)
        for step in steps:
            _add_step(cells, run, step, deep=deep)


def _is_told(run: RunRecords, step: Step) -> bool:
    """Whether the answer holds all of a step: it was in words, and not from a cell."""
    in_words = isinstance(step.action, Final) and step.action.in_words
    return in_words and step.number not in run.undone


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


def set_verified(notebook: nbformat.NotebookNode, line: str) -> None:
    """Put a line on a re-run below the answer, in place of an earlier one.

    Parameters
    ----------
    notebook
        Changed in place; one that no export wrote has no such place and stays as it is.
    line
        What came of the re-run.
    """
    from kernel_agent.notebook.library import nbformat

    found = [*map(role_of, notebook.cells)]
    if "verified" in found:
        notebook.cells[found.index("verified")].source = verbatim(line)
    elif "way" in found:
        cell = {
            "cell_type": "markdown",
            "id": "verified",
            "metadata": {"kernel_agent": {"role": "verified"}},
            "source": verbatim(line),
        }
        place = found.index("head") + 1 if "head" in found else found.index("way")
        notebook.cells.insert(place, nbformat.from_dict(cell))  # type: ignore[no-untyped-call]  # nbformat is untyped


# --- what its cells need ---------------------------------------------------------------------


def _setup(
    runs: Sequence[RunRecords],
    then: Sequence[RunRecords],
    calls: Sequence[HostCall],
    module: str,
) -> Setup:
    again = [step for run in runs for step in run.steps if _runs_again(run, step)]
    sources = [step.code for step in again]
    sources += [given.source for run in runs for given in run.given]
    shown = [step for run in then for step in run.steps]
    needs = Needs(
        sources=sources,
        versions=runs[0].start.versions,
        texts={step.number: full_text(step.result.outputs) for step in shown if step.result},
        codes={step.number: step.code for step in shown if step.result},
        calls=calls,
        tools=_find_tools(runs, sources),
        docs={name: doc for run in runs for name, doc in run.start.tool_docs.items()},
        strict=any(step.result is not None and _is_strict(step.result) for step in again),
        read=tuple(dict.fromkeys(file.path for run in runs for file in run.read)),
    )
    return make_setup(needs, module=module)


def _calls(runs: Sequence[RunRecords]) -> list[HostCall]:
    """Return the calls that the cells make again, as they were asked for, not answered."""
    again = [step for run in runs for step in run.steps if _runs_again(run, step)]
    made = [call for step in again if step.result for call in step.result.calls]
    return sorted(made, key=lambda call: call.number)


def _given_again(setup: Setup, module: str) -> str:
    if setup.replay:
        return f"{verbatim(f'{module}.py')} beside this notebook gives again what they gave"
    return "the first code cell gives again what they gave"


def _is_strict(result: CellResult) -> bool:
    """Whether ``final_answer`` refused what it was given, or ignored a second call."""
    if result.error is not None and " is no answer: " in result.error.evalue:
        return True
    return any(REPEATED in as_text(output.get("text")) for output in result.outputs)


# --- the steps -------------------------------------------------------------------------------


def _add_given(cells: _Cells, run: RunRecords) -> None:
    """Add the cell that sets the variables which the user had put into the kernel."""
    given = run.given
    names = ", ".join(verbatim(one_line(g.name, 60)) for g in given)
    note = f"Put into the kernel by the user, as it was when the question was asked: {names}."
    cells.markdown(f"run-{run.number}-given-note", note, **_ours(run, "given"))
    source = source_of(given)
    cells.code(f"run-{run.number}-given", source, **_ours(run, "given"))


def _times(calls: Sequence[HostCall]) -> str:
    return f"called {'once' if len(calls) == 1 else f'{len(calls)} times'} in the run"


def _find_tools(runs: Sequence[RunRecords], sources: Sequence[str]) -> list[str]:
    """Return the tools that the code names."""
    tools = dict.fromkeys(tool for run in runs for tool in run.start.tools)
    return [t for t in tools if any(re.search(rf"\b{re.escape(t)}\b", s) for s in sources)]


def _add_step(cells: _Cells, run: RunRecords, step: Step, *, deep: bool) -> None:
    name = f"run-{run.number}-step-{step.number:02d}"
    undone = run.undone.get(step.number)
    thought = markdown(shorten(plain(rest_of_thought(step)), MAX_THOUGHT))
    said = [_step_heading(step, undone, deep=deep), thought, decisions_note(step)]
    if not _runs_again(run, step):
        said.append(undone_note(step, undone) if undone else not_run_again(step))
        role = "step" if step.ok and not undone else "folded"
        cells.markdown(name, "\n\n".join(filter(None, said)), **_ours(run, role, step))
        _add_agents(cells, run, step)
        return
    assert step.result is not None
    if not step.result.ok:
        said.append(f"*{failure_text(step)}*")
    cells.markdown(
        f"{name}-thought", "\n\n".join(filter(None, said)), **_ours(run, "thought", step)
    )
    if isinstance(step.action, Calls):
        _add_calls(cells, run, step)
        return
    cells.numbers[step.number] = cells.count + 1
    outputs = [
        short_error(output, cells.numbers) if output.get("output_type") == "error" else output
        for output in with_error(step.result.outputs, step.result.error)
    ]
    cells.code(
        f"{name}-code",
        step.code,
        outputs=outputs,
        tags=step_tags(step, outputs),
        **_ours(run, "code", step),
    )
    _describe_figures(cells.cells[-1]["outputs"], step)
    _add_agents(cells, run, step)


def _step_heading(step: Step, undone: Undone | None, *, deep: bool) -> str:
    said = step_sentence(step) or f"Step {step.number}"
    return heading(3, verbatim(f"Undone: {said}" if undone else said), deep=deep)


def _describe_figures(outputs: Iterable[dict[str, Any]], step: Step) -> None:
    """Set the text of each picture for those who do not see it, where nbconvert looks for it."""
    recorded = [each for each in step.result.outputs if "data" in each] if step.result else []
    for output, source in zip((o for o in outputs if "data" in o), recorded, strict=False):
        for mime in FORMATS:
            if mime in output["data"]:
                about = output["metadata"].setdefault(mime, {})
                about["alt"] = alt_text(step, source)


def _add_agents(cells: _Cells, run: RunRecords, step: Step) -> None:
    """Add the tree of the runs that a step delegated."""
    agents = agents_of([step])
    if agents:
        name = f"run-{run.number}-step-{step.number:02d}-agents"
        cells.markdown(name, agents_markdown(agents), **_ours(run, "agents", step))


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
            tags={} if call.ok else FAILED,
            **_ours(run, "code", step),
        )
    _add_agents(cells, run, step)


# --- metadata ------------------------------------------------------------------------------


def _ours(run: RunRecords, role: str, step: Step | None = None) -> dict[str, Any]:
    ours: dict[str, Any] = {"run": run.number, "role": role}
    return {**ours, "step": step.number} if step else ours


def _metadata(runs: Sequence[RunRecords], *, replay: str) -> dict[str, Any]:
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
            **({"replay": replay} if replay else {}),
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
    files = {file.path: file for run in runs for file in (*_files(run.start), *run.read)}
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
