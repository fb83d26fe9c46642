"""Python source as a model writes it: tidied, compiled, and judged, but never run.

Whatever a reply holds, the functions here answer or raise :class:`FormatError`; a source that
breaks the compiler (null bytes, lone surrogates, a million brackets) is an error of the model
like any other. Two rules keep the work bounded: source longer than :data:`MAX_CODE_CHARS` is not
compiled at all, and a reader that must try several ends of a block does so with :class:`Trials`.

IPython's transformer is imported only for source that plain Python refuses and that shows a
sign of IPython's own syntax (``%magic``, ``!command``, ``name?``, pasted prompts).
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
import textwrap
import warnings

from kernel_agent.errors import FormatError
from kernel_agent.formats.reading.delimiters import code_tag_at_start

MAX_CODE_CHARS = 400_000
"""Longest source that is compiled: 0.6 s and some 100 MB for the compiler, and far more than one
cell of an analysis needs (models stop at about 130,000 tokens for a whole reply)."""

_IPYTHON_SIGN = re.compile(r"^[^\S\n]*(?:[%!?]|>>>|In \[)|\?[^\S\n]*$|=[^\S\n]*[%!]", re.MULTILINE)
_MAX_IPYTHON_CHARS = 100_000
"""Characters read in all, because the transformer reads the cell again for each magic: 0.4 s."""

_MAX_WRAPPERS = 3
PLACEHOLDERS = ("...", "…")
"""A placeholder for code where a reply only shows how code is written."""

_STATEMENTS_OF_CODE = (
    ast.Import, ast.ImportFrom, ast.Assign, ast.AugAssign, ast.FunctionDef, ast.AsyncFunctionDef,
    ast.ClassDef, ast.For, ast.AsyncFor, ast.While, ast.If, ast.With, ast.AsyncWith, ast.Try,
    ast.TryStar, ast.Match,
)  # fmt: skip


def tidy(body: str) -> str:
    """Return the source inside a delimiter without surrounding blank space and common indent.

    Lines inside the source are left as they are unless the first one is indented.
    """
    body = body.strip("\n")
    while body and not body.partition("\n")[0].strip():
        body = body.partition("\n")[2]
    if body[:1].isspace():
        body = textwrap.dedent(body)
    return body.strip()


def unwrap(body: str) -> str:
    """Return the source without a fence inside of a tag, or a tag inside of a fence.

    And without what is no source there: the name of the language on a separate line, and in an
    example in the style of doctest the prompts with the output that the model made up.
    """
    for _ in range(_MAX_WRAPPERS):
        body = tidy(body)
        line = body.partition("\n")[0]
        if line.startswith(("```", "~~~")):
            body = _inside_fence(body, line)
        elif tag := code_tag_at_start(body):
            stop = body.lower().rfind(f"</{tag[1].lower()}>")
            body = body[tag.end() : stop if stop >= 0 else len(body)]
        else:
            break
    return _strip_prompts(_LANGUAGE_LINE.sub("", tidy(body), count=1))


_LANGUAGE_LINE = re.compile(r"\Apython3?[^\S\n]*\n", re.IGNORECASE)
_PROMPT = re.compile(r"(?:>>>|\.\.\.)(?: |$)")


def _strip_prompts(body: str) -> str:
    if not body.startswith(">>> "):
        return body
    return "\n".join(line[4:] for line in body.splitlines() if _PROMPT.match(line))


def _inside_fence(body: str, line: str) -> str:
    run = line[: len(line) - len(line.lstrip(line[0]))]
    inner = body[len(line) + 1 :]
    stop = f"\n{inner}".rfind(f"\n{run}")
    return inner[: max(stop, 0)] if stop >= 0 else inner


def compile_error(source: str) -> Exception | None:
    """Return why this source is no cell that a kernel could run, or None when it is one."""
    error = _plain_error(source)
    if error is None or not 0 < _ipython_chars(source) <= _MAX_IPYTHON_CHARS:
        return error
    return _ipython_error(source)


def check(source: str) -> str:
    """Return the source when it is a cell worth sending to a kernel.

    Raises
    ------
    FormatError
        ``syntax`` when it does not compile, ``missing`` when it holds no statement,
        ``malformed`` when it is too long. The model's fault.
    """
    if len(source) > MAX_CODE_CHARS:
        text = f"it is {len(source):,} characters long; the limit is {MAX_CODE_CHARS:,}"
        raise FormatError(
            "code too long",
            feedback=f"The code was not run: {text}. Write a shorter cell.",
            kind="malformed",
        )
    error = compile_error(source)
    if error is not None:
        shown = _describe(error, source)
        raise FormatError(
            f"code does not compile: {shown.splitlines()[0]}",
            feedback="The code was not run, because it is not valid Python:\n\n"
            f"{shown}\n\nReply again with the whole corrected code in one block.",
            kind="syntax",
            code=source,
        )
    if is_blank(source):
        raise FormatError(
            "the code is empty",
            feedback="Nothing was run: the code holds no statement, only space or comments. "
            "Reply with the code to run.",
            kind="missing",
        )
    return source


def is_blank(source: str) -> bool:
    """Whether the source holds nothing but white space, comments and ``...`` in place of code."""
    lines = (line.strip() for line in source.splitlines())
    return all(not line or line.startswith("#") or line in PLACEHOLDERS for line in lines)


def is_evidently_code(source: str) -> bool:
    """Whether undelimited text is code that asks for something, not prose or output that compiles.

    ``Done``, ``yes``, ``3.5``, ``(1, 2)`` and ``Mean: 5`` are all valid Python; an import, an
    assignment, a definition, a loop or a call is what makes text a cell.
    """
    tree = parse_plain(source)
    return tree is not None and any(_asks_for_something(node) for node in tree.body)


def with_value_shown(source: str) -> str:
    r"""Return a source that shows its last value also where another one follows in the same cell.

    >>> with_value_shown("x = 1\nx + 1  # two"), with_value_shown("print(x)")
    ('x = 1\ndisplay(x + 1)  # two', 'print(x)')
    """
    tree = parse_plain(source)
    last = tree.body[-1] if tree and tree.body else None
    if not isinstance(last, ast.Expr) or last.col_offset or source.rstrip().endswith(";"):
        return source
    shown = ast.get_source_segment(source, last.value)
    lines = [f"{line}\n" for line in source.split("\n")]
    before, rest = "".join(lines[: last.lineno - 1]), "".join(lines[last.lineno - 1 :])[:-1]
    if _SHOWS.match(rest) or shown is None or not rest.startswith(shown):
        return source
    return f"{before}display({shown}){rest.removeprefix(shown)}"


_SHOWS = re.compile(r"(?:print|display|final_answer|await)\b|.*\.show\(\)")


def bound_names(source: str) -> frozenset[str]:
    """Return the names that a source binds at its top level; none of what is no plain Python."""
    table = _top_level(source)
    symbols = table.get_symbols() if table else ()
    return frozenset(s.get_name() for s in symbols if s.is_assigned() or s.is_imported())


def free_names(source: str) -> frozenset[str]:
    """Return the names that a source uses anywhere and binds nowhere at its top level."""
    table = _top_level(source)
    if table is None:
        return frozenset()
    used: set[str] = set()
    waiting = [table]
    while waiting:
        scope = waiting.pop()
        waiting += scope.get_children()
        used |= {s.get_name() for s in scope.get_symbols() if s.is_referenced() and s.is_global()}
        if scope is table:
            used |= {s.get_name() for s in scope.get_symbols() if s.is_referenced()}
    return frozenset(used) - bound_names(source) - frozenset(dir(builtins))


def _top_level(source: str) -> symtable.SymbolTable | None:
    if parse_plain(source) is None:
        return None
    try:
        return symtable.symtable(source, "<cell>", "exec")
    except _COMPILE_ERRORS:  # what may stand in a cell alone: an await at its top level
        return None


def makes_a_call(source: str) -> bool:
    """Whether the source calls or imports something, as an action does and a formula does not."""
    tree = parse_plain(source)
    acts = ast.Call | ast.Import | ast.ImportFrom
    return tree is not None and any(isinstance(node, acts) for node in ast.walk(tree))


class Trials:
    """Compile guesses until an allowance is used up, so that no reply costs more than a second.

    After that every guess counts as wrong and the reader falls back to its plain rule.
    """

    def __init__(self) -> None:
        self._attempts, self._chars = 200, 2 * MAX_CODE_CHARS

    def affords(self, chars: int) -> bool:
        """Whether a guess of this length can still be paid."""
        return self._attempts > 0 and chars <= min(self._chars, MAX_CODE_CHARS)

    def compiles(self, source: str) -> bool:
        """Whether the source compiles and holds a statement, as far as the allowance goes."""
        cost = len(source) + 4 * _ipython_chars(source)
        if not self.affords(cost):
            return False
        self._attempts -= 1
        self._chars -= cost
        return not is_blank(source) and compile_error(source) is None


def _asks_for_something(node: ast.stmt) -> bool:
    if isinstance(node, ast.AnnAssign):
        return node.value is not None
    if isinstance(node, ast.Expr):
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        return isinstance(value, ast.Call)
    return isinstance(node, _STATEMENTS_OF_CODE)


# What compile() was seen to raise for hostile source, beside SyntaxError: null bytes and
# surrogates (ValueError), long chains (RecursionError), long operator runs (MemoryError).
_COMPILE_ERRORS = (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError, SystemError)


def _ipython_chars(source: str) -> int:
    """Return how many characters IPython's transformer would read, 0 when it is not needed."""
    return len(source) * sum(1 for _ in _IPYTHON_SIGN.finditer(source))


