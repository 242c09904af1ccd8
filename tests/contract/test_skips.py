"""In continuous integration a skip that tests/skips.py does not name is a failure; elsewhere it is a skip."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests import skips
from tests.conftest import REPO, RunPython
from tests.package_copy import NO_PLUGINS

SUITE = {
    "tests/gpu/test_card.py": """\
import pytest

@pytest.mark.skipif(True, reason="needs a CUDA device")
def test_accepted(): ...

def test_not_accepted():
    pytest.skip("too slow today")

@pytest.mark.skipif(True, reason="needs a CUDA device or two")
def test_a_reason_that_goes_on(): ...

@pytest.mark.xfail
def test_no_skip():
    raise ValueError

def test_that_runs(): ...
""",
    "tests/unit/test_elsewhere.py": """\
import pytest

@pytest.mark.skipif(True, reason="needs a CUDA device")
def test_in_the_wrong_place(): ...
""",
}
MODULE = {
    "tests/unit/test_module.py": 'import pytest\npytest.importorskip("absent", reason="no such package")\n'
}


def run(run_python: RunPython, home: Path, suite: dict[str, str], *options: str, ci: bool) -> tuple[int, str]:
    """Exit status and output of pytest over these files."""
    for name, text in suite.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    words = ("-m", "pytest", "-p", "tests.skips", "-p", "no:cacheprovider", "--rootdir", home, *options)
    # pytest-xdist makes a child's variables of this process's: what is empty counts as unset
    done = run_python(*words, "tests", cwd=home, env={"CI": "true" if ci else ""} | NO_PLUGINS)
    return done.returncode, done.stdout


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "2")], ids=["one process", "two processes"])
def test_what_is_not_named_fails_in_continuous_integration(run_python, tmp_path: Path, options) -> None:
    code, shown = run(run_python, tmp_path, SUITE, *options, ci=True)
    assert code == 1
    assert "1 failed, 1 passed, 2 skipped, 1 xfailed, 1 error in " in shown, shown
    ours = " - skipped: {}. tests/skips.py does not say "
    assert "FAILED tests/gpu/test_card.py::test_not_accepted" + ours.format("too slow today") in shown
    elsewhere = "ERROR tests/unit/test_elsewhere.py::test_in_the_wrong_place"
    assert elsewhere + ours.format("needs a CUDA device") in shown


def test_elsewhere_a_skip_is_a_skip(run_python, tmp_path: Path) -> None:
    code, shown = run(run_python, tmp_path, SUITE, ci=False)
    assert (code, "1 passed, 4 skipped, 1 xfailed in " in shown) == (0, True), shown


@pytest.mark.parametrize(("ci", "code"), [(True, 2), (False, 5)])
def test_a_module_that_is_skipped(run_python, tmp_path: Path, ci: bool, code: int) -> None:
    found, shown = run(run_python, tmp_path, MODULE, ci=ci)
    assert (found, "skipped: no such package. tests/skips.py" in shown) == (code, ci), shown


def test_a_skip_that_is_right_in_one_environment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    test, reason = "tests/trace/test_calls.py", "Skipped: needs Ray, TransferQueue and verl; `make ...`"
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(skips.sys, "prefix", "/a/.venv")
    assert skips.objection(test, reason) is None
    monkeypatch.setattr(skips.sys, "prefix", "/a/.venv_trace")
    assert skips.objection(test, reason) is not None


def test_a_skip_that_is_right_where_nothing_may_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    test, reason = "tests/contract/test_dashboards.py::test_a", "promtool is not installed; it comes with ..."
    monkeypatch.setenv("CI", "true")
    monkeypatch.delenv(skips.TOOLS, raising=False)
    assert skips.objection(test, reason) is not None
    monkeypatch.setenv(skips.TOOLS, "1")
    assert skips.objection(test, reason) is None


@pytest.mark.parametrize("row", skips.ACCEPTED, ids=lambda row: f"{row.tests}: {row.says}")
def test_every_row_is_of_a_test_and_a_reason_that_are_there(row: skips.Accepted) -> None:
    """The pattern is some test file's, and the reason stands in the tests."""
    files = [path.relative_to(REPO) for path in (REPO / "tests").rglob("test_*.py")]
    assert any(fnmatchcase(test, row.tests) for file in files for test in (str(file), f"{file}::test"))
    sources = [
        path for path in (REPO / "tests").rglob("*.py") if path.name not in ("skips.py", "test_skips.py")
    ]
    begin = row.says.replace("none of chromium", "none of {', '.join(BROWSERS)} is on the PATH")
    assert any(begin in path.read_text(encoding="utf-8") for path in sources)
    assert row.because
