"""Every host that is given, through every row of the table: off and on with equal losses, one monitor.

`make test-hosts HOSTS=DIRECTORY` prints the table of docs/hosts.md. `.ci/run` runs the quick rows of the
trees that it finds; what is installed has tests of its own in tests/processes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hosts.rows import ROWS, script_of
from tests.hosts.trees import MISSING, Host, host_of, installed, name_of, places, unpacked
from tests.processes import flagscale as fs
from tests.processes.test_flagscale_flags import HOST_FLAGS, LATER_FLAGS

pytestmark = [pytest.mark.host, pytest.mark.other_host]
INSTALLED = "FlagScale 0.8.0"
QUICK = ("1 rank", "PP2", "spellings", "variable", "both monitors", "torchrun")
PLACES: dict[str, Path | None] = {**{name_of(place): place for place in places()}, INSTALLED: None}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Host]:
    """By name. The trees are unpacked by the first that asks for one."""
    trees: dict[Path, Path] = {}

    def find(name: str) -> Host:
        place = PLACES[name]
        if place is None:
            return installed()
        if not trees:
            trees.update(unpacked(tmp_path_factory.mktemp("hosts")))
        found = host_of(place, trees)
        assert found, f"{name} is no host: there is no megatron/core in it"
        return found

    return find


def runs() -> Iterator[object]:
    for name, place in PLACES.items():
        for row in ROWS:
            is_quick = place is not None and row in QUICK
            yield pytest.param(name, row, marks=[] if is_quick else pytest.mark.long)


@pytest.mark.parametrize(("name", "row"), list(runs()))
def test_a_host_trains_as_without_us(
    name: str,
    row: str,
    host: Callable[[str], Host],
    tmp_path: Path,
    record_property: Callable[[str, str], None],
) -> None:
    record_property("matrix", f"{name}|{row}")
    ROWS[row](host(name), tmp_path / "runs")


def test_flags_that_findings_name_for_later_hosts_are_theirs(
    host: Callable[[str], Host], tmp_path: Path
) -> None:
    if not (later := [name for name, place in PLACES.items() if place is not None]):
        pytest.skip(MISSING)
    for name in later:
        script_of(host(name))
        (tmp_path / "flags.py").write_text(HOST_FLAGS)
        words = fs.launched(tmp_path / "flags.py")
        done = fs.run(fs.workers(1, *words), tmp_path, PYTHONPATH=host(name).pythonpath)
        assert set(json.loads(done.output.splitlines()[-1])) >= LATER_FLAGS, name


def test_there_are_trees_to_train_with() -> None:
    if len(PLACES) == 1:
        pytest.skip(MISSING)
