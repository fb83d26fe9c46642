"""A real kernel: state lives on, nothing printed is lost, and every ending is noticed and told."""

from __future__ import annotations

import asyncio
import gzip
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.results import text_of
from support.waiting import DEADLINE_S, begin, runs, until

from kernel_agent.agent.observation import observe
from kernel_agent.errors import KernelDied, KernelStartError
from kernel_agent.kernel import process
from kernel_agent.notebook.outputs import is_page, notebook_outputs
from kernel_agent.records.cell import Answer, OutputDict
from kernel_agent.tools.broker import Broker
from kernel_agent.tools.definition import tool

LEVEL = os.environ.get("KERNEL_AGENT_TEST_SANDBOX", "auto")


class KernelSession(process.KernelSession):
    """At the level that the tests are run for."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"sandbox": LEVEL, **given})


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def kernel(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KernelSession]:
    async with KernelSession(cwd=tmp_path_factory.mktemp("work"), tools=[echo.spec]) as started:
        yield started


pytestmark = pytest.mark.asyncio(loop_scope="module")


@tool
def echo(value: int, times: int = 1) -> list[int]:
    """Return the value, so many times."""
    if value < 0:
        raise ValueError("no negative values")
    return [value] * times


async def test_state_lives_on_between_cells(kernel: KernelSession) -> None:
    await kernel.execute("x = 20")
    result = await kernel.execute("x * 2 + 2")
    assert (result.status, text_of(result)) == ("ok", "42")


async def test_outputs_come_in_the_order_in_which_they_were_made(kernel: KernelSession) -> None:
    code = (
        "import os, sys\n"
        "print('one'); print('two', file=sys.stderr); display('three')\n"
        "os.write(1, b'four\\n'); os.system('echo five'); 'six'"
    )
    result = await kernel.execute(code)
    assert [o["output_type"] for o in result.outputs] == [
        "stream",
        "stream",
        "display_data",
        "stream",
        "execute_result",
    ]
    assert text_of(result) == "one\ntwo\n'three'four\nfive\n'six'"


async def test_no_display_overtakes_what_was_printed_on_the_descriptor(
    kernel: KernelSession,
) -> None:
    """Also where the thread that reads it is late."""
    code = (
        "import os, threading, time\n"
        "busy = threading.Thread(target=lambda: [sum(range(20_000)) for _ in range(2_000)])\n"
        "busy.start()\n"
        "for n in range(30):\n    os.write(1, b'x\\n'); display(n)\n"
        "os.write(1, b'last\\n'); 'value'"
    )
    result = await kernel.execute(code)
    assert text_of(result) == "".join(f"x\n{n}" for n in range(30)) + "last\n'value'"


async def test_a_semicolon_at_the_end_of_a_cell_hides_its_value(kernel: KernelSession) -> None:
    assert (await kernel.execute("[1, 2];  # as after a plot")).outputs == ()
    assert text_of(await kernel.execute("';'")) == "';'"


async def test_in_out_and_tracebacks_number_a_cell_as_its_step(kernel: KernelSession) -> None:
    await kernel.execute("6 * 7", step=1000)
    failed = await kernel.execute("1 / 0", step=1002)
    assert failed.error is not None
    assert "In[1002]" in re.sub(r"\x1b\[[\d;]*m", "", "".join(failed.error.traceback))
    result = await kernel.execute("In[1000], Out[1000], _1000, In[1001]", step=1003)
    assert text_of(result) == "('6 * 7', 42, 42, '')"
    assert text_of(await kernel.execute("%history 1002", step=1004)).strip() == "1 / 0"


async def test_the_history_holds_what_the_cells_said(kernel: KernelSession) -> None:
    await kernel.execute("marked_line = 4711")
    assert "marked_line = 4711" in text_of(await kernel.execute("%history"))
    assert "marked_line = 4711" in text_of(await kernel.execute("%history -g marked"))
    again = text_of(await kernel.execute("%history -l 2 -n"))
    assert len(again.strip().splitlines()) == 2


async def test_help_is_a_page_beside_the_outputs_and_read_by_the_model(
    kernel: KernelSession,
) -> None:
    result = await kernel.execute("len?")
    (page,) = result.outputs
    assert is_page(page)
    assert "number of items" in observe(result, step=1).text
    assert notebook_outputs(result.outputs)[0]["metadata"]["kernel_agent"] == {"page": True}
    assert not any(map(is_page, (await kernel.execute("len")).outputs))


async def test_programs_of_the_environment_are_those_of_the_kernel(kernel: KernelSession) -> None:
    """`!pip list` would speak of another interpreter's packages otherwise."""
    told = await kernel.execute(
        "import os, shutil, subprocess, sys\n"
        "print([shutil.which(n) == os.path.join(os.path.dirname(sys.executable), n)"
        " for n in ('python', 'python3')])\n"
        "print(subprocess.run(['python', '-c', 'import sys, ipykernel; print(sys.prefix)'],"
        " capture_output=True, text=True).stdout.strip() == sys.prefix)"
    )
    if "False, True" in text_of(told):
        pytest.skip("the interpreter's folder has no `python`")
    assert text_of(told) == "[True, True]\nTrue\n"


