"""The default format: free thought, then one delimited block of code.

Asked for is a fence tagged ``python``; read is whatever real models write instead
(:mod:`kernel_agent.formats.reading.scanner` finds the blocks). What is run, by rule:

1. Reasoning is hidden first, and the reply ends where it invents an observation.
2. The **last block** is the action, because a second block corrects the first. Where it uses a name
   that only earlier fences bind, it goes on from them, and all of them run as one cell. A fence
   or tag that says Python counts before an untagged fence that looks like code, and that before
   code inside ``<solution>`` or ``<answer>``, which holds an answer and is read only when it is
   fenced as Python and nothing else is there. Fences of other languages are never code.
3. **Truncated code never runs**: neither anything of a reply with ``finish_reason == "length"``
   nor a block that is open at the end. Only the endpoint's word that the model stopped by itself
   (``"stop"``) makes an open block that compiles readable; a plain string has no such word. When
   the last block is open, the last **complete** one that is marked as code is the action: in
   recorded turns the open one repeats it or goes on from it, and no one corrects it. A complete
   block that would end the run is not, since nothing could correct it afterwards.
4. A block that does not compile is a syntax error, not a reason to run an earlier one.
5. Without any block, the whole visible text is the code when it compiles and is evidently code
   (an import, an assignment, a call…); ``Done`` and ``42`` are not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernel_agent.errors import FormatError
from kernel_agent.formats.prompts import GIVE, IF_ANSWER, LOOK, system_prompt, write_step
from kernel_agent.formats.reading.objects import strict
from kernel_agent.formats.reading.prose import without_answer_tags
from kernel_agent.formats.reading.scanner import Block, Blocks, find_blocks
from kernel_agent.formats.reading.source import (
    bound_names,
    check,
    compile_error,
    free_names,
    is_evidently_code,
)
from kernel_agent.records import Action, Code, Message, Reply, RequestOptions, Step, ToolSchema

_MISSING = (
    "No code was found in the reply, so nothing was run. Write a short thought and then exactly "
    "one block:{shape}To give the answer, call final_answer(value) in such a block."
)
_TRUNCATED = (
    "The reply was cut off before its end, so nothing was run. Write a shorter thought and a "
    "shorter cell, one step at a time, and write it to its end:"
)


class Fenced:
    """Thought as text, code in a fence. Stateless.

    Parameters
    ----------
    look
        The cell of its examples.
    """

    name = "fenced"
    writes_code = True

    def __init__(self, look: str = LOOK) -> None:
        self._example = self.compose(thought="", code=look)
        self._shape = f"\n\n{self._example}\n\n"
        give = self.compose(thought="", code=GIVE)
        self._if_answer = IF_ANSWER.format(shape=f"\n\n{give}\n\n")

    def system_prompt(self, *, tools: str = "") -> str:
        """Return the fixed first message; see :class:`~kernel_agent.formats.base.Format`."""
        return system_prompt(self.name, tools=tools, example=self._example)

    def options(self, *, tools: Sequence[ToolSchema] = ()) -> RequestOptions:  # noqa: ARG002 - cells call tools
        """Return nothing: plain text needs nothing, and a stop sequence could cut a literal."""
        return RequestOptions()

    def parse(self, reply: Reply) -> Action:
        """Read a reply as one cell.

        Raises
        ------
        FormatError
            ``missing``, ``truncated``, ``syntax`` or ``malformed``. The model's fault.
        """
        refuse_truncated(reply, shape=self._shape)
        found = find_blocks(readable(reply.content))
        block = found.chosen
        if block is None:
            return self._bare(found, reply)
        if block.open and not _stopped_by_itself(reply, block):
            block = _complete_instead(found, block, self._shape)
        source = with_earlier(found, block)
        return Code(
            source=check(source),
            thought=found.prose(block.start),
            left_out=_name_left_out(found, block, source),
        )

    def _bare(self, found: Blocks, reply: Reply) -> Code:
        """Read a reply without delimiters: code as a whole, or no action."""
        for end in (*found.turns[:_MAX_TURNS], found.end):
            visible = found.outside_thoughts(end)
            if is_evidently_code(visible):
                return Code(source=visible, thought=found.marked_thoughts(end))
        tag = found.languages[-1][:20] if found.languages else ""
        why = f"A block tagged {tag} is not run; only Python is. " if tag else ""
        raise FormatError(
            "no code in the reply", feedback=why + _MISSING.format(shape=self._shape),
            kind="missing", words=words_of(reply), if_answer=why + self._if_answer,
        )  # fmt: skip

    def write(self, step: Step) -> tuple[Message, ...]:
        """Return how a finished step stands in the history."""
        return write_step(step, compose=self.compose)

    def compose(self, *, thought: str, code: str) -> str:
        """Return thought and code as this format asks for them."""
        longest = max((len(run) for run in re.findall(r"`{3,}", code)), default=2)
        fence = "`" * (longest + 1)
        return f"{thought.strip()}\n\n{fence}python\n{code}\n{fence}".lstrip()


def with_earlier(found: Blocks, last: Block) -> str:
    """Return the source of the last block, behind the earlier ones of which it needs names.

    Only fences are joined, and only where the last uses a name that an earlier one binds and it
    does not bind itself: otherwise it corrects them. Between tags each block is an attempt.
    """
    if not _is_fence(found, last):
        return last.source
    fences = [
        block
        for block in found.blocks
        if block.start < last.start and block.rank == last.rank and not block.open
        and _is_fence(found, block)
    ]  # fmt: skip
    needed = free_names(last.source)
    if not needed & {name for block in fences for name in bound_names(block.source)}:
        return last.source
    return "\n\n".join(block.source for block in (*fences, last))


def _name_left_out(found: Blocks, ran: Block, source: str) -> str:
    """Say which blocks of a reply were not run; those that the source begins with were."""
    others = [
        block
        for block in found.blocks
        if block.start != ran.start and block.rank == ran.rank
        and not source.startswith(block.source)
    ]  # fmt: skip
    if not others:
        return ""
    named = [_name(block) for block in others[-_NAMED:]]
    more = [f"{len(others) - _NAMED} before them"] if len(others) > _NAMED else []
    listed = "; ".join([*named, *more])
    return f"Not run of your reply: {listed}. One block runs: write again what is still needed."


_NAMED, _BEGINNING = 3, 60


def _name(block: Block) -> str:
    begins = block.source.strip().split("\n", 1)[0]
    begins = begins if len(begins) <= _BEGINNING else f"{begins[:_BEGINNING]}…"
    return f'the block that begins "{begins}"' + (", which was cut off" if block.open else "")


def _is_fence(found: Blocks, block: Block) -> bool:
    return found.text[block.start : block.start + 40].lstrip().startswith(("```", "~~~"))


def readable(content: str | None) -> str:
    """Return a reply's text with plain line ends, and without halves of characters (surrogates).

    Such halves come from endpoints that cut a stream inside of an escape; no file can hold them.
    """
    text = (content or "").replace("\r\n", "\n")
    return text.encode("utf-8", "replace").decode("utf-8")


def refuse_truncated(reply: Reply, *, shape: str) -> None:
    """Refuse a reply that the endpoint cut off, whatever it holds.

    Parameters
    ----------
    reply
        A reply.
    shape
        An example of what is wanted, for the feedback of an error.

    Raises
    ------
    FormatError
        ``truncated``. The model's fault: it wrote too much.
    """
    if reply.finish_reason == "length":
        raise _cut_off_error("reply cut off", shape)


def _cut_off_error(why: str, shape: str, code: str = "") -> FormatError:
    feedback = f"{_TRUNCATED}{shape}".rstrip()
    return FormatError(why, feedback=feedback, kind="truncated", code=code)


def _complete_instead(found: Blocks, cut: Block, shape: str) -> Block:
    """Return the complete block that runs when the last one was cut off.

    Raises
    ------
    FormatError
        ``truncated``: no such block, or it would end the run. The model's fault.
    """
    block = found.complete
    if block is None or "final_answer" in block.source:
        raise _cut_off_error("a block never closes", shape, cut.source)
    return block


def _stopped_by_itself(reply: Reply, block: Block) -> bool:
    return reply.finish_reason == "stop" and compile_error(block.source) is None


_MAX_TURNS = 8


_NOTATION = re.compile(
    r"\A\s*\{|</?\|?(?:\w{1,9}:)?(?:tool_calls?|function|invoke)\b|<\uff5ctool|\[TOOL_CALLS\]"
    r"|^Action\s*+:",
    re.IGNORECASE | re.MULTILINE,
)
_HALF_CODE = re.compile(
    r"""
    ^[^\S\n]*+(?:                                                       # a line of Python …
        import\ [\w.]++(?:\ as\ \w++)?[^\S\n]*+$ | from\ [\w.]++\ import\ \w
      | def\ \w++\( | for\ \w[^\n]{0,80}\ in\ [^\n]{0,80}:[^\S\n]*+$
      | \w[\w.]*+(?:\[[^\]\n]{0,80}\])?\ =\ (?:\w++\.\w[\w.]*+\(|\w++\(['"])
      | (?:print|display|final_answer|python|functions\.\w++)\(
      | >>>\  | In\ \[\d{1,4}\]: | %%?[a-z] | ![a-z]
      | (?:'{3}|`{2}|~{2})\ ?(?:python|py)\b | \[/?(?:python|code)\]     # … or its mark
      | Code:[^\S\n]*+$
    )
    | \A\s*+`[^`\n]{1,400}\)`\s*+\Z                                     # nothing but a call
    | ["'](?:code|arguments|tool_calls?)["']\s*+:                       # the fields of a call
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_SHELLS = ("bash", "sh", "shell")


def words_of(reply: Reply) -> str:
    """Return the visible text of a reply that is words alone; empty where it tries to be more.

    A block that could be code, a line of it without a block, or what looks like a call or an
    object, is an action that could not be read, and no answer.
    """
    found = find_blocks(readable(reply.content))
    text = without_answer_tags(found.outside_thoughts(found.end))
    acts = reply.tool_calls or found.calls or found.blocks or _NOTATION.search(text)
    acts = acts or _HALF_CODE.search(text)
    shell = any(name.lower() in _SHELLS for name in found.languages)
    return "" if acts or shell else text


_CLOSING_TAG = re.compile(r"</[\w:.-]{1,60}>\s*\Z")


def closes(reply: Reply) -> bool:
    r"""Whether a reply proves by itself that it is whole, where its endpoint does not say so.

    Some endpoints never send a reason for a reply's end; others leave it out when they ended the
    reply in the middle. What runs of such a reply must be closed in its own notation: a block in
    its fence, a call in its object or tag. Bare code closes nothing: ``share = n / 24`` may be half
    of ``share = n / 240``.

    >>> closes(Reply(content="So:\n```python\nprint(1)\n```")), closes(Reply(content="print(1)"))
    (True, False)
    """
    if reply.tool_calls:
        return all(isinstance(strict(call.arguments), dict) for call in reply.tool_calls)
    text = reply.content.strip()
    if _CLOSING_TAG.search(text) or isinstance(strict(text), dict):
        return True
    try:
        found = find_blocks(readable(text))
    except FormatError:
        return False
    chosen = found.chosen
    return found.complete is not None or (chosen is not None and not chosen.open)
