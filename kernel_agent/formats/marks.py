"""The places in a reply that mean something: fence lines, known tags, invented turns.

Real models write more delimiters than they were asked for, so the tables are generous: upper
case, attributes, reasoning tags of several families, ``**Output:**``. A tag that stands in
backticks is only mentioned and is no mark. What a mark means depends on where it stands, which
:mod:`kernel_agent.formats.blocks` decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from kernel_agent.errors import FormatError

MAX_MARKS = 5_000
"""More delimiters than this are no reply but a loop; recorded replies have at most some dozens."""

_CODE_TAGS = "execute_ipython|execute_python|execute|python_code|tool_code|ipython|python|py|code"
_REASONING_TAGS = "thinking|think|reasoning|reflection|scratchpad"
_THOUGHT_TAGS = "thoughts|thought|analysis"
_ANSWER_TAGS = "solution|answer|final_answer"
_TURN_TAGS = "observation|output|execution_result|tool_output|tool_response"
_TURN_NAMES = (
    r"(?:(?:execution|console|code|cell|program)[^\S\n])?(?:observation|output|result)s?"
    r"|stdout|out[^\S\n]?\[\d+\]|user|human|assistant|system|environment"
)
_PYTHON = ("python", "python3", "py", "py3", "ipython", "ipython3", "jupyter", "tool_code")
_MARK = re.compile(
    rf"""
    ^(?P<indent>[^\S\n]*+) (?=[`~*_\#a-z]) (?:
        (?P<fence>`{{3,}}+|~{{3,}}+) (?: [^\S\n]*+(?=<|\[/?THINK\]) | (?P<info>[^\n]*+) )
      | (?:[*_]{{1,3}}|(?P<heading>\#{{1,6}}[^\S\n]+))? (?P<turn>{_TURN_NAMES})
        (?:[^\S\n]*\([^()\n]{{0,40}}\))? [*_]{{0,3}} [^\S\n]* [:\uff1a]
    )
  | (?P<midline>`{{3,}}+) (?P<language>{"|".join(_PYTHON)})? [^\S\n]*+ $
  | < (?P<slash>/?) (?=[a-z]) (?P<tag>
        (?P<code>{_CODE_TAGS}) | (?P<reasoning>{_REASONING_TAGS}) | (?P<thought>{_THOUGHT_TAGS})
      | (?P<answer>{_ANSWER_TAGS}) | {_TURN_TAGS}
    ) (?:[^\S\n][^<>\n]{{0,80}})? >
  | \[ (?P<magistral>/?) THINK \]
    """,
    re.MULTILINE | re.IGNORECASE | re.VERBOSE,
)

_CODE_TAG = re.compile(rf"<({_CODE_TAGS})(?:[^\S\n][^<>\n]{{0,80}})?>", re.IGNORECASE)

Kind = Literal["fence", "midline", "code", "reasoning", "thought", "answer", "turn"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """One place with a meaning.

    ``fence`` is a line that is a Markdown fence, ``midline`` a fence that ends a line of text; for
    both ``name`` is the info string and ``fence`` the run itself. The other kinds are tags
    (``name`` in lower case), and ``turn`` also the line that begins an observation or a role
    (named ``#`` when it is written as a heading, which in code is a comment).
    """

    kind: Kind
    start: int
    end: int
    name: str = ""
    closing: bool = False
    fence: str = ""
    indent: int = 0

    @property
    def language(self) -> Literal["python", "none", "other"]:
        """What the info string of a fence says about its content."""
        word = re.match(r"[{.\s]*([^\s{}:,;(]*)", self.name)
        name = word[1].lower() if word else ""
        if not name:
            return "none"
        return "python" if name in _PYTHON else "other"


def find_marks(text: str) -> list[Mark]:
    """Return all marks of a text in order.

    Raises
    ------
    FormatError
        ``malformed``, when there are more than :data:`MAX_MARKS`. The model's fault.
    """
    marks: list[Mark] = []
    for match in _MARK.finditer(text):
        if len(marks) == MAX_MARKS:
            told = f"The reply holds more than {MAX_MARKS:,} delimiters. Write one block of code."
            raise FormatError("too many delimiters", feedback=told, kind="malformed")
        if not _is_quoted(text, *match.span()):
            marks.append(_mark(match))
    return marks


def _is_quoted(text: str, start: int, end: int) -> bool:
    """Whether a tag stands in backticks, and not between two fences."""
    before, after = text[max(start - 3, 0) : start], text[end : end + 1]
    return before.endswith("`") and after == "`" and before != "```"


def code_tag_at_start(text: str) -> re.Match[str] | None:
    """Return the opening tag of code (its name is group 1) with which the text begins."""
    return _CODE_TAG.match(text)


def _mark(match: re.Match[str]) -> Mark:
    start, end = match.span()
    if match["fence"]:
        # "```</think>" closes both: the tag is a mark of its own, not an info string.
        info, indent = (match["info"] or "").strip(), len(match["indent"])
        fence = match["fence"]
        return Mark(kind="fence", start=start, end=end, name=info, fence=fence, indent=indent)
    if match["midline"]:
        name = match["language"] or ""
        return Mark(kind="midline", start=start, end=end, name=name, fence=match["midline"])
    if match["tag"]:
        kinds: tuple[Kind, ...] = ("code", "reasoning", "thought", "answer")
        kind: Kind = next((k for k in kinds if match[k]), "turn")
        name, closing = match["tag"].lower(), bool(match["slash"])
        return Mark(kind=kind, start=start, end=end, name=name, closing=closing)
    if match["turn"]:
        return Mark(kind="turn", start=start, end=end, name="#" if match["heading"] else "")
    return Mark(kind="reasoning", start=start, end=end, closing=bool(match["magistral"]))
