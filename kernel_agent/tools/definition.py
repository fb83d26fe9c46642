"""``@tool``: a typed, documented host function that code in the kernel may call.

Examples
--------
>>> @tool
... def exchange_rate(currency: str, year: int = 2020) -> float:
...     "Return the value of one unit of ``currency`` in euros."
...     return 1.1
>>> exchange_rate("USD")
1.1
"""

from __future__ import annotations

import builtins
import inspect
import json
import keyword
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import WRAPPER_ASSIGNMENTS, cached_property, update_wrapper, wraps
from typing import Any, get_type_hints, overload

from kernel_agent.errors import UsageError
from kernel_agent.records import ToolSchema
from kernel_agent.safe import one_line, plain
from kernel_agent.tools.annotations import written
from kernel_agent.tools.threads import in_thread

MANY = 20  # tools; of more the model is shown names and one line each
MAX_LINE = 300  # characters of one line on a tool
MAX_TOLD = 2_000  # characters of a description that the model is shown
MAX_SOURCE = 400  # characters of one default or annotation
MAX_DOC = 20_000  # characters of a description that help() shows

# Python 3.14 copies what makes the annotations; it has nothing of those that were set by hand.
_COPIED = (*WRAPPER_ASSIGNMENTS, "__annotations__")

_PLACED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_SHOWN = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.KEYWORD_ONLY,
)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The origin of a request for calls; handed to the broker with the request.

    Parameters
    ----------
    known
        How many untrusted results were in the session when it arrived: later ones cannot have
        shaped it. None: all that there are.
    cell
        The session's own record of the cell that asks, for tools of the session.
    """

    known: int | None = None
    cell: Any = None


ANYWHERE = Origin()


class Tool:
    """A host function with a name, a signature and a description.

    Parameters
    ----------
    function
        A function with a docstring and annotated parameters, plain or ``async``.
    effects
        Whether a call changes something outside (sends, writes, pays): it is asked about first.
    untrusted
        Whether its results come from others (web pages, mails): data, never instructions.

    Raises
    ------
    UsageError
        The function has no docstring or an unannotated parameter: the model could not use it.
    """

    checks_at_length = False
    """Whether checking even short arguments may take long: never on the loop."""

    def __init__(
        self, function: Callable[..., Any], *, effects: bool = False, untrusted: bool = False
    ) -> None:
        self.function = function
        self.effects = effects
        self.untrusted = untrusted
        self.name = str(getattr(function, "__name__", f"a {type(function).__name__}"))
        self.doc = inspect.cleandoc(function.__doc__ or "")
        if not self.name.isidentifier() or keyword.iskeyword(self.name):
            raise UsageError(f"a tool is a function with a name, not {self.name}")
        self.signature = inspect.signature(function)
        if not self.doc:
            raise UsageError(f"the tool {self.name} needs a docstring: the model reads it")
        for parameter in self.signature.parameters.values():
            if parameter.annotation is inspect.Parameter.empty:
                raise UsageError(f"the tool {self.name}: annotate the parameter {parameter.name}")
        update_wrapper(self, function, _COPIED)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, as if it were not decorated."""
        return self.function(*args, **kwargs)

    @cached_property
    def _checked(self) -> Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]:
        """A function of the same signature that returns its arguments when they are valid."""
        from pydantic import ConfigDict, validate_call

        @wraps(self.function, _COPIED)
        def given(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
            return args, kwargs

        # A table is checked to be one, and nothing more.
        checking = validate_call(config=ConfigDict(arbitrary_types_allowed=True))
        return checking(given)

    def check(
        self, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments converted to the annotations where that loses nothing.

        An integer stays one where a float is asked for, as in plain Python.

        Raises
        ------
        pydantic.ValidationError
            The caller's: an argument is missing, unknown or of the wrong type.
        """
        checked, named = self._checked(*args, **kwargs)
        args = tuple(_keep_integers(list(args), list(checked)))
        kwargs = _keep_integers(kwargs, named)
        if not self._takes_iterators:
            return args, kwargs
        return tuple(map(_settle, args)), {name: _settle(v) for name, v in kwargs.items()}

    @cached_property
    def _takes_iterators(self) -> bool:
        """Whether pydantic gives some argument as an iterator, which reading uses up."""
        annotations = " ".join(str(p.annotation) for p in self.signature.parameters.values())
        return re.search(r"Itera|Generator", annotations) is not None

    def by_parameter(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return arguments that :meth:`check` gave by the names of their parameters."""
        return dict(self.signature.bind(*args, **kwargs).arguments)

    def spread(self, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a call from named ones, as :attr:`schema` has them.

        The list that stands for ``*args`` goes to its places, after the parameters before it.
        """
        kwargs = dict(arguments)
        several = self._several
        if several is None or several.name not in kwargs:
            return [], kwargs
        given = _as_list(kwargs.pop(several.name))
        before = [p for p in self.signature.parameters.values() if p.kind in _PLACED]
        if any(p.name not in kwargs and p.default is p.empty for p in before):
            return [], kwargs  # the check says which one is missing
        args = [kwargs.pop(p.name, p.default) for p in before]
        return [*args, *given], kwargs

    def positional(self, place: int | str) -> int | str:
        """Return the parameter that takes an argument given without a name, if there is one."""
        if not isinstance(place, int):
            return place
        parameters = self.signature.parameters.values()
        ordered = [p.name for p in parameters if p.kind in _PLACED]
        several = [self._several.name] if self._several is not None else []
        return next(iter([*ordered[place : place + 1], *several]), place)

    async def call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call the function with arguments that :meth:`check` gave; plain ones in a thread.

        Cancelling it cancels an ``async`` function, and gives up waiting for a plain one.

        Raises
        ------
        BaseException
            Any error that the function raises.
        """
        if self.waits:
            return await self.function(*args, **kwargs)
        return await in_thread(self.function, *args, **kwargs)

    def within(self, origin: Origin, note: Callable[..., None]) -> Tool:  # noqa: ARG002 - for those who need it
        """Return the tool for one call; called by the broker before each.

        Parameters
        ----------
        origin
            Where the call comes from.
        note
            Puts facts into the call's record, as fields of
            :class:`~kernel_agent.records.HostCall`, until it ends.
        """
        return self

    @property
    def waits(self) -> bool:
        """Whether the function is ``async``: it can be cancelled."""
        return inspect.iscoroutinefunction(self.function)

    @property
    def spec(self) -> dict[str, Any]:
        """The description from which the kernel makes its function (see ``inkernel/rpc.py``)."""
        returns = self.signature.return_annotation
        return {
            "name": self.name,
            "doc": plain(self.doc)[:MAX_DOC],
            "returns": None if returns is inspect.Signature.empty else _annotation(returns),
            "parameters": [
                [
                    p.name,
                    p.kind.name,
                    None if p.default is p.empty else _source(repr(p.default)),
                    None if p.annotation is p.empty else _annotation(p.annotation),
                ]
                for p in self.signature.parameters.values()
            ],
        }

    @property
    def schema(self) -> ToolSchema:
        """The tool's description for an endpoint, for formats whose actions are calls."""
        doc = plain(self.doc)[:MAX_DOC]
        return {"name": self.name, "description": doc, "parameters": self._parameters()}

    def _parameters(self) -> dict[str, Any]:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError

        try:
            adapter: TypeAdapter[Any] = TypeAdapter(self._all_named)
            schema = adapter.json_schema()
        except (PydanticUserError, TypeError, NameError):  # a type that JSON does not know
            schema = {}
        if schema.get("type") != "object":  # positional-only parameters make it an array
            shown = [p for p in self.signature.parameters.values() if p.kind in _SHOWN]
            kinds = {p.name: {"type": "array"} if p == self._several else {} for p in shown}
            schema = {"type": "object", "properties": kinds}
        return schema

    @property
    def _several(self) -> inspect.Parameter | None:
        """The parameter that takes any number of values, ``*args``."""
        parameters = self.signature.parameters.values()
        return next((p for p in parameters if p.kind is inspect.Parameter.VAR_POSITIONAL), None)

    @property
    def _all_named(self) -> Any:
        """The signature with a list for ``*args``: a JSON object has names and no places."""
        several = self._several
        if several is None:
            return self.function
        hints = get_type_hints(self.function, include_extras=True)
        hints[several.name] = list[hints.get(several.name, Any)]  # type: ignore[misc]  # a type made here

        def named() -> None: ...

        kind, kept = inspect.Parameter.KEYWORD_ONLY, self.signature.parameters.values()
        named.__signature__ = self.signature.replace(  # type: ignore[attr-defined]
            parameters=[p.replace(kind=kind, default=[]) if p == several else p for p in kept]
        )
        named.__annotations__ = hints
        return named

    def stub(self, *, has_help: bool = True) -> str:
        """Return what the model is shown: signature and description, whole up to a bound."""
        return f'def {self.name}{self._shown}:\n    """{self._told(has_help=has_help)}"""'

    def _told(self, *, has_help: bool) -> str:
        """Return the description as the text of a docstring that ends where it should.

        All lines are indented: none is a heading or a fence of its own.
        """
        doc = plain(self.doc).strip()
        if len(doc) > MAX_TOLD:
            kept = doc[:MAX_TOLD].rpartition("\n")[0] or doc[:MAX_TOLD]
            doc = f"{kept.rstrip()}\n… {f'help({self.name}) has the rest' if has_help else ''}"
        lines = (f"    {line}".rstrip() for line in _strip_quotes(doc).splitlines())
        return "\n".join(lines).strip().rstrip("\\")

    @property
    def line(self) -> str:
        """The tool in one line, for long lists."""
        sentence = summary_line(self.doc).split(". ")[0].removesuffix(".")
        return f"- {self.name}: {one_line(sentence, 120)}"

    def __repr__(self) -> str:
        return f"<Tool {one_line(f'{self.name}{self._shown}', MAX_LINE)}>"

    @property
    def _shown(self) -> str:
        """The signature as source text in one line, with any defaults and annotations."""
        empty = inspect.Parameter.empty
        parameters = [
            p.replace(
                default=empty if p.default is empty else _Source(_source(repr(p.default))),
                annotation=empty if p.annotation is empty else _Source(_annotation(p.annotation)),
            )
            for p in self.signature.parameters.values()
        ]
        returns = self.signature.return_annotation
        returns = empty if returns is empty else _Source(_annotation(returns))
        return str(inspect.Signature(parameters, return_annotation=returns))


class _Source:
    """An object that shows as this text in a signature."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _annotation(annotation: Any) -> str:
    return _source(written(annotation))


def _source(text: str) -> str:
    """Return source text that cannot end a stub: one line, no fence, no triple quote."""
    return _strip_quotes(one_line(text, MAX_SOURCE))


def _as_list(given: Any) -> list[Any]:
    """Return what was given for ``*args``: a list, one that was written as text, or one value."""
    if isinstance(given, str) and given.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):
            given = json.loads(given)
    return given if isinstance(given, list) else [given]


def summary_line(doc: str) -> str:
    """Return the first paragraph of a description, stripped of all that could end it early.

    Descriptions may come from others (a tool server): they must not end the docstring, open a
    heading or a block of code of their own, or be longer than all the rest.
    """
    return _strip_quotes(one_line(doc.strip().split("\n\n")[0], MAX_LINE)).rstrip("\\")


def _strip_quotes(text: str) -> str:
    return re.sub(r'"{3,}|`{3,}', "...", text).removesuffix('"')


def stubs(tools: Sequence[Tool], *, has_help: bool = True) -> str:
    """Return the tools as the model is shown them: stubs, or a list with a word on ``help``.

    Parameters
    ----------
    tools
        All of the session's.
    has_help
        Whether cells can ask for ``help``; else there are stubs of however many.
    """
    if len(tools) <= MANY or not has_help:
        return "\n\n".join(tool.stub(has_help=has_help) for tool in tools)
    lines = "\n".join(tool.line for tool in tools)
    return (
        f"# {len(tools)} functions, in one line each. Before you call one for the first time, run\n"
        f"# help(NAME) in a cell: it shows the parameters and the whole description.\n{lines}"
    )


@overload
def tool(function: Callable[..., Any]) -> Tool: ...


@overload
def tool(
    *, effects: bool = False, untrusted: bool = False
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None, *, effects: bool = False, untrusted: bool = False
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a host function callable from cells; a decorator, with or without arguments.

    Parameters
    ----------
    function
        A function with a docstring and annotated parameters, plain or ``async``.
    effects
        Whether a call changes something outside (sends, writes, pays): it is asked about first.
    untrusted
        Whether its results come from others (web pages, mails): data, never instructions.

    Raises
    ------
    UsageError
        The function has no docstring or an unannotated parameter: the model could not use it.

    Examples
    --------
    >>> @tool(effects=True)
    ... def send(text: str) -> None:
    ...     'Send a text to the team.'
    >>> send.name, send.effects
    ('send', True)
    """

    def make(function: Callable[..., Any]) -> Tool:
        return _check_name(Tool(function, effects=effects, untrusted=untrusted))

    return make if function is None else make(function)


def _check_name(made: Tool) -> Tool:
    """Return the tool of a function; refuse a name that cells need for Python's own.

    Raises
    ------
    UsageError
        The caller's.
    """
    if hasattr(builtins, made.name):
        raise UsageError(
            f"the tool {made.name} would hide Python's own {made.name}() from cells: "
            "give the function another name"
        )
    return made


def as_tools(given: Iterable[Tool | Callable[..., Any]]) -> tuple[Tool, ...]:
    """Return tools for tools and plain functions.

    Raises
    ------
    UsageError
        Two of them have the same name.
    """
    tools = tuple(t if isinstance(t, Tool) else _check_name(Tool(t)) for t in given)
    names = [t.name for t in tools]
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise UsageError(f"two tools have the name {', '.join(sorted(twice))}")
    return tools


def _keep_integers(given: Any, checked: Any) -> Any:
    """Return what a check has made of a value, with the integers that it had made floats."""
    if type(given) is int and type(checked) is float:
        return given
    if type(given) is list and type(checked) is list and len(given) == len(checked):
        return [_keep_integers(*pair) for pair in zip(given, checked, strict=True)]
    if type(given) is dict and type(checked) is dict:
        return {k: _keep_integers(given[k], v) if k in given else v for k, v in checked.items()}
    return checked


def _settle(value: Any) -> Any:
    """Return an argument whose iterators can be copied, so that showing it does not use it up.

    Their items are checked here, and not only when the function comes to them.
    """
    if isinstance(value, Iterator):
        return iter([_settle(item) for item in value])
    if isinstance(value, dict):
        return {key: _settle(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return type(value)(_settle(item) for item in value)
    return value
