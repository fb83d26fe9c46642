"""The kernel "Python (sandboxed)" in the applications that start it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import start_new_async_kernel
from nbformat.v4 import new_code_cell, new_notebook
from support.levels import need
from support.waiting import until

from kernel_agent.cli.kernelspec import specification

NAME = "python-sandboxed"
CELLS = {
    "pandas": "import pandas as pd\npd.DataFrame({'a': [1, 2]})['a'].sum()",
    "a figure": "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()",
    "a subprocess": "import subprocess\nprint(subprocess.check_output(['echo', 'hi'], text=True))",
    "a thread": "import threading\nt = threading.Thread(target=print, args=['hi'])\n"
    "t.start(); t.join()",
    "a pool": "import multiprocessing as mp\n"
    "with mp.Pool(2) as p:\n    print(p.map(abs, [-1, -2]))",
    "a forked process": "p = mp.Process(target=print, args=['from a fork'])\np.start(); p.join()\n"
    "f = mp.Process(target=int, args=['x'])\nf.start(); f.join()\nimport time; time.sleep(0.5)",
    "a widget": "import ipywidgets\nipywidgets.IntSlider()",
    "a file": "print(open('made.txt', 'w').write('x'))",
    "a secret": "import os\nassert 'PLANTED_KEY' not in os.environ\n"
    "try:\n    open(os.environ['SECRET_FILE'] if 'SECRET_FILE' in os.environ else '%s')\n"
    "    raise AssertionError('the secret can be read')\nexcept OSError:\n    print('refused')",
    "the network": "import socket\ntry:\n    socket.create_connection(('127.0.0.1', 1))\n"
    "except OSError as error:\n    print(error.errno)",
}


def command(*words, **options):
    return subprocess.run(
        [sys.executable, "-m", *map(str, words)], capture_output=True, text=True, check=False,
        **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Install the kernel somewhere of our own, and return the environment that finds it."""
    prefix = tmp_path_factory.mktemp("prefix")
    done = command("kernel_agent", "kernelspec", "install", "--prefix", prefix)
    assert done.returncode == 0, done.stderr
    assert "Sandbox here: " in done.stdout
    return {**os.environ, "JUPYTER_PATH": str(prefix / "share/jupyter"), "PLANTED_KEY": "sk-1"}


