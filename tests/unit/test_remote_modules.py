"""What a remote kernel is sent: modules in an order in which each finds what it imports."""

from __future__ import annotations

import ast

import pytest

from kernel_agent.kernel.remote import INSIDE, MODULES


@pytest.mark.parametrize("name", MODULES)
def test_a_module_comes_after_those_that_it_imports(name: str) -> None:
    tree = ast.parse((INSIDE / f"{name}.py").read_text())
    imports = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level == 1]
    needed = {n.module or alias.name for n in imports for alias in n.names}
    assert needed <= set(MODULES[: MODULES.index(name)])
