"""What a Jupyter application is told by a kernel: each kind of message, made anew. Pure.

A front end renders what a kernel says with the rights of the person in front of it. So nothing goes
on as it came: for each kind of message in the protocol
(https://jupyter-client.readthedocs.io/en/stable/messaging.html) a function writes a content with
the fields that it knows, each of its type and within a bound. Displays, wherever they stand, are
those of :mod:`kernel_agent.notebook.outputs`. Kinds that have no function here are not passed on:
comms (widgets), the debugger, and whatever comes to be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from kernel_agent.notebook import displayable, notebook_outputs
from kernel_agent.safe import harmless, plain, shorten

Content = dict[str, Any]

MAX_STREAM = 2_000_000  # characters of one message; a server lets pass a million a second
MAX_CODE = 1_000_000
MAX_PROMPT = 10_000
MAX_MATCHES = 5_000
MAX_MATCH = 1_000  # characters; a path may be one
MAX_ITEMS = 10_000  # of the history
WHERE = "it was more than is passed on"
NOT_PASSED = "NotPassedOn"

_VERSION = re.compile(r"[0-9][0-9A-Za-z.+-]{0,40}")
_WORD = re.compile(r"[A-Za-z][\w .+-]{0,60}")
MAX_ID = 200


def passed_on(kind: str, content: Content) -> Content | None:
    """Return the content of a kernel's message as an application gets it; None for none.

    Parameters
    ----------
    kind
        The message's type.
    content
        As the kernel sent it; every field may be anything.

    Examples
    --------
    >>> passed_on("status", {"execution_state": "idle", "more": "<script>"})
    {'execution_state': 'idle'}
    >>> passed_on("comm_open", {"comm_id": "1"}) is None
    True
    """
    made = _MAKERS.get(kind)
    return made(content) if made else None


def refusal(what: str) -> Content:
    """Return a reply that says why there is no other."""
    return {"status": "error", "ename": NOT_PASSED, "evalue": what, "traceback": []}


def left_out(content: Content) -> list[str]:
    """Return the MIME types that a display, as it was passed on, has lost and shows no other of."""
    data, metadata = content.get("data", {}), content.get("metadata", {})
    lost: list[str] = metadata.get("kernel_agent", {}).get("left_out", [])
    return lost if set(data) <= {"text/plain"} else []


# --- on the output channel -----------------------------------------------------------------------


def _status(content: Content) -> Content | None:
    state = content.get("execution_state")
    return {"execution_state": state} if state in ("busy", "idle", "starting") else None


def _stream(content: Content) -> Content:
    name = "stderr" if content.get("name") == "stderr" else "stdout"
    return {"name": name, "text": _text(content.get("text"), MAX_STREAM)}


def _display(content: Content) -> Content:
    shown = displayable({**content, "output_type": "display_data"}, where=WHERE)
    transient = _mapping(content.get("transient"))
    named = {k: v for k in ("display_id",) if (v := _identifier(transient.get(k)))}
    return {**shown, "transient": named}


def _result(content: Content) -> Content:
    return {**_display(content), "execution_count": _count(content.get("execution_count"))}


def _error(content: Content) -> Content:
    (made,) = notebook_outputs([{**content, "output_type": "error"}], where=WHERE)
    return {name: made[name] for name in ("ename", "evalue", "traceback")}


def _input(content: Content) -> Content:
    code = _text(content.get("code"), MAX_CODE)
    return {"code": code, "execution_count": _count(content.get("execution_count"))}


def _clear(content: Content) -> Content:
    return {"wait": content.get("wait") is True}


# --- replies -------------------------------------------------------------------------------------


def _with_status(fill: Callable[[Content], Content]) -> Callable[[Content], Content]:
    """Return a function for replies that are filled when all went well, and else an error."""

    def made(content: Content) -> Content:
        if content.get("status") == "ok":
            return {"status": "ok", **fill(content)}
        status = "aborted" if content.get("status") in ("aborted", "abort") else "error"
        more = fill(content) if "execution_count" in content else {}
        return {"status": status, **more, **_error(content)}

    return made


def _executed(content: Content) -> Content:
    given = content.get("payload")
    payload = [made for p in (given if isinstance(given, list) else []) if (made := _payload(p))]
    expressions = _mapping(content.get("user_expressions"))
    return {
        "execution_count": _count(content.get("execution_count")),
        "payload": payload[:20],
        "user_expressions": {
            name: _expression(_mapping(value))
            for name, value in list(expressions.items())[:1000]
            if len(name) <= MAX_MATCH
        },
    }


def _payload(given: Any) -> Content | None:
    """Return a wish of a cell to the front end: text for the next cell, a page, to end."""
    wish = _mapping(given)
    match wish.get("source"):
        case "set_next_input":
            text = _text(wish.get("text"), MAX_CODE)
            replace = wish.get("replace") is True
            return {"source": "set_next_input", "text": text, "replace": replace}
        case "page":
            data = _page(wish)
            return {"source": "page", "data": data, "start": _count(wish.get("start")) or 0}
        case "ask_exit":
            keep = wish.get("keepkernel") is True
            return {"source": "ask_exit", "keepkernel": keep}
    return None


def _page(wish: Mapping[str, Any]) -> Content:
    """Return what is known of an object; text alone, as it is shown beside the code."""
    shown = displayable({"output_type": "display_data", "data": wish.get("data")}, where=WHERE)
    return {mime: value for mime, value in shown["data"].items() if mime == "text/plain"}


def _expression(value: Mapping[str, Any]) -> Content:
    if value.get("status") != "ok":
        return {"status": "error", **_error(dict(value))}
    return {"status": "ok", **displayable({**value, "output_type": "display_data"}, where=WHERE)}


def _inspected(content: Content) -> Content:
    found = content.get("found") is True
    return {"found": found, "data": _page(content) if found else {}, "metadata": {}}


def _completed(content: Content) -> Content:
    given = content.get("matches")
    matches = [m for m in (given if isinstance(given, list) else []) if _is_match(m)]
    typed = _mapping(content.get("metadata")).get("_jupyter_types_experimental")
    kinds = [made for t in (typed if isinstance(typed, list) else []) if (made := _typed(t))]
    told = {"_jupyter_types_experimental": kinds[:MAX_MATCHES]} if kinds else {}
    return {"matches": matches[:MAX_MATCHES], **_cursor(content), "metadata": told}


def _is_match(value: Any) -> bool:
    """Whether this can stand in a list of completions; some front ends make HTML of those."""
    return (
        isinstance(value, str)
        and len(value) <= MAX_MATCH
        and not set(value) & set("<>&")
        and plain(value) == value
    )


def _typed(given: Any) -> Content | None:
    item = _mapping(given)
    kind, text = item.get("type"), item.get("text")
    if not _is_match(text) or not isinstance(kind, str) or not _WORD.fullmatch(kind):
        return None
    start, end = _count(item.get("start")) or 0, _count(item.get("end")) or 0
    return {"start": start, "end": end, "text": text, "type": kind}


def _cursor(content: Content) -> Content:
    return {name: _count(content.get(name)) or 0 for name in ("cursor_start", "cursor_end")}


def _completeness(content: Content) -> Content:
    """Return whether code is complete: a reply whose status is another than of others."""
    status = content.get("status")
    if status not in ("complete", "incomplete", "invalid"):
        return {"status": "unknown"}
    indent = content.get("indent")
    blank = isinstance(indent, str) and len(indent) <= 1000 and not indent.strip(" \t")
    return {"status": status, "indent": indent if blank else ""}


def _history(content: Content) -> Content:
    given = content.get("history")
    lines = [_entry(item) for item in (given if isinstance(given, list) else [])[:MAX_ITEMS]]
    return {"history": [line for line in lines if line]}


def _entry(item: Any) -> list[Any] | None:
    if not isinstance(item, list) or len(item) != 3:
        return None
    session, line, code = item
    texts = code if isinstance(code, list) else [code]
    if len(texts) > 2 or not all(t is None or isinstance(t, str) for t in texts):
        return None
    kept = [None if text is None else _text(text, MAX_CODE) for text in texts]
    return [_count(session) or 0, _count(line) or 0, kept if isinstance(code, list) else kept[0]]


def _about(content: Content) -> Content:
    """Return what the kernel is.

    The language is not the kernel's to say: applications keep it in the notebook, and import the
    exporter that it names. No links to help: they are opened within the application.
    """
    language = _mapping(content.get("language_info"))
    features = content.get("supported_features")
    known = isinstance(features, list) and "kernel subshells" in features
    return {
        "protocol_version": _version(content.get("protocol_version")) or "5.3",
        "implementation": "ipython",
        "implementation_version": _version(content.get("implementation_version")),
        "language_info": {
            "name": "python",
            "version": _version(language.get("version")),
            "mimetype": "text/x-python",
            "codemirror_mode": {"name": "ipython", "version": 3},
            "pygments_lexer": "ipython3",
            "nbconvert_exporter": "python",
            "file_extension": ".py",
        },
        "banner": plain(_text(content.get("banner"), MAX_PROMPT)),
        "help_links": [],
        "debugger": False,
        "supported_features": ["kernel subshells"] if known else [],
    }


def _ended(content: Content) -> Content:
    return {"restart": content.get("restart") is True}


def _nothing(_: Content) -> Content:
    return {}


def _no_comms(_: Content) -> Content:
    return {"comms": {}}


def _subshell(content: Content) -> Content:
    return {"subshell_id": _identifier(content.get("subshell_id"))}


def _subshells(content: Content) -> Content:
    given = content.get("subshell_id")
    named = [_identifier(i) for i in (given if isinstance(given, list) else [])[:1000]]
    return {"subshell_id": [i for i in named if i]}


# --- questions -----------------------------------------------------------------------------------


def _question(content: Content) -> Content:
    prompt = _text(content.get("prompt"), MAX_PROMPT)
    return {"prompt": prompt, "password": content.get("password") is True}


_MAKERS: Mapping[str, Callable[[Content], Content | None]] = {
    "status": _status,
    "stream": _stream,
    "display_data": _display,
    "update_display_data": _display,
    "execute_result": _result,
    "error": _error,
    "execute_input": _input,
    "clear_output": _clear,
    "input_request": _question,
    "execute_reply": _with_status(_executed),
    "inspect_reply": _with_status(_inspected),
    "complete_reply": _with_status(_completed),
    "is_complete_reply": _completeness,
    "history_reply": _with_status(_history),
    "kernel_info_reply": _with_status(_about),
    "comm_info_reply": _with_status(_no_comms),
    "shutdown_reply": _with_status(_ended),
    "interrupt_reply": _with_status(_nothing),
    "create_subshell_reply": _with_status(_subshell),
    "delete_subshell_reply": _with_status(_nothing),
    "list_subshell_reply": _with_status(_subshells),
}

OUTPUTS = frozenset((
    "status", "stream", "display_data", "update_display_data", "execute_result", "error",
    "execute_input", "clear_output", "shutdown_reply",
))  # fmt: skip
"""The kinds that a kernel sends on its output channel."""


# --- parts ---------------------------------------------------------------------------------------


def _text(value: Any, most: int) -> str:
    return shorten(harmless(value), most, where=WHERE) if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value < 2**53 else None


def _identifier(value: Any) -> str:
    fits = isinstance(value, str) and len(value) <= MAX_ID
    return value if fits and plain(value) == value else ""


def _version(value: Any) -> str:
    return value if isinstance(value, str) and _VERSION.fullmatch(value) else ""


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        return {}
    return {key: item for key, item in value.items() if isinstance(key, str)}
