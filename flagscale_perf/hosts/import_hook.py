"""Runs callbacks before or after a module's first import, without importing it.

A finder, first on `sys.meta_path`, answers for the watched names only. It asks the other finders for the
module and wraps the loader they give: the wrapper runs the module's code and then the callback, so that the
module is complete and not in use yet. A callback's failure never reaches the importing program.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Callback = Callable[[ModuleType], None]


class ImportHook(importlib.abc.MetaPathFinder):
    """Watches imports by name.

    Args:
        before: module name -> called just before that module is first looked for.
        after: module name -> called with the module right after its code has run.
        failed: called with the module's name and the exception when a callback raises; must not raise.
    """

    def __init__(
        self,
        before: dict[str, Callable[[], None]],
        after: dict[str, Callback],
        failed: Callable[[str, Exception], None],
    ) -> None:
        self._before = dict(before)
        self._after = dict(after)
        self._failed = failed

    def install(self) -> None:
        """Puts the finder first on `sys.meta_path`; modules already imported get their `after` call now."""
        sys.meta_path.insert(0, self)
        for name in [name for name in self._after if name in sys.modules]:
            self.run_after(name, sys.modules[name])

    def uninstall(self) -> None:
        """Takes the finder off `sys.meta_path`."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The finder's protocol. None, for all but the watched names, leaves it to the other finders."""
        if before := self._before.pop(fullname, None):
            self._guard(fullname, before)
        if fullname not in self._after:
            return None
        return found_by_others(self, (fullname, path, target), self._executed)

    def _executed(self, module: ModuleType, execute: Callable[[], None]) -> None:
        execute()
        self.run_after(module.__name__, module)

    def run_after(self, name: str, module: ModuleType) -> None:
        """Calls the `after` callback of `name`, once."""
        if callback := self._after.pop(name, None):
            self._guard(name, lambda: callback(module))

    def _guard(self, name: str, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception as error:  # a callback of ours, inside the host's import statement
            self._failed(name, error)


def found_by_others(
    finder: importlib.abc.MetaPathFinder,
    asked: tuple[str, Sequence[str] | None, ModuleType | None],
    run: Callable[[ModuleType, Callable[[], None]], None],
) -> importlib.machinery.ModuleSpec | None:
    """The module as the finders behind `finder` on `sys.meta_path` find it; `run` is called in place of its
    code, with the module and what runs that code. `asked`: the arguments of `find_spec`.
    """
    place = sys.meta_path.index(finder) + 1 if finder in sys.meta_path else 0
    for other in sys.meta_path[place:]:
        if not hasattr(other, "find_spec"):  # the protocol of Python 3.3; the interpreter skips it, too
            continue
        spec = other.find_spec(*asked)
        if spec is not None:
            if spec.loader is not None:
                spec.loader = _AroundLoader(spec.loader, run)
            return spec
    return None


class _AroundLoader(importlib.abc.Loader):
    """The module's real loader, with something around the run of the module's code.

    It puts the real loader back into the module first: `inspect`, `pkgutil` and `importlib.reload` ask the
    module for its loader, and a reload must not run the callback again.
    """

    def __init__(self, inner: Any, run: Callable[[ModuleType, Callable[[], None]], None]) -> None:
        self._inner = inner
        self._run = run

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._inner.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Runs the module, with its own loader back in place."""
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        module.__loader__ = self._inner
        self._run(module, lambda: self._inner.exec_module(module))

    def __getattr__(self, name: str) -> Any:
        # Whatever else a loader can do (`get_source`, `get_data` ...), as long as this one is in its place.
        return getattr(self._inner, name)
