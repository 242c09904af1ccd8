"""Jobs compared: the trainings by preference, then what else both have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagscale_perf.cli import main
from tests import synthetic
from tests.every_instrument import write
from tests.profile_runs import FORWARD, MATMUL, Profiled
from tests.profile_runs import make_profile_header as header_of
from tests.synthetic import MS, Plan

LATER = "20240129_103003"


def profile_in(directory: Path, step_ms: int) -> None:
    job = Profiled()
    process = job.rank(0)
    job.step(process, 0, step_ms, step_ms, iteration=19)
    for number in range(1, 41):
        job.step(
            process,
            400 * number,
            0,
            total_ns=(step_ms * MS + number % 3 * MS),
            is_profiled=0,
            iteration=20 + number,
        )
    row = (FORWARD, "model.layers.0", 1, MATMUL, 1, step_ms, None, None)
    job.row(process, row, step_phase="train", steps=1)
    job.window(process, steps=1, clean_steps=40)
    job.write(directory, header_of(LATER))


def job_in(directory: Path, more_ms: int, step_ms: int | None) -> str:
    directory.mkdir()
    plan = Plan(steps=60, extra=lambda number: {"forward_ns": more_ms * MS})
    synthetic.write(plan, directory)
    if step_ms is not None:
        profile_in(directory, step_ms)
    return str(directory)


def test_trainings_are_compared_though_their_profiles_are_newer(tmp_path: Path, capsys) -> None:
    base, new = job_in(tmp_path / "base", 0, 200), job_in(tmp_path / "new", 100, 100)
    assert main(["compare", base, new, "--fail-if-slower", "3%"]) == 1  # though the profile is faster
    text = capsys.readouterr().out
    assert text.startswith("NEW is slower than BASE by 9.98 %")
    assert "  profile: NEW is faster than BASE by" in text and "\nProfile\n" in text
    assert main(["compare", base, new, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["whole"]["verdict"] == "slower" and found["unit"] == "ms"
    assert found["job"]["compared"]["profile"]["whole"]["verdict"] == "faster"
    assert found["job"]["not_compared"] == {}


def test_one_instrument_may_be_asked_for(tmp_path: Path, capsys) -> None:
    base, new = job_in(tmp_path / "base", 0, 200), job_in(tmp_path / "new", 100, 100)
    assert main(["compare", base, new, "--instrument", "profile", "--fail-if-slower", "3%"]) == 0
    assert capsys.readouterr().out.startswith("NEW is faster than BASE by")
    assert main(["compare", base, new, "--instrument", "rpc"]) == 2
    assert capsys.readouterr().err == (
        f"no session of the instrument 'rpc' in '{base}'; there are sessions of profile, training\n"
    )


def test_what_one_job_lacks_is_said_and_changes_no_verdict(tmp_path: Path, capsys) -> None:
    base, new = job_in(tmp_path / "base", 0, 200), job_in(tmp_path / "new", 100, None)
    assert main(["compare", base, new, "--fail-if-slower", "3%"]) == 1
    assert "profile not compared: nothing of it beside" in " ".join(capsys.readouterr().out.split())


def test_a_profile_alone_is_never_taken_for_a_training(tmp_path: Path, capsys) -> None:
    base = job_in(tmp_path / "base", 0, 200)
    (tmp_path / "new").mkdir()
    profile_in(tmp_path / "new", 100)
    assert main(["compare", base, str(tmp_path / "new")]) == 2
    said = capsys.readouterr().err
    assert "is a profile, and " in said and "is a training; name run files of one instrument" in said
    assert main(["compare", base, str(tmp_path / "new"), "--instrument", "profile"]) == 0


def test_sub_directories_of_one_job_are_compared_as_it(tmp_path: Path, capsys) -> None:
    for name, more_ms, step_ms in (("base", 0, 200), ("new", 100, 100)):
        (tmp_path / name / "profiled").mkdir(parents=True)
        job_in(tmp_path / name / "training", more_ms, None)
        profile_in(tmp_path / name / "profiled", step_ms)
    assert main(["compare", str(tmp_path / "base"), str(tmp_path / "new"), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["whole"]["verdict"] == "slower"
    assert found["job"]["compared"]["profile"]["whole"]["verdict"] == "faster"


@pytest.mark.parametrize("name", ["rpc", "profile"])
def test_a_job_of_one_session_looks_as_its_session_does(name: str, tmp_path: Path, capsys) -> None:
    path = write(name, tmp_path, "completed")
    said = []
    for what in (path, tmp_path):
        main(["compare", str(what), str(what), "--warmup", "0"])
        said.append(capsys.readouterr())
    assert said[0] == said[1]
