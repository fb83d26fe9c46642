"""What stands before and after the steps of a notebook: question, answer, figure, appendix. Pure.

The answer comes at once, for the reader who goes no further. With model, date, data and
environment the notebook ends. Text of unknown origin goes through
:mod:`kernel_agent.notebook.markdown`; a figure is the attachment of its cell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from kernel_agent.notebook.answer import (
    answer_output,
    answer_rows,
    is_text,
    last_figure,
    printed_answer,
    short_answer,
)
from kernel_agent.notebook.folded import undo_reason
from kernel_agent.notebook.headings import rows_left_out, step_sentence
from kernel_agent.notebook.markdown import code_block, inline, markdown, quote_text, verbatim
from kernel_agent.notebook.outputs import displayable, figure_titles
from kernel_agent.notebook.tables import table_markdown
from kernel_agent.records import (
    UNFINISHED,
    Answer,
    DataFile,
    OutputDict,
    RunRecords,
    RunStart,
    Step,
    Undone,
    answer_note,
    count_text,
    minute_text,
    split_partial,
    steps_text,
)
from kernel_agent.safe import encodable, one_line, plain, shorten, title_line

MAX_ANSWER = 100_000  # characters
MAX_LISTED = 10  # files that are listed openly


def heading(level: int, text: str, *, deep: bool) -> str:
    """Return a heading, one level deeper where the notebook answers several questions."""
    return f"{'#' * (level + deep)} {text}"


def head(runs: Sequence[RunRecords]) -> str:
    """Return the one head of a notebook with several questions."""
    files = list(dict.fromkeys(f.path for run in runs for f in run.start.data))
    names = [verbatim(one_line(path.rsplit("/", maxsplit=1)[-1], 60)) for path in files[:3]]
    about = f" about {', '.join(names)}" if names else ""
    title = f"# {count_text(len(runs), 'question')}{about}"
    listed = ["\n".join(_write_entry(entry(run)) for run in runs)] if len(runs) >= MANY else []
    return "\n\n".join([title, *listed])


MANY = 3  # questions from which on there are contents


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A line of the contents: the question, the place that Jupyter gives it, and its ending."""

    number: int
    title: str
    place: str
    ended: str

    @property
    def address(self) -> str:
        """The place as the target of a link."""
        return f"#{quote(encodable(self.place), safe='')}"


def entry(run: RunRecords) -> Entry:
    """Return a run's line of the contents; ``ended`` is empty where it was answered."""
    return Entry(
        number=run.number,
        title=_title(run),
        place=f"{_number(run)}{_title(run)}".replace(" ", "-"),
        ended="" if run.is_answered else status_text(run),
    )


def _write_entry(entry: Entry) -> str:
    ended = f" ({entry.ended})" if entry.ended else ""
    return f"{entry.number}. [{verbatim(entry.title)}]({entry.address}){ended}"


def _title(run: RunRecords) -> str:
    return title_line(plain(run.start.task), 80) or "Run"


def _number(run: RunRecords) -> str:
    return f"Question {run.number}: "


def question(run: RunRecords, *, deep: bool) -> str:
    """Return the question as a heading, and as a whole where it is longer than one line."""
    task = plain(run.start.task)
    title = verbatim(_title(run))
    number = _number(run) if deep else ""
    whole = [] if title == verbatim(task) else [quote_text(task)]
    return "\n\n".join([heading(1, f"{number}{title}", deep=deep), *whole])


def status_text(run: RunRecords) -> str:
    """Return how a run ended."""
    if run.stop is None:
        return f"{UNFINISHED.lower()}: the trace ends in mid-run"
    ended = run.stop.status.words
    return f"{ended}, then undone" if run.withdrawn else ended


# --- the answer ----------------------------------------------------------------------------


def answer(run: RunRecords, *, deep: bool) -> str:
    """Return the answer, or why there is none and what was achieved."""
    stop, withdrawn = run.stop, run.withdrawn
    if stop is not None and stop.answer is not None:
        if withdrawn is not None:
            return _withdrawn(stop.answer, withdrawn, deep=deep)
        said = [heading(2, "Answer", deep=deep), _answer_text(run, stop.answer)]
        if note := answer_note(stop.answer):
            said.append(quote_text(note))
        return "\n\n".join(said)
    lines = [heading(2, f"No answer: {status_text(run)}", deep=deep)]
    if stop is not None and stop.message:
        lines.append("\\\n".join(map(verbatim, plain(stop.message).splitlines())))
    if stop is not None and run.undone:
        lines.append("Of its steps some were undone by the user: they are marked below.")
    elif stop is not None and stop.partial.strip():
        counts, good = split_partial(stop.partial, run.last_good)
        short = shorten(plain(counts).strip("\n"), MAX_ANSWER)
        last = f" What step {good.number} showed stands below it." if good else ""
        lines.append(f"So far: {verbatim(short)}{last}")
    return "\n\n".join(lines)


def _withdrawn(given: Answer, undone: Undone, *, deep: bool) -> str:
    them = "was undone by the user, and the answer with it"
    if undone.first != undone.last:
        them = "were undone by the user, and the answer with them"
    text = shorten(plain(given.text).strip("\n"), MAX_ANSWER)
    summary = "<details>\n<summary>The answer had been</summary>"
    why = undo_reason(undone)
    said = f"{steps_text(undone)} {them}{f': {why}' if why else ''}."
    title = heading(2, "Answer withdrawn", deep=deep)
    return "\n\n".join([title, said, summary, code_block(text), "</details>"])


