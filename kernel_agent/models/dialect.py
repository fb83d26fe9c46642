"""One server's dialect, learned from its complaints.

Servers differ in what they know of a request. What one does not know is left out from then on, and
messages are written as it turns out to want them; each is said once. A schema can be asked for in
two notations, and a call in two ways: the first is the protocol's, the second is what other servers
know (llama.cpp's grammar, which serves both). Pure: a complaint comes in, a change goes out.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from typing import Any, Self

from kernel_agent.errors import ModelError
from kernel_agent.formats import Notation
from kernel_agent.models.errors import EndpointError
from kernel_agent.models.request import Need, request_options, without_keywords
from kernel_agent.records import Json, RequestOptions

MAY_MEAN_UNKNOWN = {400, 404, 415, 422, 500, 501}

_OPTIONAL = {
    "stream_options": re.compile(r"stream_options|include_usage"),
    "response_format": re.compile(
        r"response.?(format|schema)|json.?schema|structured.?output|grammar", re.IGNORECASE
    ),
    "tool_choice": re.compile(r"tool_choice"),
    "parallel_tool_calls": re.compile(r"parallel.?tool.?(call|use)", re.IGNORECASE),
    "stop": re.compile(r"['\"`]stop['\"`]"),
    "stream": re.compile(r"to stream\b|['\"`]stream['\"`]|streaming.{0,20}not", re.IGNORECASE),
}
"""Optional fields of a request, and servers' names for them in complaints."""

_MEASURED = {"response_format", "tool_choice"}
"""Fields that a request keeps while it tries out whether the server knows them."""

_WANTED: dict[Need, re.Pattern[str]] = {
    "two roles": re.compile(
        r"system (role|messages?|prompt)s? (is |are )?not (be )?supported|roles must alternate"
        r"|only user(, | and )assistant( and tool)? roles are supported"
        r"|does not support '(system|developer)'|invalid message role: system"
        r"|developer instruction is not enabled",
        re.IGNORECASE,
    ),
    "signatures": re.compile(r"missing a .{0,3}thought_?signature", re.IGNORECASE),
    "reasoning": re.compile(
        r"reasoning_content.{0,60}(missing|must be passed back)"
        r"|(missing|requires).{0,3}reasoning_content",
        re.IGNORECASE,
    ),
    "text": re.compile(
        r"content type: <nil>|content.{0,60}valid string|expected a string, got null"
    ),
}
"""Servers' wordings of their demands on messages."""

_KEYWORD = re.compile(
    r"""Unknown name \\?"(\$?\w+)\\?" at '(?:tools\[|generation_config\.response_schema)"""
)
"""Gemini's complaint, also behind gateways, about a schema that is too rich."""

_NOTES: dict[Need, str] = {
    "two roles": "takes turns of user and assistant only",
    "signatures": "wants a signature on each call",
    "reasoning": "wants reasoning on each reply",
    "text": "wants text beside calls",
}


class Ways:
    """Request fields and notations that a server accepts; each complaint adds to them.

    Parameters
    ----------
    own
        The user's own fields, sent with every request.
    """

    def __init__(self, own: Mapping[str, Json] | None = None) -> None:
        self._own = dict(own or {})
        self.needs: set[Need] = set()
        """The server's demands on messages."""
        self.notations: frozenset[Notation] = frozenset()
        """The further notations in which it is asked."""
        self._left_out: set[str] = set()
        self._keywords: set[str] = set()  # of schemas
        self._measuring = False
        self._took_object = False  # it answered a request in the notation `json_object`

    def measuring(self, notations: Iterable[Notation]) -> Self:
        """Return these ways for requests that try out a notation and give nothing up.

        What is learned beside it is learned here, too.
        """
        ways = copy.copy(self)
        ways._measuring = True  # noqa: SLF001 - it is one of us
        ways.notations = frozenset(notations)
        return ways

    def head(self, options: RequestOptions, *, stream: bool) -> dict[str, Json]:
        """Return the fields of a request beside the model's name and the messages."""
        asked: Any = _in_notations(request_options(options), self.notations)
        if self._keywords:
            asked = without_keywords(asked, self._keywords)
        asked = {**asked, **self._own}
        if stream:
            asked |= {"stream": True, "stream_options": {"include_usage": True}}
        return {name: value for name, value in asked.items() if name not in self._left_out}

    def omits(self, name: str) -> bool:
        """Whether a field is not sent to this server any more."""
        return name in self._left_out

    def note_success(self, options: RequestOptions) -> None:
        """Note that a request with these options was answered."""
        self._took_object |= "json_object" in self.notations and options.response_format is not None

    def give_way(
        self, error: EndpointError, options: RequestOptions, *, streamed: bool
    ) -> str | None:
        """Adapt to a server's complaint and return a note for the user; None where it cannot."""
        if error.status not in MAY_MEAN_UNKNOWN or error.kind is not ModelError:
            return None
        for need, wanted in _WANTED.items():
            if need not in self.needs and wanted.search(error.details):
                self.needs.add(need)
                return f"{_NOTES[need]}: done from now on"
        unknown = set(_KEYWORD.findall(error.details)) - self._keywords
        if unknown and (options.tools or options.response_format):
            self._keywords |= unknown
            return f"does not know {', '.join(sorted(unknown))} in schemas: left out"
        return self._leave_out(error, options, streamed=streamed)

    def _leave_out(
        self, error: EndpointError, options: RequestOptions, *, streamed: bool
    ) -> str | None:
        """Drop the field that the server complains about; None when it is not optional."""
        head = self.head(options, stream=streamed)
        named = (name for name, wording in _OPTIONAL.items() if wording.search(error.details))
        option = next((name for name in named if name in head), None)
        if option is None and "response_format" in head and self._tries_object:
            option = "response_format"  # it may say of the schema there what it likes
        if option is None or (self._measuring and option in _MEASURED):
            return None
        if option == "response_format" and self._may_be_object(head):
            self.notations |= {"json_object"}
            return "does not accept response_format json_schema: asked for as json_object"
        self._left_out |= {option, "stream_options"} if option == "stream" else {option}
        return f"does not accept {option}: left out"

    @property
    def _tries_object(self) -> bool:
        return "json_object" in self.notations and not self._took_object

    def _may_be_object(self, head: Mapping[str, Json]) -> bool:
        """Whether the schema can still be asked for in the other notation."""
        return "json_object" not in self.notations and _schema(head) is not None


def _in_notations(fields: dict[str, Json], notations: frozenset[Notation]) -> dict[str, Json]:
    schema, tools = _schema(fields), fields.get("tools")
    if "json_object" in notations and schema is not None:
        fields["response_format"] = {"type": "json_object", "schema": schema}
    if "forced" in notations and isinstance(tools, list) and len(tools) == 1:
        name = tools[0]["function"]["name"]
        fields.setdefault("tool_choice", {"type": "function", "function": {"name": name}})
    return fields


def _schema(fields: Mapping[str, Any]) -> Json:
    """Return the schema that a request asks for in the protocol's notation; None without one."""
    asked = fields.get("response_format")
    named = asked.get("json_schema") if isinstance(asked, dict) else None
    return named.get("schema") if isinstance(named, dict) else None
