"""An answer as a person would write it, and the display that belongs to it. Pure.

The same for notebook and page, so they cannot differ: a number with its thousands, a day without
its midnight, a dict as names and values, a table from the data that the kernel described, text as
the Markdown that it may be. What has no such form is its printed text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kernel_agent.records import Answer, OutputDict, RunRecords, Step, Wording, role_of, word_answer
from kernel_agent.safe import FORMATS, plain

MAX_ROWS = 50  # of a table or a dict in a notebook, whose cell has more
_SCALAR = re.compile(r"\bnp\.(?:float|int|uint|bool|str)\w*\(([^()]*)\)")


def is_text(answer: Answer) -> bool:
    """Whether an answer is text, which may be Markdown."""
    return answer.kind in ("text", "str")


def short_answer(answer: Answer) -> str:
    """Return a number, a day or a word as it is shown large; empty for anything else."""
    worded = word_answer(answer)
    return plain(worded.text) if worded.kind in ("number", "truth", "date") else ""


def answer_rows(answer: Answer, most: int = MAX_ROWS) -> Wording | None:
    """Return an answer that has rows: a table, or names and values; None for others."""
    worded = word_answer(answer, rows=most)
    return worded if worded.kind in ("table", "pairs") and worded.rows else None


def printed_answer(answer: Answer) -> str:
    """Return any other answer as it was printed, without the names of numpy's types."""
    return _SCALAR.sub(r"\1", plain(answer.text).strip("\n"))


# --- displays ------------------------------------------------------------------------------


def latest_outputs(run: RunRecords) -> Iterator[tuple[Step, OutputDict]]:
    """Yield the displays of the steps that hold, the latest first, each with its step."""
    for step in reversed(run.steps):
        if step.number not in run.undone:
            for output in reversed(step.result.outputs if step.result else ()):
                yield step, output


def answer_output(run: RunRecords) -> tuple[Step, OutputDict] | None:
    """Return what ``final_answer`` has displayed."""
    found = ((step, output) for step, output in latest_outputs(run) if role_of(output) == "answer")
    return next(found, None)


def last_figure(run: RunRecords) -> tuple[Step, OutputDict, str] | None:
    """Return the picture that was drawn last, which most often belongs to what the run says."""
    for step, output in latest_outputs(run):
        data = output.get("data")
        for mime in FORMATS:
            if isinstance(data, Mapping) and mime in data:
                return step, output, mime
    return None
