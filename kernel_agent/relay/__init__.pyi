from .content import passed_on as passed_on
from .relay import Relay as Relay
from .relay import Told as Told
