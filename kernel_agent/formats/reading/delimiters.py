"""The places in a reply that mean something: fence lines, known tags, invented turns.

Real models write more delimiters than they were asked for, so the tables are generous: upper
case, attributes, reasoning tags of several families, ``**Output:**``. A server that does not know
a model's template passes on its tokens as text, so those that open or end reasoning, a turn or a
call of code are here, too. A tag that stands in backticks is only mentioned and is no mark. What a
mark means depends on where it stands, which :mod:`kernel_agent.formats.reading.scanner` decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from kernel_agent.errors import FormatError

MAX_MARKS = 5_000
"""More delimiters than this are no reply but a loop; recorded replies have at most some dozens."""

_CODE_TAGS = (
    "execute_ipython|execute_python|execute_code|execute|python_code|jupyter_code|tool_code"
    "|code_interpreter|ipython|python|py|code"
)
_REASONING_TAGS = (
    r"(?:\w{1,9}:)?(?:thinking|think|reasoning_content|reasoning|reason|reflection|scratchpad)"
    "|antthinking|inner_monologue|internal_thoughts|thought_process"
)
_THOUGHT_TAGS = "thoughts|thought|analysis"
_ANSWER_TAGS = "solution|answer|final_answer"
_TURN_TAGS = (
    "observations?|outputs?|results?|(?:execution|function|tool)_(?:outputs?|results?|response)"
)
_TURN_NAMES = (
    r"(?:(?:execution|console|code|cell|program|step[^\S\n]\d{1,3})[^\S\n])?"
    r"(?:observation|output|result)s?|stdout|out[^\S\n]?\[\d+\]|观察|输出"
    r"|user|human|assistant|system|environment|instruction|response"
)
_OUTPUTS = ("output", "outputs", "tool_output", "tool_outputs", "stdout", "observation")
"""Tags of a fence that holds the output which a model invented for its code."""
_PYTHON = ("python", "python3", "py", "py3", "ipython", "ipython3", "jupyter", "tool_code")

# Tokens of chat templates: Harmony, Llama, DeepSeek, Kimi, Command R, Gemma and their kin.
_MESSAGE = r"(?:<\|constrain\|>\w{1,9}[^\S\n]?)?<\|message\|>"
_CHANNEL = r"(?:<\|start\|>assistant[^<\n]{0,80})?<\|channel\|>"
_THINKS = (
    rf"{_CHANNEL}analysis[^\S\n]?{_MESSAGE}"
    r"|<\|(?:begin_of_thought|start_thinking|think|think_start|inner_prefix)\|>|◁think▷"
    r"|<unused94>|<\|channel>thought\b"
)
_SPEAKS = (
    rf"{_CHANNEL}(?:final|commentary|analysis[^\S\n]to=)[^<\n]{{0,80}}{_MESSAGE}"
    r"|<\|(?:end_of_thought|end_thinking|/think|think_end|inner_suffix)\|>|◁/think▷"
    r"|<unused95>|<channel\|>"
)
_LEAKED = "assistant(?:final|commentary)"  # of a server that takes out the tokens alone
_PYTHON_TAG = r"<\|python_tag\|>(?!\s{0,9}[\[{])"
_PYTHON_CHANNEL = (
    rf"{_CHANNEL}(?:analysis|commentary)[^\S\n]to=python\b[^<\n]{{0,40}}{_MESSAGE}(?!\s{{0,9}}\{{)"
)
_TURN_TOKENS = (
    r"<\|(?:eo[mt]_id|im_(?:end|start)|start_header_id|endoftext|return|call|end|user|observation)\|>"
    r"|<(?:end|start)_of_turn>|<\uff5c(?:User|Assistant|end▁of▁sentence)\uff5c>"
    r"|<\|start_tool_result\|>|<\uff5ctool▁outputs?▁begin\uff5c>|\[(?:INST|TOOL_RESULTS)\]"
)
TAG_SPACE = r"(?:\w{1,9}:|\uff5cDSML\uff5c)?"
"""Prefixes of tag names in some families: Anthropic, MiniMax, DeepSeek."""

_CALL_TAGS = ("function", "invoke", "tool_call")  # Qwen and OpenHands; those above; GLM
_CALLS = (
    r"<function=\s{0,9}[\w.-]{1,100}\s{0,9}>"
    rf"|<{TAG_SPACE}invoke[^\S\n]name=[\"'][\w.-]{{1,100}}[\"'][^<>\n]{{0,80}}>"
    r"|<tool_call>\s{0,9}[\w.-]{1,100}\s{0,9}(?=<arg_key>)"
)
_CALLED = rf"</function>|</{TAG_SPACE}invoke>|</tool_call>"

# Before Python 3.11.5 a possessive group takes a part of what its last alternative refuses.
_MARK = re.compile(
    rf"""
    ^(?P<indent>[^\S\n]*+) (?=[`~*_\#a-z观输]) (?:
        (?P<fence>`{{3,}}+|~{{3,}}+)
        (?: [^\S\n]*+ (?=[<◁]|\[/?THINK\]|{_LEAKED})
          | (?P<info>[^\n<]*+(?:<(?!/(?:{_REASONING_TAGS})>)[^\n<]*+)*) )
      | (?:[*_]{{1,3}}|(?P<heading>\#{{1,6}}[^\S\n]+))? (?P<turn>{_TURN_NAMES})
        (?:[^\S\n]*\([^()\n]{{0,40}}\))? [*_]{{0,3}} [^\S\n]* [:\uff1a]
      | (?:\*\*|(?P<title>\#{{1,6}}[^\S\n]+)) (?:observation|output)s? (?:\*\*)? [^\S\n]*+ $
    )
  | (?P<midline>`{{3,}}+) (?P<language>{"|".join(_PYTHON)})? [^\S\n]*+ $
  | < (?P<slash>/?) (?=[a-z]) (?P<tag>
        (?P<code>{_CODE_TAGS}) | (?P<reasoning>{_REASONING_TAGS}) | (?P<thought>{_THOUGHT_TAGS})
      | (?P<answer>{_ANSWER_TAGS}) | {_TURN_TAGS}
    ) (?:[^\S\n][^<>\n]{{0,80}})? >
  | \[ (?P<magistral>/?) THINK \]
  | (?P<leaked>{_LEAKED})
  | (?=[<\[◁]) (?=<[|\uff5ccesu]|[\[◁]) (?:  # tested first because most places are none of these
        (?P<python_tag>{_PYTHON_TAG}) | (?P<python_channel>{_PYTHON_CHANNEL})
      | (?P<thinks>{_THINKS}) | (?P<speaks>{_SPEAKS}) | (?P<token>{_TURN_TOKENS})
    )
  | (?P<calls>{_CALLS}) | (?P<called>{_CALLED})
    """,
    re.MULTILINE | re.IGNORECASE | re.VERBOSE,
)

_CODE_TAG = re.compile(rf"<({_CODE_TAGS})(?:[^\S\n][^<>\n]{{0,80}})?>", re.IGNORECASE)

PYTHON_CHANNEL = "python channel"
"""The name of the mark with which Harmony sends code: it ends reasoning and opens a block."""

TEMPLATE_PYTHON = frozenset(("python_tag", PYTHON_CHANNEL))
"""Names of the marks that open a block which ends with a token of the template."""

Language = Literal["python", "none", "other"]
Kind = Literal["fence", "midline", "code", "reasoning", "thought", "answer", "turn", "call"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A delimiter and its place.

    ``fence`` is a line that is a Markdown fence, ``midline`` a fence that ends a line of text; for
    both ``name`` is the info string and ``fence`` the run itself. The other kinds are tags
    (``name`` in lower case), and ``turn`` also the line that begins an observation or a role
    (named ``#`` when it is written as a heading, which in code is a comment) and the ``token`` of
    a chat template. ``call`` is a call whose arguments are tags.
    """

    kind: Kind
    start: int
    end: int
    name: str = ""
    closing: bool = False
    fence: str = ""
    indent: int = 0

    @property
    def language(self) -> Language:
        """Classify a fence's content by its info string."""
        return language(self.name)

    @property
    def invents(self) -> bool:
        """Whether an invented turn begins here, once there is an action before it."""
        output = self.kind == "fence" and self.name.lower() in _OUTPUTS
        return output or self.kind == "turn"


def language(info: str) -> Language:
    """Classify the code beside an info string."""
    word = re.match(r"[{.\s]*([^\s{}:,;(]*)", info)
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
            feedback = (
                f"The reply holds more than {MAX_MARKS:,} delimiters. Write one block of code."
            )
            raise FormatError("too many delimiters", feedback=feedback, kind="malformed")
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
        # "```</think>" closes both: the tag is a separate mark, not an info string.
        fence, info, indent = match["fence"], (match["info"] or "").strip(), len(match["indent"])
        return Mark(kind="fence", start=start, end=end, name=info, fence=fence, indent=indent)
    if match["midline"]:
        name = match["language"] or ""
        return Mark(kind="midline", start=start, end=end, name=name, fence=match["midline"])
    if match["tag"]:
        kinds: tuple[Kind, ...] = ("code", "reasoning", "thought", "answer")
        kind: Kind = next((k for k in kinds if match[k]), "turn")
        name, closing = match["tag"].lower(), bool(match["slash"])
        return Mark(kind=kind, start=start, end=end, name=name, closing=closing)
    return _template_mark(match)


def _template_mark(match: re.Match[str]) -> Mark:
    start, end = match.span()
    if match["python_tag"] or match["python_channel"]:
        name = PYTHON_CHANNEL if match["python_channel"] else "python_tag"
        return Mark(kind="code", start=start, end=end, name=name)
    if match["thinks"] or match["speaks"] or match["leaked"] or match["magistral"] is not None:
        closing = bool(match["speaks"] or match["leaked"] or match["magistral"])
        return Mark(kind="reasoning", start=start, end=end, closing=closing)
    if match["calls"] or match["called"]:
        name = next(known for known in _CALL_TAGS if known in match[0].lower())
        return Mark(kind="call", start=start, end=end, name=name, closing=bool(match["called"]))
    heading = match["heading"] or match["title"]
    name = "token" if match["token"] else "#" if heading else ""
    return Mark(kind="turn", start=start, end=end, name=name)
