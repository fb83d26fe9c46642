from .interpreter import InterpreterSession as InterpreterSession
from .process import LAUNCHER as LAUNCHER
from .process import KernelSession as KernelSession
from .process import setting as setting
from .remote import RemoteKernel as RemoteKernel
