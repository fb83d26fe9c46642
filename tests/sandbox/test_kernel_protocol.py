"""Jupyter's own tests of the messaging protocol, on the sandboxed kernel and on a plain one.

The two classes are the same tests; what one passes the other passes.
"""

import os
import unittest

import pytest

jupyter_kernel_test = pytest.importorskip(
    "jupyter_kernel_test", reason="the package jupyter_kernel_test is not installed"
)

from kernel_agent.cli import kernelspec  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs


class ProtocolTests(jupyter_kernel_test.KernelTests):
    """What a Python kernel must answer."""

    __test__ = False
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = [  # noqa: RUF012
        {"text": "zi", "matches": {"zip"}},
        {"text": "import sys; sys.version_i", "matches": {"version_info"}},
    ]
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n"]  # noqa: RUF012
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2"]  # noqa: RUF012
    invalid_code_samples = ["import = 7q"]  # noqa: RUF012
    code_page_something = "zip?"
    code_generate_error = "raise ValueError('x')"
    code_execute_result = [  # noqa: RUF012
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
    ]
    code_display_data = [  # noqa: RUF012
        {"code": "import pandas as pd; display(pd.DataFrame({'a': [1]}))", "mime": "text/html"},
        {"code": "from PIL import Image; display(Image.new('RGB', (2, 2)))", "mime": "image/png"},
    ]  # fmt: skip
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"


@pytest.fixture(scope="module", autouse=True)
def a_folder_and_the_kernelspec(tmp_path_factory):
    """Install the kernel where this process finds it, and run in a folder of our own."""
    prefix, before = tmp_path_factory.mktemp("prefix"), os.getcwd()  # noqa: PTH109
    kernelspec.install("python-sandboxed", prefix=prefix)
    patch = pytest.MonkeyPatch()
    patch.setenv("JUPYTER_PATH", str(prefix / "share/jupyter"))
    os.chdir(tmp_path_factory.mktemp("work"))
    yield
    os.chdir(before)
    patch.undo()


@pytest.mark.long  # the control
class TestPlainKernel(ProtocolTests):
    __test__ = True
    kernel_name = "python3"


class TestSandboxedKernel(ProtocolTests):
    __test__ = True
    kernel_name = "python-sandboxed"


if __name__ == "__main__":
    unittest.main()
