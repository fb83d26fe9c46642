"""A server's tool as a host tool: name, description, arguments, results.

Nothing that a server says reaches the model as if we had said it. A description is one line,
shortened, without the characters that could end a docstring, a block or a tag, in quotation marks
and with its origin before it. A name is an ASCII identifier that shadows nothing. That keeps a
description from posing as something else; it does not make a model deaf to what it reads there.
"""

from __future__ import annotations

import base64
import builtins
import inspect
import io
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from kernel_agent.errors import ToolError
from kernel_agent.inkernel import Room, TooMuch
from kernel_agent.records import FINAL_ANSWER, ToolSchema
from kernel_agent.safe import limit_of, one_line
from kernel_agent.tools.definition import MAX_LINE, Tool, summary_line
from kernel_agent.tools.mcp.answers import PIECES_MAX
from kernel_agent.tools.mcp.schema import (
    annotation_of,
    identifier,
    problems,
    signature_of,
    tidy_schema,
)
from kernel_agent.tools.threads import in_thread

DESCRIPTION_MAX = 200  # characters of a tool's description that the model is shown
HELP_MAX = 4_000  # that help() shows: many describe their arguments and results there
WORDS_MAX = 120  # of a parameter's
ERROR_MAX = 2_000
PIXELS_MAX = 50_000_000
PICTURES = ("PNG", "JPEG", "WEBP", "GIF")
_TAKEN = {
    *dir(builtins), FINAL_ANSWER, "outputs", "display", "get_ipython", "In", "Out", "pd", "np",
    "plt", "df", "exit", "quit", "llm", "delegate",
}  # fmt: skip
# What could end a docstring, a block or a tag, by what looks like it (guillemets, full-width #).
_HARMLESS = str.maketrans('"`\\<>#', "''/\u2039\u203a\uff03")

Send = Callable[[str, dict[str, Any]], Awaitable[Any]]