async def test_jupyters_clients_are_imported_when_a_cell_asks_for_them(tmp_path: Path) -> None:
    """Each kernel would start a tenth later with them."""
    async with KernelSession(cwd=tmp_path) as kernel:
        is_there = "import sys; 'jupyter_client.manager' in sys.modules"
        assert text_of(await kernel.execute(is_there)) == "False"
        named = "import jupyter_client; jupyter_client.KernelManager.__module__"
        assert text_of(await kernel.execute(named)) == "'jupyter_client.manager'"
        assert text_of(await kernel.execute("hasattr(jupyter_client, 'nothing')")) == "False"


async def test_what_a_child_process_printed_is_there_when_the_cell_ends(
    kernel: KernelSession,
) -> None:
    """ipykernel reads it in a thread of its own, and a cell may end before that thread wakes."""
    for _ in range(50):
        result = await kernel.execute("import os\n_ = os.write(1, b'x' * 5000)")
        assert text_of(result) == "x" * 5000


async def test_a_failed_cell_says_what_failed(kernel: KernelSession) -> None:
    result = await kernel.execute("print('before'); 1/0")
    assert result.status == "error"
    assert result.error is not None
    assert result.error.ename == "ZeroDivisionError"
    assert text_of(result).startswith("before")


async def test_a_cell_that_takes_too_long_is_interrupted_and_its_variables_kept(
    kernel: KernelSession,
) -> None:
    result = await kernel.execute(
        "import time\nkept = 5\nprint('started')\ntime.sleep(60)", timeout_s=0.5
    )
    assert result.status == "timeout"
    assert result.seconds < 20
    assert text_of(result).startswith("started")
    assert text_of(await kernel.execute("kept")) == "5"


async def test_a_cell_that_awaits_is_interrupted_too(kernel: KernelSession) -> None:
    result = await kernel.execute("import asyncio\nawait asyncio.sleep(60)", timeout_s=0.3)
    assert result.status == "timeout"
    assert result.seconds < 20


async def test_interrupting_from_outside(kernel: KernelSession) -> None:
    cell = await begin(kernel, "import time\ntime.sleep(60)")
    await kernel.interrupt()
    assert (await cell).status == "interrupted"
    assert (await kernel.execute("1")).ok


async def test_a_cancelled_cell_does_not_block_the_next(kernel: KernelSession) -> None:
    cell = await begin(kernel, "import time\ntime.sleep(60)")
    cell.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cell
    assert text_of(await kernel.execute("'next'")) == "'next'"


