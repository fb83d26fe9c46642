"""Attacks on what a kernel may use. Each is bounded, so that it does no harm without a sandbox.

The host measures while they run: processes, memory, disk. A limit of the stage counts as passed
at a quarter more.
"""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

from attacks.cells.prelude import call
from attacks.score import more_than
from attacks.stage import Stage
from attacks.words import Report, attack

HOLDS = "the session protects itself at every level"


def _answers(stage: Stage, report: Report) -> str:
    """The session must take another cell, with the same kernel or a new one."""
    return "" if stage.session_answers else "the session did not come back"  # type: ignore[attr-defined]


@attack("resource", more_than("processes"), own_kernel=True)
def fork_bomb(c):
    """Forking until it is refused (up to 400)"""
    children = []
    try:
        for _ in range(400):
            pid = os.fork()
            if pid == 0:
                time.sleep(4)
                os._exit(0)
            children.append(pid)
        time.sleep(1)
        return f"{len(children)} processes"
    finally:
        for pid in children:
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
                os.waitpid(pid, 0)


@attack("resource", more_than("processes"), own_kernel=True)
def thread_bomb(c):
    """Starting threads until it is refused (up to 2000)"""
    import threading

    done = threading.Event()
    started = 0
    try:
        for _ in range(2000):
            threading.Thread(target=done.wait, args=(4,), daemon=True).start()
            started += 1
        time.sleep(1)
    except RuntimeError as error:
        raise OSError(11, str(error)) from None
    finally:
        done.set()
    return f"{started} threads"


@attack("resource", more_than("memory_mb"), own_kernel=True)
def memory(c):
    """Taking memory (up to 2 GB)"""
    taken = []
    for _ in range(32):
        taken.append(bytearray(b"x" * (64 << 20)))
    time.sleep(0.5)
    return f"{len(taken) * 64} MB"


@attack("resource", more_than("memory_mb"), own_kernel=True)
def memory_by_children(c):
    """Taking memory in many children, each below the limit of one"""
    code = "import time;x=bytearray(b'x'*(300<<20));time.sleep(3)"
    children = [subprocess.Popen([sys.executable, "-I", "-S", "-c", code]) for _ in range(6)]
    codes = [child.wait() for child in children]
    if any(codes):
        raise MemoryError(f"children ended with {codes}")
    return "1800 MB"


@attack("resource", more_than("memory_mb"), own_kernel=True)
def memory_by_many_children(c):
    """Taking memory in sixty children at once, each a tenth of what is allowed (6 GB together)"""
    code = "import time;x=bytearray(b'x'*(100<<20));time.sleep(3)"
    children = [subprocess.Popen([sys.executable, "-I", "-S", "-c", code]) for _ in range(60)]
    codes = [child.wait() for child in children]
    if any(codes):
        raise MemoryError(f"{sum(map(bool, codes))} of {len(codes)} children were ended")
    return "6000 MB"


@attack("resource", more_than("memory_mb"), own_kernel=True)
def memory_in_files(c):
    """Taking memory as files in /dev/shm, /tmp and memfd"""
    descriptors = []
    try:
        for index in range(30):
            descriptor = os.memfd_create(f"m{index}")
            descriptors.append(descriptor)
            for _ in range(8):
                os.write(descriptor, b"x" * (8 << 20))
        time.sleep(0.5)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return "1920 MB"


@attack("resource", more_than("kernel_memory_mb"), own_kernel=True)
def memory_in_semaphores(c):
    """Taking memory as System V semaphores, which no process shows (up to 1.5 GB)"""
    sets = []
    for index in range(800):
        try:
            sets.append(call("semget", 0, 32_000, 0o600))
        except OSError:
            if not index:
                raise
            break
    try:
        time.sleep(1)
        return f"{len(sets) * 32_000 * 64 >> 20} MB"
    finally:
        for identifier in sets:
            call("semctl", identifier, 0, 0)


@attack("resource", more_than("file_mb"), own_kernel=True)
def large_file(c):
    """One large file (300 MB)"""
    with open("large", "wb", buffering=0) as file:
        for _ in range(300):
            if file.write(b"x" * (1 << 20)) != 1 << 20:
                raise OSError(27, "the file was cut short")
    return "300 MB"


@attack("resource", more_than("disk_mb"), own_kernel=True, timeout_s=40)
def many_files(c):
    """Many files that together fill the disk (12 of 40 MB)"""
    for index in range(12):
        Path(f"part-{index}").write_bytes(b"x" * (40 << 20))
        time.sleep(0.3)
    time.sleep(3)
    return "480 MB"


