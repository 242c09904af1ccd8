"""Attribute patches that remember how to undo themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Wrapper: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
_ABSENT = object()


class Patches:
    """A stack of attribute replacements; `undo` puts everything back, newest first."""

    def __init__(self) -> None:
        self._undoing: list[Callable[[], object]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replaces (or adds) `owner.name`. `owner` may be a module, a class or an object."""
        before = vars(owner).get(name, _ABSENT)
        self.undone(
            functools.partial(delattr, owner, name)
            if before is _ABSENT
            else functools.partial(setattr, owner, name, before)
        )
        setattr(owner, name, value)

    def wrap(self, owner: Any, wrappers: Mapping[str, Wrapper]) -> None:
        """Wraps each named function of `owner`; a name that `owner` lacks is passed over."""
        for name, wrapper in wrappers.items():
            if original := getattr(owner, name, None):
                self.set(owner, name, wrapper(original))

    def set_class(self, owner: Any, kind: type) -> None:
        """Makes `owner` an object of the class `kind`. Raises TypeError where their layouts differ."""
        before = type(owner)
        owner.__class__ = kind
        self.undone(lambda: setattr(owner, "__class__", before))

    def undone(self, action: Callable[[], object]) -> None:
        """Has `action` called by `undo`."""
        self._undoing.append(action)

    def undo(self) -> None:
        """Restores every attribute; does nothing the second time."""
        while self._undoing:
            self._undoing.pop()()
