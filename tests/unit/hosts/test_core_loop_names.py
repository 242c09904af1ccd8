"""What a host is called, by the place of its loop's file."""

import importlib
from types import ModuleType

import pytest

from flagscale_perf.hosts.core_loop import commit_of, host_name, version_of

COMMIT = "69487e3d5a1c0ffee000000000000000000000aa"
LOOP = "flagscale/train/megatron/training/training.py"


def checkout(tree, head, **files):
    """A tree of FlagScale with these files below .git."""
    (tree / ".git" / "refs" / "heads").mkdir(parents=True)
    (tree / ".git" / "HEAD").write_text(head)
    for name, text in files.items():
        (tree / ".git" / name.replace("__", "/").replace("_", "-")).write_text(text)
    return tree


@pytest.mark.parametrize(
    ("head", "files"),
    [
        (f"{COMMIT}\n", {}),
        ("ref: refs/heads/main\n", {"refs__heads__main": f"{COMMIT}\n"}),
        (
            "ref: refs/heads/main\n",
            {"packed_refs": f"# sorted\n{'0' * 40} refs/heads/other\n{COMMIT} refs/heads/main\n"},
        ),
    ],
    ids=["detached", "branch", "packed"],
)
def test_a_checkout_is_called_by_its_version_and_commit(tmp_path, head, files):
    tree = checkout(tmp_path, head, **files)
    (tree / "pyproject.toml").write_text('[project]\nversion = "1.0.0"\n')
    assert host_name(tree / LOOP, "0.17.1") == "FlagScale 1.0.0 (commit 69487e3, core 0.17.1)"


def test_another_work_tree_and_a_submodule_have_their_commit(tmp_path):
    main = checkout(tmp_path / "main", "ref: refs/heads/main\n", refs__heads__other=f"{COMMIT}\n")
    other, apart = tmp_path / "other", main / ".git" / "worktrees" / "other"
    other.mkdir()
    apart.mkdir(parents=True)
    (other / ".git").write_text(f"gitdir: {apart}\n")
    (apart / "HEAD").write_text("ref: refs/heads/other\n")
    (apart / "commondir").write_text("../..\n")
    assert commit_of(other) == "69487e3"


def test_a_package_from_its_sources_has_its_own_version_and_an_installed_one_what_was_installed(tmp_path):
    sources = ModuleType("msgspec")
    sources.__path__, sources.__version__ = [str(tmp_path)], "0.7.0"
    assert version_of("msgspec", sources) == "0.7.0"
    assert version_of("msgspec") == version_of("msgspec", importlib.import_module("msgspec"))
    assert version_of("no-such-package", sources) == "0.7.0"
    assert version_of("no-such-package") == "unknown"


def test_what_is_no_checkout_has_no_commit(tmp_path):
    assert commit_of(tmp_path) is None
    assert commit_of(checkout(tmp_path / "empty", "ref: refs/heads/main\n")) is None


def test_a_tree_without_a_version_is_flagscale_all_the_same(tmp_path):
    assert host_name(tmp_path / LOOP, "unknown") == "FlagScale unknown (core unknown)"
    (tmp_path / "pyproject.toml").write_text("[project")
    assert host_name(tmp_path / LOOP, "0.17.1") == "FlagScale unknown (core 0.17.1)"


def test_the_installed_one_is_called_by_what_was_installed(tmp_path):
    assert host_name(tmp_path / "flag_scale/flagscale/train/train.py", "0.15.0").startswith("FlagScale 0.8")


def test_any_other_loop_is_megatrons(tmp_path):
    assert host_name(tmp_path / "megatron/training/training.py", "0.15.0") == "Megatron-LM (core 0.15.0)"
