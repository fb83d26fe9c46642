"""Plays the scripted sessions and returns all that they leave and show, as texts by file name."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kernel_agent_extension.messages import Scene
from kernel_agent_extension.panel import Panel
from servers.openai_server import FAULTS, Behaviour, OpenAIServer, Writer, error
from servers.openai_server import text as said_in_text
from support.replies import cell
from support.waiting import DEADLINE_S

from goldens import telling
from goldens.normal import normal
from goldens.sessions import CASES, Case, calls, envelope, prepare
from goldens.shared import Shared
from goldens.telling import Item
from kernel_agent import ScriptedModel, Session
from kernel_agent.__main__ import main
from kernel_agent.errors import KernelAgentError
from kernel_agent.records import Event, Message, Notice, Question, Reply, RequestOptions

AT_ONCE = 3
RESULT = (
    "task", "status", "answer", "text", "partial", "message", "trace", "notebook",
    "sandbox", "files", "obeyed", "agents",
)  # fmt: skip
"""Of a run, what is told of each."""


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
    shared = Shared()
    texts = _chosen(folder, CASES, shared)
    wired = telling.shown({"wire": asyncio.run(_wire())}, {})
    return texts | {
        "sessions/wire.txt": normal(wired, folder),
        "sessions/shared.txt": shared.text(),
    }


def chosen(names: Iterable[str]) -> Callable[[Path], dict[str, str]]:
    """Return what plays some of the cases, of which the first is ``fenced``."""
    return lambda folder: _chosen(folder, {name: CASES[name] for name in names}, Shared())


def _chosen(folder: Path, cases: dict[str, Case], shared: Shared) -> dict[str, str]:
    prepare(folder)
    standing: dict[str, set[str]] = {}
    texts = {}
    for name, (log, events, requests) in asyncio.run(_all(cases)).items():
        views = {
            view: [(_named(head, folder, name), _named(body, folder, name)) for head, body in items]
            for view, items in _views(name, log, events, requests, shared).items()
        }
        told = telling.shown(views, standing)
        standing = standing or {view: telling.lines_of(items) for view, items in views.items()}
        texts[f"sessions/{name}.txt"] = f"{name}: {cases[name].why}\n\n{told}"
    return texts


def _named(text: str, folder: Path, name: str) -> str:
    """Return a text with the same name for each run, and for its folder."""
    for number, run_id in enumerate(_runs(folder / name), 1):
        text = text.replace(run_id, f"<run {number}>")
    text = text.replace(str(folder / name), "<out>").replace(str(folder), "<folder>")
    return re.sub(rf"\b{name}(?=/|\.html)", "<out>", text)


def _views(
    name: str, log: str, events: list[Event], requests: Any, shared: Shared
) -> dict[str, list[Item]]:
    """Return each view of a session once."""
    out = Path(name)
    views: dict[str, Iterable[Item]] = {
        "session": telling.plain(log),
        "asked of the model": telling.asked(requests),
    }
    for path in sorted(out.rglob("trace.jsonl"), key=lambda path: len(path.parts)):
        at = "trace" if path.parent == out else f"trace {path.parent.relative_to(out)}"
        views[at] = telling.trace(path.read_text(encoding="utf-8"))
        shared.trace(path.read_text(encoding="utf-8"))
    if (out / "run.ipynb").exists():
        book = (out / "run.ipynb").read_text(encoding="utf-8")
        views["notebook"] = telling.notebook(book)
        shared.notebook(book)
    told = notes(events)
    shared.notes(told)
    views["panel"] = telling.notes(told)
    views["panel, opened"] = telling.notes(opened(events, out))
    if (out / "trace.jsonl").exists():
        views["terminal"] = telling.plain("".join(command("show", name)[1:]))
        command("show", name, "--html", "-o", f"{name}.html")
        page = telling.Outline(out.with_suffix(".html").read_text(encoding="utf-8"))
        shared.add("style", page.styles)
        views["page"] = [(f"    {head}", body) for head, body in page.items]
    return {view: list(items) for view, items in views.items()}


@cache
def _runs(out: Path) -> tuple[str, ...]:
    """Return the identifiers of a session's runs and of those beneath them, as they appear."""
    traces = [out / "trace.jsonl", *sorted(out.rglob("*/trace.jsonl"))]
    text = "".join(path.read_text() for path in traces if path.exists())
    return tuple(dict.fromkeys(re.findall(r'"run_id": "([0-9a-f]{12})"', text)))


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
                    lines.extend(_result(await session.run(task, budget=case.budgets.get(task))))
    except KernelAgentError as error:
        lines.append(f"{type(error).__name__}: {error}")
    lines.append("--- events and files")
    lines.extend(_happened(events))
    if Path(name).exists():
        left = sorted(str(path.relative_to(name)) for path in Path(name).rglob("*"))
        lines.append(" ".join(left))
    return "\n".join(lines) + "\n", events, model.asked