def _plain_error(source: str) -> Exception | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except _COMPILE_ERRORS as error:
        return error
    return None


def _ipython_error(source: str) -> Exception | None:
    from kernel_agent.formats.reading.escapes import transform

    try:
        plain = transform(source)
    except Exception as error:  # third-party code on hostile text: whatever it raises is the text's
        return error
    return _plain_error(plain)


def parse_plain(source: str) -> ast.Module | None:
    """Return the syntax tree of plain Python that compiles; None for anything else."""
    if len(source) > MAX_CODE_CHARS or _plain_error(source) is not None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except _COMPILE_ERRORS:
        return None


_SHOWN_CHARS = 160  # of a source line: two terminal lines, with the caret in sight


def _describe(error: Exception, source: str) -> str:
    """Return the error as Python shows it: type, message, line number, line and caret."""
    if not isinstance(error, SyntaxError):
        text = str(error) or "the compiler gave up on this source"
        return f"{type(error).__name__}: {text[:_SHOWN_CHARS]}"
    head = f"{type(error).__name__}: {error.msg[:_SHOWN_CHARS]}"
    if error.lineno is None:
        return head
    lines = source.splitlines()
    in_source = 0 < error.lineno <= len(lines)
    text = error.text or (lines[error.lineno - 1] if in_source else "")
    column = max((error.offset or 1) - 1, 0)
    start = max(column - _SHOWN_CHARS // 2, 0)
    shown = text.rstrip("\n")[start : start + _SHOWN_CHARS]
    caret = " " * (column - start) + "^"
    return f"{head} (line {error.lineno})\n    {shown}\n    {caret}"
