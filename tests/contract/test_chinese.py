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
from flagscale_perf.cli.stacks import lines_of
from flagscale_perf.report import png, text, watch
from flagscale_perf.sinks.text_format import TextFormat
from flagscale_perf.spine import language
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.language import CHINESE, table, using
from flagscale_perf.spine.live import BEGINS, FindingRecord
from flagscale_perf.spine.records import EventRecord, RunEnd
from flagscale_perf.spine.units import aligned, columns, wrapped
from flagscale_perf.writer.journal import Journal
from flagscale_perf.writer.messages import Message, Trouble
from flagscale_perf.writer.notify import Notifier
from tests.conftest import REPO
from tests.every_instrument import WRITERS, beside
from tests.fakes import make_context, make_header
from tests.processes.trainer import wait_for
from tests.templates import PACKAGE, missing, of_files
from tests.unit.training.ranks.test_hang import doing

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


def test_lists_and_comparisons_leave_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the text, and in the form of a page; what programs read is English as before."""
    runs = [tmp_path / name for name in ("base", "new")]
    for place, directory in enumerate(runs):
        beside(directory, "training", 10 + 100 * place, 80 + 100 * place, (7,), pid=7 + place)
    shown = []
    for words in (["runs", str(tmp_path)], ["compare", *map(str, runs)]):
        for form in ("text", "markdown"):
            assert main([*words, "--format", form, "--lang", "zh"]) == 0
            shown += capsys.readouterr().out.splitlines()
        as_json = []
        for asked in ("zh", "en"):
            assert main([*words, "--format", "json", "--lang", asked]) == 0
            as_json.append(capsys.readouterr().out)
        assert as_json[0] == as_json[1]
    assert any("下有 2 个运行" in line for line in shown) and any("看不出差别" in line for line in shown)
    assert [line for line in shown if TWO_WORDS.search(line)] == []


def test_what_the_ranks_are_doing_is_said_in_it() -> None:
    stopped = doing(
        1, None, iteration=None, phase=None, for_ns=None, stack=[], source="/proc", state="stopped"
    )
    with using(CHINESE):
        lines = lines_of([doing(0), stopped], is_full=False)
    assert lines[1] == "rank 0（node0，pid 100）：第 42 次迭代，未掩盖的梯度通信，已 62.0 s"
    assert [line for line in lines if TWO_WORDS.search(line) and not line.startswith("    ")] == []


def test_a_live_log_and_whoever_is_told_have_it_and_the_run_file_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of JSON, names of events and columns stay as they are."""
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    printed = list[Message]()
    journal = Journal(printed.append, lambda: 40, with_tracebacks=False)
    finding = FindingRecord("hang", BEGINS, "no step for 62 s: rank 3: nothing comes from there")
    kept, event = journal.recorded([finding])
    assert isinstance(kept, FindingRecord) and isinstance(event, EventRecord)
    assert kept.text == event.text == finding.text
    words = "已 62 s 没有新的一步：rank 3：那里没有任何消息"
    assert printed == [Trouble(f"flagscale_perf: {words}")]
    log = TextFormat(make_context(make_header(), tmp_path, print))
    assert log.line(event).endswith(f" hang: {words}\n")
    assert log.line(RunEnd("completed", 0, 40, 0)).endswith(" end: 正常结束，停在第 40 次迭代\n")
    target = tmp_path / "told"
    told = Notifier(["tee", str(target)], str(tmp_path), Anchor(0, 0))
    told.tell(kept)
    wait_for("the command", lambda: target.exists() and target.read_text().endswith("\n"))
    told.close()
    content = json.loads(target.read_text())
    assert (content["finding"], content["state"], content["text"]) == ("hang", "begins", words)


def test_a_job_has_no_sentence_in_two_languages(tmp_path: Path) -> None:
    beside(tmp_path, "training", 10, 80, (7,), pid=7)
    for place, name in enumerate(("rpc", "trace", "profile")):
        beside(tmp_path / name, name, 20 + place, 60, (7,), pid=6)
    with using(CHINESE):
        lines = text.render(report_of(begun(tmp_path, None, print).whole(None))).splitlines()
    mixed = [line for line in lines if TWO_WORDS.search(line) and re.search("[\u4e00-\u9fff]", line)]
    assert [line for line in mixed if "round number" not in line] == []


@pytest.mark.filterwarnings("error")
def test_a_picture_is_english_as_its_font_is(tmp_path: Path) -> None:
    WRITERS["rpc"](tmp_path)
    report = report_of(begun(tmp_path, None, print).whole(None))
    with using(CHINESE):
        made = png.render(report)
    assert made == png.render(report)


def test_programs_read_english_in_any_locale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    WRITERS["rpc"](tmp_path)
    made = []
    for words in (["--lang", "zh"], ["--lang", "en"]):
        for form in ("json", "csv"):
            assert main(["report", str(tmp_path), "--format", form, *words]) == 0
            made.append(capsys.readouterr().out)
    assert made[:2] == made[2:]
    assert json.loads(made[0])["findings"][0]["title"].startswith("Large data")


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
    assert done.stderr == "run.py: train.system.perf_log_interval: 0 不是 1 到 1000000000 的整数；例如写 10\n"


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
