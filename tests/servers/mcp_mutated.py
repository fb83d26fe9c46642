"""An MCP server whose answers were valid once: ``python mcp_mutated.py SEED TALLY``.

:func:`answer` takes what a server may say (lists of tools, results of every kind, errors, progress,
logs, questions) and changes it: any field becomes any value, goes, is repeated, nested or huge;
then the text may be cut, doubled or have bytes flipped. What it makes follows from the seed.

The server sends such an answer and, on a line of its own, a plain one with the same number: a
client that could not read the first one need not wait. ``TALLY`` is a file that holds how many
bytes and how many changed messages were sent.
"""

from __future__ import annotations

import base64
import io
import json
import random
import struct
import sys
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

Json = Any
NUMBERS = (0, 1, -1, 1.5, 2**31, 2**53 + 1, -(2**63), 10**30, 1e308, -1e-308, float("nan"),
           float("inf"), True)  # fmt: skip
TEXTS = ("", "text", "image", "audio", "resource", "resource_link", "result", "content", "2.0",
         "9" * 5000, "-0", "\ud800", "\udfff\ud800", "\0", "\u202e", "x" * 70_000, "é" * 30_000,
         '"""', "a,[{" * 999, "=", "====", "%", "#/$defs/a", "#", "http://[", "array", "1e999",
         "notifications/cancelled", "@digits", "@deep", "@exponent")  # fmt: skip
LITERALS = {"@digits": "7" * 9000, "@deep": "[" * 900 + "]" * 900, "@exponent": "1e99999"}
KEYS = ("content", "isError", "structuredContent", "type", "data", "text", "_meta", "result",
        "error", "id", "method", "params", "mimeType", "$ref", "properties", "required", "enum",
        "default", "anyOf", "nextCursor", "ttlMs", "resultType", "inputRequests")  # fmt: skip
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
RICH = {
    "type": "object",
    "$defs": {"a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/a"}}}},
    "properties": {
        "text": {"type": "string", "default": "x", "description": "Some words.", "maxLength": 9},
        "many": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/a"}]}},
        "one of": {"enum": ["a", "b", 3, None]},
        "class": {"oneOf": [{"const": 1}, {"type": ["number", "null"], "minimum": 0}]},
    },
    "additionalProperties": False,
}


# --- what a server may say -----------------------------------------------------------------------


