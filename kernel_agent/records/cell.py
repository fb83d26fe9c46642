"""The result of a cell: its outputs, its error, its calls of the host, its answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from kernel_agent.records.conversation import ABSENT, Image, Json, Usage
from kernel_agent.records.endings import ExitStatus

OutputDict: TypeAlias = dict[str, Any]
"""One Jupyter output as nbformat 4 stores it (``output_type`` and its fields)."""


def as_text(value: Any) -> str:
    """Return nbformat's multi-line text (a string or a list of strings) as one string."""
    if isinstance(value, list):
        return "".join(item for item in value if isinstance(item, str))
    return value if isinstance(value, str) else ""


def role_of(part: Mapping[str, Any]) -> str:
    """Return what an output, or a cell of an exported notebook, is there for; empty if not ours."""
    metadata = part.get("metadata")
    ours = metadata.get("kernel_agent") if isinstance(metadata, Mapping) else None
    role = ours.get("role") if isinstance(ours, Mapping) else None
    return role if isinstance(role, str) else ""


@dataclass(frozen=True, kw_only=True)
class CellError:
    """The exception that ended a cell; ``traceback`` is Jupyter's, colour codes included."""

    ename: str
    evalue: str
    traceback: tuple[str, ...] = ()


def error_output(ename: str, evalue: str, traceback: Iterable[str]) -> OutputDict:
    """Return an error as the output of a cell."""
    return {
        "output_type": "error",
        "ename": ename,
        "evalue": evalue,
        "traceback": list(traceback),
    }


def with_error(outputs: Sequence[OutputDict], error: CellError | None) -> list[OutputDict]:
    """Return outputs with an error that came with the reply alone as the last of them."""
    if error is None or any(output.get("output_type") == "error" for output in outputs):
        return list(outputs)
    return [*outputs, error_output(error.ename, error.evalue, error.traceback)]


MAX_INFLUENCES = 200
"""So many influences of one call are listed: those that were found in it, then the latest."""


CellStatus: TypeAlias = Literal["ok", "error", "timeout", "interrupted", "dead"]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Whether a cell or a call may go ahead, the authority, and the reason.

    ``by`` is ``policy`` or ``person``. ``seconds`` is how long a person took; the run's clock
    stood still. ``edited`` is the cell's source when the person changed it first, ``original``
    what the model had written. ``standing`` is a person's word on all further calls of the tool
    (or on all further cells) of the run.
    """

    allowed: bool
    by: Literal["policy", "person"]
    reason: str = ""
    seconds: float = 0.0
    edited: str | None = None
    original: str | None = None
    standing: bool = False


@dataclass(frozen=True, kw_only=True)
class Delegated:
    """A delegated run, as reported by the run above it.

    ``name`` and ``folder`` (relative to the folder of the run that delegated it) are the host's
    own. ``answer`` is the beginning of the answer's text, ``note`` what stands beside it.
    ``agents`` are the runs that it delegated in turn; ``usage`` includes theirs.
    """

    run_id: str
    name: str
    folder: str
    task: str
    status: ExitStatus
    answer: str = ""
    message: str = ""
    steps: int = 0
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    agents: tuple[Delegated, ...] = ()
    note: str = field(default="", metadata=ABSENT)


@dataclass(frozen=True, kw_only=True)
class HostCall:
    """One call from the kernel to a host tool, as the broker answered it.

    ``number`` counts the calls of a session from 1. ``untrusted`` says that the result came from
    others (a web page, a mail) and is data, never an instruction. ``influenced_by`` lists the
    earlier untrusted calls whose results could have shaped this call's arguments, at most
    :data:`MAX_INFLUENCES`; 0 stands for untrusted data that came by no call (inputs, hosts that
    cells reach). ``contains`` are those of them of which a piece was found in the arguments; it
    is looked for in calls that have effects.
    ``run_id`` is the run that the call delegated to, if it did, and ``delegated`` its result.
    ``usage`` is what the call cost in model calls.
    """

    name: str
    arguments: Json
    ok: bool
    result: Json = None
    error: str = ""
    seconds: float = 0.0
    number: int = 0
    decision: Decision | None = None
    untrusted: bool = False
    influenced_by: tuple[int, ...] = ()
    contains: tuple[int, ...] = ()
    run_id: str = ""
    delegated: Delegated | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The value that ``final_answer(value)`` was given.

    ``value`` is its JSON form: scalars, text, lists, dicts, tables as a list of rows. What is too
    long for that is an object with its ``type``, its ``length`` and what is ``first`` in it, and
    what has no such form is described in a few words. ``text`` is always there and is what a person
    reads (:mod:`kernel_agent.records.answers`). ``kind`` is the name of its type, ``shape`` the
    rows and columns of what has some. ``note`` is the caveat that was given beside it.
    ``in_words`` says that no cell and no call gave it: it is what the model had written.
    """

    text: str
    value: Json = None
    kind: str = "text"
    shape: tuple[int, ...] = ()
    note: str = ""
    in_words: bool = False


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A variable in the kernel: its name, its type's name, its shape or size where it has one."""

    name: str
    type: str
    shape: str = ""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The variables that a cell changed, as the kernel measured it.

    ``more`` counts changes beyond those that are listed. ``fresh`` means that a new kernel began:
    nothing of what was known before is there any more.
    """

    added: tuple[Variable, ...] = ()
    changed: tuple[Variable, ...] = ()
    removed: tuple[str, ...] = ()
    more: int = 0
    fresh: bool = False


@dataclass(frozen=True, kw_only=True)
class CellResult:
    """The result of one cell.

    ``status`` is ``ok``, ``error`` (it raised), ``timeout`` (it was interrupted for taking too
    long), ``interrupted`` (somebody asked) or ``dead`` (the kernel ended). ``seconds`` excludes
    time spent waiting for a person. ``outputs`` are nbformat dicts in the order of arrival.
    ``changes`` is None when the kernel did not say which variables the cell had changed.
    ``counted`` has what the broker counted beside the calls, by kind: requests that it refused
    (``malformed``, ``replayed``, ``too large``, ``flood``, ``input``) or could not answer
    (``failed``); calls of an ``unknown tool`` or with ``wrong arguments``, that were ``denied``,
    that were ``abandoned`` because they did not end, or that are ``not listed`` because there were
    too many. ``limit`` is the setting whose time the cell passed (``cell_seconds`` or
    ``max_seconds``), where that ended it.
    """

    status: CellStatus
    outputs: tuple[OutputDict, ...] = ()
    error: CellError | None = None
    seconds: float = 0.0
    answer: Answer | None = None
    calls: tuple[HostCall, ...] = ()
    changes: Changes | None = None
    counted: Mapping[str, int] = field(default_factory=dict)
    limit: str = ""

    @property
    def ok(self) -> bool:
        """Whether the cell ran to its end without an exception."""
        return self.status == "ok"


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The model's view of a cell: text, pictures, and whether something was left out.

    ``held`` says in one line what it held, kind by kind; it is what stays when the observation is
    masked.
    ``parts`` holds the answer to each of an action's calls; together they begin the text.
    """

    text: str
    images: tuple[Image, ...] = ()
    shortened: bool = False
    held: str = ""
    parts: tuple[str, ...] = ()


def not_run(name: str, reason: str) -> CellResult:
    """Return the result of a cell that was refused: an error of this name, and nothing else."""
    error = CellError(ename=name, evalue=reason, traceback=(f"{name}: {reason}",))
    return CellResult(status="error", outputs=tuple(with_error((), error)), error=error)
