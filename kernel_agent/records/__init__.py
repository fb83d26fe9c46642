"""The words of the program: frozen records that every part reads and none changes.

A record is data; what is read from records, and is the same for terminal, page, panel and
notebook, stands here, too. The vocabulary is in ``docs/design.md``.
"""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
