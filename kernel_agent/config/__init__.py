"""One table of settings, and the files and variables that they are read from."""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