def _result(run: Any) -> list[str]:
    """Return what a run comes to, without what is empty."""
    fields = {name: getattr(run, name) for name in RESULT}
    told = [f"{name}: {value}" for name, value in fields.items() if value not in (None, "", ())]
    used = " · ".join(f"{name}={value}" for name, value in telling.flat(run.usage))
    ended = f"exit code {run.status.exit_code}, {len(run.steps)} steps"
    return ["--- run", *told, f"usage: {used}", ended]


def _happened(events: Sequence[Event]) -> list[str]:
    """Name what was told, in order; the pieces of a stream come as they come."""
    lines = [""]
    for event in events:
        kind = type(event).__name__
        if isinstance(event, (Notice, Question)):
            told = (f"{name}={value}" for name, value in telling.flat(event))
            lines += [f"{kind} {' · '.join(told)}", ""]
        elif not (lines[-1].endswith(f" {kind}") and kind in ("Output", "ReplyText")):
            lines[-1] += f" {kind}"
    return [line for line in lines if line]


# --- what is shown --------------------------------------------------------------------------------


def command(*arguments: str) -> tuple[object, str, str]:
    """Run the command in this process; return its exit code and what it printed."""
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
    return code, out.getvalue(), err.getvalue()


# --- the panel -----------------------------------------------------------------------------------


class Page:
    """A page as the panel knows it."""

    model_id = "m"
    shows_page = False

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.says: Callable[[Any], None] = lambda _said: None
        self.answered = threading.Event()

    def __call__(self, heard: Callable[[Any], None]) -> Page:
        self.says = heard
        return self

    def send(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        if "for" in message:
            self.answered.set()

    def close(self) -> None:
        pass


def notes(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return what the panel is told of each event."""
    scene = Scene(task="asked", level="auto", clock=lambda: 100.0)
    told: list[dict[str, Any]] = []
    for number, event in enumerate(events):
        if isinstance(event, Question):
            said = [*scene.ask(number, event), *scene.close_question(number, None)]
        else:
            said = scene.tell(event)
        for note in said:
            if told and (merged := _one(told[-1], note)):
                told[-1] = merged
            else:
                told.append(note)
    return told


def opened(events: Sequence[Event], out: Path) -> list[dict[str, Any]]:
    """Return what a page is told that is opened at the end, and what the notebook keeps of it."""
    kept: list[dict[str, Any]] = []
    front = Page()
    whole = Panel(
        task="asked", sandbox="auto", notebook=out / "run.ipynb",
        publish=lambda bundle, _id, **more: kept.append({"op": "published", **bundle, **more}),
    )  # fmt: skip
    whole.open(front)
    for event in events:
        whole(event)
    whole.note("a note")
    front.says({"do": "hello", "view": "v"})
    assert front.answered.wait(DEADLINE_S)
    whole.finish("<b>over</b>", "over")
    (answer,) = [message for message in front.messages if "for" in message]
    return [*answer["notes"], {"op": "opened", "undo": answer["undo"]}, *kept]


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


async def _wire() -> list[Item]:
    """Return the requests of sessions whose model is an endpoint, as they arrive there."""
    ignored = {"tools": "ignored", "schema": "refused"}
    endpoints = {
        **{name: (fmt, OpenAIServer(said)) for name, (fmt, said) in WIRED.items()},
        **{name: ("auto", OpenAIServer(Writer(cells=["x = 6", "final_answer(x * 7)"], **way)))
           for name, way in {"auto": {}, "auto_ignored": ignored}.items()},
    }  # fmt: skip
    items: list[Item] = []
    for name, (fmt, endpoint) in endpoints.items():
        items.append((f"##### {name}", ""))
        items.extend(await _wired(name, fmt, endpoint))
    return items


async def _wired(name: str, fmt: str, endpoint: OpenAIServer) -> list[Item]:
    told: list[Event] = []
    with endpoint as server:
        async with Session(
            model="some-model", base_url=server.url, format=fmt, sandbox="interpreter",
            out=f"wire_{name}", on_event=told.append,
        ) as session:  # fmt: skip
            run = await session.run("What is it?")
    items: list[Item] = []
    before: list[tuple[str, Any]] = []
    for request in server.requests:
        sent = list(telling.flat({"path": request.path, **request.body}))
        items.extend(telling.item("request", (pair for pair in sent if pair not in before)))
        before = sent
    return [*items, *telling.plain("\n".join([*_result(run), *_happened(told)]))]
