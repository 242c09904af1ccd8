"""FlagScale is found by configuration, environment or installation, and its absence is explained."""

import sys

import pytest

from flagscale_perf.launcher import flagscale_root
from flagscale_perf.launcher.flagscale_root import find_entrypoint, find_flagscale, import_paths
from flagscale_perf.spine.errors import PerfError


@pytest.fixture
def tree(tmp_path):
    script = tmp_path / "FlagScale" / "flagscale" / "train" / "train_gpt.py"
    script.parent.mkdir(parents=True)
    script.write_text("")
    return tmp_path / "FlagScale"


def test_configuration_wins_over_the_environment(tree, tmp_path) -> None:
    assert find_flagscale(str(tree), {"FLAGSCALE_HOME": str(tmp_path)}) == str(tree)
    assert find_flagscale(None, {"FLAGSCALE_HOME": str(tree)}) == str(tree)


@pytest.mark.parametrize(
    ("source", "configured", "environ"),
    [
        ("experiment.task.flagscale_root", "/nowhere", {}),
        ("FLAGSCALE_HOME", None, {"FLAGSCALE_HOME": "/nowhere"}),
    ],
)
def test_tree_without_flagscale_is_refused(source, configured, environ) -> None:
    with pytest.raises(PerfError) as refusal:
        find_flagscale(configured, environ)
    assert (
        str(refusal.value)
        == f"{source}: '/nowhere' is not a FlagScale tree (no flagscale/train in it); give its root directory"
    )


def test_missing_flagscale_says_how_to_install_it(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(flagscale_root, "find_spec", lambda name: None)
    assert find_flagscale(None, {}) is None
    with pytest.raises(PerfError) as refusal:
        find_entrypoint(None, None, str(tmp_path))
    assert str(refusal.value) == (
        f"experiment.task.entrypoint: no file 'flagscale/train/train_gpt.py' in {tmp_path}, and "
        "FlagScale is not installed;"
        f" install it with\n    {sys.executable} -m pip install --no-deps flag-scale==0.8.0\n"
        "or name a checkout with experiment.task.flagscale_root=DIR"
    )


def test_entrypoint_is_searched_here_first_then_in_flagscale(tree, tmp_path) -> None:
    in_flagscale = str(tree / "flagscale" / "train" / "train_gpt.py")
    assert find_entrypoint(None, str(tree), str(tmp_path)) == in_flagscale
    assert find_entrypoint("./flagscale/train/train_gpt.py", str(tree), str(tmp_path)) == in_flagscale
    (tmp_path / "mine.py").write_text("")
    assert find_entrypoint("mine.py", str(tree), str(tmp_path)) == str(tmp_path / "mine.py")
    assert find_entrypoint(str(tmp_path / "mine.py"), None, "/") == str(tmp_path / "mine.py")


def test_entrypoint_that_is_nowhere_is_refused(tree, tmp_path) -> None:
    with pytest.raises(PerfError) as refusal:
        find_entrypoint("x.py", str(tree), str(tmp_path))
    assert str(refusal.value) == (
        f"experiment.task.entrypoint: no file 'x.py', neither in {tmp_path} nor in FlagScale at "
        f"{tree}; give the script's path"
    )


@pytest.mark.parametrize(
    "named", [None, "flagscale/train/train_gpt.py", "./flagscale/train/megatron/train_gpt.py"]
)
@pytest.mark.parametrize("place", ["flagscale/train", "flagscale/train/megatron"], ids=["0.8", "main"])
def test_flagscales_own_script_is_found_by_its_name_in_any_version(tmp_path, named, place) -> None:
    script = tmp_path / place / "train_gpt.py"
    script.parent.mkdir(parents=True)
    script.write_text("")
    assert find_entrypoint(named, str(tmp_path), "/") == str(script)


def test_what_goes_onto_the_path_is_where_megatron_is(tmp_path) -> None:
    assert import_paths(str(tmp_path)) == [str(tmp_path)]
    for place in ("third_party/Megatron-LM", "flagscale/train"):
        (tmp_path / place / "megatron" / "training").mkdir(parents=True)
    assert import_paths(str(tmp_path)) == [
        str(tmp_path),
        f"{tmp_path}/third_party/Megatron-LM",
        f"{tmp_path}/flagscale/train",
    ]
