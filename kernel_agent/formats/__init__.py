"""Action formats, by which a model writes what it wants done; and ``parse``.

``fenced``, ``envelope``, ``tool_call`` and ``json_calls`` are the formats; ``auto`` chooses among
them; ``prompts`` holds what each asks for; ``reading`` what they share to read a reply.
"""

from kernel_agent import face

__getattr__, __all__ = face(__name__, __file__)
