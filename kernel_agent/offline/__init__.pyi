from .analyst import OfflineAnalyst as OfflineAnalyst
from .table import reader_of as reader_of
