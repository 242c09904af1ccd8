"""Chinese is one table: every sentence that the code can print for people is in it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import begun
from flagscale_perf.analysis.job_report import report_of
from flagscale_perf.cli import main
from flagscale_perf.report import language, text, watch
from flagscale_perf.report.language import CHINESE, ENGLISH, chosen, said, say, table, using
from flagscale_perf.spine.units import aligned, columns, wrapped
from tests.conftest import REPO
from tests.every_instrument import WRITERS
from tests.templates import PACKAGE, missing, of_files

HOLE = re.compile(r"\{\d+\}")
PLURAL = re.compile(r"(?<=[a-z])\{\d+\}")
TWO_WORDS = re.compile(r"(?<![`\w./=-])[a-z]{2,} [a-z]{2,}(?![\w/=])")


def test_every_sentence_that_can_be_printed_is_in_the_table() -> None:
    """`python -m tests.templates` lists what is missing, in the form of the table."""
    assert missing() == {}


def test_what_is_computed_stands_in_both_languages() -> None:
    """Chinese has no plural; a hole behind a letter may be its ending."""
    for english, chinese in table(CHINESE).items():
        holes, own = set(HOLE.findall(english)), set(HOLE.findall(chinese))
        assert own <= holes, english
        assert holes - own <= set(PLURAL.findall(english)), english


def test_nothing_is_in_the_table_that_the_code_has_no_words_for() -> None:
    known = {
        word
        for template in of_files(["**/*.py"], every=True)
        for word in re.findall(r"[a-z]+", template.lower())
    }
    strange = {
        english: words
        for english in table(CHINESE)
        if (words := set(re.findall(r"[a-z]+", HOLE.sub("", english).lower())) - known)
    }
    assert strange == {}


def in_chinese(name: str, directory: Path) -> str:
    WRITERS[name](directory)
    with using(CHINESE):
        return text.render(report_of(begun(directory, None, print).whole(None)))


@pytest.mark.parametrize("name", WRITERS)
def test_a_report_of_each_instrument_leaves_no_english_sentence(name: str, tmp_path: Path) -> None:
    lines = in_chinese(name, tmp_path).splitlines()
    assert [line for line in lines if TWO_WORDS.search(line) and "round number" not in line] == []


def test_programs_read_english_in_any_locale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    WRITERS["rpc"](tmp_path)
    made = []
    for words in (["--lang", "zh"], ["--lang", "en"]):
        for form in ("json", "csv"):
            assert main(["report", str(tmp_path), "--format", form, *words]) == 0
            made.append(capsys.readouterr().out)
    assert made[:2] == made[2:]
    assert json.loads(made[0])["findings"][0]["title"].startswith("Large data")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ENGLISH),
        ({"LANG": "zh_CN.UTF-8"}, CHINESE),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, ENGLISH),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_TW.UTF-8"}, CHINESE),
        ({"LC_ALL": "", "LANG": "zh"}, CHINESE),
    ],
)
def test_the_locale_chooses(environ: dict[str, str], expected: str) -> None:
    assert chosen(None, environ) == expected
    assert chosen("en", environ) == ENGLISH


def test_a_sentence_is_put_together_of_what_the_table_has() -> None:
    with using(CHINESE):
        title = "Rank 3 on node-7 makes the others wait 12.5 ms of each step of 120.0 ms, in forward"
        assert said(title) == "rank 3（node-7） 掉队：每步让其他 rank 等待 12.5 ms（一步 120.0 ms），慢在前向"
        assert said("of unknown words") == "of unknown words"
        assert say("not judged") == "未判断"
    assert said("not judged") == "not judged"


COMPOSED = [
    "Ranks 4 to 7 have more work, which costs 12.0 ms of each step of 90.0 ms, in backward from step 300 on",
    "Rank 3 costs the job 9.9 ms each in 33 of 599 steps, about every 17 steps, in data loading",
    "A step takes longer and longer from about iteration 85 on (70.9 s after the start): by "
    "7.5 to 12 %, from 1011.7 to 1113.0 ms a step, in all phases alike",
    "Zeroing the gradients takes longer from iteration 101 to 240, in 3 steps: by 10 %, from "
    "10.0 to 11.0 ms a step, while the host is short of CPU",
    "30 steps, in 5 bursts of some 6, take 152.7 ms longer on average in the schedule of "
    "forward and backward, outside both: 12.9 % of the steps' time",
    "of the steps' time (0.467 to 99.0 ms a step; 100.0 ms longer than the others, last in "
    "257 of 599 steps; without it alone a step gains 0.499 ms, without all late ranks 99.4 "
    "ms)",
    "The host node-7 is short of CPU: rank 3's training thread waits 9.4 % of the time for "
    "one of its 2 cores",
    "Pipeline stage 2 has more to do: balancing the stages would save 1.2 % of the steps' "
    "time, and at most 3.4 % if this stage did only the others' average",
    "bytes, of a get's time (fitted to 420 operations of 6 shapes, median error 0.0 %)",
    "layer 1 to the median layer of the same step, 1.94 to 2.16 in 3 steps: 9.454 to 11.666 "
    "ms more, most of it in the layer itself (matmul)",
    "raise it: more processes prepare batches ahead; it is 2",
]


@pytest.mark.parametrize("english", COMPOSED)
def test_composed_findings_leave_no_english(english: str) -> None:
    with using(CHINESE):
        made = said(english)
    assert TWO_WORDS.search(made) is None, made
    assert sorted(re.findall(r"[\d.]+", made)) == sorted(re.findall(r"[\d.]+", english))


@pytest.mark.parametrize(
    "text", ["a, " * 5_000, "1 to 2 of 3, " * 70, "{0} {h0} %s \\1 to 3", "; ", "\x1b[31m to 1"]
)
def test_whatever_a_file_has_is_said(text: str) -> None:
    with using(CHINESE):
        assert said(text)


def test_columns_count_wide_characters() -> None:
    assert columns("气泡 2 %") == 8
    assert aligned([["阶段", "1"], ["forward", "12"]], 1) == ["阶段      1", "forward  12"]
    lines = wrapped("等待数据占步时间的 12.0 %，阈值 5 %（自定）。", 20, "依据  ")
    assert lines == ["依据  等待数据占步时", "      间的 12.0 %，", "      阈值 5 %（自", "      定）。"]
    assert all(columns(line) <= 20 for line in lines)


def test_the_screen_of_watch_fits_its_width(tmp_path: Path) -> None:
    from flagscale_perf.cli.watch import _View

    WRITERS["training"](tmp_path)
    view = _View(tmp_path, None, may_wait=False)
    with using(CHINESE):
        made = watch.as_text(watch.Frame(*view.look()), 60)
    view.close()
    assert "吞吐" in made or "迭代" in made
    assert [line for line in made.splitlines() if columns(line) > 60] == []


def test_each_instrument_has_a_page_that_is_read_in_minutes() -> None:
    """A word is a word of Latin letters, or two Chinese characters; code aside."""
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (REPO / "docs/zh").glob("*.md")}
    assert set(pages) == {"training", "rpc", "trace", "profile", "experiments", "troubleshooting"}
    for name, page in pages.items():
        prose = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
        words = len(re.findall(r"[\u4e00-\u9fff]", prose)) / 2 + len(
            re.findall(r"[A-Za-z0-9][\w./+-]*", prose)
        )
        assert words <= 400, name


def run_in_chinese(*words: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"LC_ALL": "zh_CN.UTF-8", "PYTHONPATH": str(REPO), "PYTHONUTF8": "1"}
    return subprocess.run([sys.executable, *words], env=environ, cwd=REPO, capture_output=True, text=True)


def test_run_py_refuses_in_the_language_of_the_locale(tmp_path: Path) -> None:
    done = run_in_chinese("run.py", "action=dryrun", "train=demo_llama", "train.system.perf_log_interval=0")
    assert done.returncode == 2
    assert done.stderr == "run.py: train.system.perf_log_interval：0 不是 1 到 1000000000 的整数；例如写 10\n"


def test_a_mistake_is_told_in_the_language_of_the_locale() -> None:
    done = run_in_chinese("-m", "flagscale_perf", "report", "/nowhere")
    assert (done.returncode, done.stderr) == (
        2,
        "'/nowhere' 不存在；请给出 --perf-log-dir 的目录或其中的 perf_records_*.jsonl\n",
    )


def test_doctor_speaks_it(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--lang", "zh"])
    said_now = capsys.readouterr().out
    assert "监控        flagscale_perf" in said_now
    assert language.said("monitor") == "monitor"
    assert PACKAGE.name in said_now
