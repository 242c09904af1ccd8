"""The state of objects as text and back: what a fold holds once it has read some records.

Plain data, containers and objects of this package's classes are kept, attribute by attribute; what is one
object in two places stays one. Functions are never kept: the state is put into an object that was just made,
which has its own. Nothing is imported or called because a text says so.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum
from itertools import chain, repeat
from typing import Any

_PACKAGE = __name__.partition(".")[0]
_PLAIN = {type(None), bool, int, float, str}
_MAPPINGS: dict[str, Any] = {each.__name__: each for each in (dict, Counter, defaultdict)}
_FIXED: dict[str, Any] = {"tuple": tuple, "frozenset": frozenset, "range": lambda ends: range(*ends)}
_FACTORIES: dict[str, Any] = {each.__name__: each for each in (int, float, list, dict, set)}
# Of modules whose objects are made once and do not change.
_CONSTANT = ("datetime", "pathlib", f"{_PACKAGE}.spine.figures")
_NONE: Any = object()
MOST = 3_000_000  # values: 40 MB


def text_of(root: Any, most: int = MOST) -> str:
    """The state of an object. Raises TypeError for what cannot be kept, and where there are more values."""
    writer = _Writer(most)
    node = writer.node(root)
    return json.dumps([[*writer.classes], node], separators=(",", ":"))


def made(text: str, own: Any = _NONE) -> Any:
    """The object anew; one that has functions of its own is put into `own`, which was just made in the way of
    the one whose state it is. Raises what Python raises for a text that is no such state; then `own` is of no
    use any more.
    """
    classes, node = json.loads(text)
    return _Reader([_class(name) for name in classes]).value(node, own)


def _class(name: str) -> Any:
    """One of this package that has been imported."""
    module, _, path = name.partition(":")
    found = vars(sys.modules[module])[path]
    if not isinstance(found, type) or found.__module__ != module or module.partition(".")[0] != _PACKAGE:
        raise ValueError(f"{name} is no class of this package")
    return found


def _attributes(value: Any) -> dict[str, Any]:
    names = [name for each in type(value).__mro__ for name in getattr(each, "__slots__", ())]
    names += getattr(value, "__dict__", ())
    return {
        name: getattr(value, name) for name in names if not name.startswith("__") and hasattr(value, name)
    }


class _Writer:
    def __init__(self, most: int) -> None:
        self.classes: dict[str, int] = {}
        self._left = most
        self._places: dict[int, int] = {}
        self._held: list[Any] = []  # so that none is freed while another one could get its id

    def node(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if isinstance(value, type):
            return ["type", self._number(value)]
        if isinstance(value, Enum):
            return ["enum", self._number(kind), value.value]
        if callable(value) or kind.__module__ in _CONSTANT:
            return ["own"]
        if (place := self._places.get(id(value))) is not None:
            return ["same", place]
        self._places[id(value)] = len(self._held)
        self._held.append(value)
        return self._whole(kind, value)

    def _whole(self, kind: Any, value: Any) -> list[Any]:
        if kind in (list, tuple, set, frozenset):
            return [kind.__name__, self._all(value)]
        if kind in _MAPPINGS.values():
            factory = getattr(getattr(value, "default_factory", None), "__name__", "")
            return ["mapping", kind.__name__, factory, self._all(value), self._all(value.values())]
        if kind is deque:
            return ["deque", self._all(value), value.maxlen]
        if kind is range:
            return ["range", [value.start, value.stop, value.step]]
        if kind is random.Random:
            return ["random", self._all([value.getstate()])]
        if issubclass(kind, tuple):
            return ["record", self._number(kind), self._all(value)]
        attributes = _attributes(value)
        return ["object", self._number(kind), [*attributes], self._all(attributes.values())]

    def _all(self, values: Collection[Any]) -> list[Any]:
        self._left -= len(values)
        if self._left < 0:
            raise TypeError("too much to be kept")
        return [*values] if {*map(type, values)} <= _PLAIN else [*map(self.node, values)]

    def _number(self, kind: Any) -> int:
        name = f"{kind.__module__}:{kind.__qualname__}"
        if name.partition(".")[0] != _PACKAGE:
            raise TypeError(f"{name} cannot be kept")
        return self.classes.setdefault(name, len(self.classes))


class _Reader:
    def __init__(self, classes: Sequence[Any]) -> None:
        self._classes = classes
        self._seen: list[Any] = []
        self._taken: set[int] = set()  # objects that have their state

    def value(self, node: Any, own: Any = _NONE) -> Any:
        """The value of a node; `own` is what stands in its place in the object that was just made."""
        if type(node) is not list:
            return node
        tag, *content = node
        if tag == "own" and own is not _NONE:
            return own
        if tag == "same":
            return self._seen[content[0]]
        if tag == "type":
            return self._classes[content[0]]
        if tag == "enum":
            kind, value = self._classes[content[0]], content[1]
            return next(each for each in kind if issubclass(kind, Enum) and each.value == value)
        if tag in _FIXED:
            return self._fixed(_FIXED[tag], content[0], own)
        return getattr(self, f"as_{tag}")(own, *content)

    def _all(self, nodes: list[Any], own: Iterable[Any] = ()) -> list[Any]:
        if list not in {*map(type, nodes)}:
            return nodes
        return [*map(self.value, nodes, chain(own, repeat(_NONE)))]

    def _fixed(self, make: Callable[[list[Any]], Any], nodes: list[Any], own: Any) -> Any:
        place = len(self._seen)
        self._seen.append(_NONE)
        made = self._seen[place] = make(self._all(nodes, own if isinstance(own, tuple) else ()))
        return made

    def as_record(self, own: Any, number: int, nodes: list[Any]) -> Any:
        kind = self._classes[number]
        if len(kind._fields) != len(nodes):
            raise ValueError(f"{kind} has other fields")
        return self._fixed(lambda values: tuple.__new__(kind, values), nodes, own)

    def _begin(self, own: Any, kind: Any, make: Callable[[], Any]) -> Any:
        """What may change: the own one where there is one, so that what refers to that still does."""
        made = own if type(own) is kind and id(own) not in self._taken else make()
        self._taken.add(id(made))
        self._seen.append(made)
        return made

    def as_list(self, own: Any, nodes: list[Any]) -> Any:
        made = self._begin(own, list, list)
        made[:] = self._all(nodes, [*made])
        return made

    def as_set(self, own: Any, nodes: list[Any]) -> Any:
        made = self._begin(own, set, set)
        made.clear()
        made.update(self._all(nodes))
        return made

    def as_deque(self, own: Any, nodes: list[Any], most: int | None) -> Any:
        made = self._begin(own, deque, lambda: deque(maxlen=most))
        made.clear()
        made.extend(self._all(nodes))
        return made

    def as_random(self, own: Any, nodes: list[Any]) -> Any:
        made = self._begin(own, random.Random, random.Random)
        made.setstate(*self._all(nodes))
        return made

    def as_mapping(self, own: Any, kind: str, factory: str, keys: list[Any], nodes: list[Any]) -> Any:
        made = self._begin(own, _MAPPINGS[kind], _MAPPINGS[kind])
        if kind == "defaultdict" and made is not own:
            made.default_factory = _FACTORIES[factory]
        own_values, names = dict(made), self._all(keys)
        values = self._all(nodes, (own_values.get(name, _NONE) for name in names))
        made.clear()
        dict.update(made, zip(names, values, strict=True))
        return made

    def as_object(self, own: Any, number: int, names: list[str], nodes: list[Any]) -> Any:
        kind = self._classes[number]
        is_fixed = getattr(getattr(kind, "__dataclass_params__", None), "frozen", False)
        made = self._begin(_NONE if is_fixed else own, kind, lambda: object.__new__(kind))
        before = _attributes(own) if type(own) is kind else {}
        values = self._all(nodes, (before.get(name, _NONE) for name in names))
        for name, value in zip(names, values, strict=True):
            if name.startswith("__"):
                raise ValueError(f"{name} is no attribute of ours")
            object.__setattr__(made, name, value)
        return made
