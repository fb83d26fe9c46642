"""A program of the user's that holds keys and hands them out: ``python key_keeper.py PLACES.json``.

As a keyring's daemon and a cloud's metadata service do: on a unix socket by path and by name, and
on a loopback port. Keys lie in its memory, its shared memory, its System V segment and a file that
is open. It prints where, as one JSON object, and ends when its standard input does.
"""

import ctypes
import json
import socket
import sys
import threading
from multiprocessing import shared_memory
from pathlib import Path

IPC_RMID = 0


def serve(listener: socket.socket, key: str) -> None:
    listener.listen(64)
    answer = f"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n{key}\n".encode()

    def answers() -> None:
        while True:
            try:
                asked, _ = listener.accept()
            except OSError:
                return
            with asked:
                asked.settimeout(1.0)
                try:
                    asked.recv(4096)
                    asked.sendall(answer)
                except OSError:
                    continue

    threading.Thread(target=answers, daemon=True).start()


def main() -> None:
    places = json.loads(Path(sys.argv[1]).read_text())
    keys = places["keys"]
    in_memory = keys["daemon-memory"].encode("utf-16-le") + b"|" + keys["daemon-memory"].encode()

    by_path = socket.socket(socket.AF_UNIX)
    by_path.bind(places["socket"])
    Path(places["socket"]).chmod(0o666)
    serve(by_path, keys["daemon-socket"])
    by_name = socket.socket(socket.AF_UNIX)
    by_name.bind("\0" + places["name"])
    serve(by_name, keys["daemon-abstract"])
    by_port = socket.socket()
    by_port.bind(("127.0.0.1", 0))
    serve(by_port, keys["metadata"])

    shared = shared_memory.SharedMemory(name=places["shared"], create=True, size=4096)
    shared.buf[: len(keys["shared-memory"])] = keys["shared-memory"].encode()
    Path("/dev/shm", places["shared"]).chmod(0o644)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    segment = libc.shmget(places["segment"], 4096, 0o1000 | 0o644)
    address = libc.shmat(segment, None, 0)
    ctypes.memmove(address, keys["segment"].encode(), len(keys["segment"]))

    print(json.dumps({"port": by_port.getsockname()[1], "identifier": segment}), flush=True)
    try:
        sys.stdin.read()
    finally:
        libc.shmctl(segment, IPC_RMID, None)
        shared.close()
        shared.unlink()
        assert in_memory


main()
