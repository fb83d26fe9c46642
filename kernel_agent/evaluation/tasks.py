"""Tasks: the question, its data and tools, and the check of the answer.

A file of tasks is JSON lines (``.jsonl``) or YAML (``.yaml``, ``.yml``; needs the extra ``eval``),
a list of objects::

    - id: heaviest
      task: Which species is the heaviest on average?
      data: [data/penguins.csv]        # beside the file of tasks
      tools: [tools.py]                # modules or files with @tool functions
      kind: means                      # reports compare the arms by kind
      answer: Gentoo
      check: exact                     # or an object: {kind: number, tolerance: 0.5}

Everything is checked before anything runs, and what is wrong is said with the line it stands in.
What the file reaches beyond its folder, and code that it brings, needs the user's word.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from kernel_agent.errors import InputError, UntrustedTasks, UsageError, fault_of, how_to_install
from kernel_agent.evaluation.reach import fingerprint, reaches_of
from kernel_agent.records import Json
from kernel_agent.safe import answer_on, one_line

SEED = 20_240_501  # of the tasks that are drawn
MAX_BYTES = 200_000_000  # of a file of tasks: it is read whole


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Exact(_Strict):
    """The answer is this value, or its text is; spaces around it do not count."""

    kind: Literal["exact"] = "exact"
    ignore_case: bool = False


class Number(_Strict):
    """The answer is this number, or holds exactly one number and it is this one.

    It is right when it is within ``tolerance`` or within ``relative`` times the expected value;
    whole numbers are, unless one of the two is given, right when they are equal.
    """

    kind: Literal["number"] = "number"
    tolerance: float = Field(default=0.0, ge=0)
    relative: float = Field(default=1e-6, ge=0)


class SetOf(_Strict):
    """The answer is a list with these members, in any order; text is split at commas and lines."""

    kind: Literal["set"] = "set"
    ignore_case: bool = False


class Regex(_Strict):
    """The answer's text contains a match of the pattern."""

    kind: Literal["regex"] = "regex"
    pattern: str
    ignore_case: bool = False

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"the pattern is not a regular expression: {error}") from None
        return pattern


class Table(_Strict):
    """The answer is this table: a CSV file beside the tasks, or a list of rows.

    Columns go by name, in any order; numbers may differ by ``relative`` of their value, whole ones
    by nothing unless it is given.
    """

    kind: Literal["dataframe"] = "dataframe"
    relative: float = Field(default=1e-6, ge=0)
    ignore_order: bool = True


class Function(_Strict):
    """The user's Python function judges: ``function(answer, task)`` gives a bool, or (bool, why).

    ``function`` is ``path/to/file.py:name`` or ``package.module:name``. It runs on this side, not
    in the sandbox, and is given plain JSON values only.
    """

    kind: Literal["python"] = "python"
    function: str = Field(pattern=r"^[^:]+(\.py)?:[A-Za-z_]\w*$")


class Rubric(_Strict):
    """A model judges, by these words; it needs ``--judge``."""

    kind: Literal["rubric"] = "rubric"
    rubric: str = Field(min_length=1)


Check = Annotated[
    Exact | Number | SetOf | Regex | Table | Function | Rubric, Field(discriminator="kind")
]
KINDS = tuple(kind.model_fields["kind"].default for kind in get_args(get_args(Check)[0]))
_NEED_ANSWER = ("exact", "number", "set", "dataframe")


class Task(_Strict):
    """One task.

    Parameters
    ----------
    id
        Unique in the file; part of file names.
    task
        The question; several are asked one after another in the same session.
    data, tools
        Paths; in a file relative to it, here absolute.
    answer
        What is right.
    check
        How the answer is compared with it: a kind, or an object with ``kind`` and its options.
    kind, level
        Its domain, and how hard it is, in a word each: reports compare arms by kind, and a part
        of the tasks is drawn from all kinds.
    excluded
        Why it is not run: a known defect. It is listed, not hidden.
    corrected
        What was put right in it, in words.
    """

    id: str = Field(pattern=r"^[\w.:-]{1,120}$")
    task: str | tuple[str, ...]
    data: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    answer: Json = None
    check: Check = Exact()
    kind: str = Field(default="", max_length=60)
    level: str = Field(default="", max_length=60)
    excluded: str = ""
    corrected: str = ""

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        given = dict(given)
        check = given.get("check")
        if isinstance(check, str):
            given["check"] = check = {"kind": check}
        if isinstance(check, dict) and check.get("kind") not in KINDS:
            known = ", ".join(KINDS)
            raise ValueError(f"unknown check {check.get('kind')!r}; choose one of: {known}")
        for name in ("data", "tools"):
            if isinstance(given.get(name), str):
                given[name] = [given[name]]
        return given

    @model_validator(mode="after")
    def _fits(self) -> Task:
        if not self.turns or not all(turn.strip() for turn in self.turns):
            raise ValueError("the task is empty")
        if self.check.kind in _NEED_ANSWER and self.answer is None:
            raise ValueError(f"the check {self.check.kind!r} needs an answer")
        if self.check.kind == "number" and not isinstance(self.answer, int | float):
            raise ValueError(f"the check 'number' needs a number as answer, not {self.answer!r}")
        if self.check.kind == "set" and not isinstance(self.answer, list | tuple):
            raise ValueError("the check 'set' needs a list as answer")
        return self

    @property
    def turns(self) -> tuple[str, ...]:
        """Return the questions, in order."""
        return (self.task,) if isinstance(self.task, str) else self.task

    @property
    def reads(self) -> tuple[str, ...]:
        """Return the files that are read for it."""
        table = isinstance(self.check, Table) and isinstance(self.answer, str)
        return (*self.data, str(self.answer)) if table else self.data

    @property
    def runs(self) -> tuple[str, ...]:
        """Return the tools, and the module or file whose function judges."""
        if isinstance(self.check, Function):
            return (*self.tools, self.check.function.rpartition(":")[0])
        return self.tools


