"""The training script as FlagScale's runner sees it: runs the real one, which a variable names."""

from __future__ import annotations

import os
import runpy
import sys

SCRIPT_VARIABLE = "FLAGSCALE_PERF_ENTRYPOINT"


def main() -> None:
    """Does what `python -m flagscale_perf.launch SCRIPT ARGS...` does."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    # Python puts a script's directory first, where this package's modules would shadow others of the same
    # name. `flagscale_perf.launch` puts the real script's directory there.
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = root
    sys.path.append(root)
    sys.argv[1:1] = [os.environ[SCRIPT_VARIABLE]]
    runpy.run_module("flagscale_perf.launch", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
