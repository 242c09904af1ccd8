"""What is measured where little is said."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

import pytest

from flagscale_perf.bench.serving import options
from flagscale_perf.bench.serving.cases import Case
from flagscale_perf.bench.serving.options import Chosen, Sizes

USUAL = Sizes((1,), (128, 9000), (16,))


def choose(*words: str, is_given: bool = False) -> Chosen:
    parser = ArgumentParser()
    options.add_model(parser)
    options.add_sizes(parser)
    options.add_arms(parser)
    args = parser.parse_args(words)
    args.out, args.quick = Path("out"), False
    return options.chosen(args, options.cases_of(args, USUAL), is_given, "", [])


def test_usual_sizes_and_those_that_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "find_python", lambda given: "python")
    made = choose()
    assert made.cases == [Case(1, 128, 16)] and [case.seq for case, _ in made.left_out] == [9000]
    assert (made.repeats, made.is_eager, made.directory) == (3, False, Path("out/vllm").absolute())
    assert [arm.name for arm in made.arms] == ["single"]
    made = choose("--seq-lens", "8,16", "--batch-sizes", "2", "--repeats", "5", "--eager", is_given=True)
    assert made.cases == [Case(2, 8, 16), Case(2, 16, 16)] and (made.repeats, made.is_eager) == (5, True)


def test_a_number_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("--repeats", "0"), ("--max-model-len", "a")):
        with pytest.raises(SystemExit):
            choose(*words)
        assert "is not a whole number, 1 or more" in capsys.readouterr().err
