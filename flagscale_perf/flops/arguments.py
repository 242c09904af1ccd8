"""The arguments of Megatron or FlagScale by name, with one reader for each kind of value.

Every message names the argument, shows its value and says what to write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flagscale_perf.spine.errors import PerfError

MAX_LAYERS = 100_000
MAX_SIZE = 10**12  # of any other size


class Arguments:
    """Megatron's argument names and their values, each read with the checks its kind needs."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = given

    def has(self, name: str) -> bool:
        """Whether the argument is given, whatever its value."""
        return name in self._given

    def get(self, name: str) -> Any:
        """The value; None if it is not given, or if it is what yaml's null becomes on a command line."""
        value = self._given.get(name)
        return None if isinstance(value, str) and value.strip().lower() in ("none", "null", "") else value

    def flag(self, name: str) -> bool:
        """A switch; off by default. Raises PerfError for what is neither on nor off."""
        value = self.get(name)
        said = str(value).strip().lower()
        if value is None or said in ("false", "0", "no", "off"):
            return False
        if said not in ("true", "1", "yes", "on"):
            raise PerfError(f"model: {name} is {value!r}; write true or false")
        return True

    def choice(self, name: str, *allowed: str) -> str:
        """One of these texts, "none" among them where it is allowed; the first if it is not given.

        Raises PerfError for anything else.
        """
        value = self._given.get(name)
        if value is None:
            return allowed[0]
        if value not in allowed:
            raise PerfError(f"model: {name} is {value!r}; write {', '.join(allowed[:-1])} or {allowed[-1]}")
        return str(value)

    def integer(self, name: str, default: int | None = None, least: int = 1) -> int:
        """A whole number from `least` to MAX_SIZE. Raises PerfError for anything else, and if missing."""
        value = self.get(name)
        if value is None:
            if default is None:
                raise PerfError(f"model: {name} is missing; add it to the arguments")
            return default
        number = _whole(value)
        if number is None or number < least:
            wanted = "above 0" if least else "from 0 on"
            raise PerfError(f"model: {name} is {value!r}; give a whole number {wanted}")
        if number > MAX_SIZE:
            raise PerfError(f"model: {name} is {value!r}; give at most {MAX_SIZE}")
        return number

    def optional(self, name: str) -> int | None:
        """Like `integer`; None if it is not given."""
        return None if self.get(name) is None else self.integer(name)

    def layers(self, name: str = "num_layers") -> int:
        """The number of layers. Raises PerfError."""
        layers = self.integer(name)
        if layers > MAX_LAYERS:  # a shape describes each layer
            raise PerfError(f"model: {name} is {layers}; give at most {MAX_LAYERS}")
        return layers

    def factor(self, name: str) -> float:
        """A number above 0. Raises PerfError for anything else."""
        try:
            number = float(self.get(name))
        except (TypeError, ValueError, OverflowError):
            number = 0.0
        if not 0 < number < MAX_SIZE:
            raise PerfError(f"model: {name} is {self.get(name)!r}; give a number above 0")
        return number

    def names(self, name: str) -> tuple[str, ...]:
        """A list of names, or a text of names with commas or spaces between; empty if it is not given.

        Raises PerfError for anything else.
        """
        value = self.get(name)
        if isinstance(value, str):
            return tuple(value.replace(",", " ").split())
        if value is not None and not (
            isinstance(value, Sequence) and all(isinstance(each, str) for each in value)
        ):
            raise PerfError(f"model: {name} is {value!r}; write a list of names")
        return tuple(value or ())


def _whole(value: Any) -> int | None:
    """The whole number that a value stands for; None for anything else, including True and 1.5."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if isinstance(value, bool) or (isinstance(value, float) and number != value) else number
