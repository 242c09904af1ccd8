"""FlagScale's own runner for several machines."""

from __future__ import annotations

import os
import sys
from typing import Any

from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.packages import find_part, install_line


def train_runner(root: str, config: Any) -> Any:
    """FlagScale's SSH runner of the tree at `root` for a DictConfig in FlagScale's form.

    Raises PerfError where it cannot be imported, naming the missing package.
    """
    sys.path.insert(0, root)
    # Its scripts call plain `torchrun`, which is beside this Python but not always on a shell's path.
    os.environ["PATH"] = os.pathsep.join(
        [os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]
    )
    try:
        from flagscale.runner.runner_train import SSHTrainRunner
    except ImportError as error:
        part = find_part(error.name)
        package = part.wanted if part else error.name or "PACKAGE"
        raise PerfError(
            f"experiment.runner.hostfile: FlagScale's runner in {root} cannot be imported: {error}; install"
            f" what is missing: {install_line(package)}"
        ) from None
    return SSHTrainRunner(config)
