"""The guard says no to mistakes before they run, and is no boundary."""

from __future__ import annotations

import ast
import builtins
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_agent.agent.guard import check_guard, guard_prompt, refusal, refuse_cell
from kernel_agent.errors import UsageError
from kernel_agent.inkernel.opcount import TICK, Counting, GuardError

ALLOWED = ["pandas", "numpy", "os.path", "math"]


@pytest.mark.parametrize(
    "source",
    [
        "import pandas as pd, numpy as np\npd.DataFrame({'a': [1]}).query('a > 0')",
        "from pandas.plotting import scatter_matrix",
        "import pandas.api.types",
        "from os.path import join\njoin('a', 'b')",
        "from os import path",
        "import os.path as p\np.exists('x')",
        "import numpy as np\nnp.random.default_rng(1).normal()\nnp.linalg.norm([1])",
        "type(x).__name__\nclass A:\n    def __init__(self):\n        super().__init__()",
        "%matplotlib inline",
        "%%time\nimport math\nmath.sqrt(2)",
        "%time import math",
        "df.eval('a + b')\ndf.os\nrow.sys",
        "getattr(df, 'shape')",
        "def f(:",
        "await something()",
        "re = 1; compile_time = 2",
        "",
    ],
)
def test_what_is_meant_to_run_runs(source: str) -> None:
    assert refusal(source, ALLOWED) == ""


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import os", "import of os "),
        ("import os.path", "binds os"),
        ("import pandas, subprocess", "import of subprocess "),
        ("from os import system", "import of os.system "),
        ("from os import *", "name what you import"),
        ("def f():\n    from requests import get", "import of requests.get "),
        ("import pandasx", "import of pandasx "),
        ("from . import x", "relative"),
        ("import pandas as pd\npd.io.common.os.remove('x')", "module os is not allowed"),
        ("import pandas\npandas.io.common.os", "module os is not allowed"),
        ("import numpy as np\nnp.f2py.os", "module os is not allowed"),
        ("import pandas as pd\npd.__dict__['io']", "__dict__"),
        ("from pandas.io.common import os", "module os is not allowed"),
        ("__import__('os')", "__import__"),
        ("eval('1')", "eval"),
        ("f = exec", "exec"),
        ("().__class__.__bases__[0].__subclasses__()", "__subclasses__"),
        ("(lambda: 0).__globals__", "__globals__"),
        ("getattr(x, '__globals__')", "__globals__"),
        ("import pandas as pd\ngetattr(pd, 'o' + 's')", "computed name"),
        ("!ls", "shell command"),
        ("x = !ls", "shell command"),
        ("!!ls", "shell command"),
        ("%%bash\nls", "%bash"),
        ("%run other.py", "%run"),
        ("%pip install x", "%pip"),
        ("%%time\nimport os", "import of os "),
        ("%time import os", "import of os "),
        ("%%capture\n!ls", "shell command"),
        ("import pandas as pd\n%timeit pd.io.common.os.remove('x')", "module os is not allowed"),
        ("get_ipython().run_line_magic('run', 'x')", "%run"),
        ("ip = get_ipython()", "get_ipython"),
        ("get_ipython().ex('import os')", "get_ipython"),
    ],
)
def test_what_is_not_allowed_is_told_with_what_is(source: str, told: str) -> None:
    reason = refusal(source, ALLOWED)
    assert told in reason
    assert reason.endswith("Imports that are allowed: math, numpy, os.path, pandas.")
    result = refuse_cell(reason)
    assert result.status == "error"
    assert result.error is not None
    assert result.error.ename == "GuardError"


def test_a_submodule_alone_is_imported_under_a_name_that_is_proposed() -> None:
    """``import os.path`` would bind the whole of ``os``."""
    assert refusal("import os.path", ["os.path"]).startswith(
        "import os.path binds os, which is not allowed: write import os.path as path. Nothing"
    )
    assert refusal("import os.path as path", ["os.path"]) == ""


@pytest.mark.parametrize(
    ("allowed", "cap", "told"),
    [
        (["pandas", "os path"], None, "'os path' is not the name of a module"),
        (["os..path"], None, "'os..path' is not the name of a module"),
        ([""], None, "'' is not the name of a module"),
        (None, 0, "must be at least 1"),
    ],
)
def test_a_guard_that_could_not_hold_is_refused(allowed: Any, cap: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        check_guard(allowed, cap)


@pytest.mark.parametrize(("allowed", "cap"), [(None, None), ([], None), (ALLOWED, None), (None, 1)])
def test_a_guard_is_told_to_the_model_for_what_it_limits(allowed: Any, cap: Any) -> None:
    check_guard(allowed, cap)
    told = guard_prompt(allowed, cap)
    assert ("Cells may import: " in told) is (allowed is not None)
    assert ("A cell may do 1 turns of Python loops" in told) is (cap is not None)
    assert told.startswith("## Limits") is bool(told)


def test_an_empty_list_allows_no_import() -> None:
    assert "Imports that are allowed: nothing" in refusal("import math", [])


@given(st.text())
def test_no_source_breaks_the_guard(source: str) -> None:
    assert isinstance(refusal(source, ALLOWED), str)


# --- the cap on operations -------------------------------------------------------------------


def run(source: str, max_operations: int) -> dict[str, Any]:
    counting = Counting(max_operations)
    counting.begin()
    tree = ast.fix_missing_locations(counting.visit(ast.parse(source)))
    names: dict[str, Any] = {}
    try:
        exec(compile(tree, "cell", "exec"), names)
    finally:
        delattr(builtins, TICK)
    return names


PIECES = [
    ("for i in range({n}): pass", 1),
    ("i = 0\nwhile i < {n}:\n    i += 1", 1),
    ("x = [i for i in range({n})]", 1),
    ("x = sum(i for i in range({n}) if i % 2)", 1),
    ("x = {{i: j for i in range({n}) for j in [1]}}", 2),
    ("def f():\n    'doc'\n    return 1\nfor _ in range({n}): f()", 2),
    ("f = lambda: 0\nx = list(map(lambda i: f(), range({n})))", 2),
    ("def f(n):\n    return n and f(n - 1)\nf({n})", 1),
]


@pytest.mark.parametrize(("source", "each"), PIECES)
def test_turns_and_calls_are_counted(source: str, each: int) -> None:
    run(source.format(n=50), 50 * each + 1)
    with pytest.raises(GuardError, match="more than 40 operations"):
        run(source.format(n=50), 40)


def test_a_cell_that_catches_everything_still_ends() -> None:
    source = (
        "while True:\n    try:\n        [1 for _ in range(9)]\n    except Exception:\n        pass"
    )
    with pytest.raises(GuardError):
        run(source, 100)


def test_counting_changes_no_value_and_keeps_docstrings_and_lines() -> None:
    source = (
        "def f(n):\n    'doc'\n    return [i * i for i in range(n) if i % 2]\n"
        "g = lambda x: x and 0\nout = (f(5), g(0), g(3), {i for i in 'ab'}, f.__doc__)\n"
        "def h():\n    return 1 / 0\ntry:\n    h()\nexcept ZeroDivisionError as e:\n"
        "    line = e.__traceback__.tb_next.tb_lineno"
    )
    names = run(source, 1000)
    assert names["out"] == ([1, 9], 0, 0, {"a", "b"}, "doc")
    assert names["line"] == 7