async def test_a_gigabyte_of_prints_costs_neither_memory_nor_the_end_of_the_cell(
    kernel: KernelSession,
) -> None:
    code = "print('first')\nfor _ in range(1000):\n    print('y' * 1024 * 1024)\nprint('last')"
    result = await kernel.execute(code, timeout_s=120)
    text = text_of(result)
    assert result.ok
    assert len(text) < 1_200_000
    assert text.startswith("first\n")
    assert text.endswith("last\n")
    assert "characters left out" in text
    memory = await kernel.execute("print(open('/proc/self/status').read())")
    resident = next(line for line in text_of(memory).splitlines() if line.startswith("VmRSS"))
    assert int(resident.split()[1]) < 400_000  # kB


async def test_what_forked_processes_print_and_why_they_failed_is_shown(
    kernel: KernelSession,
) -> None:
    result = await kernel.execute(
        "import multiprocessing as mp\n"
        "context = mp.get_context('fork')\n"
        "print('printed once', end=' ')\n"
        "processes = [context.Process(target=print, args=('fork', n)) for n in range(3)]\n"
        "processes.append(context.Process(target=int, args=('x',)))\n"
        "for p in processes: p.start()\n"
        "for p in processes: p.join()"
    )
    text = text_of(result)
    assert [text.count(f"fork {n}\n") for n in range(3)] == [1, 1, 1]
    assert text.count("printed once") == 1
    assert "ValueError: invalid literal for int()" in text


async def test_a_flood_on_the_file_descriptor_does_not_hang(kernel: KernelSession) -> None:
    result = await kernel.execute(
        "import os\nfor _ in range(100):\n    os.write(1, b'z' * 1024 * 1024)", timeout_s=60
    )
    assert result.ok
    assert "characters left out" in text_of(result)


async def test_thousands_of_outputs_all_arrive_while_the_reader_is_busy(
    kernel: KernelSession,
) -> None:
    """With libzmq's default limits two thirds of these, and the cell's end, would be lost."""
    code = "for i in range(3000):\n    print(i, flush=True)\n    display(i) if i % 3 == 0 else None"

    def dawdle(_output: OutputDict) -> None:
        time.sleep(0.0005)  # a moment: for which this reader is busy

    result = await kernel.execute(code, on_output=dawdle, timeout_s=120)
    printed = "".join(o["text"] for o in result.outputs if o["output_type"] == "stream")
    displayed = [o for o in result.outputs if o["output_type"] == "display_data"]
    assert printed == "".join(f"{i}\n" for i in range(3000))
    assert len(displayed) == 1000


@pytest.mark.long
async def test_a_thread_that_goes_on_displaying_after_its_cell_does_not_hold_the_host(
    kernel: KernelSession,
) -> None:
    """Each display once cost as much as all that came before it."""
    flood = (
        "import threading, time\nk = get_ipython().kernel\n"
        "content = {'data': {'text/plain': 'late'}, 'metadata': {}}\n"
        "def go():\n"
        "    time.sleep(0.3)\n"
        "    for _ in range(12_000):\n"
        "        k.session.send(k.iopub_socket, 'display_data', content, {'msg_id': 'none'})\n"
        "thread = threading.Thread(target=go); thread.start()"
    )
    await kernel.execute(flood)
    longest, until = 0.0, time.monotonic() + 8
    while time.monotonic() < until:
        before = time.thread_time()  # not a clock: other processes take the processor, too
        await asyncio.sleep(0.02)
        longest = max(longest, time.thread_time() - before)
    assert longest < 1.5
    result = await kernel.execute("thread.join()")
    assert len(result.outputs) > 10_000


async def test_a_thread_that_prints_after_its_cell_is_heard_in_the_next(
    kernel: KernelSession,
) -> None:
    await kernel.execute(
        "import threading\nx = 5\nthreading.Timer(0.3, lambda: print('late news')).start()"
    )
    heard = ""
    for _ in range(20):
        await asyncio.sleep(0.5)
        assert await kernel.get(["x"]) == {"x": 5}
        await kernel.execute("x = 5", step=0)  # nobody sees what these two show
        heard += text_of(await kernel.execute("None"))
        if heard:
            break
    assert heard == "late news\n"


