"""Attacks on the host's disk that a count of names does not see. 640 MB each, of 160 allowed.

The host counts blocks, in files with a name and without one.
"""

import os
import platform
import time

from attacks.cells.prelude import libc
from attacks.score import more_than
from attacks.words import attack


@attack("resource", more_than("disk_mb"), own_kernel=True, timeout_s=30)
def disk_by_removed_files(c):
    """Writing to files that were removed while they are open"""
    opened = []
    for index in range(16):
        opened.append(os.open(f"removed-{index}", os.O_CREAT | os.O_WRONLY))
        os.unlink(f"removed-{index}")
        for _ in range(40):
            os.write(opened[-1], b"x" * (1 << 20))
        time.sleep(0.2)
    time.sleep(3)
    return "640 MB"


@attack("resource", more_than("disk_mb"), own_kernel=True, timeout_s=30)
def disk_by_files_without_a_name(c):
    """Writing to files that never had a name (O_TMPFILE)"""
    for _ in range(16):
        descriptor = os.open(".", os.O_TMPFILE | os.O_RDWR)
        for _ in range(40):
            os.write(descriptor, b"x" * (1 << 20))
        time.sleep(0.2)
    time.sleep(3)
    return "640 MB"


@attack("resource", more_than("disk_mb"), own_kernel=True, timeout_s=30)
def disk_by_mapped_files(c):
    """Filling files without a name that only mappings hold, their descriptors closed"""
    import mmap

    for _ in range(4):  # the address space of one process is limited
        if os.fork() == 0:
            held = []
            for _ in range(4):
                descriptor = os.open(".", os.O_TMPFILE | os.O_RDWR)
                for _ in range(40):
                    os.write(descriptor, b"x" * (1 << 20))
                held.append(mmap.mmap(descriptor, 40 << 20))
                os.close(descriptor)
            time.sleep(8)
            os._exit(0)
        time.sleep(0.8)
    time.sleep(6)
    return "640 MB"


@attack("resource", more_than("disk_mb"), own_kernel=True, timeout_s=30)
def disk_by_a_thread_of_its_own(c):
    """Holding removed files in a process whose first thread has ended"""
    import threading

    def fill():
        opened = []
        for _ in range(16):
            opened.append(os.open(".", os.O_TMPFILE | os.O_RDWR))
            for _ in range(40):
                os.write(opened[-1], b"x" * (1 << 20))
            time.sleep(0.2)
        time.sleep(5)
        os._exit(0)

    if os.fork() == 0:
        threading.Thread(target=fill).start()
        libc.syscall(60 if platform.machine() == "x86_64" else 93, 0)  # exit(2) of this thread
    time.sleep(10)
    return "640 MB"


@attack("resource", more_than("disk_mb"), own_kernel=True, timeout_s=30)
def disk_by_a_closed_folder(c):
    """Filling a folder that is closed to everybody (mode 0)"""
    os.makedirs("closed/inner")
    inner = os.open("closed/inner", os.O_RDONLY)
    os.chmod("closed", 0)
    for index in range(16):
        descriptor = os.open(f"{index}", os.O_CREAT | os.O_WRONLY, dir_fd=inner)
        for _ in range(40):
            os.write(descriptor, b"x" * (1 << 20))
        os.close(descriptor)
        time.sleep(0.2)
    time.sleep(3)
    return "640 MB"


@attack("resource", more_than("disk_mb"), own_kernel=True, timeout_s=60)
def disk_by_a_deep_folder(c):
    """Filling a folder that no path leads to any more (1,500 folders in each other)"""
    at = os.open(".", os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("deeper", dir_fd=at)
        inner = os.open("deeper", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    for index in range(16):
        descriptor = os.open(f"{index}", os.O_CREAT | os.O_WRONLY, dir_fd=at)
        for _ in range(40):
            os.write(descriptor, b"x" * (1 << 20))
        os.close(descriptor)
        time.sleep(0.2)
    time.sleep(3)
    return "640 MB"
