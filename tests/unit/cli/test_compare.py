"""`flagscale-perf compare`: its exit codes, formats and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagscale_perf.cli import main
from tests import synthetic
from tests.conftest import RunPython
from tests.run_files import steady, write
from tests.synthetic import MS, Plan


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    """BASE, and NEW with 6 % more."""
    return [
        str(write(tmp_path / name, steady(60, more_backward_ms=more)))
        for name, more in (("base", 0), ("new", 6))
    ]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 0),
        (["--fail-if-slower", "3%"], 1),
        (["--fail-if-slower", "10"], 0),
        (["--fail-if-slower", "7"], 3),
    ],
)
def test_the_exit_code_is_for_ci(runs, capsys, words, code) -> None:
    assert main(["compare", *runs, *words]) == code
    out, err = capsys.readouterr()
    assert (out.splitlines()[0], err) == ("NEW is slower than BASE by 6.00 %, above all in backward", "")


def test_faster_never_fails(runs, capsys) -> None:
    assert main(["compare", *reversed(runs), "--fail-if-slower", "0%"]) == 0
    assert "NOT SLOWER: the whole interval lies below 0.00 %" in capsys.readouterr().out


def test_undecided_says_what_would_decide(runs, capsys) -> None:
    assert main(["compare", *runs, "--fail-if-slower", "7%"]) == 3
    out = " ".join(capsys.readouterr().out.split())
    assert "UNDECIDED: the interval reaches beyond 7.00 %; if the change is as large as it seems" in out
    assert "about 19 runs a side would decide it" in out


def test_a_run_compared_with_itself_is_said_and_decides_nothing(runs, capsys) -> None:
    assert main(["compare", runs[0], runs[0], "--fail-if-slower", "50%"]) == 3
    out = capsys.readouterr().out
    assert out.startswith("A run is compared with itself: 20240129_103000 is BASE and NEW\n  UNDECIDED: ")


def test_a_picture_is_nothing_for_a_terminal(runs, tmp_path, capsys, monkeypatch) -> None:
    assert main(["compare", *runs, "-o", str(tmp_path / "out.png")]) == 0
    assert capsys.readouterr().err.startswith(f"wrote {tmp_path}/out.png (")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["compare", *runs, "--format", "png"]) == 2
    told = "--format png makes a picture, which a terminal cannot show; add -o comparison.png"
    assert capsys.readouterr().err == f"{told}, or -o - for a pipe\n"
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_help_has_the_exit_codes(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    assert "  3  undecided: the interval reaches beyond PERCENT" in capsys.readouterr().out


@pytest.mark.parametrize("bad", ["three", "-1%", "nan", "inf%"])
def test_a_bound_that_is_none_is_refused(runs, capsys, bad) -> None:
    with pytest.raises(SystemExit) as end:
        main(["compare", *runs, f"--fail-if-slower={bad}"])
    assert end.value.code == 2
    assert f"{bad!r} is not a percentage; write one such as 3%" in capsys.readouterr().err


def test_a_warmup_that_is_none_is_refused(runs, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["compare", *runs, "--warmup=-1"])
    assert "'-1' is not a whole number, 0 or more" in capsys.readouterr().err


def test_what_a_shell_makes_of_two_directories_of_runs_is_named(runs, capsys) -> None:
    assert main(["compare", *runs, *runs]) == 2
    assert (
        "4 runs given: BASE and NEW are one run each; name further ones with --more-base"
        in capsys.readouterr().err
    )


def test_where_nothing_can_be_compared_it_says_so(runs, tmp_path, capsys) -> None:
    assert main(["compare", runs[0], str(tmp_path / "absent")]) == 2
    assert main(["compare", *runs, "--warmup", "50"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert (
        "absent' does not exist" in err.splitlines()[0]
        and "has 10 iterations to compare" in err.splitlines()[1]
    )


def test_several_runs_a_side(runs, tmp_path, capsys) -> None:
    more = [
        write(tmp_path / str(pid), steady(60, more_backward_ms=pid // 2 * 6), pid=pid) for pid in range(4)
    ]
    words = [f"--more-{side}={path}" for side, path in zip(("base", "base", "new", "new"), more, strict=True)]
    assert main(["compare", *runs, *words, "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (len(result["base_runs"]), len(result["new_runs"])) == (3, 3)
    assert result["noise_source"] == "seen between the runs of each side"


@pytest.mark.parametrize(
    ("form", "begin"),
    [("text", "NEW is slower"), ("markdown", "# NEW is"), ("html", "<!DOCTYPE html>"), ("json", "{")],
)
def test_each_format_goes_to_a_file_as_well(runs, tmp_path, capsys, form, begin) -> None:
    target = tmp_path / "out"
    assert main(["compare", *runs, "--format", form]) == 0
    printed = capsys.readouterr().out
    assert main(["compare", *runs, "--format", form, "-o", str(target)]) == 0
    out, err = capsys.readouterr()
    assert (out, err.split("(")[0]) == ("", f"wrote {target} ")
    assert target.read_text() == printed and printed.startswith(begin)


def test_a_file_that_cannot_be_written(runs, tmp_path, capsys) -> None:
    assert main(["compare", *runs, "-o", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"-o {tmp_path}: is a directory; name a file in it\n"


def test_it_needs_no_torch_and_no_numpy(runs, run_python: RunPython) -> None:
    code = (
        "import sys; from flagscale_perf.cli import main; main(sys.argv[1:]); "
        "print([m for m in ('torch', 'numpy') if m in sys.modules])"
    )
    assert run_python("-c", code, "compare", *runs).stdout.endswith("\n[]\n")


def test_runs_of_two_instruments_are_named_and_refused(runs, tmp_path, capsys) -> None:
    calls = tmp_path / "calls"
    calls.mkdir()
    other = calls / "perf_records_20240129_103000.jsonl"
    (own,) = Path(runs[0]).glob("perf_records_*.jsonl") if Path(runs[0]).is_dir() else (Path(runs[0]),)
    other.write_text(own.read_text().replace('"training"', '"profile"', 1))
    for pair in ((own, other), (other, own)):
        assert main(["compare", *map(str, pair)]) == 2
        kinds = {own: "a training", other: "a profile"}
        base, new = pair
        assert capsys.readouterr().err == (
            f"'{new}' is {kinds[new]}, and '{base}' is {kinds[base]}; name run files of one instrument,"
            " or add --instrument NAME for what both jobs have\n"
        )


def test_a_disturbed_side_leaves_ci_undecided(tmp_path, capsys) -> None:
    starved = Plan(
        extra=lambda n: {"data_loading_ns": 700 * MS},
        host=lambda n: {"cores": 2, "run_delay_ns": 700 * MS * n},
        steps=60,
    )
    for name, plan in (("quiet", Plan(steps=60)), ("starved", starved)):
        (tmp_path / name).mkdir()
        synthetic.write(plan, tmp_path / name)
    quiet, busy = str(tmp_path / "quiet"), str(tmp_path / "starved")
    assert main(["compare", busy, quiet, "--fail-if-slower", "2%"]) == 3
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("NEW is faster than BASE by 41.13 %")
    assert out[0].endswith(", but BASE was short of CPU for 41.1 % of the time: not comparable")
    assert "UNDECIDED: BASE was short of CPU for 41.1 % of the time" in out[1]
    assert main(["compare", quiet, busy, "--fail-if-slower", "3%"]) == 3
    assert "NEW was short of CPU for 41.1 % of the time: not comparable" in capsys.readouterr().out
