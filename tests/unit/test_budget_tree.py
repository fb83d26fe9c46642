"""Whatever is delegated, spent and given back: a tree of runs spends no more than its top may."""

from __future__ import annotations

from contextlib import ExitStack

from hypothesis import given
from hypothesis import strategies as st

from kernel_agent.errors import BudgetExceeded
from kernel_agent.records.budget import Budget, Meter
from kernel_agent.records.conversation import Usage


class Tree:
    """Meters that spend what they may, never more, in any order."""

    def __init__(self, budget: Budget) -> None:
        self.stack = ExitStack()
        self.meters = [Meter(budget, clock=lambda: 0.0)]
        self.open: list[tuple[Meter, ExitStack]] = []

    def delegate(self, at: int, share: float) -> None:
        parent = self.meters[at % len(self.meters)]
        stack = ExitStack()
        try:
            child = stack.enter_context(parent.shared(share))
        except BudgetExceeded:
            return
        self.meters.append(child)
        self.open.append((child, stack))

    def work(self, at: int, tokens: int) -> None:
        meter = self.meters[at % len(self.meters)]
        try:
            meter.check()
        except BudgetExceeded:
            return
        room = (meter.budget.max_tokens or 0) - meter.usage.total_tokens
        waits = any(child.parent is meter for child in self.meters)
        if meter is not self.meters[0] and not waits:
            meter.charge(Usage(prompt_tokens=min(tokens, room)))
            meter.count_step()

    def finish(self, at: int) -> None:
        if not self.open:
            return
        index = at % len(self.open)
        meter, stack = self.open[index]
        if any(other.parent is meter for other, _ in self.open):
            return  # it waits for those beneath it
        self.open.pop(index)
        stack.close()
        self.meters.remove(meter)


actions = st.lists(
    st.tuples(
        st.sampled_from(["delegate", "work", "finish"]), st.integers(0, 99), st.floats(0.01, 3)
    )
)


@given(steps=st.integers(3, 60), tokens=st.integers(1, 5000), actions=actions)
def test_no_tree_spends_more_than_its_top_may(
    steps: int, tokens: int, actions: list[tuple[str, int, float]]
) -> None:
    """Whatever is delegated, spent and given back, in whatever order."""
    tree = Tree(Budget(max_steps=steps, max_tokens=tokens, max_seconds=None))
    top = tree.meters[0]
    for action, at, share in actions:
        if action == "delegate":
            tree.delegate(at, share)
        elif action == "work":
            tree.work(at, int(share * 500) + 1)
        else:
            tree.finish(at)
        assert top.steps <= steps - 2
        assert top.usage.total_tokens <= tokens
        for meter in tree.meters:
            beneath = [child for child in tree.meters if child.parent is meter]
            apart = sum(child.left("tokens") for child in beneath)
            assert meter.usage.total_tokens + apart <= (meter.budget.max_tokens or 0)
            assert meter.steps + sum(c.left("steps") for c in beneath) <= (
                meter.budget.max_steps or 0
            )
