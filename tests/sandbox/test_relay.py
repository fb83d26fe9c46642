"""What a sandboxed kernel can say to the Jupyter application that has started it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import zmq
from support.application import App, application
from support.levels import need
from support.waiting import runs, until

from kernel_agent.sandbox.chooser import level_of, probe

LEVELS = ("bubblewrap", "namespaces", "landlock", "container", "gvisor")
# What comes through at one level does at the others: the relay is the same.
ONE_OF_THEM = (LEVELS[0], *(pytest.param(level, marks=pytest.mark.long) for level in LEVELS[1:]))
SCRIPT = "<script>fetch('/api/kernels')</script>"


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    need(request.param)
    if os.geteuid() == 0 and not level_of(request.param).takes_any_folder:
        pytest.skip("root cannot start it in an application's folder")
    return str(request.param)


@pytest.fixture
def best() -> str:
    return next((name for name in LEVELS if probe(name).works), "none")


def relay_pid(app: App) -> int:
    provisioner: Any = app.manager.provisioner
    return int(provisioner._relay._process.pid)


LIVE = f"""
import json
from IPython.display import HTML, SVG, Javascript, Markdown, Latex, display, update_display
display(HTML({SCRIPT!r}), display_id="d")
update_display(HTML({SCRIPT!r}), display_id="d")
display(Javascript("alert(1)"), Markdown({SCRIPT!r}), Latex("$x$"))
display(SVG("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"))
display({{"text/plain": "seen", "text/html": {SCRIPT!r}, "application/x": {{"a": 1}}}}, raw=True)
from comm import create_comm
create_comm(target_name="evil", data={{"html": {SCRIPT!r}}}).send({{"html": {SCRIPT!r}}})
HTML({SCRIPT!r})
"""

PAYLOAD = f"""
ip = get_ipython()
ip.payload_manager.write_payload({{
    "source": "page", "data": {{"text/html": {SCRIPT!r}, "text/plain": "help"}}, "start": 0}})

class Shown:
    def _repr_html_(self):
        return {SCRIPT!r}
    def __repr__(self):
        return "plain"
shown = Shown()
"""

INSPECTED = f"""
from ipykernel.ipkernel import IPythonKernel
import asyncio
kernel = get_ipython().kernel
def do_inspect(*_, **__):
    return {{"status": "ok", "found": True, "metadata": {{}},
            "data": {{"text/plain": "doc", "text/html": {SCRIPT!r}}}}}
type(kernel).do_inspect = do_inspect
type(kernel).help_links = [{{"text": "x", "url": "javascript:alert(1)"}}]
"""


async def test_nothing_that_a_browser_would_run_comes_through(level: str, tmp_path: Path) -> None:
    async with application(tmp_path, level) as app:
        outputs, _ = await app.run(LIVE)
        displays = [m for m in outputs if "data" in m["content"]]
        assert len(displays) == 8
        assert [m for m in outputs if m["msg_type"].startswith("comm")] == []
        for message in displays:
            assert set(message["content"]["data"]) == {"text/plain"}
            assert message["buffers"] == []
        (said,) = (m["content"]["text"] for m in outputs if m["msg_type"] == "stream")
        assert "Not shown: text/html" in said
        _, reply = await app.run(PAYLOAD)
        (page,) = reply["payload"]
        assert page == {"source": "page", "data": {"text/plain": "help"}, "start": 0}
        _, reply = await app.run("", user_expressions={"e": "shown"}, silent=False)
        assert reply["user_expressions"]["e"]["data"] == {"text/plain": "plain"}
        await app.run(INSPECTED)
        inspected = await app.reply(app.client.inspect("shown", 2))
        assert inspected["data"] == {"text/plain": "doc"}
        about = await app.reply(app.client.kernel_info())
        assert about["help_links"] == []


@pytest.mark.parametrize("level", ONE_OF_THEM, indirect=True)
async def test_text_tables_pictures_errors_and_questions_come_through(
    level: str, tmp_path: Path
) -> None:
    async with application(tmp_path, level) as app:
        assert await app.text("print('a\\tb')") == "a\tb\n"
        (table,), _ = await app.run("import pandas as pd\npd.DataFrame({'a': [1, 2]})")
        assert "<td>2</td>" in table["content"]["data"]["text/html"]
        (figure,), _ = await app.run(
            "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
        )
        assert "image/png" in figure["content"]["data"]
        (error,), reply = await app.run("1 / 0")
        assert error["content"]["ename"] == reply["ename"] == "ZeroDivisionError"
        asked = app.client.execute("print(input('who? '))", allow_stdin=True)
        question = await app.client.get_stdin_msg(timeout=60)
        assert question["content"] == {"prompt": "who? ", "password": False}
        app.client.input("Ada")
        assert (await app.reply(asked))["status"] == "ok"
        completed = await app.reply(app.client.complete("pri", 3))
        assert "print" in completed["matches"]
        assert (await app.reply(app.client.is_complete("for x in y:")))["indent"] == "    "
        running = app.client.execute("import time\nopen('here', 'w').close()\ntime.sleep(60)")
        await until(lambda: list(tmp_path.rglob("here")))
        await app.manager.interrupt_kernel()
        assert (await app.reply(running))["ename"] == "KeyboardInterrupt"
        while (await app.run("0"))[1]["status"] == "aborted":  # what was sent too soon after it
            await asyncio.sleep(0.05)
        assert await app.text("for n in range(10_000): print(n)") == "".join(
            f"{n}\n" for n in range(10_000)
        )


WAITS = """
import os, signal, threading, time
os.kill = os.killpg = lambda *_: signal.pthread_kill(threading.get_ident(), signal.SIGINT)
try:
    open("here", "w").close()
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.6)  # which is not interrupted
    print("noticed")
