"""The words of the program: frozen records that every part reads and none changes.

A record is data without behaviour beyond turning itself into plain JSON types and back, so
that the trace (:mod:`kernel_agent.trace`), the live view, the exporter and the tests all speak
of the same thing. This module imports nothing of ours and nothing heavy.

The vocabulary (one word, one meaning) is in ``docs/design.md``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

Json: TypeAlias = Any
"""A value made of the JSON types only: dict, list, str, int, float, bool, None."""

ToolSchema: TypeAlias = Mapping[str, Any]
"""A host tool as endpoints are told of it: ``name``, ``description``, ``parameters`` (a schema)."""

OutputDict: TypeAlias = dict[str, Any]
"""One Jupyter output as nbformat 4 stores it (``output_type`` and its fields)."""


class ExitStatus(StrEnum):
    """How a run ended. Every ending leaves a complete trace and a notebook."""

    ANSWERED = "answered"
    STEP_LIMIT = "step_limit"
    TIME_LIMIT = "time_limit"
    TOKEN_LIMIT = "token_limit"
    COST_LIMIT = "cost_limit"
    LOOP_DETECTED = "loop_detected"
    INTERRUPTED = "interrupted"
    DENIED = "denied"
    KERNEL_LOST = "kernel_lost"
    MODEL_ERROR = "model_error"
    CELL_FAILED = "cell_failed"
    """A fixed cell failed (:mod:`kernel_agent.pipeline`); a model would have been told."""

    @property
    def exit_code(self) -> int:
        """The process exit code that the command line gives for this ending."""
        return _EXIT_CODES[self]


_EXIT_CODES = {
    ExitStatus.ANSWERED: 0,
    ExitStatus.CELL_FAILED: 1,
    ExitStatus.STEP_LIMIT: 3,
    ExitStatus.TIME_LIMIT: 3,
    ExitStatus.TOKEN_LIMIT: 3,
    ExitStatus.COST_LIMIT: 3,
    ExitStatus.LOOP_DETECTED: 3,
    ExitStatus.MODEL_ERROR: 4,
    ExitStatus.KERNEL_LOST: 5,
    ExitStatus.DENIED: 6,
    ExitStatus.INTERRUPTED: 130,
}


# --- what goes to the model and comes back -------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What model calls cost: tokens as the endpoint reported them, money from configured prices.

    ``cost_usd`` is None while no price is configured: it is never guessed. ``estimated`` is true
    when the endpoint reported no token counts and they were derived from text length.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    calls: int = 0
    cost_usd: float | None = None
    estimated: bool = False

    @property
    def total_tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Usage) -> Usage:
        costs = [u.cost_usd for u in (self, other) if u.cost_usd is not None]
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            calls=self.calls + other.calls,
            cost_usd=sum(costs) if costs else None,
            estimated=self.estimated or other.estimated,
        )


@dataclass(frozen=True, kw_only=True)
class Image:
    """A picture for a model that accepts pictures: base64 PNG or JPEG, already downscaled."""

    media_type: str
    data: str
    width: int
    height: int


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A native function call as the endpoint wrote it; ``arguments`` is its raw text, unparsed."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message of the conversation with a model, before any provider's wire form."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    images: tuple[Image, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """What a format needs from the endpoint beside the messages; empty for plain text."""

    response_format: Mapping[str, Any] | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer of a model. ``finish_reason == "length"`` means that it was cut off.

    ``window_tokens`` is the model's window, prompt and reply together, where the reply ran into
    its end.
    """

    content: str
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    window_tokens: int | None = None


# --- what the model asked for --------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Code:
    """Run this cell."""

    source: str
    thought: str = ""


FINAL_ANSWER = "final_answer"
"""The function that ends a run: in the kernel, and as a tool where calls are the actions."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a host tool, with arguments already parsed to JSON types.

    ``error`` says why the arguments could not be read; such a call is answered, not made.
    """

    name: str
    arguments: Mapping[str, Json]
    id: str = ""
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Calls:
    """Call these host tools, side by side."""

    calls: tuple[Call, ...]
    thought: str = ""


@dataclass(frozen=True, kw_only=True)
class Final:
    """End the run with this answer (formats whose protocol has an explicit end)."""

    answer: Json
    thought: str = ""


Action: TypeAlias = Code | Calls | Final


# --- what happened -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CellError:
    """The exception that ended a cell; ``traceback`` is Jupyter's, colour codes included."""

    ename: str
    evalue: str
    traceback: tuple[str, ...] = ()


MAX_INFLUENCES = 200
"""So many influences of one call are listed: those that were found in it, then the latest."""