@dataclass(frozen=True, kw_only=True)
class TaskSet:
    """Tasks with the name of their source, and remarks on them that a report repeats."""

    name: str
    tasks: tuple[Task, ...]
    remarks: tuple[str, ...] = ()


def draw(kinds: Sequence[str], most: int) -> tuple[frozenset[int], str]:
    """Return the places of at most so many, as many of each kind as can be, and a remark on it.

    Drawn with a fixed seed: the same each time. The remark is empty when all are taken.
    """
    places: dict[str, list[int]] = {}
    for place, kind in enumerate(kinds):
        places.setdefault(kind, []).append(place)
    drawing = random.Random(SEED)  # noqa: S311 - a sample, no secret
    drawn = [drawing.sample(of_kind, len(of_kind)) for of_kind in places.values()]
    turns = (place for turn in zip_longest(*drawn) for place in turn if place is not None)
    taken = frozenset(islice(turns, most))
    if len(taken) == len(kinds):
        return taken, ""
    counts = [
        f"{sum(place in taken for place in of_kind)} of {len(of_kind)} of {kind or 'no kind'}"
        for kind, of_kind in places.items()
    ]
    by_kind = f": {', '.join(counts)}" if len(places) > 1 else ""
    there = f"{len(taken)} of {len(kinds)} tasks"
    return taken, f"{there} were drawn{by_kind}; the others are left out."


def sample(given: TaskSet, most: int) -> TaskSet:
    """Return at most so many tasks by :func:`draw`, in the order of the file.

    Excluded tasks stay and do not count.
    """
    there = [task for task in given.tasks if not task.excluded]
    taken, remark = draw([task.kind for task in there], most)
    if not remark:
        return given
    ids = {there[place].id for place in taken}
    tasks = tuple(task for task in given.tasks if task.excluded or task.id in ids)
    return TaskSet(name=given.name, tasks=tasks, remarks=(*given.remarks, remark))


def read_tasks(path: str | Path, *, trusted: bool = False) -> TaskSet:
    """Read and check a file of tasks.

    Parameters
    ----------
    path
        JSON lines or YAML.
    trusted
        Whether it may reach beyond its folder and bring code, whoever wrote it.

    Raises
    ------
    InputError
        The user's: the file is missing or malformed, a task is wrong, a data file is not there.
        The message names the line.
    UntrustedTasks
        It reaches beyond its folder, or brings code, and the user has not allowed that.
    """
    file = Path(path)
    try:
        if file.is_dir():
            raise InputError(f"{file} is a folder: name a file of tasks")
        if file.stat().st_size > MAX_BYTES:
            raise InputError(f"{file} is larger than {MAX_BYTES // 1_000_000} MB")
        content = file.read_bytes()
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{file} is not a text file: tasks are JSON lines or YAML") from None
    except OSError as error:
        raise InputError(f"the file of tasks {file} cannot be read: {error.strerror}") from None
    entries = _yaml_entries if file.suffix.lower() in (".yaml", ".yml") else _json_entries
    tasks: dict[str, Task] = {}
    for entry in entries(text, str(file)):
        task = _task_of(entry, file)
        if task.id in tasks:
            raise InputError(f"{entry.at(('id',))}: two tasks have the id {task.id!r}")
        tasks[task.id] = task
    if not tasks:
        raise InputError(f"{file} holds no task")
    if not trusted:
        _need_trust(file, content, tasks.values())
    return TaskSet(name=file.name, tasks=tuple(tasks.values()))


def _need_trust(file: Path, content: bytes, tasks: Collection[Task]) -> None:
    """Refuse tasks that reach further than the user has allowed.

    Raises
    ------
    UntrustedTasks
        They do.
    """
    reads = (path for task in tasks for path in task.reads)
    runs = (named for task in tasks for named in task.runs)
    reaches = reaches_of(reads, runs, file.parent)
    if not reaches:
        return
    about = fingerprint(content, reaches)
    allowed = answer_on(file, about)
    if allowed:
        return
    first, more = one_line(reaches[0].words, 300), len(reaches) - 1
    others = f" and {more} more" if more else ""
    why = "which you have refused" if allowed is False else "which needs your word"
    asks = "" if allowed is False else ", or run the command at a terminal to be asked"
    raise UntrustedTasks(
        f"{one_line(str(file), 300)} {first}{others}, {why}: read it, then give --trust{asks}",
        path=file, content=about, reaches=tuple(reach.words for reach in reaches),
        asked=allowed is False,
    )  # fmt: skip


