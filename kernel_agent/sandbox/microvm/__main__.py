"""``python -I -S DIRECTORY ARGUMENT``: the process beside a machine (:mod:`.host`), by path.

Started by path and without site-packages, because it needs neither and starts in a few ms.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[3])
    from kernel_agent.sandbox.microvm.host import main

    main(sys.argv[1])