@attack("resource", more_than("disk_mb"), own_kernel=True, timeout_s=40)
def zip_bomb(c):
    """Unpacking an archive that grows a thousandfold (400 MB)"""
    import zipfile

    with zipfile.ZipFile("bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for index in range(8):
            with archive.open(f"zeros-{index}", "w") as member:
                for _ in range(50):
                    member.write(bytes(1 << 20))
    with zipfile.ZipFile("bomb.zip") as archive:
        for name in archive.namelist():
            archive.extract(name)
            time.sleep(0.3)
    time.sleep(3)
    return "400 MB"


@attack("resource", more_than("files"), own_kernel=True, timeout_s=40)
def many_small_files(c):
    """Very many empty files (140,000), which use up inodes"""
    os.makedirs("small", exist_ok=True)
    for index in range(140_000):
        with open(f"small/{index}", "w"):
            pass
    time.sleep(2.5)
    return "140,000 files"


@attack(
    "resource",
    more_than("file_mb", "disk_mb"),
    own_kernel=True,
    no_control="what a sparse file says is not what it uses",
)
def sparse_file(c):
    """A file that says it is a terabyte large and uses nothing"""
    with open("sparse", "wb") as file:
        file.truncate(1 << 40)
    return "a terabyte, sparse"


@attack("resource", _answers, own_kernel=True, no_control=HOLDS)
def descriptors(c):
    """Opening files until it is refused"""
    opened = []
    try:
        for _ in range(100_000):
            opened.append(os.open("/dev/null", os.O_RDONLY))
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return f"{len(opened)} descriptors"


@attack("resource", _answers, own_kernel=True, timeout_s=2, no_control=HOLDS)
def endless_loop(c):
    """A loop that never ends"""
    while True:
        pass


@attack("resource", _answers, own_kernel=True, timeout_s=2, no_control=HOLDS)
def loop_that_swallows_interrupts(c):
    """A loop that ignores every interrupt"""
    while True:
        with contextlib.suppress(BaseException):
            while True:
                time.sleep(0.01)


@attack("resource", _answers, own_kernel=True, timeout_s=2, no_control=HOLDS)
def loop_in_c(c):
    """A loop in C code, which no interrupt reaches"""
    return sum(range(10**12))


@attack("resource", _answers, own_kernel=True, timeout_s=2, no_control=HOLDS)
def loop_with_signals_blocked(c):
    """A loop in a child with all signals blocked"""
    import signal

    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
    subprocess.run([sys.executable, "-I", "-S", "-c", "while True: pass"], check=False)


@attack("resource", more_than("host_memory_mb"), own_kernel=True, timeout_s=30, no_control=HOLDS)
def output_flood(c):
    """Printing 600 MB"""
    import sys as system

    for _ in range(600):
        system.stdout.write("x" * (1 << 20) + "\n")
    return "600 MB printed"


@attack("resource", more_than("host_memory_mb"), own_kernel=True, timeout_s=20, no_control=HOLDS)
def output_flood_by_descriptor(c):
    """Writing 300 MB to the output's descriptor, past Python's own streams"""
    for _ in range(300):
        os.write(1, b"x" * (1 << 20))
    return "300 MB written"


@attack("resource", more_than("host_memory_mb"), own_kernel=True, timeout_s=25, no_control=HOLDS)
def display_flood(c):
    """60,000 displays in one cell"""
    from IPython.display import display

    for index in range(60_000):
        display({"text/plain": f"{index} " + "x" * 2000}, raw=True)
    return "60,000 displays"


@attack("resource", more_than("host_memory_mb"), own_kernel=True, timeout_s=25, no_control=HOLDS)
def message_flood(c):
    """Messages straight into the output socket, past every cap of ours inside (300 MB)"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    for _ in range(300):
        kernel.session.send(
            kernel.iopub_socket, "stream", {"name": "stdout", "text": "x" * (1 << 20)},
            parent=kernel.get_parent("shell"),
        )  # fmt: skip
    return "300 MB sent"


@attack("resource", more_than("host_memory_mb"), own_kernel=True, timeout_s=25, no_control=HOLDS)
def large_message(c):
    """One message of 400 MB"""
    from IPython.display import display

    display({"text/plain": "x" * (400 << 20)}, raw=True)
    return "400 MB in a message"


@attack("resource", more_than("host_memory_mb"), own_kernel=True, timeout_s=25, no_control=HOLDS)
def message_of_many_items(c):
    """A message of 75 MB that stands for 25 million lists"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    message = kernel.session.msg("display_data", parent=kernel.get_parent("shell"))
    frames = kernel.session.serialize(message)
    frames[5] = b'{"metadata":{},"data":{"text/plain":[' + b"[]," * (25 << 20) + b"1]}}"
    frames[1] = kernel.session.sign(frames[2:6])
    kernel.iopub_socket.send_multipart(frames)
    return "sent"


@attack("resource", more_than("host_memory_mb"), own_kernel=True, timeout_s=40, no_control=HOLDS)
def changed_displays(c):
    """180 small displays, each of which is then changed into one of 10 MB"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    for kind, size in (("display_data", 1), ("update_display_data", 10 << 20)):
        for index in range(180):
            content = {"data": {"text/plain": "x" * size}, "metadata": {},
                       "transient": {"display_id": str(index)}}  # fmt: skip
            kernel.session.send(kernel.iopub_socket, kind, content, kernel.get_parent("shell"))
    return "1800 MB sent"


@attack("resource", more_than("host_memory_mb"), own_kernel=True, timeout_s=40, no_control=HOLDS)
def displays_that_are_not_text(c):
    """180 displays and errors with 10 MB each where nobody counts: in lists, metadata, messages"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    large = "x" * (10 << 20)
    for _ in range(60):
        for kind, content in (
            ("display_data", {"data": {"application/json": [large]}, "metadata": {}}),
            ("display_data", {"data": {"text/plain": ""}, "metadata": {"a": large}}),
            ("error", {"ename": "E", "evalue": large, "traceback": []}),
        ):
            kernel.session.send(kernel.iopub_socket, kind, content, kernel.get_parent("shell"))
    return "1800 MB sent"


@attack("resource", more_than("host_memory_mb"), own_kernel=True, timeout_s=40, no_control=HOLDS)
def one_message_again_and_again(c):
    """One signed message of 20 MB a hundred times, which is sent faster than it is checked"""
    kernel = get_ipython().kernel  # noqa: F821 - IPython's
    content = {"name": "stdout", "text": "x" * (20 << 20)}
    message = kernel.session.msg("stream", content, parent=kernel.get_parent("shell"))
    frames = kernel.session.serialize(message)
    for _ in range(100):
        kernel.iopub_socket.send_multipart(frames)
    return "2 GB sent"
