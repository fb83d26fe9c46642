from .analyst import OfflineAnalyst as OfflineAnalyst
