"""Rules of approval: a mode, and exceptions for single tools. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from kernel_agent.errors import UsageError
from kernel_agent.records import CELLS_RUN, NO_EFFECTS
from kernel_agent.safe import did_you_mean, one_line
from kernel_agent.tools.definition import Tool

Verdict: TypeAlias = Literal["allow", "ask", "deny"]

MODES = ("never", "risky", "always")
VERDICTS = ("allow", "ask", "deny")


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Decides what is asked about, by a mode and by the names of tools.

    Parameters
    ----------
    mode
        ``never``: nothing. ``risky``: calls of tools with effects. ``always``: also every cell
        that a model wrote.
    tools
        What holds for single tools instead, in every mode.

    Raises
    ------
    UsageError
        The caller's: a mode or a verdict that does not exist.
    """

    mode: str = "risky"
    tools: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            near = did_you_mean(self.mode, MODES)
            raise UsageError(f"--approve is never, risky or always, not {self.mode!r}.{near}")
        for name, verdict in self.tools.items():
            if verdict not in VERDICTS:
                told = f"approval of the tool {name} is allow, ask or deny, not {verdict!r}"
                raise UsageError(told)

    def of_cell(self) -> tuple[Verdict, str]:
        """Return the rule for a cell, and its reason."""
        if self.mode == "always":
            return "ask", "every cell is asked about (--approve always)"
        return "allow", CELLS_RUN

    def of_call(self, tool: Tool) -> tuple[Verdict, str]:
        """Return the rule for a call of a tool, and its reason."""
        own = self.tools.get(tool.name)
        if own == "deny":
            return "deny", "the settings deny this tool"
        if own == "allow":
            return "allow", "the settings allow this tool"
        if own == "ask":
            return "ask", "the settings say to ask before this tool"
        if not tool.effects:
            return "allow", NO_EFFECTS
        if self.mode == "never":
            return "allow", "nothing is asked about (--approve never)"
        return "ask", "it has effects outside"

    def strangers(self, names: set[str]) -> list[str]:
        """Return a line for each tool in the rules that does not exist."""
        lines = []
        for name in sorted(set(self.tools) - names):
            hint, told = did_you_mean(name, names), one_line(name, 80)
            lines.append(f"The settings {self.tools[name]} a tool {told}: there is none.{hint}")
        return lines


def approval_prompt(policy: Policy, tools: Sequence[Tool]) -> str:
    """Return the system prompt's part on approval; may be empty."""
    verdicts = {tool.name: policy.of_call(tool)[0] for tool in tools}
    asked = [name for name, verdict in verdicts.items() if verdict == "ask"]
    denied = [name for name, verdict in verdicts.items() if verdict == "deny"]
    lines = [
        "- A person is asked before each cell runs." if policy.of_cell()[0] == "ask" else "",
        f"- A person is asked before each call of: {', '.join(asked)}." if asked else "",
        f"- Calls are denied of: {', '.join(denied)}." if denied else "",
    ]
    lines = [line for line in lines if line]
    if not lines:
        return ""
    what = (
        "- What is denied raises PermissionError with the reason, and was not done. Do not repeat "
        "it or look for a way around it: go on without it, or say in your answer what was denied."
    )
    return "\n".join(["## Approval", "", *lines, what])
