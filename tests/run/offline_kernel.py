"""A kernel in a nutshell: runs the offline analyst's cells in this process, for its tests.

It keeps a namespace between cells, captures what they print and their last value, and writes the
messages as the loop does. A real kernel is tested elsewhere; here the answers are what counts.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import io
import os
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_agent.offline import OfflineAnalyst
from kernel_agent.records.conversation import Message, RequestOptions
from kernel_agent.records.event import ReplyText
from kernel_agent.safe.text import shorten

ENDINGS = {".csv": "CSV", ".tsv": "TSV", ".json": "JSON", ".jsonl": "JSON lines",
           ".parquet": "Parquet", ".xlsx": "Excel"}  # fmt: skip


class Fenced:
    """The least that the analyst needs of a format: thought, then a block of code."""

    def compose(self, *, thought: str, code: str) -> str:
        return f"{thought}\n\n```python\n{code}\n```"


@dataclass
class Answered:
    """How a run went: the answer, and every thought, cell and observation."""

    text: str
    thoughts: list[str]
    cells: list[str]
    observations: list[str]
    events: list[Any]
    usage: Any


@dataclass
class NutshellKernel:
    """One session: a working directory, a namespace, and the messages so far."""

    folder: Path
    namespace: dict[str, Any] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.messages.append(Message(role="system", content="Answer by writing code."))

    def ask(self, question: str, *files: str, most_steps: int = 12) -> Answered:
        """Run the analyst until it answers; its ModelError is the caller's to expect."""
        self.messages.append(Message(role="user", content=self._task(question, files)))
        analyst = OfflineAnalyst(Fenced())  # type: ignore[arg-type]  # only compose is used
        went = Answered(text="", thoughts=[], cells=[], observations=[], events=[], usage=None)
        for number in range(1, most_steps + 1):
            reply = asyncio.run(
                analyst.complete(tuple(self.messages), RequestOptions(), went.events.append)
            )
            thought, _, code = reply.content.partition("\n\n```python\n")
            code = code.removesuffix("\n```")
            answers: list[Any] = []
            observed = self.run(code, answers)
            went.thoughts.append(thought)
            went.cells.append(code)
            went.observations.append(observed)
            went.usage = reply.usage
            self.messages += [
                Message(role="assistant", content=reply.content),
                Message(role="user", content=f"Observation (step {number}):\n{observed}"),
            ]
            if answers:
                went.text = str(answers[0])
                return went
        raise AssertionError("no answer")

    def _task(self, question: str, files: tuple[str, ...]) -> str:
        lines = [
            f"- {f} ({ENDINGS.get(Path(f).suffix, 'file')},"
            f" {(self.folder / f).stat().st_size / 1000:.1f} kB)"
            for f in files
        ]
        data = "\n\nData files, relative to the working directory:\n" + "\n".join(lines)
        return f"<task>\n{question}\n</task>" + (data if files else "")

    def run(self, code: str, answers: list[Any]) -> str:
        """Run one cell in the folder; returns what it printed, its last value, or its error."""
        import matplotlib as mpl

        mpl.use("Agg")
        self.namespace["final_answer"] = answers.append
        printed = io.StringIO()
        tree = ast.parse(code)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        before = Path.cwd()
        os.chdir(self.folder)
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(tree, "<cell>", "exec"), self.namespace)
                if last is not None:
                    value = eval(
                        compile(ast.Expression(last.value), "<cell>", "eval"), self.namespace
                    )
                    if value is not None:
                        print(_shown(value))
        except Exception as error:
            printed.write("".join(traceback.format_exception_only(error)))
        finally:
            os.chdir(before)
            import matplotlib.pyplot as plt

            plt.close("all")
        return shorten(printed.getvalue(), 8000, where="outputs holds the full text")


def _shown(value: Any) -> str:
    if hasattr(value, "dtypes") and hasattr(value, "columns"):
        return f"DataFrame: {len(value)} rows x {value.shape[1]} columns\n{value.head()!r}"
    return repr(value)[:4000]


__all__ = ["Answered", "NutshellKernel", "ReplyText"]
