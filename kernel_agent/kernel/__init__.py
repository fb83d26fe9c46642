"""Where cells run: a process and our client for it, an interpreter, a fake."""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
