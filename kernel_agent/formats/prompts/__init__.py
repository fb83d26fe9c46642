"""The formats' prompts, and the form of a finished step in the history.

The code stands once: the assistant message is composed from the action, not copied from the
reply, so that drafts, reasoning and invented observations never come back to the model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from kernel_agent.records import Code, Final, Message, Step

_MAX_REPLY_CHARS = 400  # of an unreadable reply: enough to recognise it, too little to repeat it


@cache
def read_prompt(name: str) -> str:
    """Return the prompt file of a format, without its final newline."""
    path = Path(__file__).with_name(f"{name}.md")
    return path.read_text(encoding="utf-8").strip()


LOOK = "dir()"
"""The cell of an example where the run has no file: it runs in an empty kernel."""

LOOK_THOUGHT = "I look at what is there first."

GIVE = "final_answer(value)"
"""The cell of an example that gives the answer; copied as it stands, it fails."""

IF_ANSWER = (
    "No code was found in the reply, so nothing was run. If this is your answer, give it in code, "
    "with its value:{shape}Otherwise go on with the next cell."
)
"""What a model is told of words that may be its answer."""


def system_prompt(name: str, *, tools: str, example: str) -> str:
    """Return a format's prompt, with a section on tools only when there are any.

    Parameters
    ----------
    name
        The format's.
    tools
        The text of the tool stubs.
    example
        A first look at the run's own data, as the format writes it. It runs as it stands and holds
        no answer: a weak model copies it.
    """
    prompt = read_prompt(name).replace("{example}", example)
    if not tools.strip():
        return prompt
    return (
        f"{prompt}\n\n## Tools\n\nThese functions are already defined in the kernel. Call them in "
        f"your code like any function; they run outside the sandbox.\n\n{tools.strip()}"
    )


def write_step(step: Step, *, compose: Callable[..., str]) -> tuple[Message, ...]:
    """Return the assistant's and the user's message of a finished step.

    Parameters
    ----------
    step
        A step of the trace. Without an action, its last unreadable reply is shown shortened
        beside the feedback that the model got about it.
    compose
        The format's ``compose``.
    """
    if isinstance(step.action, Code):
        said = compose(thought=step.action.thought, code=step.action.source)
        seen = step.observation.text
    elif step.action is None and step.retries:
        said = shorten(step.retries[-1].content)
        seen = step.retries[-1].feedback
    elif isinstance(step.action, Final):
        said = str(step.action.answer)
        seen = step.observation.text
    else:
        said = step.thought
        seen = step.observation.text
    header = f"Observation (step {step.number}):"
    return (
        Message(role="assistant", content=said or "(empty reply)"),
        Message(role="user", content=f"{header}\n{seen}", images=step.observation.images),
    )


def shorten(text: str, *, max_chars: int = _MAX_REPLY_CHARS) -> str:
    """Return the text, or its head and tail with the count of what was left out between them."""
    text = text.strip()
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[… {left_out:,} characters left out …]\n{text[-half:]}"
