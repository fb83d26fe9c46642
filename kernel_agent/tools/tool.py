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

import asyncio
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, update_wrapper, wraps
from pathlib import Path
from types import ModuleType
from typing import Any, overload

from kernel_agent.errors import UsageError
from kernel_agent.records import ToolSchema

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


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

    def __init__(
        self, function: Callable[..., Any], *, effects: bool = False, untrusted: bool = False
    ) -> None:
        self.function = function
        self.effects = effects
        self.untrusted = untrusted
        self.name = function.__name__
        self.doc = inspect.cleandoc(function.__doc__ or "")
        self.signature = inspect.signature(function)
        if not self.name.isidentifier():
            raise UsageError(f"a tool needs a name, not {self.name}")
        if not self.doc:
            raise UsageError(f"the tool {self.name} needs a docstring: the model reads it")
        for parameter in self.signature.parameters.values():
            if parameter.annotation is inspect.Parameter.empty:
                raise UsageError(f"the tool {self.name}: annotate the parameter {parameter.name}")
        update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, as if it were not decorated."""
        return self.function(*args, **kwargs)

    @cached_property
    def _checked(self) -> Callable[..., Any]:
        from pydantic import validate_call

        return validate_call(self.function)

    def checked(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Check the arguments against the annotations, and return them by parameter.

        Raises
        ------
        Exception
            ``pydantic.ValidationError`` for wrong arguments.
        """
        return dict(self._binding(*args, **kwargs))

    @cached_property
    def _binding(self) -> Callable[..., dict[str, Any]]:
        from pydantic import validate_call

        @wraps(self.function)
        def bound(*args: Any, **kwargs: Any) -> dict[str, Any]:
            return self.signature.bind(*args, **kwargs).arguments

        return validate_call(bound)

    async def call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Check the arguments against the annotations and call; plain functions in a thread.

        Raises
        ------
        Exception
            Whatever the function raises; ``pydantic.ValidationError`` for wrong arguments.
        """
        if inspect.iscoroutinefunction(self.function):
            return await self._checked(*args, **kwargs)
        return await asyncio.to_thread(self._checked, *args, **kwargs)

    @property
    def spec(self) -> dict[str, Any]:
        """The description that the kernel makes its function from (see ``inside/host.py``)."""
        return {
            "name": self.name,
            "doc": self.doc,
            "parameters": [
                [
                    p.name,
                    p.kind.name,
                    None if p.default is p.empty else repr(p.default),
                    None if p.annotation is p.empty else inspect.formatannotation(p.annotation),
                ]
                for p in self.signature.parameters.values()
            ],
        }

    @property
    def schema(self) -> ToolSchema:
        """The tool as an endpoint is told of it, for formats whose actions are calls."""
        return {"name": self.name, "description": self.doc, "parameters": self._parameters()}

    def _parameters(self) -> dict[str, Any]:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError

        try:
            adapter: TypeAdapter[Any] = TypeAdapter(self.function)  # type: ignore[arg-type]  # a function is a type to it
            schema = adapter.json_schema()
        except (PydanticUserError, TypeError):  # a type that JSON does not know
            schema = {}
        if schema.get("type") != "object":  # positional-only parameters make it an array
            names = [p.name for p in self.signature.parameters.values() if p.kind in _NAMED]
            schema = {"type": "object", "properties": {name: {} for name in names}}
        return schema

    @property
    def stub(self) -> str:
        """The tool as the model is shown it: signature and first paragraph of the description."""
        first_paragraph = self.doc.split("\n\n")[0].replace("\n", " ")
        return f'def {self.name}{self.signature}:\n    """{first_paragraph}"""'


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
        The function, when the decorator stands alone.
    effects, untrusted
        As :class:`Tool` takes them.
    """

    def make(function: Callable[..., Any]) -> Tool:
        return Tool(function, effects=effects, untrusted=untrusted)

    return make if function is None else make(function)


def as_tools(given: Iterable[Tool | Callable[..., Any]]) -> tuple[Tool, ...]:
    """Return tools for tools and plain functions.

    Raises
    ------
    UsageError
        Two of them have the same name.
    """
    tools = tuple(t if isinstance(t, Tool) else Tool(t) for t in given)
    names = [t.name for t in tools]
    twice = {n for n in names if names.count(n) > 1}
    if twice:
        raise UsageError(f"two tools have the name {', '.join(sorted(twice))}")
    return tools


def load_tools(module: str) -> tuple[Tool, ...]:
    """Return the tools that a module (``package.module`` or ``path/to/file.py``) defines.

    Raises
    ------
    UsageError
        The module cannot be imported, or defines no tool.
    """
    try:
        loaded = _load_file(Path(module)) if module.endswith(".py") else _load_name(module)
    except Exception as error:  # a module of the user's may raise anything
        raise UsageError(
            f"--tools {module}: cannot be imported ({type(error).__name__}: {error})"
        ) from None
    found = tuple(v for v in vars(loaded).values() if isinstance(v, Tool))
    if not found:
        raise UsageError(f"--tools {module}: no function in it is marked with @tool")
    return found


def _load_name(name: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(name)


def _load_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded
    spec.loader.exec_module(loaded)
    return loaded
