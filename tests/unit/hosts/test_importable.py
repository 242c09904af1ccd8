"""What stops a host's import, read from files: real ones, on a path of their own."""

import pytest

from flagscale_perf.hosts.importable import find_lacks


@pytest.fixture
def find(tmp_path):
    """Writes modules; gives what the first of them lacks."""

    def locate(module):
        base = tmp_path.joinpath(*module.split("."))
        return next(
            (path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None
        )

    def run(files):
        for name, text in files.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return [lack.text for lack in find_lacks(next(iter(files))[:-3].replace("/", "."), locate)]

    return run


def test_what_is_imported_on_the_way_counts_and_a_parent_package_too(find):
    assert find(
        {
            "megatron/training/training.py": "from megatron.core import models\nimport os",
            "megatron/core/__init__.py": "from .deep import thing",
            "megatron/core/models.py": "import no_such_model",
            "megatron/core/deep.py": "from no_such_thing.sub import thing",
        }
    ) == [
        "megatron.core.models imports no_such_model, which is not installed: install it",
        "megatron.core.deep imports no_such_thing, which is not installed: install it",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    import no_such_thing\nexcept ImportError:\n    pass",
        "if False:\n    import no_such_thing",
        "def later():\n    import no_such_thing",
        "from concurrent import futures\nfrom xml.etree import ElementTree\nimport json as j",
        "from helpers_here import of_the_tree",
    ],
)
def test_what_is_not_needed_or_is_there_is_no_lack(find, text):
    assert find({"megatron/loop.py": text, "helpers_here.py": ""}) == []


def test_a_name_that_this_python_does_not_have(find):
    (text,) = find({"megatron/loop.py": "from typing import Any, no_such_mark"})
    assert text.startswith("megatron.loop imports no_such_mark from typing, which Python 3.")
    assert text.endswith("does not have: take a newer Python")
