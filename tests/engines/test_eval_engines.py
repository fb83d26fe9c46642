"""Runs on other workers: a real Dask cluster on this machine, some of it killed."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from support import eval_work

from kernel_agent.errors import UsageError
from kernel_agent.evaluation.engines import OnDask, WorkerLost
from kernel_agent.evaluation.specs import Arm, RunSpec
from kernel_agent.evaluation.tasks import Task

pytestmark = [
    # Sockets and loops of the schedulers are let go of by their own threads, after the test.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(autouse=True)
def _workers_find_the_tests(monkeypatch):
    tests = Path(__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tests.parent), str(tests)]))


def specs(folder, count=5):
    return [
        RunSpec.of(
            task=Task(id=f"t{n}", task="?", answer=1), arm=Arm(), trial=1, folder=str(folder),
            settings={},
        )
        for n in range(count)
    ]  # fmt: skip


async def results(engine, what):
    return await asyncio.gather(*(engine.result(s) for s in what), return_exceptions=True)


async def begun(folder, count):
    """Wait until so many runs have left their mark."""
    async with asyncio.timeout(240):
        while len(list(folder.glob("began-*"))) < count:
            await asyncio.sleep(0.05)


async def test_a_dask_worker_killed_in_mid_run_loses_nothing(tmp_path):
    """Its run is carried out on another; all results come."""
    pytest.importorskip("distributed")
    async with OnDask(workers=2, work=eval_work.marked) as engine:
        waiting = asyncio.create_task(results(engine, specs(tmp_path)))
        await begun(tmp_path, 2)
        victim = int(next(tmp_path.glob("began-*")).name.split("-")[2])
        os.kill(victim, signal.SIGKILL)
        (tmp_path / "go").touch()
        came = await waiting
    assert [r.status for r in came] == ["answered"] * 5
    assert len(list(tmp_path.glob("began-*"))) > 5
    assert victim not in {r.answer for r in came[-1:]}


async def test_dask_workers_import_nothing_from_the_working_directory(tmp_path, monkeypatch):
    """A folder that one works in may come from others; a tool's module is looked for by name."""
    pytest.importorskip("distributed")
    for name in ("multiprocessing", "numpy", "yaml", "tornado"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    async with OnDask(workers=1, work=eval_work.instant) as engine:
        (came,) = await results(engine, specs(tmp_path, count=1))
    assert came.status == "answered"
    assert not (tmp_path / "ran").exists()


async def test_a_run_that_kills_every_dask_worker_is_given_up_and_the_others_are_not(tmp_path):
    """Four workers are enough to know."""
    pytest.importorskip("distributed")
    async with OnDask(workers=2, work=eval_work.deadly) as engine:
        came = await results(engine, specs(tmp_path))
    assert isinstance(came[0], WorkerLost)
    assert [r.status for r in came[1:]] == ["answered"] * 4


async def test_a_dask_scheduler_that_does_not_answer_is_told_in_one_line():
    """Not a traceback of tornado's."""
    pytest.importorskip("distributed")
    from dask import config

    told = r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"
    short = config.set({"distributed.comm.timeouts.connect": "1s"})
    with short, pytest.raises(UsageError, match=told):
        await OnDask("tcp://127.0.0.1:9", timeout_s=1.0).__aenter__()