"""


async def test_an_interrupt_that_comes_as_a_cell_begins_to_wait_ends_the_wait(
    best: str, tmp_path: Path
) -> None:
    """The signal is noted and the wait goes on, as if it came between Python and the system."""
    async with application(tmp_path, best) as app:
        running = asyncio.create_task(app.text(WAITS))
        await until(lambda: list(tmp_path.rglob("here")))
        await app.manager.interrupt_kernel()
        assert await running == "noticed\n"


async def test_a_restarted_kernel_has_its_relay_and_nothing_of_the_first_is_left(
    best: str, tmp_path: Path
) -> None:
    async with application(tmp_path, best) as app:
        first = relay_pid(app)
        directory = Path(app.manager.get_connection_info()["ip"]).parents[1]
        await app.manager.restart_kernel()
        await app.client.wait_for_ready(timeout=90)
        assert await app.text("print(6 * 7)") == "42\n"
        second = relay_pid(app)
        assert first != second
        assert not Path(f"/proc/{first}").exists()
    assert not Path(f"/proc/{second}").exists()
    assert not directory.exists()


async def test_a_kernel_ends_with_its_relay(best: str, tmp_path: Path) -> None:
    async with application(tmp_path, best) as app:
        os.kill(relay_pid(app), signal.SIGKILL)
        async with asyncio.timeout(60):
            while await app.manager.is_alive():
                await asyncio.sleep(0.01)
        await app.manager.restart_kernel(now=True)
        await app.client.wait_for_ready(timeout=90)
        assert await app.text("print(6 * 7)") == "42\n"


async def test_a_kernel_that_dies_is_started_again_with_a_relay_of_its_own(
    best: str, tmp_path: Path
) -> None:
    async with application(tmp_path, best) as app:
        first = relay_pid(app)
        app.client.execute("import os\nos._exit(1)")
        for _ in range(200):
            await asyncio.sleep(0.1)
            provisioner: Any = app.manager.provisioner
            if provisioner._relay is not None and relay_pid(app) != first:
                break
        await app.client.wait_for_ready(timeout=90)
        assert await app.text("print(6 * 7)") == "42\n"


HOST = """
import asyncio, sys
from jupyter_client.manager import AsyncKernelManager

