"""Sources of a host, read without running them."""

from __future__ import annotations

import ast
import symtable
import warnings
from pathlib import Path


def tree_of(file: Path) -> ast.Module:
    """The module's syntax tree. What Python has to warn about in it is the host's, and not said here. Raises
    OSError, ValueError, SyntaxError.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(file.read_text(encoding="utf-8"))


def names_of(file: Path) -> frozenset[str]:
    """What the module binds at its top level, also inside `if` and `try`; raises as `tree_of` does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        symbols = symtable.symtable(file.read_text(encoding="utf-8"), str(file), "exec").get_symbols()
    return frozenset(each.get_name() for each in symbols if each.is_assigned() or each.is_imported())
