"""The optional parts: found or not, and the line to get each."""

import sys

import pytest

from flagscale_perf.spine.packages import PARTS, Part, find_part, how_missing, install_line, missing

PLOTLY = Part("plotly", "plotly>=6.0", "pages")
PIP = f"{sys.executable} -m pip install"


def test_a_part_has_pips_name_and_the_version_that_is_there() -> None:
    assert (PLOTLY.name, PLOTLY.line) == ("plotly", f"{PIP} 'plotly>=6.0'")
    assert PLOTLY.version == __import__("plotly").__version__
    assert Part("no_such_module", "plotly", "").version is None
    assert Part("no_such_package.module", "plotly", "").version is None
    assert Part("json", "no-such-distribution>=1", "").version == "found"


def test_a_blocked_part_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert PLOTLY.version is None


def test_a_part_is_found_by_any_of_its_modules() -> None:
    assert find_part("prometheus_client.core") == find_part("prometheus_client") is not None
    assert [find_part(name) for name in (None, "", "no_such_module")] == [None, None, None]
    assert len({part.module for part in PARTS}) == len(PARTS)


def test_what_is_missing_is_two_lines() -> None:
    error = ModuleNotFoundError("No module named 'plotly'", name="plotly")
    assert str(missing("plotly", error, "--format html", "take another format")) == (
        "--format html needs plotly, which is not installed\n"
        f"install it: {PIP} 'plotly>=6.0', or take another format"
    )
    assert str(missing("plotly", error, "--format html")).endswith(f"\ninstall it: {PIP} 'plotly>=6.0'")


def test_what_is_broken_is_installed_again() -> None:
    broken = ImportError("libx.so: no such file", name="matplotlib._image")
    assert str(missing("matplotlib", broken, "png")) == (
        "png needs matplotlib, which cannot be imported: libx.so: no such file\n"
        f"install it again: {PIP} --force-reinstall 'matplotlib>=3.8'"
    )
    needed = ModuleNotFoundError("No module named 'numpy'", name="numpy")
    part = find_part("matplotlib")
    assert part is not None
    assert how_missing(part, needed)[0] == "cannot be imported: No module named 'numpy'"


def test_a_part_that_another_one_needs_is_named() -> None:
    error = ModuleNotFoundError("No module named 'omegaconf'", name="omegaconf")
    assert str(missing("hydra", error, "run.py")) == (
        f"run.py needs omegaconf, which is not installed\ninstall it: {PIP} 'omegaconf>=2.3'"
    )


def test_a_line_is_quoted_for_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/a b/python")
    assert install_line("x[y]", "--no-deps") == "'/a b/python' -m pip install --no-deps 'x[y]'"
