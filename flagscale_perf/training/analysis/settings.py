"""What trainings are configured with: the keys in which several differ, and those that are chosen by them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import compress
from operator import ne
from typing import Any

from flagscale_perf.spine.errors import PerfError, did_you_mean
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.training.analysis.basis import of_facts, of_host, of_model
from flagscale_perf.training.analysis.findings.own_names import is_trainer
from flagscale_perf.training.analysis.overview import SIZES
from flagscale_perf.training.facts import RunFacts

MISSING = "-"
MOST_KEYS = 6  # as columns of a table
# What long keys are called in a table.
HEADS = {name: short.lower() for short, name in SIZES.items()} | {"model_family": "model"}
_OTHER_NAMES = {short: name for name, short in HEADS.items()} | {
    "tokens": "tokens_per_s",
    "tokens_s": "tokens_per_s",
    "end": "end_reason",
}
_NAMES = ("exp_name", "wandb_exp_name")  # of the host's arguments: what a run is called
# Where a process is and puts its files, and what is no setting of a training.
_NO_SETTINGS = {
    *("hostname", "resume_iteration", "device_memory_bytes", "host_monitor", "rehearsal", *_NAMES),
    *("data_cache_path", "memory_snapshot_path"),
}
_DERIVED = {"data_parallel", "padded_vocab_size", "peak_flop_per_s"}  # they follow from other keys
_NO_SETTING = re.compile(r".*_(dir|port)|(perf|wandb|one_logger|app_tag|log)_.*|enable_perf_monitor")
_SEED = re.compile(r"(.*_)?seed")
_FIRST = ("model_family", "device", "world_size", *SIZES.values(), "micro_batch_size", "global_batch_size")
_CONDITION = re.compile(r"\s*([^=<>!]+?)\s*(!=|<=|>=|=|<|>)\s*(.*?)\s*", re.DOTALL)
_ABSENT = {"", "-", "none", "null"}

Settings = Mapping[str, Any]


def settings_of(header: RunHeader, facts: RunFacts) -> dict[str, Any]:
    """The configuration of the training with this header and its facts, by key: facts and the host's
    arguments, without those of a process; the model's shape where arguments do not say it.
    """
    tells_model = facts.arguments and not is_trainer(facts.host)
    found = of_facts(header.facts) | of_host(header.facts) | ({} if tells_model else of_model(facts))
    for name in _NO_SETTINGS:
        found.pop(name, None)
    return found


def name_of(header: RunHeader) -> str | None:
    """What the run is called: by --perf-run-name, else by the host's own option; None without a name."""
    arguments = header.facts.get("arguments")
    of_the_host = [arguments.get(name) for name in _NAMES] if isinstance(arguments, dict) else []
    names = (header.config.get("perf_run_name"), *of_the_host)
    return next((name for name in names if name and isinstance(name, str)), None)


def differing(all_of_them: Sequence[Settings]) -> list[str]:
    """The keys in which they differ: the layout first, seeds last. What a run does not have at all is not
    known of it, and no difference.
    """
    first, found = all_of_them[0] if all_of_them else {}, set[str]()
    seen, keys = dict(first), [*first]
    for one in all_of_them:
        if [*one] == keys:
            found.update(compress(keys, map(ne, first.values(), one.values())))
        else:
            found.update(name for name, value in one.items() if name in seen and seen[name] != value)
            seen |= {name: value for name, value in one.items() if name not in seen}
    names = dict.fromkeys([*_FIRST, *seen])
    chosen = [name for name in names if name in found - _DERIVED and not _NO_SETTING.fullmatch(name)]
    return sorted(chosen, key=is_seed)


def is_seed(name: str) -> bool:
    """Whether runs that differ in this key alone are of one configuration."""
    return bool(_SEED.fullmatch(name))


def shown(value: Any) -> str:
    """A setting as text."""
    return MISSING if value is None else value if isinstance(value, str) else json.dumps(value)


def canonical(key: str, known: Sequence[str], option: str) -> str:
    """The known key that is meant by what a user wrote. Raises PerfError with the nearest ones."""
    wanted = re.sub(r"\W+", "_", key.strip().lower().removeprefix("--"))
    names = {short: name for short, name in _OTHER_NAMES.items() if name in known}
    names |= {re.sub(r"\W+", "_", name.lower()): name for name in known}
    if wanted not in names:
        near = did_you_mean(wanted, names) or f"; it is none of {', '.join(sorted(names)[:8])} ..."
        raise PerfError(f"{option}: the runs have no {key!r}{near}")
    return names[wanted]


class Condition:
    """One `--where`."""

    def __init__(self, text: str, known: Sequence[str]) -> None:
        """Raises PerfError for what is no condition, and for a key that no run has."""
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise PerfError(f"--where {text!r} is no condition; write one such as tp=2, mfu>40% or seed!=1")
        self.text = text
        self.key = canonical(found[1], known, f"--where {text!r}")
        self._operator, self._wanted = found[2], found[3]
        if self._operator in "<=>=" and self._operator != "=" and _number(self._wanted) is None:
            raise PerfError(
                f"--where {text!r}: {self._wanted!r} is not a number; write one such as {found[1]}>2"
            )

    def fits(self, values: Settings) -> bool:
        """Whether a run with these values is meant; one whose value is not known never is, but by `=none`."""
        value, wanted = values.get(self.key), self._wanted
        if self._operator in ("=", "!="):
            return _is_same(value, wanted) == (self._operator == "=")
        number, limit = _number(value), _number(wanted)
        if number is None or limit is None:
            return False
        order = (number > limit) - (number < limit)
        return order in {"<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}[self._operator]


def _is_same(value: Any, wanted: str) -> bool:
    if value is None:
        return wanted.lower() in _ABSENT
    number, limit = _number(value), _number(wanted)
    if number is not None and limit is not None:
        return number == limit
    return shown(value).lower() == wanted.lower()


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    text = str(value).replace(",", "")
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        return None
