from .files import load_config as load_config
from .public import hides as hides
from .public import public_address as public_address
from .table import SETTINGS as SETTINGS
from .table import Config as Config
from .table import Setting as Setting
