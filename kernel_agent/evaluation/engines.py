"""Engines that carry out runs: this process, or Dask workers.

An engine has one method, ``result(spec)``, which carries out one whole run, loop and kernel
together, and returns its result. What crosses to a worker and back is plain JSON types, so that a
worker is trusted no more than its answers are. Bounding, retrying later, progress and the caps
are the campaign's; restarting a run whose worker died is the scheduler's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, Self

from kernel_agent.errors import KernelAgentError, UsageError, how_to_install
from kernel_agent.evaluation.runs import carry_out, run_one
from kernel_agent.evaluation.specs import RunResult, RunSpec

Work = Callable[[RunSpec], RunResult]


class WorkerLost(KernelAgentError):
    """The workers of a run were lost, more often than it is started again."""


class Engine(AbstractAsyncContextManager["Engine"], Protocol):
    """Carries out runs; an asynchronous context manager."""

    @property
    def places(self) -> int:
        """Return how many runs it carries out at a time, as far as it knows."""
        ...

    async def result(self, spec: RunSpec) -> RunResult:
        """Carry out one run; called by the campaign, as often at a time as it likes.

        Raises
        ------
        WorkerLost
            The run's workers died.
        """
        ...


class Here:
    """In this process: a run waits for its kernel and its model most of the time."""

    def __init__(
        self, *, places: int = 2, work: Callable[[RunSpec], Awaitable[RunResult]] = carry_out
    ) -> None:
        self.places = places
        self._work = work

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None

    async def result(self, spec: RunSpec) -> RunResult:
        """Carry out one run on this event loop."""
        return await self._work(spec)


class OnDask:
    """On the workers of a Dask scheduler; without an address on a cluster of its own, here.

    Parameters
    ----------
    address
        Of the scheduler, as in ``tcp://host:8786``.
    workers
        Of the cluster that is started when there is no address.
    work
        What a worker does; importable there.
    timeout_s
        How long the scheduler may take to answer.
    """

    def __init__(
        self, address: str = "", *, workers: int = 2, work: Work = run_one, timeout_s: float = 20.0
    ) -> None:
        self._address, self._workers, self._work = address, workers, work
        self._timeout_s = timeout_s
        self._own: Any = None
        self._client: Any = None
        self._again = asyncio.Lock()
        self.places = workers

    async def __aenter__(self) -> Self:
        try:
            import dask
            from distributed import Client, LocalCluster
        except ModuleNotFoundError:
            raise UsageError(f"--on dask needs packages more: {how_to_install('dask')}") from None
        if not self._address:
            # Workers would else import what lies in the working directory.
            with dask.config.set({"distributed.nanny.pre-spawn-environ.PYTHONSAFEPATH": "1"}):
                self._own = await LocalCluster(
                    n_workers=self._workers, threads_per_worker=1, asynchronous=True,
                    dashboard_address=None,
                )  # fmt: skip
        try:
            where = self._address or self._own
            self._client = await Client(where, asynchronous=True, timeout=self._timeout_s)
        except (OSError, TimeoutError) as error:
            raise UsageError(f"no Dask scheduler answers at {self._address}: {error}") from None
        threads = await self._client.nthreads()
        self.places = sum(threads.values()) or self._workers
        return self

    async def __aexit__(self, *exc: object) -> None:
        for part in (self._client, self._own):
            if part is not None:
                await part.close()

    async def result(self, spec: RunSpec) -> RunResult:
        """Carry out one run on a worker; the scheduler moves it when the worker dies."""
        from distributed.scheduler import KilledWorker

        # Dask counts a worker's death against every run that was assigned to it, so that those
        # beside the run that kills workers are given up, too: each is tried again, one at a time.
        try:
            return await self._once(spec, attempt=1)
        except KilledWorker:
            async with self._again:
                try:
                    return await self._once(spec, attempt=2)
                except KilledWorker as lost:
                    raise WorkerLost(f"the workers of this run died: {lost}") from None

    async def _once(self, spec: RunSpec, *, attempt: int) -> RunResult:
        future = self._client.submit(
            _over_there, self._work, spec.model_dump(mode="json"),
            key=f"run-{spec.run_id}-{attempt}", pure=False,
        )  # fmt: skip
        try:
            return RunResult.model_validate(await future)
        except asyncio.CancelledError:
            await future.cancel()
            raise


def _over_there(work: Work, spec: dict[str, Any]) -> dict[str, Any]:
    """Carry out a run on a worker: plain types in, plain types out."""
    return work(RunSpec.model_validate(spec)).model_dump(mode="json")


def engine_of(name: str, *, places: int | None = None) -> Engine:
    """Return the engine that ``--on`` names: ``local`` or ``dask[:ADDRESS]``.

    Raises
    ------
    UsageError
        There is no such engine, or its workers are there already and have their own places.
    """
    kind, _, address = name.partition(":")
    if kind == "local" and not address:
        return Here(places=places or 2)
    if kind == "dask" and address and places is not None:
        raise UsageError(f"--at-once is not for {name}: as many runs go there as its workers take")
    if kind == "dask":
        return OnDask(address, workers=places or 2)
    raise UsageError(f"unknown engine {name!r}; choose local or dask[:ADDRESS]")
