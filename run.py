"""Starts a training job from a two-level Hydra configuration: `python run.py action=dryrun train=7b ...`.
With `-m` and commas, as in `train.model.micro_batch_size=1,2`, several, one after another.

See conf/train.yaml for the keys and docs/options.md for the monitor's options.
"""

from __future__ import annotations

from flagscale_perf.spine.interrupted import EXIT_INTERRUPTED, Quietly

with Quietly():
    import os
    import re
    import sys
    import tempfile
    from typing import Any

    from flagscale_perf.hosts.flagscale_runner import train_runner
    from flagscale_perf.launcher.sweep import OneJob, perform_all
    from flagscale_perf.spine import language
    from flagscale_perf.spine.errors import PerfError
    from flagscale_perf.spine.packages import missing

    try:
        import hydra
        from hydra.conf import HydraConf, SweepDir
        from hydra.core.config_store import ConfigStore
        from hydra.core.hydra_config import HydraConfig
        from hydra.experimental.callback import Callback
        from omegaconf import DictConfig, OmegaConf, open_dict
        from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException
    except ImportError as error:
        print(missing("hydra", error, "run.py"), file=sys.stderr)
        sys.exit(2)


class OneAfterAnother(Callback):  # type: ignore[misc]
    """Refuses a sweep whose jobs another plugin would choose or start."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Called by Hydra, which goes on after any exception but SystemExit."""
        for kind in ("launcher", "sweeper"):
            target = str(config.hydra[kind]._target_)
            if not target.startswith("hydra._internal.core_plugins.basic_"):
                print(
                    f"run.py: hydra/{kind}: {target.rpartition('.')[2]} is not supported: run.py starts the"
                    f" jobs itself, one after another, with the values that commas name; leave hydra/{kind}"
                    " out",
                    file=sys.stderr,
                )
                sys.exit(2)


def main() -> int:
    """The job's exit status, or 2 for a mistake in the configuration."""
    try:
        return perform_all(_jobs(), _open_runner, _refuse)
    except PerfError as error:
        _refuse(error)
        return 2
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes stdout once more when it ends: into nothing, instead of raising again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as shells report SIGPIPE


def _jobs() -> list[OneJob]:
    """Hydra makes the configurations of all jobs before the first is started: its own loop would go on with
    whatever a job's end leaves behind, and could not refuse the third before it has run the first.
    """
    jobs: list[OneJob] = []

    @hydra.main(version_base=None, config_path="conf", config_name="train")  # type: ignore[untyped-decorator]
    def collect(config: DictConfig) -> None:
        try:
            jobs.append(OneJob(_plain(config), list(HydraConfig.get().overrides.task)))
        except PerfError as error:
            _refuse(error)
            sys.exit(2)

    with tempfile.TemporaryDirectory(prefix="flagscale_perf_") as scratch:  # Hydra makes one for each sweep
        node = HydraConf(
            sweep=SweepDir(dir=scratch, subdir="."),
            callbacks={"flagscale_perf": {"_target_": f"{__name__}.{OneAfterAnother.__name__}"}},
        )
        ConfigStore.instance().store(group="hydra", name="config", node=node, provider="hydra")
        collect()
    return jobs


def _refuse(error: PerfError) -> None:
    with language.using(language.chosen(None, os.environ)):
        print(f"run.py: {language.said(str(error))}", file=sys.stderr, flush=True)


def _plain(config: DictConfig) -> dict[str, Any]:
    # Hydra's own resolver makes None of what is missing, such as the number of a job outside of a sweep.
    OmegaConf.register_new_resolver("hydra", _of_hydra, replace=True)
    try:
        with open_dict(config):  # so that ${hydra.job.num} is known, as it is in Hydra's own directories
            config["hydra"] = {"job": OmegaConf.to_container(HydraConfig.get().job)}
        plain = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        if found := re.search(r"hydra\.job\.(num|id)\b", str(error)):
            raise PerfError(
                f"{error.full_key}: {found[0]} is known only in a sweep (run.py -m); write a name of your own"
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