class ForeignTool(Tool):
    """A tool of an MCP server.

    Parameters
    ----------
    server
        The server's name, as the user has it.
    described
        The tool as the server lists it (``mcp.types.Tool``).
    name
        What it is called in the kernel.
    send
        Calls it by the server's name for it; raises :class:`ToolError`.
    hide
        Takes the user's keys out of an error of the server's.
    """

    checks_at_length = True  # a schema's choices are tried one after the other, in Python

    def __init__(
        self,
        server: str,
        described: Any,
        name: str,
        send: Send,
        *,
        hide: Callable[[str], str] = str,
    ) -> None:
        self._hide = hide
        self._input = tidy_schema(described.input_schema, lambda text: words(text, WORDS_MAX))
        signature, self._names = signature_of(self._input)
        self._foreign_name = described.name
        self._wraps = _wraps_result(described.output_schema)
        self._send = send
        whole = words(described.description or "", HELP_MAX)
        said = one_line(whole, DESCRIPTION_MAX)
        self._origin, self._said = server, said
        first = f"[tool of the MCP server '{server}'] It describes itself: \"{said}\"."
        more = f'It goes on: "…{whole[len(said) - 1 :]}"' if said != whole else ""

        async def function(*_args: Any, **_kwargs: Any) -> Any: ...

        function.__name__ = function.__qualname__ = name
        function.__doc__ = "\n\n".join(filter(None, (first, more, self._about_parameters())))
        signature = signature.replace(return_annotation=self._returns(described.output_schema))
        function.__signature__ = signature  # type: ignore[attr-defined]  # what inspect reads
        hints = described.annotations
        reads_only = hints is not None and hints.read_only_hint is True
        super().__init__(function, effects=not reads_only, untrusted=True)

    def _returns(self, schema: Any) -> Any:
        """Return the server's claim about its results, for the signature; it is not relied upon."""
        if not isinstance(schema, dict):
            return inspect.Signature.empty
        shape = tidy_schema(schema, lambda _: "")
        properties = shape.get("properties", {})
        only = next(iter(properties.values())) if len(properties) == 1 else None
        inner = only if isinstance(only, dict) else {}  # a schema may be true or false
        if "content" in properties and inner.get("type") == "array":
            return inspect.Signature.empty  # often the pieces once more, see _repeats
        return annotation_of(inner if self._wraps else shape)

    def _about_parameters(self) -> str:
        lines = []
        for python, name in self._names.items():
            schema = self._input["properties"][name]
            text = schema.get("description", "") if isinstance(schema, dict) else ""
            renamed = "" if python == name else f" (the server's {words(name, 60)!r})"
            if text or renamed:
                lines.append(f'{python}{renamed}: "{text}"')
        return "\n".join(["Its words on the parameters:", *lines]) if lines else ""

    async def call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Check the arguments against the server's schema, call, and return a plain value.

        Raises
        ------
        TypeError
            Wrong arguments; nothing was sent.
        ToolError
            The server's error, or one of the connection.
        """
        _, arguments = await in_thread(self.check, args, kwargs)
        result = await self._send(self._foreign_name, arguments)
        return await in_thread(self._to_plain, result)

    def _to_plain(self, result: Any) -> Any:
        """Return a result as a plain value; in one thread, for any number of pieces."""
        value = _value_of(result, unwrap=self._wraps)
        if result.is_error:
            text = value if isinstance(value, str) else repr(value)
            raise ToolError(
                one_line(self._hide(text[: 20 * ERROR_MAX]), ERROR_MAX)
                or "the tool failed and did not say why"
            )
        return value

    def check(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments to send, by the server's names; checked ones pass.

        Raises
        ------
        TypeError
            They are not what the schema says, or have no JSON form.
        """
        # A model that reads the server's own words may write the server's name of a parameter.
        python = {name: known for known, name in self._names.items()}
        renamed = {python.get(name, name): value for name, value in kwargs.items()}
        bound = self.signature.bind(*args, **renamed).arguments
        if not self._names:
            bound = bound.get("arguments", {})
        given = {}
        for name, value in bound.items():
            if value is None and self.signature.parameters.get(name, _NO_DEFAULT).default is None:
                continue  # left out
            given[self._names.get(name, name)] = _plain(name, value)
        wrong = problems(self._input, given)
        if wrong:
            raise TypeError(wrong)
        return (), given

    def _told(self, *, has_help: bool) -> str:
        """Return the first paragraph in one line: the words are a stranger's."""
        told, more = summary_line(self.doc), has_help and len(self.doc) > MAX_LINE
        return f"{told} (help({self.name}) has more)" if more else told

    @property
    def line(self) -> str:
        """The tool in one line, for when there are many."""
        return f"- {self.name}: [MCP server '{self._origin}'] \"{one_line(self._said, 80)}\""

    @property
    def schema(self) -> ToolSchema:
        """The tool's description for an endpoint: the bounded form of the server's own schema."""
        return {"name": self.name, "description": self.doc, "parameters": self._input}


def _plain(name: str, value: Any) -> Any:
    """Return an argument as JSON has it."""
    from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

    try:
        sent = to_jsonable_python(value)
    except (PydanticSerializationError, ValueError):
        raise TypeError(
            f"{name}: a {type(value).__name__} cannot be sent to an MCP server; pass text, "
            "numbers, lists or dicts (for a table: df.to_dict('records'))"
        ) from None
    try:
        to_json(sent)
    except (PydanticSerializationError, ValueError):  # the connection would end over it
        raise TypeError(
            f"{name}: half a character (a surrogate) cannot be sent to an MCP server"
        ) from None
    return sent


_NO_DEFAULT = inspect.Parameter("none", inspect.Parameter.KEYWORD_ONLY)


