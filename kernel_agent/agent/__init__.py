"""The loop: what the model is sent, what it asked for, and what it is shown of the outcome."""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
