"""Long runs with real kernels: within the window, nothing lost, and a refusal is no end."""

from __future__ import annotations

from pathlib import Path

from support.replies import cell

from kernel_agent import ScriptedModel, Session
from kernel_agent.records.endings import ExitStatus


async def test_the_model_is_told_that_the_kernel_is_a_new_one(tmp_path: Path) -> None:
    model = ScriptedModel(
        [cell("x = 1\nimport os\nos._exit(3)"), cell("final_answer(2)")], keep_requests=True
    )
    async with Session(model=model, out=tmp_path) as session:
        lost = await session.run("First.")
        assert lost.status is ExitStatus.KERNEL_LOST
        await session.run("Second.")
    assert "the kernel is a new one" in model.requests[1][-1].content