async def test_a_cell_that_closes_the_output_goes_on_and_so_does_the_next(
    kernel: KernelSession,
) -> None:
    """``with sys.stdout as file`` does, and ipykernel's stream then ends the kernel's last word."""
    closing = "import sys\nwith sys.stdout as file:\n    print('one')\nsys.stderr.close(); 'two'"
    assert text_of(await kernel.execute(closing, timeout_s=60)) == "one\n'two'"
    assert text_of(await kernel.execute("print('three')", timeout_s=60)) == "three\n"


async def test_outputs_k_gives_back_the_whole_text(kernel: KernelSession) -> None:
    first = await kernel.execute("print('a' * 3_000_000)\n'result'")
    assert "characters left out" in text_of(first)
    step = kernel.steps
    length = await kernel.execute(f"len(outputs[{step}]), outputs[{step}][-9:]")
    assert text_of(length) == "(3000010, \"'result'\\n\")"


async def test_the_answer_is_any_value_and_the_first_one_counts(kernel: KernelSession) -> None:
    result = await kernel.execute("final_answer({'n': [1, 2.5]})\nfinal_answer('again')")
    assert result.answer is not None
    assert result.answer.value == {"n": [1, 2.5]}
    assert "only the first" in text_of(result)
    await kernel.execute("final_answer = 5")
    assert (await kernel.execute("final_answer('text')")).answer is not None


@pytest.mark.parametrize(
    ("expression", "kind", "value"),
    [
        ("'plain'", "str", "plain"),
        ("__import__('numpy').float64(2.5)", "float64", 2.5),
        (
            "__import__('pandas').DataFrame({'a': [1], 'b': ['x']})",
            "DataFrame",
            [{"a": 1, "b": "x"}],
        ),
        ("slice(3)", "slice", "an object of type slice"),
        ("float('nan')", "float", "NaN"),
        ("None", "NoneType", None),
        ("range(3)", "range", [0, 1, 2]),
        ("{'a': 1}.values()", "dict_values", [1]),
    ],
)
async def test_answers_travel_as_plain_values(
    kernel: KernelSession, expression: str, kind: str, value: object
) -> None:
    answer = (await kernel.execute(f"final_answer({expression})")).answer
    assert answer is not None
    assert (answer.kind, answer.value) == (kind, value)


