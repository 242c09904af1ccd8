"""Starts a training job from a two-level Hydra configuration: `python run.py action=dryrun train=7b ...`.

See conf/train.yaml for the keys and docs/options.md for the monitor's options.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from flagscale_perf.hosts.flagscale_runner import train_runner
from flagscale_perf.launcher.actions import perform
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.packages import missing

try:
    import hydra
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException
except ImportError as error:
    print(missing("hydra", error, "run.py"), file=sys.stderr)
    sys.exit(2)


@hydra.main(version_base=None, config_path="conf", config_name="train")  # type: ignore[untyped-decorator]
def main(config: DictConfig) -> None:
    """Ends the process with the job's exit status, or 2 for a mistake in the configuration."""
    try:
        sys.exit(perform(_plain(config), _open_runner))
    except PerfError as error:
        print(f"run.py: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The interpreter flushes stdout once more when it ends: into nothing, instead of raising again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)  # as shells report SIGPIPE


def _plain(config: DictConfig) -> dict[str, Any]:
    try:
        plain = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise PerfError(f"configuration: {error}") from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _open_runner(root: str, job: dict[str, Any]) -> Any:
    return train_runner(root, OmegaConf.create(job))


if __name__ == "__main__":
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by `>&-`
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
        getattr(sys, name).reconfigure(errors="backslashreplace")
    main()
