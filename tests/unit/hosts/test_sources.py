"""Sources of a host: what is bound there, and no warning of Python's about them."""

from __future__ import annotations

import warnings
from pathlib import Path

from flagscale_perf.hosts.sources import names_of, tree_of


def test_a_source_that_python_warns_of_is_read_without_a_word(tmp_path: Path) -> None:
    file = tmp_path / "loop.py"
    file.write_text("import os\nif os:\n    PATTERN = '\\-'\nelse:\n    x = 1 is 1\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(tree_of(file).body) == 2
        assert names_of(file) == {"os", "PATTERN", "x"}
