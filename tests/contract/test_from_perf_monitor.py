"""What the documentation of FlagScale's own monitor names is here, or docs/hosts.md says what is
instead; and each row is tested.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
from pathlib import Path

import pytest

from flagscale_perf.arguments import PerfConfig, add_perf_arguments
from flagscale_perf.spine.figures import Rows
from flagscale_perf.training.figures import TABLE
from flagscale_perf.training.flagscale_names import CURVES, LOGS, NAMES, STATISTICS
from tests.fakes import make_header, make_interval
from tests.golden import golden

REPO = Path(__file__).parents[2]
PAGE = (REPO / "docs/hosts.md").read_text(encoding="utf-8").partition("## From FlagScale's perf_monitor")[2]
ROWS = dict(re.findall(r"^\| (.+?) \| (.+) \|$", PAGE.partition("\n### ")[0], re.MULTILINE)[2:])
# (where, name of theirs) -> the figure here.
FILES = {
    (where, name): here
    for where, name, here in re.findall(r"^\| `?([\w ]+?)`? \| `(.+?)` \| `(\w+)` \|", PAGE, re.MULTILINE)
}
HERE = "tests/contract/test_from_perf_monitor.py"
RUN_PY = "tests/processes/test_run_py.py"
MODULE = f"{HERE}::test_a_module_is_where_the_page_says"
# Words of a row's first cell -> the test that does what its second cell says.
PROOFS = {
    "train.system.enable_perf_monitor=true": f"{RUN_PY}::test_command_lines_of_the_requirement",
    "train=7b_with_perf_monitor": f"{RUN_PY}::test_command_lines_of_the_requirement",
    "host_0_localhost_run.sh": f"{RUN_PY}::test_script_can_be_started_by_hand",
    "train/7b.yaml": "tests/contract/test_options.py::test_every_option_has_its_key_in_every_task",
    "--enable-perf-monitor` and": f"{HERE}::test_the_flags_and_their_defaults_are_the_documented_ones",
    "tail -f": "tests/unit/sinks/test_realtime.py::test_the_next_session_goes_on_below_a_separator",
    "pandas": "tests/processes/test_analysis_examples.py::test_the_documented_one",
    "train_gpt.py": "tests/processes/test_flagscale_outputs.py::"
    "test_the_curves_come_from_rank_0_beside_the_hosts_own",
    "--logdir": f"{HERE}::test_the_curves_have_the_documented_tags",
    "test_perf_simple.py": f"{HERE}::test_a_script_of_tests_runs_them",
    "test_perf_monitor_unit.py": f"{HERE}::test_a_script_of_tests_runs_them",
    "test_perf_monitor.sh": f"{RUN_PY}::test_the_integration_test",
    "perf_metrics.py": MODULE,
    "perf_logger.py": MODULE,
    "flops_calculator.py": MODULE,
    "arguments.py": MODULE,
    "hooks.py": MODULE,
    "integration.py": MODULE,
    "monitor_example.py": "tests/processes/test_core_loop_example.py::"
    "test_two_ranks_train_the_same_and_every_block_is_in_the_records",
    "calculate_new_model_flops": "tests/contract/test_new_family.py::"
    "test_the_new_family_and_block_count_what_the_page_says_and_the_others_stay_what_they_were",
    "log_metrics": "tests/unit/sinks/test_realtime.py::"
    "test_each_session_begins_with_the_titles_of_its_own_columns",
}


def row_of(words: str) -> str:
    (found,) = [here for there, here in ROWS.items() if words in there]
    return found


def test_every_row_has_a_test_and_every_name_a_row() -> None:
    assert len(ROWS) == len(PROOFS)
    for words, proof in PROOFS.items():
        assert row_of(words)
        path, _, name = proof.partition("::")
        assert f"def {name}(" in (REPO / path).read_text(encoding="utf-8"), proof


def test_every_file_on_the_page_is_there() -> None:
    spans = re.findall(r"`((?:conf|examples|flagscale_perf)/[\w./]+)`", "".join(ROWS.values()))
    assert [span for span in spans if not (REPO / span).is_file()] == []


@pytest.mark.parametrize("name", [words for words, proof in PROOFS.items() if proof == MODULE])
def test_a_module_is_where_the_page_says(name: str) -> None:
    modules = re.findall(r"`(flagscale_perf[./]\w+)(?:\.py)?`", row_of(name))
    assert modules
    for module in modules:
        assert importlib.util.find_spec(module.replace("/", "."))


def test_the_flags_and_their_defaults_are_the_documented_ones() -> None:
    assert set(DOCUMENTED) <= set(add_perf_arguments(argparse.ArgumentParser())._option_string_actions)
    assert {name: getattr(PerfConfig(), name[2:].replace("-", "_")) for name in DOCUMENTED} == DOCUMENTED


DOCUMENTED = {
    "--enable-perf-monitor": False,
    "--perf-log-interval": 10,
    "--perf-log-dir": "logs/perf_monitor",
    "--perf-console-output": False,
    "--perf-memory-tracking": True,
    "--perf-breakdown": False,
    "--perf-max-log-files": 10,
}


def test_the_curves_have_the_documented_tags() -> None:
    tags = {figure.curve for figure in TABLE.figures}
    assert tags >= {
        "performance/tflops_per_gpu",
        "performance/tflops_total",
        "performance/samples_per_second",
        "performance/tokens_per_second",
        "memory/current_gb",
        "memory/peak_gb",
    }


def test_each_name_of_the_files_is_written_with_the_figure_that_the_page_says() -> None:
    interval, rows = make_interval(10), Rows(TABLE, make_header())
    values = {figure.key: rows.value(figure, interval) for figure in TABLE.figures}
    summary = json.loads(golden("perf_summary.json"))
    session, statistics = summary["session_info"], summary[STATISTICS]
    written = {
        LOGS: (rows.summary(interval), values),
        STATISTICS: (statistics, statistics),
        CURVES: (rows.curves(interval), values),
        "session_info": (session, session),
    }
    named = {place: here for place, here in FILES.items() if place[0] != "text log"}
    for (where, name), here in named.items():
        theirs, ours = written[where]
        assert theirs[name] is not None and theirs[name] == ours[here], (where, name)
    assert {where for where, _ in named} == set(written)


def test_the_page_has_every_name_that_is_written_for_the_host_s_readers_only() -> None:
    table = {(where, name): here for where, names in NAMES.items() for name, here in names.items()}
    assert table.items() <= FILES.items()


def test_the_first_columns_of_the_text_log_are_those_of_the_page() -> None:
    columns = {figure.column.title: figure.key for figure in TABLE.figures if figure.column}
    named = {name: here for (where, name), here in FILES.items() if where == "text log"}
    assert named == {name: (columns | {"Timestamp": "timestamp"})[name] for name in named}
    (titles,) = (line for line in golden("perf_metrics.log").splitlines() if line.startswith("Timestamp"))
    assert titles.split()[: len(named)] == list(named) and len(named) == 8


@pytest.mark.parametrize(
    ("script", "one"),
    [
        ("test_perf_simple.py", "test_no_two_rooms_import_each_other"),
        ("test_perf_monitor_unit.py", "test_what_is_missing_is_two_lines"),
    ],
)
def test_a_script_of_tests_runs_them(run_python, script: str, one: str) -> None:
    # Collecting all unit tests takes its time: those of spine will do.
    few = ["-k", one, *(f"--ignore-glob=*/tests/unit/{names}" for names in ("[!s]*", "s[!p]*"))]
    done = run_python(REPO / script, "-q", "-p", "no:cacheprovider", *few)
    assert (done.returncode, done.stdout.splitlines()[-1].split(",")[0]) == (0, "1 passed"), done.stdout
