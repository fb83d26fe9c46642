"""The loop: send the model a conversation, carry out its action, show it the outcome."""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
