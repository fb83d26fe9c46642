"""A run's blocks as they look at a terminal: lines that fit, a box for the answer.

Nothing in a text is read as markup but the Markdown of an answer, in which links are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.markdown import Markdown
from rich.panel import Panel
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text

from kernel_agent.cli.layout import LEAST, wrap
from kernel_agent.notebook import GUTTER, Piece, aligned, fitting, list_pieces, quoted, table_lines
from kernel_agent.records import (
    STORY_LABELS,
    Answer,
    Block,
    Kind,
    RunStop,
    Step,
    Wording,
    plain_lines,
    word_answer,
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
    "note": "italic",
    "question": "bold yellow",
    "end": "dim",
}
LABEL = "bold magenta"
INDENT = "    "
TABLES = {"table", "pairs"}
SINGLE = {"number", "truth", "date", "nothing"}
BLOCKS = 4  # of columns of a table, below each other
ROOM = 4  # columns that the box of an answer takes
PIECES = {"warning": "yellow", "error": "red", "figure": "dim"}
_MARKDOWN = re.compile(
    r"^(?:#{1,6} |[-*+] |\d+[.)] |> |```|\|.*\||[ ]{0,3}(?:-{3,}|\*{3,})$)|\*\*\S|`[^`\n]+`|__\S",
    re.MULTILINE,
)


def drawn(block: Block, width: int, *, verbose: bool = False) -> Iterator[RenderableType]:
    """Yield what is printed for a block, line by line.

    Parameters
    ----------
    block
        Of the story.
    width
        Of the terminal.
    verbose
        Whether a step shows what its model reads, instead of a person's form.
    """
    if block.kind in ("code", "call"):
        yield Text(STORY_LABELS[block.kind], style=LABEL)
        yield from _code(block.text, width)
    elif isinstance(block.of, Step) and not verbose:
        yield from _step(block, block.of, width)
    elif block.kind == "answer":
        yield Text("")
        yield _answer(block, width)
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


def _step(block: Block, step: Step, width: int) -> Iterator[RenderableType]:
    """Yield what a step showed, below its label or the counts of a partial result."""
    if block.kind == "partial":
        yield from wrap(Text(quoted(block.text)), width)
    else:
        yield Text(STORY_LABELS["observation"], style=LABEL)
    for piece in list_pieces(step):
        yield from _piece(piece, width)


def _piece(piece: Piece, width: int) -> Iterator[RenderableType]:
    style, room = PIECES.get(piece.kind, ""), width - len(INDENT)
    if piece.cells is not None:
        for line in table_lines(piece.cells, room):
            yield Text(INDENT + line)
    else:
        yield from wrap(Text(piece.text, style=style), width, INDENT)


# --- the answer ----------------------------------------------------------------------------------


def _answer(block: Block, width: int) -> RenderableType:
    """Return the answer in its box, worded where all views have their words from."""
    given = block.of.answer if isinstance(block.of, RunStop) else None
    wording = word_answer(given or Answer(text=block.text))
    room = width - ROOM
    content = _rows(wording, room) if wording.rows and wording.kind in TABLES else None
    if content is None and wording.kind in SINGLE:
        content = Text("\n").join(wrap(Text(plain(wording.text), style="bold green"), room))
    shown = content or _words(plain(wording.text), room)
    return Panel(shown, title="Answer", title_align="left", border_style="green")


def _rows(wording: Wording, width: int) -> RenderableType:
    """Return a table or the entries of a dict as lines, and its size below it."""
    if wording.kind == "pairs":
        lines = [
            line for name, value in wording.rows for line in _entry(name, value, wording, width)
        ]
    else:
        lines = list(_table(wording, width))
    if wording.below:
        lines += wrap(Text(wording.below, style="dim"), width)
    return Text("\n").join(lines)


def _table(wording: Wording, width: int) -> Iterator[Text]:
    """Yield the lines of a table; texts and columns for which there is no room go on below."""
    lines = [wording.columns, *wording.rows] if wording.columns else wording.rows
    columns = list(zip(*lines, strict=True))
    sizes = [max(map(cell_len, column)) for column in columns]
    least = [size if n in wording.right else min(size, LEAST) for n, size in enumerate(sizes)]
    rest = list(range(1, len(columns)))
    for block in range(BLOCKS):
        kept = [0, *rest[: max(fitting([least[0], *(least[n] for n in rest)], width, 2) - 1, 0)]]
        rest = rest[len(kept) - 1 :]
        spare = width - len(GUTTER) * (len(kept) - 1) - sum(least[n] for n in kept)
        for n in sorted(kept, key=sizes.__getitem__):  # the longest gets what the others leave
            more = min(sizes[n] - least[n], max(spare, 0))
            least[n], spare = least[n] + more, spare - more
        cells = [[[part.plain for part in wrap(Text(line[n]), least[n])] for n in kept]
                 for line in lines]  # fmt: skip
        rows = [parts for line in cells for parts in zip_longest(*line, fillvalue="")]
        across = [aligned(column, right=n in wording.right)
                  for n, column in zip(kept, zip(*rows, strict=True), strict=True)]  # fmt: skip
        yield from [Text("")] * bool(block)
        yield from (Text(GUTTER.join(row).rstrip()) for row in zip(*across, strict=True))
        if not rest:
            return
    yield Text(f"… {len(rest):,} more column{'' if len(rest) == 1 else 's'}")


def _entry(name: str, value: str, wording: Wording, width: int) -> Iterator[Text]:
    """Yield the lines of a name and its value, which is continued below itself and never cut."""
    beside = min(max(cell_len(name) for name, _ in wording.rows), width // 2)
    room = width - beside - len(GUTTER)
    if 1 in wording.right:
        value = value.rjust(min(max(cell_len(value) for _, value in wording.rows), room))
    heads = list(wrap(Text(name), beside))
    values = list(wrap(Text(value), room)) or [Text("")]
    for head, line in zip_longest(heads, values, fillvalue=Text("")):
        head.pad_right(beside - cell_len(head.plain))
        shown = Text.assemble(head, GUTTER, line)
        shown.rstrip()
        yield shown


def _words(text: str, width: int) -> RenderableType:
    """Return a text: as Markdown where it is written so, else as it is, with its lines."""
    if _MARKDOWN.search(text):
        return Markdown(_kept_lines(text), hyperlinks=False, code_theme="ansi_dark")
    return Text("\n").join(wrap(Text(text), width))


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
