"""FlagScale's own runner gets the configuration, and a missing package is named."""

import os
import sys

import pytest

from flagscale_perf.hosts.flagscale_runner import train_runner
from flagscale_perf.spine.errors import PerfError


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A FlagScale tree whose runner is the given text."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PATH", "/usr/bin")

    def make(text):
        package = tmp_path / "flagscale" / "runner"
        package.mkdir(parents=True)
        (package / "runner_train.py").write_text(text)
        return str(tmp_path)

    yield make
    for name in [name for name in sys.modules if name.partition(".")[0] == "flagscale"]:
        del sys.modules[name]


def test_runner_of_the_tree_gets_the_configuration(tree) -> None:
    root = tree("class SSHTrainRunner:\n    def __init__(self, config):\n        self.config = config\n")
    assert train_runner(root, {"a": 1}).config == {"a": 1}
    assert os.environ["PATH"] == f"{os.path.dirname(sys.executable)}:/usr/bin"


def test_missing_package_is_named(tree) -> None:
    root = tree("import no_such_package_of_flagscale\n")
    with pytest.raises(PerfError) as refusal:
        train_runner(root, {})
    assert str(refusal.value) == (
        f"experiment.runner.hostfile: FlagScale's runner in {root} cannot be imported: No module named "
        "'no_such_package_of_flagscale';"
        f" install what is missing: {sys.executable} -m pip install no_such_package_of_flagscale"
    )
