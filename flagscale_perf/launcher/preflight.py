"""What is looked at before a job is started on this machine: that its data are there, that the monitor's
directory can be written, and that it fits into the memory.

What a job would fail of after minutes, with a traceback of somebody else's, is refused here in a sentence.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

from flagscale_perf.launcher.fit import memory_notes
from flagscale_perf.launcher.plan import Plan
from flagscale_perf.launcher.settings import Setting
from flagscale_perf.spine.errors import PerfError

_OTHER_DATA = ("train_data_path", "data_args_path", "per_split_data_args_path", "mock_data")


def check(plan: Plan) -> list[str]:
    """Notes about the job. Raises PerfError for one that cannot work."""
    return [*_check_data(plan), *_check_outputs(plan), *memory_notes(plan)]


def _check_data(plan: Plan) -> list[str]:
    given = plan.settings.get("data_path")
    if _is_on(plan.settings.get("mock_data")):
        return ["data: made up by Megatron (mock_data is true); the loss means nothing"]
    if given is not None and given.value is not None:
        for prefix in _prefixes(given.value):
            _check_prefix(given.path, prefix, plan.paths.cwd)
    return []


def _is_on(setting: Setting | None) -> bool:
    return setting is not None and setting.value is True


def _prefixes(value: Any) -> list[str]:
    """The data sets of --data-path: one, several, or each behind its weight."""
    words = [str(word) for word in value] if isinstance(value, list) else [str(value)]
    weighted = len(words) % 2 == 0 and all(_is_number(word) for word in words[::2])
    return words[1::2] if weighted else words


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_prefix(path: str, prefix: str, cwd: str) -> None:
    """A data set is a pair of files, whose common prefix is given. Other kinds of data, which only their own
    training script knows, are files or directories of that name, or lie in a store with an address.
    """
    if "://" in prefix:
        return
    base = os.path.join(cwd, prefix)
    stem, suffix = os.path.splitext(base)
    missing = [end for end in (".bin", ".idx") if not os.path.isfile(base + end)]
    if not missing:
        return
    if suffix in (".bin", ".idx") and os.path.isfile(base):
        raise PerfError(f"{path}: {prefix!r} is one file of a data set; write {os.path.splitext(prefix)[0]}")
    if os.path.exists(base):
        return
    absent = " and ".join(prefix + end for end in missing)
    raise PerfError(
        f"{path}: {absent} {'is' if len(missing) == 1 else 'are'} not there, seen from {cwd}; give the path"
        " of both files without .bin and .idx (Megatron's tools/preprocess_data.py makes them), or train on"
        f" made-up data: {path}=null ++train.data.mock_data=true"
    )


def _check_outputs(plan: Plan) -> list[str]:
    wrong = unwritable(plan.paths.log_dir)
    if wrong:
        raise PerfError(
            f"experiment.exp_dir: nothing can be written into {plan.paths.log_dir!r}: {wrong}; give a"
            " directory that can be written"
        )
    perf = plan.perf
    if not perf.enable_perf_monitor:
        return []
    wrong = unwritable(perf.perf_log_dir)
    if wrong:
        raise PerfError(
            f"{plan.settings['perf_log_dir'].path}: nothing can be written into {perf.perf_log_dir!r}:"
            f" {wrong}; give a directory that can be written, for example"
            " train.system.perf_log_dir=./outputs/logs/perf_monitor"
        )
    textfile = perf.perf_prometheus_textfile
    if textfile is not None and (wrong := unwritable(os.path.dirname(textfile))):
        raise PerfError(
            f"train.system.perf_prometheus_textfile: {textfile!r} cannot be written: {wrong}; give a file in"
            " a directory that can be written"
        )
    return []


def unwritable(directory: str) -> str | None:
    """Why nothing could be written into the directory, which need not be there; None if it can. Tries it in
    the nearest directory that is there, and leaves nothing behind.
    """
    place = directory
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if not os.path.isdir(place):
        return f"{place} is a file"
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".flagscale_perf_", dir=place))
    except OSError as error:
        return f"{place}: {error.strerror}"
    return None
