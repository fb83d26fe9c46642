"""Checks around a run: the session's policy, and the report of its sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kernel_agent.records import Action, CellResult, DataFile, Decision, Observation, Visit


async def _admit_all(_action: Action, _number: int) -> Decision | None:
    return None


@dataclass(frozen=True, kw_only=True)
class Checks:
    """Checks around a run: before an action, of its result, and when all is over.

    Parameters
    ----------
    admit
        Decides whether an action may be carried out as step number n; None where there is nothing
        to decide beforehand. A person may have changed the cell.
    show
        Marks what the model is shown where it must be told that it is data.
    visits
        What was asked of the network since the last time.
    obeyed
        What cells made since the last time that programs obey.
    read
        The files of folders of data that cells opened since the last time.
    """

    admit: Callable[[Action, int], Awaitable[Decision | None]] = _admit_all
    show: Callable[[Observation, CellResult], Observation] = lambda observation, _result: (
        observation
    )
    visits: Callable[[], tuple[Visit, ...]] = tuple
    obeyed: Callable[[], tuple[str, ...]] = tuple
    read: Callable[[], tuple[DataFile, ...]] = tuple
