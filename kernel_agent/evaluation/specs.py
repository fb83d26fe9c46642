"""Arms, runs and their results: the records of an evaluation, each one JSON object on disk.

A run is known by a digest of everything that defines it (task, arm, trial, caps), so that a
repeated evaluation finds what it has done already, wherever that was done.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny

from kernel_agent.evaluation.checks import form_of
from kernel_agent.evaluation.tasks import Task
from kernel_agent.records import ExitStatus, Json

LOST = "lost"
"""The status of a run whose worker was lost; it is run again by the next evaluation."""

REFUSED = "refused"
"""The status of a run that could not begin: a file, an option or a sandbox level."""

UNFINISHED = frozenset({LOST, str(ExitStatus.INTERRUPTED)})
"""Statuses that are no result: such a run is carried out again."""


class Record(BaseModel):
    """A frozen record that refuses fields it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Arm(Record):
    """One way of doing the tasks: a format, a model and a sandbox level."""

    format: str = "auto"
    model: str = "offline"
    sandbox: str = "auto"
    base_url: str | None = None

    @property
    def parts(self) -> dict[str, str]:
        """Return the settings in which arms may differ, by name."""
        at = f"@{self.base_url}" if self.base_url else ""
        return {"format": self.format, "model": f"{self.model}{at}", "sandbox": self.sandbox}

    @property
    def name(self) -> str:
        """Return the name under which results list it; no two arms share one."""
        return " / ".join(self.parts.values())


def short_names(arms: Sequence[Arm]) -> tuple[dict[str, str], str]:
    """Name each arm by the parts in which it differs; return the names and the common parts.

    An endpoint's address stands in a name only where a model is asked at two of them.
    """
    ends = {(arm.model, arm.base_url) for arm in arms}
    twice = {model for model, count in Counter(model for model, _ in ends).items() if count > 1}
    parts = {
        arm.name: arm.parts | ({} if arm.model in twice else {"model": arm.model}) for arm in arms
    }
    first = next(iter(parts.values()))
    differ = [kind for kind in first if len({part[kind] for part in parts.values()}) > 1]
    named = differ or list(first)
    names = {name: " / ".join(part[kind] for kind in named) for name, part in parts.items()}
    return names, ", ".join(f"{kind} {first[kind]}" for kind in first if kind not in named)


class RunSpec(Record):
    """Everything that a worker needs to carry out one run.

    Parameters
    ----------
    run_id
        The digest of the rest; see :meth:`of`.
    folder
        The evaluation's folder. On other machines it must be the same shared folder.
    settings
        Settings of :class:`~kernel_agent.config.Config` that hold for all runs. Never a key.
    judge
        The model that judges rubrics, if there is one.
    """

    run_id: str
    task: SerializeAsAny[Task]
    arm: Arm
    trial: int = 1
    folder: str
    settings: dict[str, Any] = Field(default_factory=dict)
    judge: Arm | None = None

    @classmethod
    def of(
        cls,
        *,
        task: Task,
        arm: Arm,
        trial: int,
        folder: str,
        settings: dict[str, Any],
        judge: Arm | None = None,
    ) -> Self:
        """Return the spec with its ``run_id``; where the folder lies does not count."""
        defining = {
            "task": task.model_dump(mode="json"),
            "form": form_of(task),
            "arm": arm.model_dump(),
            "trial": trial,
            "settings": settings,
            "judge": judge.model_dump() if judge else None,
        }
        text = json.dumps(defining, sort_keys=True, default=str)
        run_id = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]
        return cls(
            run_id=run_id, task=task, arm=arm, trial=trial, folder=folder, settings=settings,
            judge=judge,
        )  # fmt: skip


class RunResult(Record):
    """The result of one run.

    Parameters
    ----------
    success
        Whether the answer is right; None when it could not be judged.
    status
        An :class:`~kernel_agent.records.ExitStatus`, or ``refused`` or ``lost``.
    reason
        Why it is not a success, in one line.
    form
        Whether it could not be judged because of the form of the answer.
    parse_failures
        Replies that could not be read as an action.
    failed_calls
        Calls of tools that failed, those with arguments that could not be read among them.
    repaired_calls
        Calls that were made although their arguments were no JSON as the model wrote them.
    unseen
        Whether the answer stood beside calls whose results the model had not seen.
    cost_usd
        None while no price is configured; the judge's is apart.
    """

    run_id: str
    task_id: str
    arm: str
    trial: int
    status: str
    success: bool | None
    reason: str = ""
    form: bool = False
    answer: Json = None
    steps: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    tokens_estimated: bool = False
    cost_usd: float | None = None
    judge_cost_usd: float | None = None
    parse_failures: int = 0
    failed_cells: int = 0
    failed_calls: int = 0
    repaired_calls: int = 0
    unseen: bool = False
    seconds: float = 0.0
    started: str = ""
    notebook: str | None = None

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def total_cost_usd(self) -> float:
        """What it cost with its judge, as far as prices are configured."""
        return (self.cost_usd or 0.0) + (self.judge_cost_usd or 0.0)

    @property
    def finished(self) -> bool:
        """Whether this counts: it was not stopped or lost on the way."""
        return self.status not in UNFINISHED
