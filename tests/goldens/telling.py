"""Tells what a session left and showed as briefly as a person would want to read it.

A view is a list of items, each a head (what it is) and a body (its words). An item whose words fit
stands on one line. **A line is told once**: what stands in the same view of the session ``fenced``,
or further up in the file, is only counted (``⋮3``). So a changed word changes the lines that have
it, and a line that is missing changes a count.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass
from html.parser import HTMLParser
from itertools import groupby
from typing import Any

from goldens.normal import normal
from kernel_agent import Config
from kernel_agent.records import Message, RequestOptions, RunStart, Step
from kernel_agent.records.codec import from_json

Item = tuple[str, str]
COLOUR = re.compile(r"\x1b\[[\d;]*m")

WIDE = 72
"""A text up to this length stands beside its head."""
HEAD = 24
"""A line up to this length that is no body says what follows: it is always told."""
AGAIN = {"panel, opened": "panel"}
"""A view that says again what another does: only what differs is told."""
LINES = 60
"""Of a longer text, its ends are told, and a digest of what is between."""


def shown(views: Mapping[str, Sequence[Item]], standing: Mapping[str, set[str]]) -> str:
    """Return a session's file; ``standing`` has the lines of each view that are told elsewhere."""
    above: set[str] = set()
    told: list[str] = []
    for view, items in views.items():
        told.append(f"=== {view}")
        known = standing.get(view, set())
        if view in AGAIN:
            known = known | lines_of(views[AGAIN[view]], shortest=0)
        told.extend(_counted(items, known, above))
    return "\n".join(told) + "\n"


def lines_of(items: Iterable[Item], shortest: int = HEAD) -> set[str]:
    """Return the lines of a view as they are compared: those that say something."""
    lines = {line for head, body in items for line in _whole(head, body)}
    return {line.strip() for line in lines if line.startswith("    ") or len(line) > shortest}


def _counted(items: Iterable[Item], standing: set[str], above: set[str]) -> list[str]:
    """Return the lines that are new, each with the number of known ones that follow it."""
    lines: list[tuple[str, bool]] = []
    for head, body in items:
        for line in _whole(head, body):
            bare = line.strip()
            known = bare in standing or (line.startswith("    ") and bare in above)
            lines.append((line, known if bare else bool(lines) and lines[-1][1]))
            above.add(bare)
        above.add(body.strip())
    told: list[str] = []
    for known, group in groupby(lines, lambda line: line[1]):
        if not known:
            told.extend(line for line, _ in group)
        elif told:
            told[-1] += f" ⋮{sum(1 for _ in group)}"
        else:
            told.append(f"  ⋮{sum(1 for _ in group)}")
    return told


def _whole(head: str, body: str) -> list[str]:
    body = body.rstrip("\n")
    if "\n" not in body and len(body) <= WIDE:
        return [f"{head} {body}".rstrip()]
    lines = body.split("\n")
    if len(lines) > LINES + 6:
        ends, between = LINES // 2, "\n".join(lines[LINES // 2 : -LINES // 2])
        lines = [*lines[:ends], f"… {_digest(between)}", *lines[-ends:]]
    return [head, *(f"    {_cut(line)}".rstrip() for line in lines)]


def _cut(line: str, most: int = 600) -> str:
    half = most // 2
    if len(line) <= most:
        return line
    return f"{line[:half]}…{_digest(line[half:-half])}…{line[-half:]}"


def _digest(text: str) -> str:
    return f"{len(text)} characters {hashlib.sha256(text.encode(errors='replace')).hexdigest()[:8]}"