CellStatus: TypeAlias = Literal["ok", "error", "timeout", "interrupted", "dead"]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Whether a cell or a call may go ahead, who said so, and why.

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
    """A run that another one delegated, as the one that delegated it reports it.

    ``name`` and ``folder`` (relative to the folder of the run that delegated it) are the host's
    own. ``answer`` is the beginning of the answer's text. ``agents`` are the runs that it
    delegated in turn; ``usage`` includes theirs.
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


@dataclass(frozen=True, kw_only=True)
class HostCall:
    """One call from the kernel to a host tool, as the broker answered it.

    ``number`` counts the calls of a session from 1. ``untrusted`` says that the result came from
    others (a web page, a mail) and is data, never an instruction. ``influenced_by`` lists the
    earlier untrusted calls whose results could have shaped this call's arguments, at most
    :data:`MAX_INFLUENCES`; 0 stands for untrusted data that came by no call (inputs, hosts that
    cells reach). ``contains`` are those of them of which a piece was found in the arguments; it
    is looked for in calls that have effects.
    ``run_id`` is the run that the call delegated to, if it did, and ``delegated`` what came of it.
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
    """What ``final_answer(value)`` was given.

    ``value`` is the JSON form where there is one (scalars, text, lists, dicts, small tables as
    a list of rows); ``text`` is always there and is what a person reads.
    """

    text: str
    value: Json = None
    kind: str = "text"


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A variable in the kernel: its name, its type's name, its shape or size where it has one."""

    name: str
    type: str
    shape: str = ""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Which variables are different after a cell, as the kernel measured it.

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
    """What one cell did.

    ``status`` is ``ok``, ``error`` (it raised), ``timeout`` (it was interrupted for taking too
    long), ``interrupted`` (somebody asked) or ``dead`` (the kernel ended). ``seconds`` excludes
    time spent waiting for a person. ``outputs`` are nbformat dicts in the order of arrival.
    ``changes`` is None when the kernel did not say which variables the cell had changed.
    ``counted`` has what the broker counted beside the calls, by kind: requests that it refused
    (``malformed``, ``replayed``, ``too large``, ``flood``, ``input``), calls of an ``unknown tool``
    or with ``wrong arguments``, calls that were ``denied``, that were ``abandoned`` because they
    did not end, or that are ``not listed`` because there were too many.
    """

    status: CellStatus
    outputs: tuple[OutputDict, ...] = ()
    error: CellError | None = None
    seconds: float = 0.0
    answer: Answer | None = None
    calls: tuple[HostCall, ...] = ()
    changes: Changes | None = None
    counted: Mapping[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the cell ran to its end without an exception."""
        return self.status == "ok"


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What the model is shown of a cell: text, pictures, and whether something was left out.

    ``held`` says in one line what it held, kind by kind; it is what stays when the observation is
    masked.
    ``parts`` holds the answer to each of an action's calls; together they begin the text.
    """

    text: str
    images: tuple[Image, ...] = ()
    shortened: bool = False
    held: str = ""
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Retry:
    """A reply that could not be read as an action, and what the model was told about it.

    ``cut_off``: the run ended before the reply was whole, or before it could be carried out.
    """

    content: str
    feedback: str
    cut_off: bool = False


# --- the trace -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """An input of the run: where it came from, where the kernel finds it, and what it is."""

    path: str
    source: str
    bytes: int
    sha256: str
    kind: str
    linked: bool = False


@dataclass(frozen=True, kw_only=True)
class Given:
    """A variable that the user has put into the kernel.

    ``source`` is the code that sets it, from ``files`` where it is too long for a literal;
    ``about`` is its schema and preview. ``again`` says that an earlier value was replaced, because
    the user had changed it; ``undone`` is the step that had changed the kernel's copy in between,
    or 0.
    """

    name: str
    type: str
    shape: str = ""
    about: str = ""
    source: str = ""
    fingerprint: str = ""
    files: tuple[DataFile, ...] = ()
    again: bool = False
    undone: int = 0


@dataclass(frozen=True, kw_only=True)
class RunStart:
    """The first record of a run.

    ``format_reason`` says why ``auto`` chose the format; ``changes`` are those of variables since
    the session's last run: a person's doing. ``given`` are the variables that the user has put into
    the kernel since then, ``wanted`` the names under which results are to be left for the user.
    """

    run_id: str
    task: str
    time: str
    model: str
    format: str
    sandbox: Mapping[str, Json]
    budget: Mapping[str, Json]
    data: tuple[DataFile, ...] = ()
    tools: tuple[str, ...] = ()
    system_prompt: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Json] = field(default_factory=dict)
    parent_id: str | None = None
    format_reason: str = ""
    changes: Changes | None = None
    given: tuple[Given, ...] = ()
    wanted: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Step:
    """One turn: what the model thought and asked for, what came of it, what it was shown.

    ``number`` counts on through all runs of a session, so that ``outputs[number]`` in the kernel
    is unambiguous. ``action`` is None when no readable action came even after asking again.
    ``started`` and ``model_seconds``/``cell_seconds`` are wall-clock seconds.
    """

    run_id: str
    number: int
    action: Action | None
    observation: Observation
    result: CellResult | None = None
    reasoning: str = ""
    retries: tuple[Retry, ...] = ()
    usage: Usage = field(default_factory=Usage)
    time: str = ""
    model_seconds: float = 0.0
    cell_seconds: float = 0.0
    decision: Decision | None = None

    @property
    def thought(self) -> str:
        """The model's words before its action; empty when there was no action."""
        return self.action.thought if self.action else ""

    @property
    def code(self) -> str:
        """The cell's source, or empty when the action was not a cell."""
        return self.action.source if isinstance(self.action, Code) else ""

    @property
    def ok(self) -> bool:
        """Whether there was an action and it ran without an error."""
        return self.action is not None and (self.result is None or self.result.ok)


