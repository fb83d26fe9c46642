from .app import main as main
from .ask import UNDO as UNDO
from .view import PlainView as PlainView
from .view import Story as Story
from .view import is_figure as is_figure
from .view import paths as paths