def _png(width: int, height: int, rows: bytes = b"") -> bytes:
    """Return a picture that says how large it is, whatever it holds."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checked

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packed = zlib.compress(rows or bytes(1000), 9)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


@cache
def pictures() -> tuple[bytes, ...]:
    """Return pictures in formats that are read and in some that are not."""
    from PIL import Image

    made = [_png(30, 20), _png(60_000, 60_000), _png(2**31 - 1, 1), b"<svg/>", b"\xff\xd8\xff"]
    made.append(_png(2_600, 2_600, bytes((3 * 2_600 + 1) * 2_600)))
    for mode in ("RGB", "RGBA", "P", "L", "1", "CMYK", "I;16", "LA"):
        picture = Image.new(mode, (40, 30))
        for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM"):
            out = io.BytesIO()
            more = {"save_all": True, "append_images": [picture] * 3} if kind == "GIF" else {}
            try:
                picture.save(out, kind, **more)
            except (OSError, ValueError):
                continue
            made.append(out.getvalue())
    return tuple(made)


def results(dice: random.Random) -> Json:
    """Return the valid result of a call."""

    def encoded() -> str:
        return base64.b64encode(_hurt(dice.choice(pictures()), dice)).decode()

    pieces = [
        {"type": "text", "text": "said"},
        {"type": "image", "mimeType": "image/png", "data": encoded()},
        {"type": "audio", "mimeType": "audio/wav", "data": base64.b64encode(bytes(900)).decode()},
        {"type": "resource", "resource": {"uri": "x://y", "blob": "AAE=", "mimeType": "a/b"}},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
        {"type": "resource_link", "name": "n", "uri": "https://example.org/a", "size": 3,
         "annotations": {"audience": ["user"], "priority": 0.5}},
    ]  # fmt: skip
    content = [dice.choice(pieces) for _ in range(dice.choice((0, 1, 1, 2, 5)))]
    result: Json = {"content": content}
    if dice.random() < 0.3:
        result["structuredContent"] = dice.choice(
            ({"result": [1, 2.5, None]}, {"a": {"b": ["c"] * 5}}, {"content": content})
        )
    if dice.random() < 0.2:
        result["isError"] = dice.random() < 0.8
    return result


def lists(dice: random.Random) -> Json:
    """Return a valid page of tools."""
    tools = [
        {"name": name, "description": "Does it.", "inputSchema": schema, "title": "T",
         "annotations": {"readOnlyHint": True},
         "outputSchema": {"type": "object", "properties": {"result": {"type": "array"}}}}
        for name, schema in (("echo", TEXT), ("rich", RICH), ("bare", {"type": "object"}))
    ]  # fmt: skip
    page: Json = {"tools": dice.sample(tools, dice.choice((1, 2, 3)))}
    return page | ({"nextCursor": "2"} if dice.random() < 0.1 else {})


def told(number: int, dice: random.Random) -> Json:
    """Return a valid message that answers nothing."""
    ask = {"messages": [{"role": "user", "content": {"type": "text", "text": "?"}}], "maxTokens": 9}
    said: list[tuple[str, Json]] = [
        ("notifications/progress", {"progressToken": number, "progress": 1, "total": 2}),
        ("notifications/message", {"level": "error", "logger": "l", "data": {"a": [1]}}),
        ("notifications/tools/list_changed", {}),
        ("notifications/resources/updated", {"uri": "x://y"}),
        ("notifications/cancelled", {"requestId": number, "reason": "no"}),
        ("ping", {}),
        ("roots/list", {}),
        ("sampling/createMessage", ask),
        ("elicitation/create", {"message": "Key?", "requestedSchema": TEXT}),
    ]
    method, params = dice.choice(said)
    asked = {} if method.startswith("n") else {"id": dice.choice((1, number, "a"))}
    return {"jsonrpc": "2.0", **asked, "method": method, "params": params}


def welcome() -> Json:
    """Return the valid answer to the handshake."""
    return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "s", "version": "1"}, "instructions": "Words."}  # fmt: skip


# --- what is changed -----------------------------------------------------------------------------


def mutated(value: Json, dice: random.Random, depth: int = 0) -> Json:
    """Return a value with something changed in it, somewhere."""
    if depth > 8 or not isinstance(value, (dict, list)) or not value or dice.random() < 0.12:
        return _other(value, dice)
    if isinstance(value, list):
        place = dice.randrange(len(value))
        changed = [*value[:place], mutated(value[place], dice, depth + 1), *value[place + 1 :]]
        return changed * dice.choice((*[1] * 30, 60, 60, 1200))
    key = dice.choice(list(value))
    match dice.randrange(8):
        case 0:
            return {name: value[name] for name in value if name != key}
        case 1:
            return value | {dice.choice(KEYS): _other(value[key], dice)}
        case 2:
            return value | {dice.choice(TEXTS): value[key]}
    return value | {key: mutated(value[key], dice, depth + 1)}


def _other(value: Json, dice: random.Random) -> Json:
    if isinstance(value, str) and len(value) > 40 and dice.random() < 0.6:
        return _hurt(value.encode("utf-8", "replace"), dice).decode("latin-1")
    makers: list[Callable[[], Json]] = [
        lambda: dice.choice(NUMBERS), lambda: dice.choice(TEXTS), lambda: dice.choice(TEXTS),
        lambda: None, list, dict, lambda: [value], lambda: {dice.choice(KEYS): value},
        lambda: [value] * 40, lambda: [dice.choice(NUMBERS)] * 3000, lambda: nested(value, dice),
        lambda: {f"{dice.choice(KEYS)}{n}": value for n in range(70)},
        lambda: {str(n): n for n in range(5000)},
        lambda: "y" * dice.choice((10, 100, 200_000, 1_500_000)),
        lambda: base64.b64encode(dice.choice(pictures())).decode(),
    ]  # fmt: skip
    return dice.choice(makers)()


def nested(value: Json, dice: random.Random) -> Json:
    """Return a value many levels down."""
    for _ in range(dice.choice((3, 30, 150))):
        value = [value] if dice.random() < 0.5 else {dice.choice(KEYS): value}
    return value


def _hurt(data: bytes, dice: random.Random) -> bytes:
    """Flip, overwrite, cut or repeat bytes, most of the time."""
    changed = bytearray(data)
    for _ in range(dice.choice((0, 1, 1, 4))):
        if not changed:
            break
        at = dice.randrange(len(changed))
        match dice.randrange(4):
            case 0:
                changed[at] ^= 1 << dice.randrange(8)
            case 1:
                changed[at : at + 4] = dice.choice((b"\xff\xff\xff\x7f", b"\0\0\x40\0", b"\0" * 4))
            case 2:
                del changed[at : at + dice.randrange(1, 60)]
            case _:
                changed[at:at] = changed[at : at + 200] * dice.choice((1, 1, 100))
    return bytes(changed)


def written(message: Json, dice: random.Random) -> bytes:
    """Return a message as it is sent, without the end of its line."""
    text = json.dumps(message)
    for name, literal in LITERALS.items():
        text = text.replace(f'"{name}"', literal)
    if dice.random() < 0.03:  # a field twice
        text = text.replace("{", f'{{"{dice.choice(KEYS)}": "x", ', 3)
    if dice.random() < 0.02:
        text = text[: dice.randrange(len(text))] + dice.choice(("", "[" * 5000, "9" * 9000, "\n{"))
    data = text.encode()
    return _hurt(data, dice) if dice.random() < 0.05 else data


def answer(number: int, result: Json, dice: random.Random) -> list[bytes]:
    """Return the lines that take the place of an answer: one, or more, or somebody else's."""
    message: Json = {"jsonrpc": "2.0", "id": number, "result": result}
    if dice.random() < 0.1:
        wrong = {"code": -32602, "message": "Unknown tool", "data": {"a": [1]}}
        message = {"jsonrpc": "2.0", "id": number, "error": wrong}
    if dice.random() < 0.15:
        message = told(number, dice)
    if dice.random() < 0.08:
        message["id"] = dice.choice((number - 1, -number, str(number), 10**30, None, *TEXTS))
    elif "result" in message and dice.random() < 0.85:
        message["result"] = mutated(message["result"], dice)
    elif dice.random() < 0.9:
        message = mutated(message, dice)
    return [written(message, dice)] * dice.choice((1, 1, 1, 1, 1, 1, 3))