# --- values --------------------------------------------------------------------------------------


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what is in a value by path, without a record's defaults; what is short is one."""
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            part = getattr(value, field.name)
            if part != _default(field):
                yield from flat(part, f"{path}.{field.name}".lstrip("."))
    elif path.endswith("traceback"):
        yield path, COLOUR.sub("", "\n".join(value))
    elif path.endswith("text/html"):
        yield path, "\n".join(f"{head} {body}" for head, body in Outline("".join(value)).items)
    elif isinstance(value, dict) and not (path and _short(value)):
        for name, part in value.items():
            yield from flat(part, f"{path}.{name}".lstrip("."))
    elif isinstance(value, (list, tuple)) and not _short(value):
        for number, part in enumerate(value):
            yield from flat(part, f"{path}.{number}".lstrip("."))
    elif value not in ({}, [], ()):
        yield path, value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _short(value: Any) -> bool:
    """Return whether a list or an object is read best as one."""
    if isinstance(value, (list, tuple)):
        return all(_short(part) for part in value)
    text, most = _text(value), 40 if isinstance(value, dict) else WIDE
    return not is_dataclass(value) and len(text) <= most and "\n" not in text


def _default(field: Any) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def item(head: str, pairs: Iterable[tuple[str, Any]]) -> Iterator[Item]:
    """Yield a record's line with what is short, and an item for each text that is not."""
    short, long = [], []
    for path, value in pairs:
        text = normal(_text(value))
        if len(text) > WIDE or "\n" in text:
            long.append((f"  {path}", text))
        else:
            short.append(normal(f"{path}={text}"))
    yield from ((line, "") for line in wrapped(head, short))
    yield from long


def wrapped(head: str, words: Iterable[str]) -> Iterator[str]:
    """Yield lines of a head and as many words as fit, and of the words that follow."""
    line = head
    for word in words:
        if len(line) + len(word) > 108:
            yield line
            line = " "
        line = f"{line} · {word}"
    yield line


# --- views ---------------------------------------------------------------------------------------


def asked(requests: Sequence[tuple[tuple[Message, ...], RequestOptions]]) -> Iterator[Item]:
    """Yield what each request to the model has that the one before it has not."""
    before: tuple[Message, ...] = ()
    options: list[tuple[str, Any]] = []
    for number, (messages, given) in enumerate(requests, 1):
        same = next((n for n, (a, b) in enumerate(zip(before, messages, strict=False)) if a != b),
                    min(len(before), len(messages)))  # fmt: skip
        told = [*flat(given)]
        cut = f", the first {same} messages as before" if same < len(before) else ""
        yield from item(f"request {number}{cut}", told if told != options else ())
        before, options = messages, told
        for message in messages[same:]:
            rest = {k: v for k, v in asdict(message).items() if v and k not in ("role", "content")}
            yield f"- {message.role}", normal(message.content)
            if rest:
                yield from item("- with", flat(rest))


USUAL = re.compile(
    r"(?:.*\.)?(?:time|seconds|model_seconds|cell_seconds|prompt_tokens|tokens|run_id|versions|texts|holds)(?:\.|$)"
)
"""What is in every record, and differs each time."""


def trace(lines: str) -> Iterator[Item]:
    """Yield each record's fields that are not its defaults; of later runs, what is new in them."""
    config = json.loads(_text(asdict(Config())))
    before = {f"config.{name}": value for name, value in config.items()}
    for line in lines.splitlines():
        record = from_json(json.loads(line))
        pairs = {path: value for path, value in flat(record) if not USUAL.match(path)}
        if isinstance(record, Step):
            again: tuple[str, ...] = ("decision.", "usage.", "action.thought")
        else:
            again = ("",) if isinstance(record, RunStart) else ("usage.",)
        new = [(path, value) for path, value in pairs.items()
               if not path.startswith(again) or before.get(path, ...) != value]  # fmt: skip
        before |= pairs
        yield from item(type(record).__name__, new)


def notebook(text: str) -> Iterator[Item]:
    """Yield each cell with its role, what folds it, its source and its outputs."""
    book = json.loads(text)
    for made in book["cells"]:
        about = made["metadata"]
        told = about["kernel_agent"]
        words = [made["cell_type"], *(f"{k} {v}" for k, v in told.items()),
                 *(about.get("jupyter") or ()), *about.get("tags", ())]  # fmt: skip
        yield normal(", ".join(words)), normal("".join(made["source"]))
        for output in made.get("outputs", ()):
            yield from _output(output)
    about = book["metadata"]["kernel_agent"]
    yield from item("metadata", ((k, v) for k, v in flat(about) if not USUAL.match(k)))