@pytest.mark.parametrize(
    ("expression", "advice"),
    [
        ("(n for n in range(5))", "list(...)"),
        ("map(str, [1])", "list(...)"),
        ("filter(None, [1])", "list(...)"),
        ("zip([1], [2])", "list(...)"),
        ("iter([1])", "list(...)"),
        ("__import__('asyncio').sleep(1)", "await it"),
        ("len", "call it"),
        ("(lambda: 1)", "call it"),
        ("[1].count", "call it"),
        ("__import__('pandas').Series([1]).mean", "call it"),
        ("object", "call it"),
        ("__import__('pandas')", "something that it computes"),
        ("object()", "a text, number or table"),
        ("...", "a text, number or table"),
        ("type('A', (), {})()", "a text, number or table"),
        ("[1, object()]", "texts or numbers in it, not a object"),
        ("{'a': type('A', (), {})()}", "texts or numbers in it, not a A"),
        ("''", "say what was found"),
        ("' '", "say what was found"),
        ("print(1)", "not what print() returns"),
        ("{}.get('x')", "final_answer(None)"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
async def test_what_is_no_answer_is_an_error_of_the_cell(
    kernel: KernelSession, expression: str, advice: str
) -> None:
    """The model is told what to do instead, and a better answer still counts."""
    result = await kernel.execute(f"final_answer({expression})")
    assert (result.status, result.answer) == ("error", None)
    assert result.error is not None
    assert result.error.ename == "TypeError"
    assert " is no answer: " in result.error.evalue
    assert advice in result.error.evalue
    better = (
        "try:\n    final_answer(print)\nexcept TypeError:\n    final_answer(3)\nfinal_answer(print)"
    )
    assert (await kernel.execute(better)).answer == Answer(text="3", value=3, kind="int")


async def test_input_is_refused_with_a_reason(kernel: KernelSession) -> None:
    for call in ("input('name? ')", "__import__('getpass').getpass()"):
        result = await kernel.execute(call)
        assert result.error is not None
        assert "nobody is at the keyboard" in result.error.evalue


async def test_host_tools_are_plain_functions(kernel: KernelSession) -> None:
    broker = Broker([echo])
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "one = echo(3, times=2)\n"
        "many = echo.map(range(5))\n"
        "with ThreadPoolExecutor(4) as pool: threads = list(pool.map(echo, range(8)))\n"
        "try:\n    echo(-1)\nexcept ValueError as error:\n    caught = str(error)\n"
        "one, many, threads == [[n] for n in range(8)], caught, echo.__doc__"
    )
    result = await kernel.execute(code, on_request=broker.answer)
    expected = (
        [3, 3],
        [[0], [1], [2], [3], [4]],
        True,
        "no negative values",
        "Return the value, so many times.",
    )
    assert " ".join(text_of(result).split()) == repr(expected)
    assert len(broker.take_calls()) == 15


async def test_a_value_that_cannot_travel_is_refused_in_the_cell(kernel: KernelSession) -> None:
    result = await kernel.execute("echo(object())", on_request=Broker([echo]).answer)
    assert result.error is not None
    assert "cannot be sent to a host tool" in result.error.evalue


async def test_the_hosts_secrets_are_not_in_the_kernels_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary-5309")
    async with KernelSession(cwd=tmp_path) as kernel:
        result = await kernel.execute("import os; 'canary-5309' in str(dict(os.environ))")
    assert text_of(result) == "False"


# --- endings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "epitaph"),
    [
        ("import os; print('last words', flush=True); os._exit(3)", "exit code 3"),
        ("import os; os.kill(os.getpid(), 11)", "SIGSEGV"),
    ],
)
async def test_a_dead_kernel_is_noticed_at_once(tmp_path: Path, code: str, epitaph: str) -> None:
    async with KernelSession(cwd=tmp_path) as kernel:
        began = time.monotonic()
        result = await kernel.execute(code)
        assert time.monotonic() - began < 5, "and not when the reply is given up"
        assert result.status == "dead"
        assert result.error is not None
        assert epitaph in result.error.evalue
        with pytest.raises(KernelDied, match=epitaph):
            await kernel.execute("1")
        await kernel.restart()
        assert text_of(await kernel.execute("1 + 1")) == "2"


async def test_a_cell_that_swallows_every_interrupt_costs_the_kernel(tmp_path: Path) -> None:
    # In a cell of its own, however long it takes: ipykernel would set its own handler for the next.
    swallow = (
        "import signal, time, ipykernel.kernelbase\n"
        "ipykernel.kernelbase.signal = lambda *arguments: None\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    )
    async with KernelSession(cwd=tmp_path) as kernel:
        assert (await kernel.execute(swallow)).ok
        result = await kernel.execute("time.sleep(60)", timeout_s=0.3)
        assert result.status == "dead"
        assert result.error is not None
        assert "passed its limit of 0.3 s, did not let itself be interrupted" in result.error.evalue
        assert "memory" not in result.error.evalue
        assert result.limit == "cell_seconds"
        assert not kernel.alive


STOPPED = """
import os, signal, subprocess
wait = f"until grep -q ^State:.T /proc/{os.getpid()}/status; do sleep 0.01; done; echo>stopped; " \
    f"until [ -e go_on ]; do sleep 0.01; done; kill -CONT {os.getpid()}"
_ = subprocess.Popen(["sh", "-c", wait], start_new_session=True)
os.kill(os.getpid(), signal.SIGSTOP)
while True: pass
"""


async def test_an_interrupt_that_a_starved_kernel_hears_late_does_not_cost_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "INTERRUPT_GRACE_S", 0.3)
    async with KernelSession(cwd=tmp_path) as kernel:
        kernel.way_s = DEADLINE_S
        await kernel.execute("kept = 42")
        running = asyncio.create_task(kernel.execute(STOPPED))
        await until((tmp_path / "stopped").exists)
        interrupting = asyncio.create_task(kernel.interrupt())
        await asyncio.sleep(0.5)  # a moment: longer than a kernel that has heard is given
        monkeypatch.setattr(process, "INTERRUPT_GRACE_S", DEADLINE_S)
        (tmp_path / "go_on").touch()
        await interrupting
        assert (await running).status == "interrupted"
        assert text_of(await kernel.execute("kept")) == "42"


async def test_a_kernel_that_cannot_start_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho the disk is on fire >&2\nexit 7\n")
    broken.chmod(0o755)
    before = set(Path(tempfile.gettempdir()).glob(f"ka-{os.getpid()}-*"))
    with pytest.raises(KernelStartError, match=r"exit code 7(.|\n)*disk is on fire"):
        await KernelSession(cwd=tmp_path, python=str(broken)).start()
    assert set(Path(tempfile.gettempdir()).glob(f"ka-{os.getpid()}-*")) <= before


async def test_closing_leaves_no_process_and_no_directory(tmp_path: Path) -> None:
    kernel = KernelSession(cwd=tmp_path)
    await kernel.start()
    pid, directory = kernel.pid, kernel._directory
    marker = f"60.{secrets.randbelow(10**9):09}"  # pids mean nothing outside a sandbox
    await kernel.execute(f"import subprocess; child = subprocess.Popen(['sleep', '{marker}'])")
    await until(lambda: _runs_with(marker))  # its arguments are there a moment after its start
    await kernel.close()
    await kernel.close()
    assert pid is not None
    assert not runs(pid)
    assert not _runs_with(marker)
    assert directory is not None
    assert not directory.exists()


AT_THE_END = """
import atexit, gzip, pathlib, sys, time, types

class Last:
    def __del__(self):
        pathlib.Path("deleted.txt").write_text("deleted")

named, last = open("named.txt", "w"), Last()
zipped = gzip.open("zipped.gz", "wt")
module = sys.modules["mine"] = types.ModuleType("mine")
module.file = open("module.txt", "w")
for file in (named, zipped, module.file):
    file.write("held back")
del module
atexit.register(lambda: pathlib.Path("at_exit.txt").write_text("called"))
atexit.register(time.sleep, 1)  # a moment: as on a busy machine
"""


async def test_what_open_files_hold_back_is_written_when_the_kernel_ends(tmp_path: Path) -> None:
    async with KernelSession(cwd=tmp_path) as kernel:
        assert (await kernel.execute(AT_THE_END)).ok
        assert (tmp_path / "named.txt").read_text() == ""
    assert (tmp_path / "named.txt").read_text() == "held back"
    assert (tmp_path / "module.txt").read_text() == "held back"
    assert gzip.decompress((tmp_path / "zipped.gz").read_bytes()) == b"held back"
    assert (tmp_path / "deleted.txt").read_text() == "deleted"
    assert (tmp_path / "at_exit.txt").read_text() == "called"


async def test_a_child_that_nobody_has_waited_for_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """The kernel would use up its time to end, and what its open files hold back would be lost."""
    async with KernelSession(cwd=tmp_path) as kernel:
        children = "import subprocess\nleft = [subprocess.Popen(['sleep', n]) for n in ('0', '60')]"
        assert (await kernel.execute(f"{children}\n{AT_THE_END}")).ok
    assert (tmp_path / "named.txt").read_text() == "held back"
    assert (tmp_path / "at_exit.txt").read_text() == "called"


async def test_a_host_that_is_killed_takes_kernel_and_directory_with_it(tmp_path: Path) -> None:
    script = (
        "import asyncio, pathlib, sys\n"
        "from kernel_agent.kernel.process import KernelSession\n"
        "async def main():\n"
        "    kernel = KernelSession(cwd=pathlib.Path(sys.argv[1]), sandbox=sys.argv[2])\n"
        "    await kernel.start()\n"
        "    print(kernel.pid, kernel._directory, flush=True)\n"
        "    await kernel.execute('import time; time.sleep(60)')\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path), LEVEL], stdout=subprocess.PIPE, text=True
    ) as host:
        assert host.stdout is not None
        pid, directory = host.stdout.readline().split()
        host.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and (runs(int(pid)) or Path(directory).exists()):
        await asyncio.sleep(0.02)
    assert not runs(int(pid))
    assert not Path(directory).exists()


async def test_many_kernels_at_once_do_not_mix(tmp_path: Path) -> None:
    async def one(number: int) -> str:
        async with KernelSession(cwd=tmp_path) as kernel:
            await kernel.execute(f"mine = {number}")
            return text_of(await kernel.execute("mine"))

    assert await asyncio.gather(*(one(n) for n in range(4))) == ["0", "1", "2", "3"]


def _runs_with(argument: str) -> bool:
    """Whether some process was started with an argument."""
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if argument.encode() in cmdline.read_bytes().split(b"\0"):
                return True
        except (FileNotFoundError, ProcessLookupError):
            continue
    return False


async def test_a_line_that_the_timer_sends_as_the_cell_ends_is_not_overtaken(
    tmp_path: Path,
) -> None:
    """The end of the cell must wait for a flush that has begun; 1 in 20,000 cells met this."""
    async with KernelSession(cwd=tmp_path) as kernel:
        for number in range(60):
            pause = 0.048 + (number % 20) * 0.0002
            result = await kernel.execute(f"import time\nprint({number})\ntime.sleep({pause})")
            assert text_of(result) == f"{number}\n"


@pytest.mark.parametrize("ending", ["exit()", "quit()", "exit(1)", "import sys; sys.exit()"])
async def test_code_that_exits_ends_its_cell_and_not_the_kernel(
    kernel: KernelSession, ending: str
) -> None:
    result = await kernel.execute(f"kept = 1\n{ending}\nkept = 2")
    assert result.error is not None
    assert result.error.ename == "SystemExit"
    assert "To exit" not in text_of(result)
    await kernel.execute("import time; time.sleep(0.5)")  # ipykernel would end after 0.1 s
    assert text_of(await kernel.execute("kept")) == "1"


async def test_what_an_output_widget_captures_is_marked_as_captured(kernel: KernelSession) -> None:
    result = await kernel.execute(
        "import ipywidgets\n"
        "with ipywidgets.Output():\n    print('inside'); display('too')\n"
        "print('outside')"
    )
    assert text_of(result) == "inside\n'too'outside\n"
    captured = [(o.get("metadata") or {}).get("kernel_agent") for o in result.outputs]
    assert captured == [{"captured": "widget"}, {"captured": "widget"}, None]


async def test_a_value_that_cannot_be_shown_fails_with_the_name_of_its_error(
    kernel: KernelSession,
) -> None:
    result = await kernel.execute("class Bad:\n    __repr__ = lambda self: 1 / 0\nBad()")
    assert result.status == "error"
    assert result.error is not None
    assert (result.error.ename, result.error.evalue) == ("ZeroDivisionError", "division by zero")
    assert result.error.traceback
