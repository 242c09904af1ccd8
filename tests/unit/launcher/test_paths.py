"""Files lie where FlagScale puts them."""

import os

import pytest

from flagscale_perf.launcher.paths import ExperimentPaths
from flagscale_perf.spine.errors import PerfError


def paths_of(exp_dir="./outputs", cwd="/here", log_dir=None):
    return ExperimentPaths.of(exp_dir, log_dir, cwd)


def test_files_lie_where_flagscale_puts_them() -> None:
    paths = paths_of()
    assert paths.script == "/here/outputs/logs/scripts/host_0_localhost_run.sh"
    assert paths.output == "/here/outputs/logs/host_0_localhost.output"
    assert paths.pid_file == "/here/outputs/logs/pids/host_0_localhost.pid"


@pytest.mark.parametrize(
    ("exp_dir", "cwd", "path", "expected"),
    [
        ("./outputs", "/here", "logs/perf", "/here/outputs/logs/perf"),
        (
            "./outputs",
            "/here",
            "./outputs/logs/perf",
            "/here/outputs/logs/perf",
        ),  # names the experiment directory: as typed
        ("./outputs", "/here", "outputs", "/here/outputs"),
        (
            "./outputs",
            "/here",
            "outputs2/logs",
            "/here/outputs/outputs2/logs",
        ),  # a name that only begins alike
        ("./outputs", "/here", "/elsewhere/logs", "/elsewhere/logs"),
        ("./outputs", "/here", "../logs", "/here/logs"),  # ../ of the experiment directory
        ("/data/exp", "/here", "logs", "/data/exp/logs"),
        (
            "/data",
            "/data/sub",
            "logs",
            "/data/logs",
        ),  # typed inside the experiment directory: still against it
        (".", "/here", "logs", "/here/logs"),
    ],
)
def test_output_paths_are_made_absolute_against_the_experiment_directory(
    exp_dir, cwd, path, expected
) -> None:
    assert paths_of(exp_dir, cwd).resolve(path) == expected


def test_log_dir_may_lie_elsewhere() -> None:
    assert paths_of(log_dir="my_logs").log_dir == "/here/outputs/my_logs"


def test_paths_below_are_shown_as_they_are_typed() -> None:
    shown = paths_of().shown
    assert [shown("/here/outputs/a"), shown("/here"), shown("/hereafter/a")] == [
        "outputs/a",
        ".",
        "/hereafter/a",
    ]


def test_directory_that_cannot_be_made_is_refused(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        PerfError,
        match=r"^experiment.exp_dir: cannot create .*Not a directory; give a directory that can be written$",
    ):
        paths_of(str(tmp_path / "file")).make()


def test_make_creates_the_launchers_directories(tmp_path) -> None:
    paths = paths_of(str(tmp_path / "a" / "b"))
    paths.make()
    assert sorted(os.listdir(paths.log_dir)) == ["pids", "scripts"]
