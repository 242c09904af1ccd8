"""Starts a training job from a two-level Hydra configuration: `python run.py action=dryrun train=7b ...`.

See conf/train.yaml for the keys and docs/options.md for the monitor's options.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

from flagscale_perf.hosts.flagscale_runner import train_runner
from flagscale_perf.launcher.actions import perform
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.packages import missing

try:
    import hydra
    from hydra.conf import HydraConf
    from hydra.core.config_store import ConfigStore
    from hydra.core.hydra_config import HydraConfig
    from hydra.experimental.callback import Callback
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException
except ImportError as error:
    print(missing("hydra", error, "run.py"), file=sys.stderr)
    sys.exit(2)


class OneJob(Callback):  # type: ignore[misc]
    """Refuses a sweep: Hydra's own loop would go on with whatever a job's end leaves behind."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Called by Hydra, which goes on after any exception but SystemExit."""
        print(
            "run.py: -m: run.py starts one job; for several write a loop, for example for n in 1 2; do python"
            " run.py train.model.micro_batch_size=$n experiment.exp_dir=outputs/$n; done",
            file=sys.stderr,
        )
        sys.exit(2)


def main() -> int:
    """The job's exit status, or 2 for a mistake in the configuration.

    Hydra only makes the configuration: what its own wrapper would make of a job's exceptions is not wanted.
    """
    configs: list[dict[str, Any]] = []

    @hydra.main(version_base=None, config_path="conf", config_name="train")  # type: ignore[untyped-decorator]
    def collect(config: DictConfig) -> None:
        try:
            configs.append(_plain(config))
        except PerfError as error:
            print(f"run.py: {error}", file=sys.stderr)
            sys.exit(2)

    node = HydraConf(callbacks={"flagscale_perf": {"_target_": f"{__name__}.{OneJob.__name__}"}})
    ConfigStore.instance().store(group="hydra", name="config", node=node, provider="hydra")
    collect()
    try:
        return perform(configs[0], _open_runner) if configs else 0  # none for --cfg and --info
    except PerfError as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The interpreter flushes stdout once more when it ends: into nothing, instead of raising again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as shells report SIGPIPE


def _plain(config: DictConfig) -> dict[str, Any]:
    # Hydra's own resolver makes None of what is missing, such as the number of a job outside of a sweep.
    OmegaConf.register_new_resolver("hydra", _of_hydra, replace=True)
    try:
        plain = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        if found := re.search(r"hydra\.job\.(num|id)\b", str(error)):
            raise PerfError(
                f"{error.full_key}: {found[0]} is of a sweep, and run.py starts one job; write a name of your"
                " own"
            ) from None
        raise PerfError(f"configuration: {error}") from None
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _of_hydra(path: str) -> Any:
    try:
        return OmegaConf.select(HydraConfig.get(), path, throw_on_missing=True)
    except MissingMandatoryValue:
        raise MissingMandatoryValue(f"hydra.{path}") from None


def _open_runner(root: str, job: dict[str, Any]) -> Any:
    return train_runner(root, OmegaConf.create(job))


if __name__ == "__main__":
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by `>&-`
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - until the process ends
        getattr(sys, name).reconfigure(errors="backslashreplace")
    sys.exit(main())
