"""Facts of a run file's header read back: of any version or program, so each value is looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

FactsT = TypeVar("FactsT")


def facts_of(record_type: Callable[..., FactsT], facts: Mapping[str, Any]) -> FactsT:
    """A dataclass of these facts. A value that is missing or of another type is None or, where the field has
    no None, empty: "", 0, [].
    """
    return record_type(
        **{name: _typed(facts.get(name), *types) for name, types in _types(record_type).items()}
    )


def words_of(value: Any) -> dict[str, str]:
    """A fact that maps names to texts, such as versions; nothing for one that does not."""
    return {str(name): str(each) for name, each in value.items()} if isinstance(value, dict) else {}


@cache
def _types(record_type: Any) -> dict[str, tuple[set[Any], Callable[[], Any]]]:
    """By field, the types of its values, and what makes the value that stands for all others."""
    found = {}
    for name, hint in get_type_hints(record_type).items():
        kinds = get_args(hint) if type(None) in get_args(hint) else (hint,)
        accepted = {get_origin(kind) or kind for kind in kinds} | ({int} if float in kinds else set())
        found[name] = accepted, _none if type(None) in kinds else (get_origin(hint) or hint)
    return found


def _none() -> None:
    return None


def _typed(value: Any, accepted: set[Any], absent: Callable[[], Any]) -> Any:
    if type(value) not in accepted:  # exact: True is no integer here
        return absent()
    return [str(item) for item in value] if type(value) is list else value
