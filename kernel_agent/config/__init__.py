"""What can be configured, and where from: one table of settings, and what reads files by it."""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