# --- the server ----------------------------------------------------------------------------------


class Sender:
    """Writes lines, and how much it wrote."""

    def __init__(self, tally: Path) -> None:
        self._tally = tally
        self._bytes = self._changed = 0

    def send(self, line: bytes, *, changed: bool = False, end: bytes = b"\n") -> None:
        self._bytes += len(line)
        self._changed += changed
        self._tally.write_text(f"{self._bytes} {self._changed}")  # before somebody can ask
        sys.stdout.buffer.write(line + end)
        sys.stdout.buffer.flush()


def serve(seed: int, tally: Path) -> None:
    """Answer until the input ends."""
    dice, sender = random.Random(seed), Sender(tally)
    odd_start, odd_lists = dice.random() < 0.1, dice.random() < 0.4
    for line in sys.stdin:
        request = json.loads(line)
        number, method = request.get("id"), request.get("method")
        if number is None or method is None:
            continue
        made = {"initialize": welcome(), "tools/list": lists(dice)}.get(method, {"content": []})
        if method == "tools/call":
            changed = answer(number, results(dice), dice)
        elif method == "initialize":
            changed = answer(number, made, dice) if odd_start else []
        else:
            changed = answer(number, made, dice) if odd_lists else []
        for part in changed:
            sender.send(part, changed=True, end=b"" if dice.random() < 0.003 else b"\n")
        if method == "tools/call" and dice.random() < 0.003:
            sender.send(b"z" * 33_000_000, changed=True)
        if method == "tools/call" and dice.random() < 0.005:
            sys.exit(3)
        plain = {"jsonrpc": "2.0", "id": number, "result": made | {"nextCursor": None}}
        if method != "tools/list":
            del plain["result"]["nextCursor"]
        sender.send(json.dumps(plain).encode())


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]))