def _output(output: dict[str, Any]) -> Iterator[Item]:
    kind = output["output_type"]
    if kind == "stream":
        yield f"  {output['name']}", normal("".join(output["text"]))
    elif kind == "error":
        words = [output["evalue"], *output["traceback"]]
        yield f"  error {output['ename']}", normal("\n".join(words))
    for mime, data in output.get("data", {}).items():
        text = "".join(data) if isinstance(data, list) else _text(data)
        if mime == "text/html":
            yield f"  {kind} {mime}", ""
            yield from (("    " + head, body) for head, body in Outline(text).items)
        else:
            yield f"  {kind} {mime}", normal(text)
    if more := output.get("metadata"):
        yield from item("  with", flat(more))


BLOCKS = {
    "html", "head", "title", "style", "script", "body", "div", "p", "h1", "h2", "h3", "h4",
    "details", "summary", "ul", "ol", "li", "pre", "table", "tr",
}  # fmt: skip
WITHIN = {"span", "code", "thead", "tbody", "td", "th"}
"""Elements that say nothing that a person would read."""


class Outline(HTMLParser):
    """The words of a page, with a line for each block, and the styles that it uses."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=False)
        self.items: list[Item] = []
        self.styles: set[str] = set()
        self._head, self._text = "", ""
        self.feed(page)
        self.close()
        self._flush()

    def _flush(self) -> None:
        if self._text.strip():
            self.items.append((self._head, normal(self._text.strip("\n"))))
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        style = dict(attrs).get("style")
        if style:
            self.styles.add(f"{tag} {style}")
        rest = " ".join(k if v is None else f"{k}={v}" for k, v in attrs if k != "style")
        if tag in BLOCKS:
            self._flush()
            self._head = f"{tag} {rest}".strip()
            if rest and tag != "pre":
                self.items.append((normal(self._head), ""))
                self._head = tag
        elif tag in ("td", "th"):
            self._text += " | " if self._text else ""
            self._text += f"<{rest}>" if rest else ""
        elif tag not in WITHIN or rest:
            self._text += f"<{tag} {rest}>" if rest else f"<{tag}>"

    def handle_endtag(self, tag: str) -> None:
        if tag in BLOCKS:
            self._flush()
        elif tag not in WITHIN:
            self._text += f"</{tag}>"

    def handle_data(self, data: str) -> None:
        if self._head in ("style", "script"):
            data = f"sha256 {hashlib.sha256(data.encode()).hexdigest()[:16]}"
        self._text += data if self._head.startswith("pre") else data.replace("\n", " ")

    def handle_entityref(self, name: str) -> None:
        self._text += f"&{name};"

    def handle_charref(self, name: str) -> None:
        self._text += f"&#{name};"

    def handle_decl(self, decl: str) -> None:
        self._text += f"<!{decl}>"

    def handle_comment(self, data: str) -> None:
        self._text += f"<!--{data}-->"


def notes(told: Sequence[dict[str, Any]]) -> Iterator[Item]:
    """Yield each note of the panel: what the note of its kind before has not."""
    before: dict[str, dict[str, Any]] = {}
    for note in told:
        kind = note["op"]
        pairs = dict(flat({k: v for k, v in note.items() if k != "op" and not USUAL.match(k)}))
        last = before.get(kind, {}) if kind in ("spent", "run", "step") else {}
        yield from item(kind, ((k, v) for k, v in pairs.items() if last.get(k, ...) != v))
        before[kind] = pairs


def plain(text: str) -> Iterator[Item]:
    """Yield the lines of what a terminal shows."""
    return ((f"    {line}".rstrip(), "") for line in normal(text).splitlines())
