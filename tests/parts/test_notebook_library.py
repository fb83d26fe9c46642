"""What importing nbformat brings with it, in a process that has imported nothing yet."""

import subprocess
import sys

import pytest

pytest.importorskip("rfc3987_syntax", reason="only JupyterLab's environment has the grammar")

SCRIPT = """
import sys
from kernel_agent.notebook.library import nbformat
print("lark" in sys.modules, "rfc3987_syntax" in sys.modules)
nbformat.validate(nbformat.v4.new_notebook())
from jsonschema import FormatChecker
print("lark" in sys.modules)
checker = FormatChecker()
print(checker.conforms("https://example.org/\u00fc", "iri"), checker.conforms("no address", "iri"))
import rfc3987_syntax
print(rfc3987_syntax.is_valid_syntax("iri", "https://example.org"), "lark" in sys.modules)
"""


def test_the_grammar_of_addresses_is_read_when_an_address_is_checked_and_not_before():
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == [
        "False False", "False", "True False", "True True",
    ], done.stderr  # fmt: skip
