"""How a kernel process is started: the seam that the sandbox levels fill.

Registered as ``kernel-agent`` under the entry point group ``jupyter_client.kernel_provisioners``,
so that any Jupyter application can use it. Today there is one level, ``none``: the kernel runs
with the rights of the user who started it. What holds even so: a clean environment (no keys of
the host), a process group of its own, and an end together with the host.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

PASSED_ON = (
    "HOME", "PATH", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME",
    "MPLCONFIGDIR", "IPYTHONDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "VIRTUAL_ENV",
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "SSL_CERT_FILE",
    "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "JPY_PARENT_PID",
)  # fmt: skip
"""The host's variables that a kernel gets. All others, keys among them, stay outside."""


def clean_environment(host: dict[str, str]) -> dict[str, str]:
    """Return what of the host's environment a kernel may see, and what it needs beside."""
    kept = {name: host[name] for name in PASSED_ON if name in host}
    return {
        **kept,
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "PYTHONUNBUFFERED": "1",
        "TERM": "dumb",
    }


class KernelAgentProvisioner(LocalProvisioner):
    """Starts our kernels; jupyter_client calls it through ``AsyncKernelManager``."""

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        """Prepare the launch; called by the manager's ``start_kernel``."""
        log_path = kwargs.pop("log_path", os.devnull)
        launch: dict[str, Any] = await super().pre_launch(**kwargs)
        launch["env"] = clean_environment(dict(launch.get("env") or os.environ))
        launch["log_path"] = log_path
        return launch

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start the process; its own descriptors go to a log that only tells why it did not start.

        Output of cells never gets there: a pipe that nobody reads would hang the cell.
        """
        with Path(kwargs.pop("log_path")).open("ab") as log:  # noqa: ASYNC230 - a small local file
            return await super().launch_kernel(cmd, stdout=log, stderr=log, **kwargs)

    async def kill(self, restart: bool = False) -> None:  # noqa: FBT001, FBT002 - the base's signature
        """End the whole process group at once, children of cells included."""
        if self.pgid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pgid, signal.SIGKILL)
        await super().kill(restart=restart)
