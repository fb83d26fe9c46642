from .choice import make_kernel as make_kernel
from .fake import FakeKernel as FakeKernel
from .process import KernelSession as KernelSession
from .protocol import Access as Access
from .protocol import Kernel as Kernel
from .protocol import KernelOptions as KernelOptions
from .protocol import MakeKernel as MakeKernel
from .transfer import setting as setting
