"""A run's blocks as they look at a terminal: lines that fit, a box for the answer, pictures.

Nothing in a text is read as markup but the Markdown of an answer, in which links are text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.markdown import Markdown
from rich.panel import Panel
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text

from kernel_agent.cli.layout import Cells, fit_printed, table_lines, wrap
from kernel_agent.cli.seen import Piece, pieces, quoted
from kernel_agent.records import (
    STORY_LABELS,
    Answer,
    Block,
    Image,
    Kind,
    RunStop,
    Step,
    plain_lines,
)
from kernel_agent.safe import plain

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType

STYLES: dict[Kind, str] = {
    "task": "bold",
    "fact": "dim",
    "warning": "bold yellow",
    "title": "bold cyan",
    "notice": "yellow",
    "question": "bold yellow",
    "end": "dim",
}
LABEL = "bold magenta"
INDENT = "    "
ROOM = 4  # columns that the box of an answer takes
PIECES = {"warning": "yellow", "error": "red", "figure": "dim"}
_MARKDOWN = re.compile(
    r"^(?:#{1,6} |[-*+] |\d+[.)] |> |```|\|.*\||[ ]{0,3}(?:-{3,}|\*{3,})$)|\*\*\S|`[^`\n]+`|__\S",
    re.MULTILINE,
)


def drawn(
    block: Block, width: int, *, verbose: bool = False, table: Cells | None = None
) -> Iterator[RenderableType | Image]:
    """Yield what is printed for a block, line by line, and the pictures that it shows.

    Parameters
    ----------
    block
        Of the story.
    width
        Of the terminal.
    verbose
        Whether a step shows what its model reads, instead of a person's form.
    table
        The answer's, where it is one.
    """
    if block.kind in ("code", "call"):
        yield Text(STORY_LABELS[block.kind], style=LABEL)
        yield from _code(block.text, width)
    elif isinstance(block.of, Step) and not verbose:
        yield from _step(block, block.of, width)
    elif block.kind == "answer":
        yield Text("")
        yield _answer(block, width, table)
    else:
        text = Text(plain_lines(block).removesuffix("\n"), style=STYLES.get(block.kind, ""))
        if block.kind in STORY_LABELS:
            text.stylize(LABEL, 0, len(STORY_LABELS[block.kind]))
        yield from wrap(text, width)


def _code(source: str, width: int) -> Iterator[Text]:
    syntax = Syntax("", "python", theme="ansi_dark", background_color="default")
    code = syntax.highlight(source)
    code.rstrip()
    yield from wrap(code, width, INDENT)


# --- a step --------------------------------------------------------------------------------------


def _step(block: Block, step: Step, width: int) -> Iterator[RenderableType | Image]:
    """Yield what a step showed, below its label or the counts of a partial result."""
    if block.kind == "partial":
        yield from wrap(Text(quoted(block.text)), width)
    else:
        yield Text(STORY_LABELS["observation"], style=LABEL)
    for piece in pieces(step):
        yield from _piece(piece, width)


def _piece(piece: Piece, width: int) -> Iterator[RenderableType | Image]:
    if piece.picture is not None:
        yield piece.picture
    style, room = PIECES.get(piece.kind, ""), width - len(INDENT)
    if piece.cells is not None:
        for line in table_lines(piece.cells, room):
            yield Text(INDENT + line)
    else:
        text = fit_printed(piece.text, room) if piece.kind in ("printed", "value") else piece.text
        yield from wrap(Text(text, style=style), width, INDENT)


# --- the answer ----------------------------------------------------------------------------------


def _answer(block: Block, width: int, table: Cells | None) -> RenderableType:
    answer = block.of.answer if isinstance(block.of, RunStop) else None
    room = width - ROOM
    if table is not None:
        content: RenderableType = Text("\n".join(table_lines(table, room)))
    else:
        content = _number(answer) or _items(answer, room) or _words(block.text, room)
    return Panel(content, title="Answer", title_align="left", border_style="green")


def _number(answer: Answer | None) -> RenderableType | None:
    """Return a number with thousands; None for anything else."""
    value = answer.value if answer else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return Text(f"{value:,}" if isinstance(value, int) else f"{value:,.10g}", style="bold green")


def _items(answer: Answer | None, width: int) -> RenderableType | None:
    """Return the items of a dict, a line each; None for anything else."""
    value = answer.value if answer else None
    if not isinstance(value, dict) or not value:
        return None
    if any(isinstance(item, dict | list) for item in value.values()):
        return None
    size = max(len(plain(name)) for name in value)
    lines = (f"{plain(name):<{size}}  {_short(item)}" for name, item in value.items())
    return Text("\n").join(wrap(Text("\n".join(lines)), width))


def _short(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return plain(str(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:,.10g}"


def _words(text: str, width: int) -> RenderableType:
    """Return a text: as Markdown where it is written so, else as it is, with its lines."""
    if _MARKDOWN.search(text):
        return Markdown(_kept_lines(text), hyperlinks=False, code_theme="ansi_dark")
    return Text("\n").join(wrap(Text(fit_printed(text, width)), width))


def _kept_lines(text: str) -> str:
    """Return Markdown in which the ends of lines within a paragraph stay."""
    lines, fenced = [], False
    for line in text.split("\n"):
        fenced ^= line.lstrip().startswith("```")
        plainly = line.strip() and not fenced and not line.lstrip().startswith(("|", "```"))
        lines.append(f"{line}  " if plainly else line)
    return "\n".join(lines)


# --- the places ----------------------------------------------------------------------------------


def places(folder: Path, names: Iterable[str]) -> Iterator[Text]:
    """Yield the lines on where a run's files are: its folder, and each file in it.

    Parameters
    ----------
    folder
        The run's.
    names
        Relative to the folder.
    """
    yield _link(f"{folder}/", folder)
    for name in names:
        yield Text("  ").append_text(_link(plain(name), folder / name))


def _link(shown: str, path: Path) -> Text:
    return Text(shown, style=Style(dim=True, link=path.absolute().as_uri()))
