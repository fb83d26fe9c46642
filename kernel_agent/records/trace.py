"""The records of a trace: a run's start, its steps, its stop, and what happened between.

A record is data without behaviour beyond turning itself into plain JSON types and back
(:mod:`kernel_agent.records.codec`), so that the trace (:mod:`kernel_agent.records.store`), the live
view, the exporter and the tests all speak of the same thing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from kernel_agent.records.action import Action, Calls, Code
from kernel_agent.records.cell import Answer, CellResult, Changes, Decision, Observation
from kernel_agent.records.conversation import Json, ModelWindow, Usage
from kernel_agent.records.endings import ExitStatus
from kernel_agent.safe import size_text


@dataclass(frozen=True, kw_only=True)
class Retry:
    """A reply that could not be read as an action, and the feedback on it.

    ``cut_off``: the run ended before the reply was whole, or before it could be carried out.
    """

    content: str
    feedback: str
    cut_off: bool = False


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """An input of the run: its source, its place for the kernel, and its kind.

    One of the kind ``folder`` stands for the ``files`` in it, and has no fingerprint.
    """

    path: str
    source: str
    bytes: int
    sha256: str
    kind: str
    linked: bool = False
    files: int = 0

    @property
    def is_folder(self) -> bool:
        """Whether it stands for all files of a folder."""
        return self.kind == "folder"

    @property
    def about(self) -> str:
        """Its kind, or how many files it holds, and its size."""
        kind = f"folder, {self.files:,} files" if self.is_folder else self.kind
        return f"{kind}, {size_text(self.bytes)}"


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
    ``listing`` is what the model is told of the files when it first meets them: their beginnings;
    of untrusted ones later, and where it reads none, their names, as data.
    ``window`` is the model's, where it was known, and ``allowance`` the tokens of it that the
    conversation may take; 0 in a run without a model.
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
    tool_docs: Mapping[str, str] = field(default_factory=dict)
    system_prompt: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Json] = field(default_factory=dict)
    parent_id: str | None = None
    format_reason: str = ""
    changes: Changes | None = None
    given: tuple[Given, ...] = ()
    wanted: tuple[str, ...] = ()
    listing: str = ""
    window: ModelWindow | None = None
    allowance: int = 0

    @property
    def confined(self) -> bool:
        """Whether anything protected the machine from the cells."""
        return bool(self.sandbox.get("level", "none") != "none")

    @property
    def eased(self) -> tuple[str, ...]:
        """What asks or holds back less than by default in this run, each in a few words.

        That nothing protects the machine is said by :attr:`confined`.
        """
        said = ["Asks: never"] if self.config.get("approve") == "never" else []
        rules, hosts = self.config.get("approve_tools"), self.config.get("allow_hosts")
        if isinstance(rules, Mapping):
            allowed = [name for name, rule in rules.items() if rule == "allow"]
            said += [f"Never asked: {', '.join(allowed)}"] if allowed else []
        if isinstance(hosts, list | tuple) and hosts:
            said.append(f"Reaches: {', '.join(map(str, hosts))}")
        return tuple(said)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One turn: the model's thought and action, its result, and the observation.

    ``number`` counts on through all runs of a session, so that ``outputs[number]`` in the kernel
    is unambiguous. ``action`` is None when no readable action came even after asking again.
    ``time`` is when its action was read; ``model_seconds`` and ``cell_seconds`` are wall-clock.
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

    @property
    def answered_unseen(self) -> bool:
        """Whether its answer stood beside calls whose results the model had not seen yet."""
        answered = self.result is not None and self.result.answer is not None
        return answered and isinstance(self.action, Calls) and len(self.action.calls) > 1


@dataclass(frozen=True, kw_only=True)
class Visit:
    """Requests of code to one host on the network, through the proxy that opens named ones.

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

    ``network`` is what its cells asked of the network, and those of its agents; ``obeyed``
    are files that its cells made and that programs obey (:mod:`kernel_agent.safe.obeyed`);
    ``read`` are the files of folders of data that its cells opened.
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
    read: tuple[DataFile, ...] = ()


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
    """The person took steps back; cells' variables and files are as they were before ``first``.

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


def to_json(value: Any) -> Json:
    """Turn records into JSON types; ``"$"`` names each record's type."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        given = [(f, getattr(value, f.name)) for f in dataclasses.fields(value)]
        fields = {f.name: to_json(v) for f, v in given if not (f.metadata and v == f.default)}
        return {"$": type(value).__name__, **fields}
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    return value


def now() -> str:
    """Return the time as ISO 8601 in UTC, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
