"""Plays the scripted sessions and returns all that they leave and show, as texts by file name."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernel_agent_extension.messages import Scene
from kernel_agent_extension.panel import Panel
from servers.openai_server import FAULTS, Behaviour, OpenAIServer, Writer, error
from servers.openai_server import text as said_in_text

from goldens.normal import normal
from goldens.sessions import CASES, Case, calls, cell, envelope, prepare
from kernel_agent import ScriptedModel, Session
from kernel_agent.__main__ import main
from kernel_agent.errors import KernelAgentError
from kernel_agent.records import Event, Message, Question, Reply, RequestOptions, to_json

AT_ONCE = 3


class Recording(ScriptedModel):
    """A scripted model that keeps everything that it was sent."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.asked: list[tuple[tuple[Message, ...], RequestOptions]] = []

    async def complete(
        self,
        messages: Sequence[Message],
        options: RequestOptions,
        on_event: Callable[[Event], None],
    ) -> Reply:
        self.asked.append((tuple(messages), options))
        return await super().complete(messages, options, on_event)


def sessions(folder: Path) -> dict[str, str]:
    """Play every case in a folder, which is the working directory; return the recordings."""
    return chosen(CASES)(folder) | {"sessions/wire.txt": normal(asyncio.run(wire()), folder)}


def chosen(names: Iterable[str]) -> Callable[[Path], dict[str, str]]:
    """Return what plays some of the cases."""
    return lambda folder: _chosen(folder, {name: CASES[name] for name in names})


def _chosen(folder: Path, cases: dict[str, Case]) -> dict[str, str]:
    prepare(folder)
    told = asyncio.run(_all(cases))
    texts = {}
    for name, (log, events, asked) in told.items():
        out = folder / name
        kept = {
            "session.txt": log,
            "messages.txt": requests(asked),
            "panel.txt": panel(events, out),
        }
        if (out / "trace.jsonl").exists():
            kept |= left(out, name)
        runs = _runs(out)
        for file, shown in kept.items():
            texts[f"sessions/{name}/{file}"] = normal(_numbered(shown, runs), folder)
    return texts


def _numbered(text: str, runs: Sequence[str]) -> str:
    for number, run_id in enumerate(runs, 1):
        text = text.replace(run_id, f"<run {number}>")
    return text


def _runs(out: Path) -> list[str]:
    """Return the identifiers of a session's runs and of those beneath them, as they appear."""
    traces = [out / "trace.jsonl", *sorted(out.rglob("*/trace.jsonl"))]
    text = "".join(path.read_text() for path in traces if path.exists())
    return list(dict.fromkeys(re.findall(r'"run_id": "([0-9a-f]{12})"', text)))


async def _all(cases: dict[str, Case]) -> dict[str, tuple[str, list[Event], list[Any]]]:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(name: str, case: Case) -> Any:
        async with room:
            return await _play(name, case)

    told = await asyncio.gather(*(one(name, case) for name, case in cases.items()))
    return dict(zip(cases, told, strict=True))


async def _play(name: str, case: Case) -> tuple[str, list[Event], list[Any]]:
    lines: list[str] = []
    events: list[Event] = []
    options = {"sandbox": "none", "format": "fenced", "out": name, **case.options}
    if "approver" in options:
        options["approver"] = options["approver"]()
    model = Recording(list(case.replies), **case.model)
    try:
        async with Session(model=model, on_event=events.append, **options) as session:
            lines.append(f"{session.sandbox} {session.model_name} {session.files}")
            if case.script is not None:
                await case.script(session, lambda said: lines.append(str(said)))
            else:
                for task in case.tasks:
                    lines.extend(_result(await session.run(task)))
    except KernelAgentError as error:
        lines.append(f"{type(error).__name__}: {error}")
    lines.append("--- events")
    lines.extend(_happened(events))
    if Path(name).exists():
        lines.append("--- files")
        lines.extend(sorted(str(path.relative_to(name)) for path in Path(name).rglob("*")))
    return "\n".join(lines) + "\n", events, model.asked


