"""The command ``kernel-agent``: one module for each thing that it does at a terminal."""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