async def main():
    manager = AsyncKernelManager(kernel_name="boxed")
    await manager.start_kernel(cwd=sys.argv[1])
    client = manager.client()
    client.start_channels()
    await client.wait_for_ready(timeout=90)
    print(manager.provisioner._relay._process.pid, manager.provisioner._directory, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_a_relay_ends_with_its_host(best: str, tmp_path: Path) -> None:
    async with application(tmp_path, best):  # only for the kernelspec that it installs
        environment = {**os.environ, "JUPYTER_PATH": str(tmp_path / "share")}
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOST, str(tmp_path / "work"), env=environment,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert host.stdout is not None
    pid, directory = (await asyncio.wait_for(host.stdout.readline(), 120)).decode().split()
    assert runs(int(pid))
    host.kill()
    await host.wait()
    await until(lambda: not runs(int(pid)))
    await until(lambda: not Path(directory).exists())


async def test_an_application_may_ask_for_ipc_itself(best: str, tmp_path: Path) -> None:
    async with application(tmp_path, best, transport="ipc") as app:
        assert await app.text("print(6 * 7)") == "42\n"


async def test_who_wants_live_displays_has_them(best: str, tmp_path: Path) -> None:
    async with application(tmp_path, best, live=True) as app:
        outputs, _ = await app.run(f"from IPython.display import HTML\nHTML({SCRIPT!r})")
        assert outputs[0]["content"]["data"]["text/html"] == SCRIPT


FORGED = """
import json, pathlib
from jupyter_client.session import Session
kernel = get_ipython().kernel
file = get_ipython().config["IPKernelApp"]["connection_file"]
info = json.loads(pathlib.Path(file).read_text())
for key, text in (("", "FORGED "), ("another", "FORGED "), (info["key"], "signed ")):
    session = Session(key=key.encode())
    message = session.msg("stream", {"name": "stdout", "text": text}, parent=kernel.get_parent())
    kernel.iopub_socket.send_multipart([b"x", *session.serialize(message)])
print(info["key"], info["ip"])
"""


async def test_what_is_not_signed_is_dropped_and_the_kernel_knows_no_key_of_the_application(
    level: str, tmp_path: Path
) -> None:
    async with application(tmp_path, level) as app:
        signed, key, place = (await app.text(FORGED)).split()
        assert signed == "signed"
        info = app.manager.get_connection_info()
        ours = info["key"].decode() if isinstance(info["key"], bytes) else info["key"]
        assert key != ours
        front = Path(info["ip"]).parent
        assert Path(place).parent != front
        look = (
            f"import os\ntry: print(os.listdir({str(front)!r}))\nexcept OSError: print('not here')"
        )
        assert await app.text(look) == "not here\n"


FLOOD = """
from IPython.display import display
for n in range(1_000):
    display({"text/plain": "x" * 150_000, "text/html": "<b>" + "y" * 150_000}, raw=True)
print("all of it")
"""


def memory_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


async def test_a_flood_waits_for_its_reader_and_costs_no_memory(best: str, tmp_path: Path) -> None:
    """300 MB of displays, for an application that does not read for seconds."""
    async with application(tmp_path, best) as app:
        asked = app.client.execute(FLOOD)
        await asyncio.sleep(4)  # a moment: in which nobody reads
        assert memory_mb(relay_pid(app)) < 200
        await app.reply(asked)
        assert memory_mb(relay_pid(app)) < 200


@pytest.mark.long
async def test_a_reader_that_does_not_read_takes_nothing_from_the_others(
    best: str, tmp_path: Path
) -> None:
    """The kernel waits for it a while; then it alone loses what it has not taken."""
    async with application(tmp_path, best) as app:
        info = app.manager.get_connection_info()
        with zmq.Context() as context, context.socket(zmq.SUB) as asleep:
            asleep.rcvhwm, asleep.linger = 1, 0
            asleep.subscribe(b"")
            asleep.connect(f"ipc://{info['ip']}-{info['iopub_port']}")
            await asyncio.sleep(0.5)  # a moment: until it is subscribed, which nobody tells
            displays, _ = await app.run(FLOOD.replace("1_000", "300"))
            assert len([m for m in displays if m["msg_type"] == "display_data"]) == 300
            said = [m["content"]["text"] for m in displays if m["msg_type"] == "stream"]
            assert sum("misses outputs" in text for text in said) == 1
            assert await app.text("print(6 * 7)") == "42\n"


async def test_a_stranger_on_the_applications_sockets_is_not_heard(
    best: str, tmp_path: Path
) -> None:
    """At some levels a cell can reach those sockets; without the key they are of no use."""
    from jupyter_client.session import Session

    async with application(tmp_path, best) as app:
        info = app.manager.get_connection_info()
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            socket.connect(f"ipc://{info['ip']}-{info['shell_port']}")
            Session(key=b"guess").send(socket, "execute_request", {"code": "stranger = 1"})
            socket.send_multipart([b"x"])
            socket.send_multipart([b"", b"<IDS|MSG>", b"", b"{}", b"{}", b"{}", b"{}"])
            assert await app.text("print('stranger' in globals())") == "False\n"
            assert socket.poll(200) == 0