def words(text: str, max_chars: int) -> str:
    """Return a server's text as one line that can be quoted anywhere.

    No control characters, no quotation marks, backticks, tags, comment signs or backslashes: none
    of them can end the docstring, block or tag that the text stands in.
    """
    kept = "".join(c if c.isprintable() or c.isspace() else " " for c in text[: 20 * max_chars])
    shown = one_line(kept, max_chars)  # what cannot be seen is written out, with a backslash
    return one_line(shown.translate(_HARMLESS), max_chars)


def names_for(server: str, given: Sequence[str], taken: Collection[str]) -> list[str]:
    """Name a server's tools: as it does, unless the name is invalid or taken.

    Parameters
    ----------
    server
        The server's name; it comes before a name that is taken.
    given
        The server's names.
    taken
        Names of tools that are there already.
    """
    used = {*taken, *_TAKEN}
    found = []
    for text in given:
        name = identifier(text)
        if name in used:
            name = identifier(f"{server}_{name}")
        plain, number = name, 2
        while name in used:
            name, number = f"{plain}_{number}", number + 1
        used.add(name)
        found.append(name)
    return found


# --- results -------------------------------------------------------------------------------------


def _wraps_result(schema: Any) -> bool:
    """Whether plain values come in an object ``{"result": …}``, as a library makes them."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return isinstance(properties, dict) and list(properties) == ["result"]


def _value_of(result: Any, *, unwrap: bool) -> Any:
    """Return a result as a plain value: the structured one, else text, pictures, bytes; a list.

    Raises
    ------
    ToolError
        It has too many pieces, or its pictures stand for more than there is room for.
    """
    if len(result.content) > PIECES_MAX:
        raise ToolError(f"the server sent {len(result.content):,} pieces, at most {PIECES_MAX:,}")
    structured = result.structured_content
    if unwrap and isinstance(structured, dict) and list(structured) == ["result"]:
        structured = structured["result"]
    if structured is not None and _repeats(structured, result.content):
        structured = None
    blocks = [b for b in result.content if structured is None or b.type in ("image", "audio")]
    room = Room(limit_of(sum(len(getattr(block, "data", "")) for block in blocks)))
    values = [_block(block, room) for block in blocks]
    if structured is not None:
        return [structured, *values] if values else structured
    if len(values) == 1:
        return values[0]
    if values and all(isinstance(value, str) for value in values):
        return "\n".join(values)
    return values or None


def _repeats(structured: Any, blocks: Sequence[Any]) -> bool:
    """Whether structured content is the other content once more, as text (base64)."""
    if not isinstance(structured, dict) or list(structured) != ["content"]:
        return False
    dumped = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in blocks]
    return bool(dumped) and structured["content"] == dumped


def _block(block: Any, room: Room) -> Any:
    """Return one piece of content."""
    if block.type == "text":
        return block.text
    if block.type == "image":
        return _picture(block.data, room)
    if block.type == "audio":
        return _bytes(block.data)
    if block.type == "resource":
        inner = block.resource
        text = getattr(inner, "text", None)
        return text if text is not None else _bytes(inner.blob)
    if block.type == "resource_link":
        return {"name": block.name, "uri": str(block.uri)}
    raise ToolError(f"the server sent content of a kind that is not known: {block.type[:40]!r}")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise ToolError("the server sent content that is not base64") from None


def _picture(text: str, room: Room) -> Any:
    """Return a picture, decoded here, so that what goes on is only pixels; else its bytes."""
    from PIL import Image

    data = _bytes(text)
    try:
        image = Image.open(io.BytesIO(data), formats=PICTURES)
        if image.width * image.height > PIXELS_MAX:
            raise ToolError(f"a picture of {image.width} by {image.height} pixels is too large")
        room.take(8 * image.width * image.height)  # as it comes, and as it is passed on
        image.load()
    except TooMuch as error:
        raise ToolError(f"a picture is too large: {error}") from None
    except (OSError, ValueError, SyntaxError):
        return data
    except Image.DecompressionBombError:
        raise ToolError("a picture is too large") from None
    return image.convert("RGBA" if "A" in image.getbands() else "RGB")