def _answer_text(run: RunRecords, given: Answer) -> str:
    """Return text as the Markdown that it may be, and any other value as a person writes it."""
    if is_text(given):
        return markdown(_with_breaks(shorten(plain(given.text).strip("\n"), MAX_ANSWER)))
    if large := short_answer(given):
        return f"**{inline(large)}**"
    if rows := answer_rows(given):
        return table_markdown(rows)
    shown = answer_output(run)
    if shown is not None and _is_pictured(shown[1]):
        return "The figure below."
    text = shorten(printed_answer(given), MAX_ANSWER)
    return code_block(text) if "\n" in text else verbatim(text)


def _with_breaks(text: str) -> str:
    """Keep the lines of text that has no code and no table: Markdown would join them."""
    if "```" in text or "~~~" in text or "|" in text:
        return text
    return re.sub(r"(?<=\S)\n(?=\S)", "  \n", text)


def _is_pictured(output: Mapping[str, Any]) -> bool:
    return any(mime.startswith("image/") for mime in displayable(dict(output))["data"])


def figure(run: RunRecords) -> tuple[str, dict[str, Any]] | None:
    """Return source and output of the cell that shows the figure of an answer that holds."""
    found = last_figure(run) if run.is_answered else None
    if found is None:
        return None
    step, output, mime = found
    shown = displayable(output)
    if mime not in shown["data"]:
        return None
    alt = alt_text(step, output)
    data = {mime: shown["data"][mime], "text/plain": alt}
    about = {**shown["metadata"].get(mime, {}), "alt": alt}
    source = f"# The figure of step {step.number}, whose cell draws it again"
    return source, {"output_type": "display_data", "data": data, "metadata": {mime: about}}


def alt_text(step: Step, output: OutputDict) -> str:
    """Return what a figure shows, in words without marks: its titles, else what the step said."""
    told = figure_titles(output) or step_sentence(step)
    said = "".join(c for c in told if c.isalnum() or c in " ,.'-%_")
    return f"Figure of step {step.number}: {' '.join(said.split())}".removesuffix(": ")


# --- the way to it, and the appendix ---------------------------------------------------------


def way(run: RunRecords, *, deep: bool) -> str:
    """Return the head of the steps, with the rows that were left out on the way."""
    held = [step for step in run.steps if step.number not in run.undone]
    rows = rows_left_out(held)
    lines = [heading(2, "How it came about", deep=deep)]
    return "\n\n".join([*lines, *([f"{verbatim(rows)}."] if rows else [])])


def appendix(runs: Sequence[RunRecords], replays: str) -> str:
    """Return the end of a notebook: models, dates, data, environment, replays, and a caution.

    Parameters
    ----------
    runs
        The runs, each with its own lines where there are several.
    replays
        A sentence on what the tools gave; empty when none was called.
    """
    first = runs[0].start
    facts = [line for run in runs for line in _facts(run, several=len(runs) > 1)]
    files = {file.path: file for run in runs for file in (*run.start.data, *run.read)}
    listed = [_data(file) for file in files.values()]
    facts += [f"- **Data:** {line}" for line in listed] if len(listed) <= MAX_LISTED else []
    facts += [f"- **Sandbox:** {text}" for text in _sandbox(first)]
    versions = ", ".join(f"{name} {version}" for name, version in first.versions.items())
    if versions:
        facts.append(f"- **Environment:** {verbatim(one_line(versions, 600))}")
    if replays:
        facts.append(f"- **Tools:** {replays}")
    many = [_folded_data(files.values(), listed)] if len(listed) > MAX_LISTED else []
    caution = _caution(run.start.model for run in runs)
    return "\n\n".join(["## Appendix", "\n".join(facts), *many, caution])


def _folded_data(files: Iterable[DataFile], listed: Sequence[str]) -> str:
    """Return many files as their number by kind, and one by one where that is opened."""
    kinds = Counter(one_line(file.kind, 40) for file in files).most_common()
    counted = verbatim(", ".join(f"{count} {kind}" for kind, count in kinds))
    items = "\n".join(f"- {line}" for line in listed)
    summary = f"<details>\n<summary>{len(listed)} files of data: {counted}</summary>"
    return "\n\n".join([summary, items, "</details>"])


def _facts(run: RunRecords, *, several: bool) -> Iterator[str]:
    model = verbatim(one_line(run.start.model))
    date = verbatim(minute_text(run.start.time))
    if several:
        yield f"- **Question {run.number}:** {status_text(run)}, {date}, by {model}"
        return
    yield f"- **Model:** {model}"
    yield f"- **Date:** {date}"
    yield f"- **Status:** {status_text(run)}"


def _sandbox(start: RunStart) -> Iterator[str]:
    if level := one_line(str(start.sandbox.get("level") or "")):
        statement = one_line(str(start.sandbox.get("statement") or ""), 600)
        yield verbatim(level if start.confined or not statement else f"{level}. {statement}")


def _data(file: DataFile) -> str:
    path = verbatim(one_line(file.path))
    if file.is_folder:
        return f"{path} ({file.about}; those that were read follow)"
    digest = f", SHA-256 {verbatim(file.sha256[:12])}…" if file.sha256 else ""
    return f"{path} ({file.bytes:,} bytes{digest})"


def _caution(models: Iterable[str]) -> str:
    authors = " ".join(dict.fromkeys(f"{_author(model)}." for model in models))
    return (
        f"*Made by kernel-agent. {authors} The code came one step at a time; the outputs are what "
        "it showed when it ran. Steps that failed are folded, not removed. Check it before you "
        "rely on it.*"
    )


def _author(model: str) -> str:
    if model == "offline":
        return "The code was written by a rule-based analyst, without a language model"
    if model.startswith("scripted"):
        return "The code was played back from a file of recorded replies"
    if model == "fixed cells":
        return "The code is that of a notebook, written before the run"
    return "The code was written by a language model"