@pytest.fixture
def notebook(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    folder = tmp_path / "work"
    folder.mkdir()
    cells = [new_code_cell(code % secret if "%s" in code else code) for code in CELLS.values()]
    nbformat.write(new_notebook(cells=cells), folder / "in.ipynb")
    return folder / "in.ipynb"


def check(path):
    cells = nbformat.read(path, as_version=4).cells
    text = {
        name: str([o.get("text", "") or o.get("data", {}) for o in cell.outputs])
        for name, cell in zip(CELLS, cells, strict=True)
    }
    assert "3" in text["pandas"]
    assert "image/png" in text["a figure"]
    assert "hi" in text["a subprocess"]
    assert "hi" in text["a thread"]
    assert "[1, 2]" in text["a pool"]
    assert "from a fork\\n" in text["a forked process"]
    assert "ValueError" in text["a forked process"]
    assert "IntSlider" in text["a widget"]
    assert not any("widget" in mime for c in cells for o in c.outputs for mime in o.get("data", {}))
    assert "refused" in text["a secret"]
    assert Path(path).with_name("made.txt").read_text() == "x"


def test_nbclient_runs_a_notebook_in_it(installed, notebook):
    done = command(
        "nbconvert", "--to", "notebook", "--execute", "--output", "out.ipynb",
        f"--ExecutePreprocessor.kernel_name={NAME}", notebook, env=installed,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    check(notebook.with_name("out.ipynb"))


PROJECT = """
import os
said = [open(".git/config").read(), open("pyproject.toml").read()]
for work in (
    lambda: open(".git/config", "a"), lambda: open(".git/hooks/post-checkout", "w"),
    lambda: os.rename(".git", "git"), lambda: open("pyproject.toml", "w"),
    lambda: os.replace("other", "pyproject.toml"), lambda: os.unlink("kernel-agent.toml"),
    lambda: open("module.py", "a"), lambda: open("conftest.py", "w"),
):
    try:
        work()
        said.append("done")
    except OSError:
        said.append("refused")
print(said)
"""


def test_what_programs_obey_in_a_project_is_only_read_and_what_is_made_is_named(
    installed, tmp_path
):
    """The kernel may write in the project that it is started in, which the user stands in."""
    work = tmp_path / "work"
    (work / ".git" / "hooks").mkdir(parents=True)
    (work / ".git" / "config").write_text("[core]")
    for name in ("pyproject.toml", "kernel-agent.toml", "module.py", "other"):
        (work / name).write_text(f"# {name}")
    nbformat.write(new_notebook(cells=[new_code_cell(PROJECT)]), work / "in.ipynb")
    done = command(
        "nbconvert", "--to", "notebook", "--execute", "--output", "out.ipynb",
        f"--ExecutePreprocessor.kernel_name={NAME}", work / "in.ipynb", env=installed,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (cell,) = nbformat.read(work / "out.ipynb", as_version=4).cells
    said = ["[core]", "# pyproject.toml", *["refused"] * 6, "done", "done"]
    assert cell.outputs[0].text == f"{said}\n"
    assert "made what programs obey" in done.stderr
    assert "conftest.py (pytest)." in done.stderr
    assert "module.py" not in done.stderr.partition("made what programs obey")[2]


@pytest.mark.long
def test_papermill_runs_a_notebook_in_it(installed, notebook):
    pytest.importorskip("papermill", reason="papermill is not installed")
    done = command(
        "papermill", notebook, notebook.with_name("out.ipynb"), "-k", NAME, env=installed,
        cwd=notebook.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    check(notebook.with_name("out.ipynb"))


async def test_the_kernel_manager_of_jupyter_server_starts_restarts_and_interrupts_it(
    installed, tmp_path, monkeypatch
):
    kernels = pytest.importorskip("jupyter_server.services.kernels.kernelmanager")
    monkeypatch.setenv("JUPYTER_PATH", installed["JUPYTER_PATH"])
    (tmp_path / "work").mkdir()
    manager = kernels.AsyncMappingKernelManager(root_dir=str(tmp_path))
    kernel_id = await manager.start_kernel(kernel_name=NAME, path="work")
    try:
        client = manager.get_kernel(kernel_id).client()
        client.start_channels()
        await client.wait_for_ready(timeout=60)
        assert await value(client, "import os; os.getcwd()") == repr(str(tmp_path / "work"))
        # input() reaches the person in front of it
        asked = client.execute("x = input('name? ')", allow_stdin=True)
        request = await client.get_stdin_msg(timeout=30)
        assert request["content"]["prompt"] == "name? "
        client.input("Ada")
        await reply(client, asked)
        assert await value(client, "x") == "'Ada'"
        running = client.execute("import time; open('here', 'w').close(); time.sleep(60)")
        await until((tmp_path / "work" / "here").exists)
        await manager.interrupt_kernel(kernel_id)
        assert (await reply(client, running))["content"]["ename"] == "KeyboardInterrupt"
        client.stop_channels()
        await manager.restart_kernel(kernel_id)
        client = manager.get_kernel(kernel_id).client()
        client.start_channels()
        await client.wait_for_ready(timeout=60)
        assert await value(client, "'x' in globals()") == "False"
        client.stop_channels()
    finally:
        await manager.shutdown_kernel(kernel_id, now=True)


async def reply(client, message_id):
    while True:
        message = await client.get_shell_msg(timeout=30)
        if message["parent_header"].get("msg_id") == message_id:
            return message


async def value(client, code):
    message_id = client.execute(code)
    while True:
        message = await client.get_iopub_msg(timeout=30)
        ours = message["parent_header"].get("msg_id") == message_id
        if ours and message["msg_type"] == "execute_result":
            await reply(client, message_id)
            return message["content"]["data"]["text/plain"]
        assert not (ours and message["msg_type"] == "error"), message["content"]


@pytest.mark.parametrize(
    ("words", "line", "stored"),
    [
        ([], "HTML, JavaScript and widgets are not", {"level": "auto"}),
        (["--live-displays"], "can start a kernel without a sandbox",
         {"level": "auto", "live_displays": True}),
        (["--level", "none"], "have all of your rights", {"level": "none"}),
    ],
)  # fmt: skip
def test_what_is_installed_says_what_is_shown_of_its_cells(tmp_path, words, line, stored):
    done = command("kernel_agent", "kernelspec", "install", "--prefix", tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert line in " ".join(done.stdout.split())
    place = tmp_path / "share/jupyter/kernels" / NAME / "kernel.json"
    spec = json.loads(place.read_text())
    assert spec["metadata"]["kernel_provisioner"]["config"] == stored


def test_it_is_replaced_listed_and_removed(tmp_path):
    env = {**os.environ, "JUPYTER_PATH": str(tmp_path / "share/jupyter")}
    for _ in range(2):
        done = command(
            "kernel_agent", "kernelspec", "install", "--prefix", tmp_path, "--name",
            "boxed", env=env,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    spec = json.loads((tmp_path / "share/jupyter/kernels/boxed/kernel.json").read_text())
    assert spec["interrupt_mode"] == "message"
    done = command("kernel_agent", "kernelspec", "remove", "boxed", env=env)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "share/jupyter/kernels/boxed").exists()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["install", "--level", "bunker"], "there is no sandbox level 'bunker'"),
        (["install", "--level", "interpreter"], "is for sessions of kernel-agent only"),
        (["install", "--name", "a b"], "letters, digits"),
        (["install", "--prefix", "/proc"], "cannot install the kernel"),
        (["remove", "python3"], "was not installed by kernel-agent"),
        (["remove", "nothing-here"], "there is no kernel nothing-here"),
    ],
)
def test_wrong_use_is_one_line(words, line):
    refused(words, line)


def test_a_level_that_could_not_start_for_root_is_not_offered_to_it():
    if os.geteuid() != 0:
        pytest.skip("needs root")
    need("gvisor")
    refused(["install", "--level", "gvisor"], "has no kernel in a folder of yours for root")


def refused(words, line):
    done = command("kernel_agent", "kernelspec", *words)
    assert done.returncode == 2
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


FORKED = """
import nbformat.v4 as v4
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from nbclient import NotebookClient

def run(number):
    notebook = v4.new_notebook(cells=[v4.new_code_cell(f"print({number})")])
    return NotebookClient(notebook, kernel_name="NAME").execute().cells[0].outputs[0].text

run(0)  # the loop of this process has started a kernel before it is forked
with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
    print(list(pool.map(run, [1, 2])))
""".replace("NAME", NAME)


@pytest.mark.long
def test_it_starts_in_the_forks_of_a_process_that_has_started_it(installed, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, check=False, timeout=60,
        env=installed, cwd=tmp_path,
    )  # fmt: skip
    assert "['1\\n', '2\\n']" in done.stdout, done.stderr


async def test_it_takes_what_an_application_and_its_kernelspec_say_and_tells_its_folder(
    installed, tmp_path, monkeypatch
):
    place = tmp_path / "share/jupyter"
    spec = specification("auto")
    spec["env"] = {"REGION": "north of ${RIVER}", "HOME": "/nowhere"}
    (place / "kernels" / NAME).mkdir(parents=True)
    (place / "kernels" / NAME / "kernel.json").write_text(json.dumps(spec))
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("JUPYTER_PATH", str(place))
    monkeypatch.setenv("PLANTED_KEY", "sk-1")
    monkeypatch.setenv("RIVER", "Main")
    manager, client = await start_new_async_kernel(
        kernel_name=NAME, cwd=str(tmp_path / "work"),
        extra_arguments=["--HistoryManager.hist_file=:memory:"],
    )  # fmt: skip
    try:
        (tmp_path / "work/made.csv").touch()
        assert manager.resolve_path("made.csv") == str(tmp_path / "work/made.csv")
        assert ":memory:" in await value(client, "get_ipython().history_manager.hist_file")
        code = "import os; [os.environ.get(n) for n in ('REGION', 'RIVER', 'PLANTED_KEY')]"
        assert await value(client, code) == "['north of Main', None, None]"
        assert "/nowhere" not in await value(client, "os.environ['HOME']")
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("level", ["bubblewrap", "landlock"])
async def test_commands_run_where_there_is_no_pseudo_terminal(level, tmp_path, monkeypatch):
    need(level)
    place = tmp_path / "share/jupyter"
    (place / "kernels" / NAME).mkdir(parents=True)
    (place / "kernels" / NAME / "kernel.json").write_text(json.dumps(specification(level)))
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("JUPYTER_PATH", str(place))
    manager, client = await start_new_async_kernel(kernel_name=NAME, cwd=str(tmp_path / "work"))
    try:
        code = "!echo hi > made; exit 3\n(open('made').read(), _exit_code)"
        assert await value(client, code) == r"('hi\n', 3)"
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


def test_a_notebook_in_a_home_directory_is_refused_with_the_reason(installed):
    done = command(
        "nbconvert", "--to", "notebook", "--execute", "--stdin", "--stdout",
        f"--ExecutePreprocessor.kernel_name={NAME}", env=installed, cwd="/",
        input=nbformat.writes(new_notebook(cells=[new_code_cell("1")])),
    )  # fmt: skip
    assert done.returncode != 0
    assert "start it in a folder of its own" in done.stderr
