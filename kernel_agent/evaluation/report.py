"""The report of an evaluation: a notebook that says in words what was found, then shows it.

Its cells compute what they show from the folder's results, so a colleague can run it again; their
outputs are put in when it is written, so a reader needs nothing. Beside it lie ``table.md``,
``table.json`` and the pictures.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from kernel_agent.evaluation import markdown, plots
from kernel_agent.evaluation.specs import RunResult
from kernel_agent.evaluation.tables import Comparison, compare_folder
from kernel_agent.records import ExitStatus, count_text
from kernel_agent.safe import encodable

REPORT_NAME = "report.ipynb"
MAX_FAILURES = 40  # that are listed in the report; all of them are in results.jsonl

SETUP = """\
from IPython.display import Image, Markdown

from kernel_agent.evaluation import markdown, plots, report, tables

comparison = tables.compare_folder(".")"""


def write_report(folder: str | Path) -> Path:
    """Write the report of a folder; called when an evaluation ends, and by ``--report``.

    Raises
    ------
    InputError
        The folder holds no evaluation.
    """
    import nbformat
    from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

    place = Path(folder)
    comparison = compare_folder(place)
    cells = [
        new_markdown_cell(_opening(comparison), id="summary"),
        new_code_cell(SETUP, id="setup", execution_count=1),
    ]
    for number, (name, heading, source, make) in enumerate(_sections(comparison), start=2):
        data = _display_data(make(comparison))
        output = new_output("execute_result", data=data, execution_count=number)
        cells.append(new_markdown_cell(heading, id=f"{name}-heading"))
        cells.append(new_code_cell(source, id=name, outputs=[output], execution_count=number))
        if "image/png" in data:
            (place / f"{name}.png").write_bytes(base64.b64decode(data["image/png"]))
    cells.append(new_markdown_cell(_how(comparison), id="how"))
    notebook = new_notebook(cells=cells, metadata=_METADATA)
    nbformat.validate(notebook)
    path = place / REPORT_NAME
    _write(path, nbformat.writes(notebook))
    _write(place / "table.md", _text(comparison))
    _write(place / "table.json", json.dumps(_strict(comparison.to_json()), indent=1))
    return path


def failures_markdown(comparison: Comparison) -> str:
    """Return the answers that were wrong or not judged, with the reason and the notebook."""
    failed = [r for r in comparison.results if not r.success]
    if not failed:
        return "Every answer was right."
    lines = [
        f"- `{r.task_id}`, {r.arm}, trial {r.trial}: {_verdict(r)}: "
        f"{markdown.quote(r.reason, 200) or 'no reason'}"
        + (f" ([notebook]({r.notebook}))" if r.notebook else "")
        for r in failed[:MAX_FAILURES]
    ]
    more = len(failed) - MAX_FAILURES
    return "\n".join(lines + ([f"- … and {more} more, in `results.jsonl`"] if more > 0 else []))


_Section: TypeAlias = tuple[str, str, str, Callable[[Comparison], str | bytes]]

_SECTIONS: tuple[_Section, ...] = (
    (
        "arms",
        "## The arms\n\nMeans over tasks. The interval counts tasks, not trials.",
        "Markdown(markdown.arms_markdown(comparison))",
        markdown.arms_markdown,
    ),
    ("success", "### Success", "Image(plots.success_png(comparison))", plots.success_png),
    (
        "measures",
        "### What the runs needed",
        "Image(plots.measures_png(comparison))",
        plots.measures_png,
    ),
    (
        "pairs",
        (
            "## Pairs of arms\n\nOn the tasks that both have; second minus first, with 95 % "
            "intervals over tasks (success by Agresti and Min, the rest by bootstrap), and as a "
            "ratio where the first needed some in each task."
        ),
        "Markdown(markdown.pairs_markdown(comparison))",
        markdown.pairs_markdown,
    ),
    (
        "endings",
        "## How the runs ended",
        "Markdown(markdown.endings_markdown(comparison))",
        markdown.endings_markdown,
    ),
    (
        "kinds",
        (
            "## By kind of task\n\nRight answers of judged ones; first the kinds on which the arms "
            "differ most."
        ),
        "Markdown(markdown.kinds_markdown(comparison))",
        markdown.kinds_markdown,
    ),
    (
        "tasks",
        (
            "## Task by task\n\nRight answers of judged trials; - where there is no result, ? "
            "where none could be judged. The number of steps links to the run's notebook."
        ),
        "Markdown(markdown.tasks_markdown(comparison))",
        markdown.tasks_markdown,
    ),
    (
        "failures",
        "## What went wrong",
        "Markdown(report.failures_markdown(comparison))",
        failures_markdown,
    ),
)

_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def _sections(comparison: Comparison) -> Iterator[_Section]:
    """Yield the sections that have something to show."""
    for section in _SECTIONS:
        empty = section[0] == "pairs" and not comparison.pairs
        if not empty and (section[0] != "kinds" or markdown.has_kinds(comparison)):
            yield section


def _opening(comparison: Comparison) -> str:
    plan = comparison.plan
    title = f"# Comparison on {count_text(len(plan['task_ids']), 'task')} of {plan['tasks']}"
    rows = [
        f"- **{row.arm}**: {row.success.value:.0%} of {row.tasks} tasks right "
        f"(95 % interval {row.success.low:.0%} to {row.success.high:.0%})"
        + (f"; {count_text(row.not_judged, 'answer')} not judged" if row.not_judged else "")
        if row.tasks
        else f"- **{row.arm}**: {'no judged result' if row.runs else 'no result'}"
        for row in comparison.arms
    ]
    common = [f"In all arms: {comparison.common}.", ""] if comparison.common else []
    words = [f"- {line}" for line in comparison.words]
    return "\n".join([
        title, "", *common, *rows, "", "## What these results can and cannot show", "", *words,
    ])  # fmt: skip


def _how(comparison: Comparison) -> str:
    plan = comparison.plan
    lines = [
        "## How this was done",
        "",
        (
            f"kernel-agent {plan['kernel_agent']}, Python {plan['python']}, {plan['written']}; "
            f"{count_text(plan['trials'], 'trial')} of each task and arm. "
            "Traces and notebooks of all runs are in `runs/`, their results in `results.jsonl`."
        ),
        "",
        f"Settings of every run: `{json.dumps(plan['settings'], sort_keys=True)}`",
    ]
    ends = sorted({arm["base_url"] for arm in plan["arms"] if arm.get("base_url")})
    if ends:
        lines += ["", f"Asked at: {', '.join(f'`{end}`' for end in ends)}"]
    if any(r.tokens_estimated for r in comparison.results):
        lines += [
            "",
            "Some token counts are estimated, from the length of texts and schemas.",
        ]
    lines += [f"\n{remark}" for remark in plan["remarks"]]
    for title, key in (("Left out", "excluded"), ("Corrected", "corrected")):
        if plan[key]:
            lines += ["", f"{title}:", ""]
            lines += [f"- `{task}`: {why}" for task, why in plan[key].items()]
    return "\n".join(lines)


def _text(comparison: Comparison) -> str:
    parts = [
        _opening(comparison),
        *(
            f"{heading}\n\n{shown}"
            for _, heading, _, make in _sections(comparison)
            if isinstance(shown := make(comparison), str)
        ),
        _how(comparison),
    ]
    return "\n\n".join(parts) + "\n"


def _display_data(made: str | bytes) -> dict[str, str]:
    if isinstance(made, bytes):
        picture = base64.b64encode(made).decode("ascii")
        return {"image/png": picture, "text/plain": "<IPython.core.display.Image object>"}
    return {
        "text/markdown": encodable(made),
        "text/plain": "<IPython.core.display.Markdown object>",
    }


def _verdict(result: RunResult) -> str:
    """Return how a run ended, or what was made of its answer."""
    if result.status != ExitStatus.ANSWERED:
        return result.status
    return "wrong" if result.success is False else "not judged"


def _strict(value: Any) -> Any:
    """Return a value without the numbers that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    return [_strict(item) for item in value] if isinstance(value, list | tuple) else value


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text, encoding="utf-8", errors="backslashreplace")
    draft.replace(path)
