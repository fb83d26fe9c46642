"""Confine a kernel to what it may touch: levels behind a Jupyter kernel provisioner."""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