def _result(run: Any) -> list[str]:
    fields = {
        name: getattr(run, name)
        for name in ("task", "status", "answer", "text", "partial", "message", "usage", "trace",
                     "notebook", "sandbox", "files", "obeyed")
    }  # fmt: skip
    return ["--- run", *(f"{name}: {value}" for name, value in fields.items()),
            f"exit code: {run.status.exit_code}", f"steps: {[s.number for s in run.steps]}",
            f"agents: {run.agents}"]  # fmt: skip


def _happened(events: Sequence[Event]) -> list[str]:
    """Name what was told, in order; the pieces of a stream come as they come."""
    said: list[str] = []
    for event in events:
        kind = type(event).__name__
        if kind in ("Notice", "Question"):
            said.append(f"{kind}: {to_json(event)}")
        elif not (said and said[-1] == kind and kind in ("Output", "ReplyText")):
            said.append(kind)
    return said


# --- what was sent to the model ------------------------------------------------------------------


def requests(asked: Sequence[tuple[tuple[Message, ...], RequestOptions]]) -> str:
    """Return each request: the messages that are as in the one before it only by their number."""
    lines: list[str] = []
    before: tuple[Message, ...] = ()
    options = ""
    for number, (messages, given) in enumerate(asked, 1):
        same = next((n for n, (a, b) in enumerate(zip(before, messages, strict=False)) if a != b),
                    min(len(before), len(messages)))  # fmt: skip
        lines.append(f"=== request {number}: {len(messages)} messages, the first {same} as before")
        if (told := json.dumps(_plain(given), ensure_ascii=False, indent=1)) != options:
            lines.append(f"options: {told}")
        before, options = messages, told
        for message in messages[same:]:
            rest = {k: v for k, v in _plain(message).items() if v and k not in ("role", "content")}
            lines.append(
                f"--- {message.role} {json.dumps(rest, ensure_ascii=False) if rest else ''}"
            )
            lines.append(message.content)
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> dict[str, Any]:
    return json.loads(json.dumps(asdict(value), default=str, ensure_ascii=False))


# --- what is left and shown ----------------------------------------------------------------------


def left(out: Path, name: str) -> dict[str, str]:
    """Return the trace, the notebook, and the run as it is shown afterwards."""
    kept = {"trace.txt": trace_text((out / "trace.jsonl").read_text(encoding="utf-8"))}
    for path in sorted(out.rglob("*/trace.jsonl")):
        if path.parent != out:  # of the runs beneath
            kept["trace.txt"] += f"##### {path}\n" + trace_text(path.read_text(encoding="utf-8"))
    if (out / "run.ipynb").exists():
        kept["run.ipynb.txt"] = (out / "run.ipynb").read_text(encoding="utf-8")
    kept["show.txt"] = command("show", name)
    kept["page.txt"] = command("show", name, "--html", "-o", f"{name}.html")
    page = out.with_suffix(".html")
    if page.exists():
        kept["page.txt"] += page_text(page.read_text(encoding="utf-8"))
    return kept


def page_text(page: str) -> str:
    """Return a page with an element a line, and its style sheet by its digest."""
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style
    digest = hashlib.sha256(style.group(1).encode()).hexdigest()[:16]
    return page.replace(style.group(1), f"sha256 {digest}…").replace("><", ">\n<")


def trace_text(lines: str) -> str:
    """Return a trace with its records spread over lines, and whether it was written as always."""
    shown = []
    before: dict[str, str] = {}
    for line in lines.splitlines():
        record = json.loads(line)
        if line != json.dumps(record, ensure_ascii=False):
            shown.append(f"--- not written as json.dumps writes it: {line[:200]}")
        if isinstance(record.get("versions"), dict):
            record["versions"] = sorted(
                set(record["versions"]) & {"python", "kernel-agent", "ipykernel"}
            )
        for name in ("system_prompt", "config"):
            told = json.dumps(record.get(name))
            if name in record and told == before.get(name):
                record[name] = "as in the run before"
            elif name in record:
                before[name] = told
        shown.append(json.dumps(record, ensure_ascii=False, indent=1))
    return "\n".join(shown) + "\n"


def command(*arguments: str) -> str:
    """Run the command in this process, and return what it printed and its exit code."""
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["kernel-agent", *arguments]
    code: object = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.argv = before
    said = f"--- stderr\n{err.getvalue()}--- stdout\n{out.getvalue()}"
    return f"$ kernel-agent {shlex.join(arguments)}\nexit code {code}\n{said}"


