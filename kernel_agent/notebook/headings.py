"""A heading for each step, for the notebook and the page. Pure.

What the model said first is what a step does; the code is not read for what it might mean. A step
that failed says why instead. Without a word of the model's, as where models call natively, the
first comment of the cell stands for it, or the file that it loads; else it is "Step 3".
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from kernel_agent.records import Calls, CellResult, Final, Step
from kernel_agent.safe import one_line, plain, title_line

MAX_SENTENCE = 100  # characters
MAX_CODE = 50_000  # characters that are read

_SHORT = (r"\bvs", r"\betc", r"\bca", r"\bcf", r"\bDr", r"\bMr", r"\bMrs", r"\bSt", r"\w\.\w")
"""What a dot ends that is no sentence; last such as ``U.S`` and ``e.g``."""
_SENTENCE = re.compile(
    rf"(.+?)(?:{''.join(f'(?<!{short})' for short in _SHORT)}[.!?](?=\s|$)|:(?=\n|$))", re.DOTALL
)
_HEADING = re.compile(r"#{1,6}[ \t]+([^\n]+)\n*")
_BEGINS = re.compile(r"[\w\"'(*_`]")
_LISTED = re.compile(r"\d+[.)]\s|[*_-]\s|```|~~~")
_MARKS = re.compile(r"\*\*|__|(?<!\w)[*_](?=\w)|(?<=\w)[*_](?!\w)")
_SPAN = re.compile(r"(`[^`]+`)")
_OF_ITSELF = re.compile(r"I(?: am|'m) (?!\w+ing\b)")  # says who speaks, not what the step does
_PAUSE = re.compile(r"`[^`]*`|[,:](?=\s)")  # a comma or colon, or code, in which none is one
_SCRIPT = re.compile(r"^# /// .*?^# ///$", re.MULTILINE | re.DOTALL)  # for programs (PEP 723)
_COMMENT = re.compile(r"^#+[ \t]*(\w.*)$", re.MULTILINE)
_LOADS = re.compile(r"\.read_\w+\(\s*['\"]([^'\"\n]+)['\"]")
_ENDED = {"timeout": "Took too long", "interrupted": "Stopped", "dead": "The kernel ended"}
_MISSING = re.compile(r"^['\"]?(.{1,60}?)['\"]?$")


def step_sentence(step: Step) -> str:
    """Return what a step does or why it failed, in one line of plain text; empty if nobody says.

    Examples
    --------
    >>> from kernel_agent.records import Code, Observation
    >>> code = Code(source="df = pd.read_csv('data/penguins.csv')")
    >>> step_sentence(Step(run_id="r", number=1, action=code, observation=Observation(text="")))
    'Loads penguins.csv'
    """
    if step.action is None:
        return "Nothing was run: no readable action"
    decision, result = step.decision, step.result
    does = _said(step.thought)[0] or _acts(step)
    if decision is not None and not decision.allowed:
        return _and("Denied", does)
    if result is not None and result.status == "error":
        return f"Failed: {_why(result)}"
    if result is not None and result.status in _ENDED:
        return _and(_ENDED[result.status], does)
    return does


def rest_of_thought(step: Step) -> str:
    """Return the thought without the sentence that :func:`step_sentence` has taken from it."""
    said, rest = _said(step.thought)
    whole = said and not said.endswith("…")
    return rest if whole and step_sentence(step) == said else step.thought


def _and(ended: str, does: str) -> str:
    return f"{ended}: {does}" if does else ended


def _said(thought: str) -> tuple[str, str]:
    """Return the first sentence of a thought and what follows; empty when there is none."""
    text = plain(thought).strip()
    if heading := _HEADING.match(text):
        return _fit(heading[1].rstrip("# "), words=1), text[heading.end() :]
    if not _BEGINS.match(text) or _LISTED.match(text):
        return "", text
    paragraph = re.split(r"\n\s*\n|\n(?=[ \t]*(?:[-*>|#`~]|\d+[.)]))", text)[0]
    found = _SENTENCE.match(paragraph)
    end = found.end() if found else len(paragraph)
    sentence = found[1] if found else paragraph
    part = _at_a_pause(sentence)
    return _fit(part), text if part != sentence else text[end:].lstrip()


def _at_a_pause(sentence: str) -> str:
    """Return a sentence as far as its last comma or colon that fits, if it is long."""
    pauses = [
        found.start()
        for found in _PAUSE.finditer(sentence)
        if found[0] in ",:" and found.start() <= MAX_SENTENCE
    ]
    return sentence[: pauses[-1]] if pauses and len(sentence) > MAX_SENTENCE else sentence


def _fit(sentence: str, *, words: int = 2) -> str:
    """Return a sentence without marks, cut between words if it is long; empty when it is none."""
    if sentence.count("`") % 2 or sentence.count("**") % 2:
        return ""
    pieces = (
        piece.strip("`") if _SPAN.fullmatch(piece) else _MARKS.sub("", piece)
        for piece in _SPAN.split(sentence)
    )
    line = " ".join("".join(pieces).split())
    if _OF_ITSELF.match(line) or len(line.split()) < words:
        return ""
    return title_line(line, MAX_SENTENCE)


def _why(result: CellResult) -> str:
    """Return the reason of an error: a missing column by its name."""
    error = result.error
    if error is None:
        return "an error"
    said = one_line(error.evalue, MAX_SENTENCE)
    if error.ename == "KeyError" and (key := _MISSING.match(said)):
        frames = "".join(error.traceback)
        return f"no column {key[1]}" if "pandas" in frames else f"no key {key[1]}"
    return said or one_line(error.ename, MAX_SENTENCE)


def _acts(step: Step) -> str:
    """Return what an action says of itself, or what is known of it."""
    if isinstance(step.action, Final):
        return "Gives the answer"
    if comment := _COMMENT.search(_SCRIPT.sub("", step.code)):
        return title_line(comment[1], MAX_SENTENCE)
    if loaded := _LOADS.search(step.code):
        return f"Loads {one_line(PurePosixPath(loaded[1]).name, 50)}"
    if step.result is not None and step.result.answer is not None:
        return "Gives the answer"
    names = [call.name for call in step.action.calls] if isinstance(step.action, Calls) else []
    names += [call.name for call in step.result.calls] if step.result else []
    return f"Calls {_list(list(dict.fromkeys(names)))}" if names else ""


def _parse(source: str) -> ast.Module:
    """Return the tree of a cell without its magics; an empty one when it is no Python."""
    lines = source[:MAX_CODE].split("\n")
    code = "\n".join(line for line in lines if not line.lstrip().startswith(("%", "!")))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


def _name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _file(call: ast.Call) -> str:
    """Return the name of the file that stands first in a call."""
    first = call.args[0] if call.args else None
    if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
        return ""
    return one_line(PurePosixPath(first.value).name, 50)


def _list(names: Sequence[str]) -> str:
    shown = [one_line(name, 30) for name in names[:3]]
    if len(names) > 3:
        return f"{', '.join(shown)} and {len(names) - 3} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def is_told(source: str) -> bool:
    """Whether a cell does nothing but give a text of several lines as the answer."""
    match _parse(source).body:
        case [ast.Expr(value=ast.Call(func=ast.Name(id="final_answer"), args=[given]))]:
            return isinstance(given, ast.Constant | ast.JoinedStr) and source.count("\n") > 2
    return False


# --- rows that were left out ---------------------------------------------------------------


def rows_left_out(steps: Sequence[Step]) -> str:
    """Return ``344 rows read, 2 left out`` where the kernel's reports of variables prove it.

    A cell must have read a file into a variable, and a later one must have taken rows out of that
    variable by ``dropna`` or ``drop_duplicates`` and nothing else; both sizes are those that the
    kernel reported after each cell.
    """
    read: dict[str, tuple[str, int, int]] = {}  # the variable's file, rows and columns
    for step in steps:
        if step.result is None or step.result.changes is None:
            read.clear()  # what it changed is not known
            continue
        changes = step.result.changes
        changed = {v.name: v.shape for v in (*changes.added, *changes.changed)}
        for target, value in _assignments(step.code):
            shape = _shape(changed.get(target, ""))
            source = _narrowed(value)
            if shape is not None and source in read:
                file, rows, columns = read[source]
                if shape[0] <= rows and shape[1] == columns:
                    return f"{rows:,} rows read from {file}, {rows - shape[0]:,} left out"
        loaded = {
            target: (_file(value), *shape)
            for target, value in _assignments(step.code)
            if isinstance(value, ast.Call) and _name(value).startswith("read_") and _file(value)
            and (shape := _shape(changed.get(target, ""))) is not None
        }  # fmt: skip
        read = {n: r for n, r in read.items() if n not in changed and n not in changes.removed}
        read |= loaded
    return ""


def _assignments(source: str) -> Iterator[tuple[str, ast.expr]]:
    """Yield the variables that a cell sets exactly once, at its top, with their expressions."""
    tree = _parse(source)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    stored = [name.id for name in names if isinstance(name.ctx, ast.Store)]
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name) and stored.count(target.id) == 1:
                yield target.id, node.value


def _narrowed(value: ast.expr) -> str:
    """Return the variable out of which an expression takes rows and does nothing else."""
    narrowed = False
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr in ("dropna", "drop_duplicates"):
            narrowed = True
        elif value.func.attr != "copy":
            return ""
        value = value.func.value
    return value.id if narrowed and isinstance(value, ast.Name) else ""


def _shape(text: str) -> tuple[int, int] | None:
    """Read the size of a table as the kernel reports it: ``344 x 8``."""
    found = re.fullmatch(r"([\d,]{1,15}) x ([\d,]{1,9})", text)
    if found is None:
        return None
    return int(found[1].replace(",", "")), int(found[2].replace(",", ""))
