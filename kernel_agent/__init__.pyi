from collections.abc import Callable
from typing import Any

from .config import Config as Config
from .kernel import FakeKernel as FakeKernel
from .models import ScriptedModel as ScriptedModel
from .notebook import export as export
from .records import Budget as Budget
from .records import ExitStatus as ExitStatus
from .session import Run as Run
from .session import Session as Session
from .session import verify as verify
from .tools import Tool as Tool
from .tools import tool as tool

__version__: str

def face(room: str, file: str) -> tuple[Callable[[str], Any], list[str]]: ...
def load_ipython_extension(ipython: Any) -> None: ...
