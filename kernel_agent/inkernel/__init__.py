"""The only code of this package that runs inside the kernel process.

Everything here uses the standard library, IPython and ipykernel alone, so that any interpreter
that has ipykernel can be driven. ``launch.py`` is run as a script; it loads this folder under the
name ``_kernel_agent_inside``, so nothing here is in the way of a name that a cell might import.

What is done here protects against accidents, not against intent: code in a cell can undo all of
it. The hard bounds are on the host's side.
"""

from .answers import no_answer as no_answer
from .layout import KINDS as KINDS
from .layout import Layout as Layout
from .layout import decode_text as decode_text
from .layout import header_of as header_of
from .layout import layout_of as layout_of
from .plain import describe_answer as describe_answer
from .plain import whole_json as whole_json
from .room import Room as Room
from .room import TooMuch as TooMuch
from .tables import write_csv as write_csv
from .values import DEPTH_MAX as DEPTH_MAX
from .values import FORMS as FORMS
from .values import Form as Form
from .values import decode as decode
from .values import encode as encode
