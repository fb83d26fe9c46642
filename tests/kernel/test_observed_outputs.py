"""What a model is shown of the outputs of a real kernel."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from kernel_agent.agent.observation import observe
from kernel_agent.kernel.process import KernelSession
from kernel_agent.notebook.outputs import full_text

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def kernel(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KernelSession]:
    async with KernelSession(cwd=tmp_path_factory.mktemp("work")) as started:
        yield started


async def shown(kernel: KernelSession, code: str) -> str:
    result = await kernel.execute(code)
    return observe(result, step=kernel.steps).text


async def test_a_printed_table_is_as_wide_as_a_shown_one(kernel: KernelSession) -> None:
    made = "pd.DataFrame([range(8)], columns=[f'column {n:06}' for n in range(8)])"
    text = await shown(kernel, f"import pandas as pd\nprint({made})")
    assert len(text.split("\n")) == 2


async def test_what_a_shown_table_lacks_is_reopened(kernel: KernelSession) -> None:
    """The kernel keeps it, and a notebook that is run again has the same."""
    made = "pd.DataFrame({'n': range(500), 'text': ['x' * 100] * 500})"
    result = await kernel.execute(f"import pandas as pd\n{made}")
    step = kernel.steps
    assert (
        f"… 485 more rows, 15 cells shortened; outputs[{step}] has all"
        in observe(result, step=step).text
    )
    again = await kernel.execute(f"print(outputs[{step}], end='')")
    kept = full_text(again.outputs)
    assert kept == full_text(result.outputs)
    assert kept.count("x" * 100) == 500


async def test_long_names_of_rows_and_columns_are_counted_and_kept(kernel: KernelSession) -> None:
    made = "pd.DataFrame({'n' * 100: [1]}, index=['r' * 100])"
    result = await kernel.execute(f"import pandas as pd\n{made}")
    step = kernel.steps
    assert f"… 2 cells shortened; outputs[{step}] has all" in observe(result, step=step).text
    kept = await shown(kernel, f"print(outputs[{step}])")
    assert "n" * 100 in kept
    assert "r" * 100 in kept


async def test_a_figure_comes_with_its_step_and_titles(kernel: KernelSession) -> None:
    text = await shown(
        kernel,
        "import matplotlib.pyplot as plt\nfig, (a, b) = plt.subplots(2)\nfig.suptitle('Sales')\n"
        "b.set_title('North')\nplt.show()",
    )
    assert text.startswith(f"[figure 1 of step {kernel.steps}, PNG ")
    assert text.split("\n")[0].endswith(': "Sales; North"]')


async def test_a_number_of_numpys_is_shown_as_a_number(kernel: KernelSession) -> None:
    assert await shown(kernel, "import pandas\npandas.Series([3.13]).sum()") == "3.13"


async def test_each_value_of_a_cell_is_marked(kernel: KernelSession) -> None:
    text = await shown(kernel, "display('one')\nprint('printed')\n2")
    assert text == "[value 1 of 2]\n'one'\nprinted\n[value 2 of 2]\n2"


async def test_a_missing_column_is_answered_with_the_nearest(kernel: KernelSession) -> None:
    text = await shown(kernel, "import pandas\npandas.DataFrame({'mass ': [1]})['mass']")
    assert text.endswith("KeyError: 'mass'\nNearest: 'mass '. The columns are: 'mass '")
    last = await kernel.execute(f"print(outputs[{kernel.steps}])")
    assert "Nearest: 'mass '" in full_text(last.outputs)


async def test_what_is_imported_is_no_news(kernel: KernelSession) -> None:
    text = await shown(kernel, "from math import sqrt\nfrom json import JSONDecoder\nn = 1")
    assert text.endswith("[variables: new n int]")