@dataclass(frozen=True, kw_only=True)
class Visit:
    """What code asked of one host on the network, through the proxy that opens named ones.

    ``sent`` and ``received`` are bytes of content, as the kernel sees it; ``reason`` says why it
    was refused.
    """

    host: str
    port: int
    allowed: bool
    requests: int = 0
    sent: int = 0
    received: int = 0
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class RunStop:
    """The last record of a run. ``partial`` says what was achieved when there is no answer.

    ``obeyed`` are files that its cells made and that programs obey (:mod:`kernel_agent.obeyed`).
    """

    run_id: str
    status: ExitStatus
    answer: Answer | None = None
    message: str = ""
    partial: str = ""
    steps: int = 0
    seconds: float = 0.0
    usage: Usage = field(default_factory=Usage)
    time: str = ""
    network: tuple[Visit, ...] = ()
    obeyed: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FormatChange:
    """The model kept breaking its format, and goes on in one that asks for less."""

    run_id: str
    format: str
    reason: str
    system_prompt: str = ""
    time: str = ""


@dataclass(frozen=True, kw_only=True)
class Condensation:
    """The conversation was shortened; the records of what was said stay as they are.

    ``kind`` is ``masked`` (the observations up to step ``last`` became one line each),
    ``summarised`` (what was before step ``last`` is over became ``text``) or ``shortened`` (the
    observations that are left were cut to ``max_chars``; otherwise these are the characters that
    the note on the variables may have). Applied to the records before it, it gives the
    conversation that was sent, so a run can be taken up again with the same prefix.

    ``by`` says who wrote ``text``: ``model`` or ``rules``; ``dropped`` are the model's sentences
    that named a variable which does not exist. Token counts are estimates.
    """

    run_id: str
    kind: Literal["masked", "summarised", "shortened"]
    first: int
    last: int
    text: str = ""
    by: str = ""
    dropped: tuple[str, ...] = ()
    max_chars: int = 0
    reason: str = ""
    tokens_before: int = 0
    tokens_after: int = 0
    usage: Usage = field(default_factory=Usage)
    time: str = ""


@dataclass(frozen=True, kw_only=True)
class Undone:
    """The person took steps back: kernel, files and conversation are as they were before ``first``.

    The steps ``first`` to ``last`` stay in the trace, and their numbers are not used again.
    ``run_id`` is the run of the first of them. ``files`` lists what those steps had made or
    changed, by its path in the folder; it lies in ``undone/`` now. ``cells`` counts the cells that
    the person had run in between and that went with the steps, ``given`` names the variables that
    they had passed in since then. ``withdrawn`` names the runs whose answer went with them.
    ``differences`` says which of the remaining cells did not do the same when they were played
    again; ``changes`` is None when all did, and else what is in the new kernel.
    """

    run_id: str
    first: int
    last: int
    reason: str = ""
    time: str = ""
    files: tuple[str, ...] = ()
    cells: int = 0
    given: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    changes: Changes | None = None


Record: TypeAlias = RunStart | Step | RunStop | FormatChange | Condensation | Undone


# --- what a live view is told while a step is being made -----------------------------------


@dataclass(frozen=True, kw_only=True)
class ReplyText:
    """A piece of the model's reply, as it is written.

    ``reasoning`` is kept apart, and so is a native ``call``: its name, and then the JSON of its
    arguments, in which the code of a cell is one string.
    """

    text: str
    reasoning: bool = False
    call: bool = False


@dataclass(frozen=True, kw_only=True)
class Acting:
    """An action was read and is about to run."""

    number: int
    action: Action


@dataclass(frozen=True, kw_only=True)
class Output:
    """An output of the running cell, as it arrives."""

    number: int
    output: OutputDict


@dataclass(frozen=True, kw_only=True)
class Question:
    """A person is asked whether a cell or a call may go ahead; the run waits.

    ``number`` is the step's. For a cell ``code`` is its source; for a call ``name`` and
    ``arguments`` are what would be called, and ``code`` is the cell that calls, where known.
    """

    kind: Literal["cell", "call"]
    number: int
    reason: str
    code: str = ""
    name: str = ""
    arguments: Json = None


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something a person should know: a retry, a re-asked format, a linked file.

    ``run_id`` is the delegated run that it is about; empty for the run that is followed.
    """

    text: str
    run_id: str = ""


Event: TypeAlias = (
    RunStart
    | ReplyText
    | Acting
    | Output
    | Question
    | Notice
    | Step
    | RunStop
    | FormatChange
    | Condensation
    | Undone
)


# --- to JSON and back ----------------------------------------------------------------------


def to_json(value: Any) -> Json:
    """Turn records into JSON types; ``"$"`` names each record's type."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"$": type(value).__name__, **fields}
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    return value
