"""What importing nbformat brings with it, in a process that has imported nothing yet."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

OF_JUPYTERLAB = ("rfc3987_syntax", "rfc3986_validator", "isoduration")  # take a second to import
pytestmark = pytest.mark.skipif(
    not all(map(find_spec, OF_JUPYTERLAB)), reason="only JupyterLab's environment has them"
)

SCRIPT = """
import sys
from kernel_agent.notebook.library import nbformat
LATE = {"rfc3987_syntax", "lark", "rfc3986_validator", "isoduration", "arrow"}
print(LATE & set(sys.modules))
nbformat.validate(nbformat.v4.new_notebook())
from jsonschema import FormatChecker
print(LATE & set(sys.modules))
checker = FormatChecker()
for kind, right in {"iri": "https://example.org/\u00fc", "uri": "https://example.org",
                    "duration": "P3D"}.items():
    print(kind, checker.conforms(right, kind), checker.conforms("no such thing", kind))
print(LATE - set(sys.modules))
import rfc3987_syntax
print(rfc3987_syntax.is_valid_syntax("iri", "https://example.org"))
"""


def test_what_checks_addresses_and_times_is_read_when_one_is_checked_and_not_before():
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == [
        "set()", "set()",
        "iri True False", "uri True False", "duration True False",
        "set()", "True",
    ], done.stderr  # fmt: skip