# --- the panel -----------------------------------------------------------------------------------


class Page:
    """A page as the panel knows it."""

    model_id = "m"
    shows_page = False

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.says: Callable[[Any], None] = lambda _said: None

    def __call__(self, heard: Callable[[Any], None]) -> Page:
        self.says = heard
        return self

    def send(self, message: dict[str, Any]) -> None:
        self.messages.append(message)

    def close(self) -> None:
        pass


def panel(events: Sequence[Event], out: Path) -> str:
    """Return the notes of each event, and what a page that is opened at the end is told."""
    scene = Scene(task="asked", level="auto", clock=lambda: 100.0)
    notes: list[dict[str, Any]] = []
    for number, event in enumerate(events):
        if isinstance(event, Question):
            said = [*scene.ask(number, event), *scene.close_question(number, None)]
        else:
            said = scene.tell(event)
        for note in said:
            if notes and (merged := _one(notes[-1], note)):
                notes[-1] = merged
            else:
                notes.append(note)
    shown: list[dict[str, Any]] = []
    front = Page()
    whole = Panel(
        task="asked", sandbox="auto", notebook=out / "run.ipynb",
        publish=lambda bundle, _id, **more: shown.append({**bundle, **more}),
    )  # fmt: skip
    whole.open(front)
    for event in events:
        whole(event)
    whole.note("a note")
    front.says({"do": "hello", "view": "v"})
    while not any("for" in message for message in list(front.messages)):
        pass
    whole.finish("<b>over</b>", "over")
    (opened,) = [m for m in front.messages if "for" in m]
    opened = {k: v for k, v in opened.items() if k != "n"}
    blocks = [*notes, {"opened": opened}, {"published": shown}]
    return "\n".join(json.dumps(b, ensure_ascii=False, indent=1) for b in blocks) + "\n"


def _one(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any] | None:
    """Return two pieces of one text together: where it is cut depends on the time."""
    if a["op"] != b["op"] or a["op"] not in ("out", "text"):
        return None
    if not ("text" in a and "text" in b):
        return None
    if {k: v for k, v in a.items() if k != "text"} != {k: v for k, v in b.items() if k != "text"}:
        return None
    return {**a, "text": a["text"] + b["text"]}


# --- what goes over the wire ---------------------------------------------------------------------


def called(name: str, **arguments: Any) -> Behaviour:
    return said_in_text(None, tool_calls=calls((name, arguments))["tool_calls"])


WIRED: dict[str, tuple[str, list[Any]]] = {
    "fenced": ("fenced", [said_in_text(cell("x = 6\nx")), said_in_text(cell("final_answer(x)"))]),
    "envelope": ("envelope", [said_in_text(envelope("final_answer(1)"))]),
    "tool": ("tool", [called("python", code="final_answer(1)")]),
    "json": ("json", [called("final_answer", answer=1)]),
    "refused": ("fenced", [FAULTS["401"]()]),
    "missing": ("fenced", [FAULTS["404"]()]),
    "bad": ("fenced", [error(400, "No.")]),
}  # fmt: skip


async def wire() -> str:
    """Return the requests of sessions whose model is an endpoint, as they arrive there."""
    blocks = []
    for name, (fmt, behaviours) in WIRED.items():
        blocks.append(f"##### {name}\n" + await _wired(name, fmt, OpenAIServer(behaviours)))
    for name, way in {
        "auto": {},
        "auto_ignored": {"tools": "ignored", "schema": "refused"},
    }.items():
        writer = Writer(cells=["x = 6", "final_answer(x * 7)"], **way)
        blocks.append(f"##### {name}\n" + await _wired(name, "auto", OpenAIServer(writer)))
    return "\n".join(blocks)


async def _wired(name: str, fmt: str, endpoint: OpenAIServer) -> str:
    told: list[Event] = []
    with endpoint as server:
        async with Session(
            model="some-model", base_url=server.url, format=fmt, sandbox="none", out=f"wire_{name}",
            on_event=told.append,
        ) as session:  # fmt: skip
            run = await session.run("What is it?")
    said = [
        json.dumps({"path": r.path, **r.body}, indent=1, ensure_ascii=False)
        for r in server.requests
    ]
    return "\n".join([*said, *_result(run), *_happened(told)]) + "\n"
