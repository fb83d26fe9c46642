"""Level remote: a real distributed provisioner of gateway_provisioners, on this machine."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("gateway_provisioners", reason="gateway_provisioners is not installed")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Install the provisioner's own kernelspec, and return the environment that finds it."""
    prefix = tmp_path_factory.mktemp("prefix")
    bin_folder = os.path.dirname(sys.executable)  # noqa: PTH120 - not resolved: the venv's
    subprocess.run(
        [f"{bin_folder}/jupyter-ssh-spec", "install", "--prefix", prefix, "--kernel-name", "far",
         "--remote-hosts", "localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    return {
        **os.environ,
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "JUPYTER_PATH": str(prefix / "share/jupyter"),
        "KERNEL_USERNAME": "analyst",  # the provisioner refuses root
        "GP_KERNEL_LOG_DIR": str(prefix),
        "PLANTED_KEY": "sk-1",
    }


def kernel_agent(*words, env, cwd):
    return subprocess.run(
        [sys.executable, "-m", "kernel_agent", *map(str, words)],
        env=env, cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip


CELLS = """
import os
print("folder", os.getcwd(), sorted(os.listdir()))
text = open("data/t.csv").read()
assert "PLANTED_KEY" not in os.environ
print("x" * 2_000_000)
"""
ANSWER = "final_answer([text, len(outputs[1]), os.getpid()])"


def test_a_run_sends_its_inputs_and_ends_with_the_kernel(tmp_path, environment):
    (tmp_path / "t.csv").write_text("a\n1\n")
    script = tmp_path / "s.jsonl"
    script.write_text(
        "".join(
            json.dumps({"content": f"```python\n{code}\n```"}) + "\n" for code in (CELLS, ANSWER)
        )
    )
    done = kernel_agent(
        "run", "Look", "--data", "t.csv", "--model", f"scripted:{script}",
        "--sandbox", "remote:far",
        "--out", "o", "--json", env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    text, characters, pid = result["answer"]
    assert text == "a\n1\n"
    assert characters > 2_000_000
    assert result["sandbox"] == "remote:far"
    assert "not verified" in done.stderr
    deadline = time.monotonic() + 60
    while runs(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not runs(pid)


def runs(pid: int) -> bool:
    """Whether a process is there, and not only waits for its parent to notice its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_tools_are_called_on_the_host_and_errors_come_back(tmp_path, environment):
    (tmp_path / "mine.py").write_text(
        "import os\nfrom kernel_agent import tool\n\n@tool\ndef key_length(plus: int) -> int:\n"
        '    """Return how long the key is."""\n    return len(os.environ["PLANTED_KEY"]) + plus\n'
    )
    script = tmp_path / "s.jsonl"
    cell = "try:\n    1/0\nexcept ZeroDivisionError:\n    final_answer(key_length(10))"
    script.write_text(json.dumps({"content": f"```python\n{cell}\n```"}) + "\n")
    done = kernel_agent(
        "run", "Ask", "--tools", "mine.py", "--model", f"scripted:{script}",
        "--sandbox", "remote:far",
        "--out", "o", "--quiet", env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.strip() == "14", done.stderr


def test_a_cell_that_takes_too_long_is_interrupted_and_the_kernel_lives_on(tmp_path, environment):
    """By time, or by the guard's count."""
    script = tmp_path / "s.jsonl"
    cells = ["kept = 5\nimport time\ntime.sleep(60)", "for kept in range(5000):\n    pass"]
    cells.append("final_answer(kept)")
    script.write_text(
        "".join(json.dumps({"content": f"```python\n{code}\n```"}) + "\n" for code in cells)
    )
    done = kernel_agent(
        "run", "Wait", "--model", f"scripted:{script}",
        "--sandbox", "remote:far",
        "--cell-seconds", "1", "--max-operations", "1000",
        "--out", "o", "--quiet", env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert 5 < int(done.stdout.replace(",", "")) <= 1000, done.stderr


@pytest.mark.parametrize(
    ("level", "reason"),
    [
        ("remote", "no kernelspec is named"),
        ("remote:missing", "there is no kernelspec 'missing'"),
        ("remote:python3", "starts a kernel on this machine"),
        ("bubblewrap:far", "there is no sandbox level 'bubblewrap:far'"),
    ],
)
def test_without_a_remote_kernel_the_level_is_refused(tmp_path, environment, level, reason):
    (tmp_path / "replies.jsonl").write_text('{"content": "Done."}\n')
    done = kernel_agent(
        "run",
        "x",
        "--model",
        "scripted:replies.jsonl",
        "--sandbox",
        level,
        env=environment,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1