# --- entries with their lines ------------------------------------------------------------------

Place = Sequence[int | str]


@dataclass(frozen=True)
class _Entry:
    """One object of the file, with the line of each part."""

    value: Any
    path: str
    line_of: Callable[[Place], int]

    def at(self, place: Place = ()) -> str:
        return f"{self.path}, line {self.line_of(place)}"


def _json_entries(text: str, path: str) -> Iterator[_Entry]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{path}, line {number}: not JSON ({fault_of(error)}): write one object a line"
            ) from None
        yield _Entry(value, path, lambda _place, number=number: number)  # type: ignore[misc]


def _yaml_entries(text: str, path: str) -> Iterator[_Entry]:
    yaml = _yaml()
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        loader = yaml.SafeLoader("")
        # A day is a text, as in JSON.
        texts = {"tag:yaml.org,2002:timestamp": yaml.SafeLoader.construct_yaml_str}
        loader.yaml_constructors = {**loader.yaml_constructors, **texts}
        if isinstance(root, yaml.MappingNode):  # {tasks: [...]}
            root = next((v for k, v in root.value if k.value == "tasks"), root)
        if root is None:
            return
        if not isinstance(root, yaml.SequenceNode):
            raise InputError(f"{path}, line 1: write a list of tasks (- id: …)")
        for node in root.value:
            value = loader.construct_document(node)
            yield _Entry(value, path, lambda place, node=node: _yaml_line(yaml, node, place))  # type: ignore[misc]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise InputError(f"{path}, line {line}: not YAML ({problem})") from None
    except (RecursionError, ValueError) as error:
        raise InputError(f"{path}: not YAML ({type(error).__name__})") from None


def _yaml() -> Any:
    try:
        import yaml
    except ModuleNotFoundError:
        raise UsageError(
            f"YAML needs a package more: {how_to_install('eval')}, or write JSON lines"
        ) from None
    return yaml


def _yaml_line(yaml: Any, node: Any, place: Place) -> int:
    """Return the line of a part of an entry, or of the nearest thing around it."""
    for part in place:
        if isinstance(node, yaml.MappingNode):
            found = [(k, v) for k, v in node.value if k.value == part]
            if not found:
                continue  # pydantic's places also name the kind of a check
            key, node = found[0]
            if isinstance(node, yaml.ScalarNode):
                return int(key.start_mark.line) + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part] if part < len(node.value) else node
    return int(node.start_mark.line) + 1


def _task_of(entry: _Entry, file: Path) -> Task:
    if not isinstance(entry.value, dict):
        raise InputError(f"{entry.at()}: a task is an object with at least id and task")
    name = f"task {entry.value.get('id', '?')!r}"
    try:
        task = Task.model_validate(entry.value)
    except ValidationError as error:
        first, count = error.errors()[0], error.error_count()
        where = ".".join(str(part) for part in first["loc"] if part not in KINDS)
        what = _unknown(first, where) or first["msg"].removeprefix("Value error, ")
        what = f"{where}: {what}" if where and where not in what else what
        more = f" (and {count - 1} more)" if count > 1 else ""
        at = entry.at(first["loc"] or (("check",) if "check" in what else ()))
        raise InputError(f"{at}: {name}: {what}{more}") from None
    return _with_paths(task, entry, file.parent.resolve(), name)


def _unknown(error: Mapping[str, Any], where: str) -> str:
    if error["type"] == "extra_forbidden":
        return f"there is no field {where!r}"
    return f"{where} is missing" if error["type"] == "missing" else ""


def _with_paths(task: Task, entry: _Entry, base: Path, name: str) -> Task:
    """Return the task with paths that hold anywhere; they were written relative to the file."""

    def absolute(given: str, field: str, at: int) -> str:
        path = (base / given).resolve()
        if not (path.is_file() or (field == "data" and path.is_dir())):
            raise InputError(f"{entry.at((field, at))}: {name}: there is no file {given}")
        return str(path)

    changes: dict[str, Any] = {
        "data": tuple(absolute(given, "data", n) for n, given in enumerate(task.data)),
        "tools": tuple(
            absolute(given, "tools", n) if given.endswith(".py") else given
            for n, given in enumerate(task.tools)
        ),
    }
    if isinstance(task.check, Function) and ".py:" in task.check.function:
        source, _, function = task.check.function.rpartition(":")
        changes["check"] = Function(function=f"{absolute(source, 'check', 0)}:{function}")
    if isinstance(task.check, Table) and isinstance(task.answer, str):
        changes["answer"] = absolute(task.answer, "answer", 0)
    return task.model_copy(update=changes)
