"""The house rules hold (docs/house.md); and each checker sees an offence when there is one."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flagscale_perf.analysis.instrument import Instrument
from tests.contract import house_rules as rules

REPO = Path(__file__).parents[2]
PAGE = (REPO / "docs/house.md").read_text()
HOUSE = rules.read_house(PAGE)
EVERYTHING = rules.read_sources(REPO)
OURS = rules.read_sources(REPO, "flagscale_perf/")
CONTRACT_DATA = (
    "flagscale_perf/spine/records.py",
    "flagscale_perf/training/records.py",
    "flagscale_perf/arguments.py",
)
# Modules without a file of unit tests, and where their behaviour is tested. A line goes when its file comes.
TESTED_ELSEWHERE = {
    "analysis/changeable.py": "tests/unit/rpc/analysis/test_changeable.py",
    "analysis/flows.py": "tests/unit/whatif/test_flows.py",
    "cli/asking.py": "tests/unit/cli/test_capture.py",
    "analysis/live.py": "tests/unit/trace/analysis/test_live.py",
    "analysis/machines.py": "tests/unit/analysis/test_job.py",
    "cli/__init__.py": "tests/contract/test_cli.py",
    "report/connections.py": "tests/processes/test_serve.py",
    "cli/serve.py": "tests/processes/test_serve.py",
    "launcher/actions.py": "tests/processes/test_run_py.py",
    "launcher/sweep.py": "tests/processes/test_run_py_sweep.py",
    "report/server.py": "tests/processes/test_serve.py",
    "profile/recording.py": "tests/processes/test_profile_membership.py",
    "profile/task.py": "tests/processes/test_profile_membership.py",
    "rpc/analysis/case.py": "tests/unit/rpc/analysis/test_findings.py",
    "sinks/base.py": "tests/contract/test_sinks.py",
    "store/progress.py": "tests/unit/store/test_kept.py",
    "trace/analysis/case.py": "tests/unit/trace/analysis/test_findings.py",
    "trace/figures.py": "tests/processes/test_trace_membership.py",
    "trace/recording.py": "tests/unit/writer/test_processes.py",
    "trace/task.py": "tests/processes/test_trace_membership.py",
    "training/analysis/facts.py": "tests/unit/training/analysis/test_blocks.py",
    "training/analysis/report.py": "tests/unit/training/analysis/test_fold.py",
    "training/analysis/tables.py": "tests/unit/training/analysis/test_fold.py",
    "training/analysis/trend.py": "tests/unit/training/analysis/test_fold.py",
    "training/records.py": "tests/unit/spine/test_jsonl.py",
    "writer/process.py": "tests/processes/test_writer_ends.py",
    "hosts/transfer_queue/bridge.py": "tests/trace/test_calls.py",
    "hosts/transfer_queue/adapter.py": "tests/trace/test_operations.py",
    "hosts/transfer_queue/install.py": "tests/trace/test_ways_in.py",
    "hosts/transfer_queue/verl_plugin.py": "tests/trace/test_ways_in.py",
    "writer/recorder.py": "tests/unit/test_perf_logger.py",
    "writer/supervisor.py": "tests/processes/test_writer_faults.py",
}
HEAVY = (
    *("torch", "numpy", "zmq", "matplotlib", "plotly", "starlette", "uvicorn"),
    *("megatron", "flagscale", "tensorboard", "hydra", "pandas"),
)


def of(name: str, text: str) -> list[rules.Source]:
    return [rules.Source(name, text)]


# --- the rules on this tree


def test_imports_follow_the_table() -> None:
    assert rules.check_imports(OURS, HOUSE) == []


def test_every_row_of_the_table_is_as_the_design_has_it() -> None:
    assert HOUSE["spine"] == rules.Rights(set(), set())
    assert HOUSE["store"].rooms == {"spine"}
    assert HOUSE["analysis"] == rules.Rights({"spine", "store"}, {"numpy", "pandas", "pyarrow"})
    assert HOUSE["report"] == rules.Rights(
        {"spine", "store", "analysis"},
        {"google", "matplotlib", "opentelemetry", "perfetto", "plotly", "rich", "starlette", "uvicorn"},
    )
    assert HOUSE["cli"].rooms == set(HOUSE) - {"__main__"}
    hosts = {room for room, rights in HOUSE.items() if rights.others & {"megatron", "flagscale", "vllm"}}
    assert hosts == {"hosts", "hosts.profiling", "bench.serving"}  # the last one starts vLLM, patches nothing
    for instrument in ("rpc", "trace", "profile"):
        assert not HOUSE[instrument].rooms & {"rpc", "trace", "profile"}


def test_the_spine_holds_nothing_that_one_room_alone_uses() -> None:
    users: dict[str, set[str]] = {}
    for source in OURS:
        room = source.name.split("/")[1].removesuffix(".py")
        found = re.findall(
            r"from flagscale_perf\.spine(?:\.peers)?(?:\.(\w+))? import ([(\w, ]+)", source.text
        )
        for module, names in found:
            for name in [module] if module else names.split(", "):
                users.setdefault(name, set()).add(room)
    modules = {Path(source.name).stem for source in OURS if source.name.split("/")[1] == "spine"}
    shared = {each for each, rooms in users.items() if len(rooms) > 1 or rooms == {"writer"}}
    assert modules - shared - {"__init__"} == set()


def test_no_two_rooms_import_each_other() -> None:
    assert rules.check_two_way(HOUSE) == []


def test_files_and_functions_are_short() -> None:
    assert rules.check_sizes(EVERYTHING) == []


def test_parameter_lists_are_short() -> None:
    assert (
        rules.check_parameters(
            rules.read_sources(REPO, "flagscale_perf/", "run.py", "scripts/", "benchmarks/", "examples/")
        )
        == []
    )


def test_the_package_knows_nothing_of_its_examples() -> None:
    """They use it: no import, and none of their options or methods in an advice."""
    named = re.compile(
        r"tee_gpu|tensor_rpc|split_inference|LLAMA_[A-Z]|--payload|BatchLinear|fused_layer|repeat.kv"
    )
    found = [f"{source.name}: {match[0]}" for source in OURS for match in named.finditer(source.text)]
    assert found == []


def test_a_path_is_looked_at_once() -> None:
    assert rules.check_run_files(OURS) == []
    declared = {each.name: each.type for each in dataclasses.fields(Instrument)}
    assert {name: hint for name, hint in declared.items() if "Path" in str(hint)} == {}


def test_nothing_runs_text() -> None:
    assert rules.check_unsafe(EVERYTHING) == []


def test_only_those_who_talk_to_people_print() -> None:
    assert rules.check_prints(OURS) == []


def test_nothing_waits_for_the_device_or_another_rank() -> None:
    assert rules.check_synchronising(OURS) == []


def test_no_file_names_a_machine_or_a_package_index() -> None:
    assert rules.check_addresses(rules.read_texts(REPO)) == []


def test_unit_tests_mirror_the_package() -> None:
    assert rules.check_mirror([source.name for source in EVERYTHING]) == []


def test_every_module_has_unit_tests() -> None:
    assert rules.check_tested(OURS, [source.name for source in EVERYTHING], TESTED_ELSEWHERE) == []


def test_directories_of_tests_are_packages() -> None:
    assert rules.check_test_packages([source.name for source in EVERYTHING]) == []


def test_every_make_target_is_explained() -> None:
    assert rules.check_makefile((REPO / "Makefile").read_text()) == []


def test_records_and_options_are_frozen() -> None:
    assert rules.check_frozen([source for source in OURS if source.name in CONTRACT_DATA]) == []


@pytest.mark.parametrize(
    "code",
    [
        "import flagscale_perf",
        "import flagscale_perf.arguments, flagscale_perf.hooks, flagscale_perf.perf_logger",
        "from flagscale_perf.cli import load_command; load_command('report')",
        "from flagscale_perf.cli import main; main(['report', '/nonexistent/run'])",
        "from flagscale_perf.cli import main; main(['compare', '/nonexistent/base', '/nonexistent/new'])",
    ],
)
def test_reading_and_importing_load_nothing_heavy(run_python, code) -> None:
    probe = f"import json, sys; print(json.dumps(sorted(set(sys.modules) & set({HEAVY}))))"
    result = run_python("-c", f"{code}\n{probe}")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout.splitlines()[-1]) == []


# --- what ruff holds: its settings must go on seeing each of these

RUFF_SEES = {
    "ANN001": 'def f(x) -> int:\n    """Doc."""\n    return x\n',
    "ANN201": 'def f(x: int):\n    """Doc."""\n    return x\n',
    "D100": "x = 1\n",
    "D101": '"""Doc."""\n\n\nclass A:\n    x = 1\n',
    "D103": "def f() -> None:\n    pass\n",
    "C901": 'def f(x: int) -> int:\n    """Doc."""\n'
    + "".join(f"    if x == {n}:\n        x += {n}\n" for n in range(10))
    + "    return x\n",
    "S301": 'import pickle\n\nx = pickle.loads(b"")\n',
    "S307": 'x = eval("1")\n',
    "F401": "import os\n",
    "RUF100": "x = 1  # noqa: F401\n",
}


@pytest.mark.parametrize("code", RUFF_SEES)
def test_ruff_sees_what_it_is_asked_to_see(code) -> None:
    words = "-m ruff check --no-cache --output-format json --stdin-filename flagscale_perf/sample.py -"
    command = [sys.executable, *words.split()]
    result = subprocess.run(
        command, input=RUFF_SEES[code], cwd=REPO, capture_output=True, text=True, timeout=60
    )
    assert code in {found["code"] for found in json.loads(result.stdout)}


def test_no_comment_switches_a_house_rule_off() -> None:
    switched_off = [
        f"{s.name}:{n}"
        for s in OURS
        for n, line in enumerate(s.text.splitlines(), 1)
        for c in ("ANN", "C901", "D1")
        if f"noqa: {c}" in line
    ]
    assert switched_off == []


# --- each checker, on a tree with an offence

TWO_ROOMS = rules.read_house(
    "| room | ours | others | lines |\n| --- | --- | --- | --- |\n| `spine` | | | 9 |\n"
    "| `sinks` | `spine` | `tensorboard` | 1,000 |\n| `sinks.inner` | | | |\n| `cli` | everything | | 9 |\n"
)


@pytest.mark.parametrize(
    ("name", "text", "offences"),
    [
        (
            "sinks/file.py",
            (
                "import os\nfrom flagscale_perf import __version__\nfrom flagscale_perf.spine.ring import "
                "Ring\nimport tensorboard.summary"
            ),
            [],
        ),
        (
            "sinks/file.py",
            "from .base import Sink\nfrom ..spine import ring\nfrom flagscale_perf.sinks import base",
            [],
        ),
        ("cli/report.py", "from flagscale_perf.sinks.file import x", []),
        ("spine/ring.py", "import numpy as np", ["spine/ring.py:1 spine may not import numpy"]),
        (
            "spine/ring.py",
            "from flagscale_perf.sinks.file import x",
            ["spine/ring.py:1 spine may not import sinks"],
        ),
        ("spine/ring.py", "from flagscale_perf import sinks", ["spine/ring.py:1 spine may not import sinks"]),
        ("spine/ring.py", "from ..sinks import file", ["spine/ring.py:1 spine may not import sinks"]),
        ("spine/ring.py", "from .. import sinks", ["spine/ring.py:1 spine may not import sinks"]),
        (
            "spine/__init__.py",
            "from ..sinks.file import x",
            ["spine/__init__.py:1 spine may not import sinks"],
        ),
        ("spine/ring.py", "def f():\n    import torch", ["spine/ring.py:2 spine may not import torch"]),
        (
            "spine/ring.py",
            "import importlib\nm = importlib.import_module('torch.cuda')",
            ["spine/ring.py:2 spine may not import torch"],
        ),
        ("sinks/inner/a.py", "from flagscale_perf.sinks.inner import b", []),
        (
            "sinks/inner/a.py",
            "from flagscale_perf.sinks.file import x",
            ["sinks/inner/a.py:1 sinks.inner may not import sinks"],
        ),
        (
            "sinks/file.py",
            "from flagscale_perf.sinks.inner.a import x",
            ["sinks/file.py:1 sinks may not import sinks.inner"],
        ),
        ("attic/old.py", "import os", ["attic/old.py:1 the room attic has no row in the table"]),
        ("__init__.py", "from flagscale_perf.spine import ring", ["__init__.py:1  may not import spine"]),
    ],
)
def test_a_forbidden_import_is_seen(name, text, offences) -> None:
    tree = [
        rules.Source("flagscale_perf/sinks/__init__.py", ""),
        rules.Source(f"flagscale_perf/{name}", text),
    ]
    assert rules.check_imports(tree, TWO_ROOMS) == [f"flagscale_perf/{row}" for row in offences]


def test_rooms_that_import_each_other_are_seen() -> None:
    rows = ["| `a` | `b` | | |", "| `b` | `c` | | |", "| `c` | `a` | | |", "| `d` | `a` | | |"]
    assert rules.check_two_way(rules.read_house("\n".join(rows))) == ["a and b", "a and c", "b and c"]


def test_a_long_file_and_a_long_function_are_seen() -> None:
    function = "def f() -> None:\n" + "    pass\n" * 60
    assert rules.check_sizes(of("a.py", "x = 1\n" * 451)) == ["a.py:1 451 lines"]
    assert rules.check_sizes(of("a.py", function)) == ["a.py:1 f has 61 lines"]
    assert rules.check_sizes(of("a.py", function.replace("    pass\n", "", 1))) == []


def test_a_sixth_parameter_is_seen() -> None:
    method = "class A:\n    def f(self, a, b, *, c, d, e{}): ..."
    assert rules.check_parameters(of("a.py", method.format(""))) == []
    assert rules.check_parameters(of("a.py", method.format(", g"))) == ["a.py:2 f takes 6 parameters"]


def test_running_text_is_seen() -> None:
    bad = [
        "import pickle",
        "from marshal import loads",
        "eval('1')",
        "os.system('ls')",
        "subprocess.run('ls', shell=True)",
        "yaml.load(f)",
    ]
    good = ["run(shell=False)", "yaml.safe_load(f)", "model.eval()"]
    found = ["1 import pickle", "2 import marshal", "3 eval", "4 os.system", "5 shell=True", "6 yaml.load"]
    assert rules.check_unsafe(of("a.py", "\n".join(bad + good))) == [f"a.py:{row}" for row in found]


def test_a_run_file_that_is_opened_is_seen() -> None:
    lines = [
        "from flagscale_perf.store.run_file import RunFile",
        "RunFile(path)",
        'directory.glob("perf_records_*.jsonl")',
        'print("give a perf_records_*.jsonl")',
    ]
    found = ["1 RunFile", "2 RunFile", "3 perf_records_"]
    name = "flagscale_perf/report/text.py"
    assert rules.check_run_files(of(name, "\n".join(lines))) == [f"{name}:{row}" for row in found]


def test_a_print_is_seen() -> None:
    assert rules.check_prints(of("flagscale_perf/spine/ring.py", "def f():\n    print(1)")) == [
        "flagscale_perf/spine/ring.py:2 print"
    ]
    assert rules.check_prints(of("flagscale_perf/spine/ring.py", "print(1, file=sys.stderr)")) == []
    assert rules.check_prints(of("flagscale_perf/cli/report.py", "print(1)")) == []


@pytest.mark.parametrize(
    "call",
    [
        "torch.cuda.synchronize()",
        "loss.item()",
        "f().item()",
        "dist.all_reduce(x)",
        "dist.all_gather_object(x)",
        "dist.barrier()",
        "torch.distributed.broadcast(x)",
    ],
)
def test_waiting_is_seen(call) -> None:
    name = call.split("(")[0] if not call.startswith("f()") else ".item"
    assert rules.check_synchronising(of("flagscale_perf/hooks.py", call)) == [
        f"flagscale_perf/hooks.py:1 {name}"
    ]
    assert rules.check_synchronising(of("flagscale_perf/hosts/rehearsal.py", call)) == []


def test_not_everything_is_waiting() -> None:
    text = "d.items()\nevent.query()\nfunctools.reduce(f, v)\nbroadcast(v)\nthreading.Barrier(2)\n"
    assert rules.check_synchronising(of("flagscale_perf/hooks.py", text)) == []


def test_a_machine_path_and_an_index_address_are_seen(tmp_path) -> None:
    (tmp_path / ".gitignore").write_text("out*/\n")
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs/run.log").write_text("/ho" + "me/ada/x")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    fine = "#!/usr/bin/env python\nsrc/wo" + "rk/x and $DIR/ro" + "ot/x\n"
    (tmp_path / "a.md").write_text(
        fine
        + "see /ho"
        + "me/ada/x\npip install --index"
        + "-url https://mirror/x\nhttps://py"
        + "pi.org/project\n"
    )
    found = ["a.md:3 /ho" + "me/a", "a.md:4 --index" + "-url h", "a.md:5 https://py" + "pi"]
    assert rules.check_addresses(rules.read_texts(tmp_path)) == found


def test_a_test_about_nothing_is_seen() -> None:
    package = ["flagscale_perf/spine/ring.py", "flagscale_perf/cli/__main__.py", "flagscale_perf/hooks.py"]
    good = ["spine/test_ring.py", "spine/test_ring_wrap.py", "test_hooks.py", "cli/test_main.py"]
    bad = ["spine/test_hooks.py", "spine/test_ringer.py", "test_ring.py"]
    assert rules.check_mirror(package + [f"tests/unit/{name}" for name in good]) == []
    seen = rules.check_mirror(package + [f"tests/unit/{name}" for name in bad])
    assert [row.split(":")[0] for row in seen] == [f"tests/unit/{name}" for name in bad]


def test_a_module_without_unit_tests_is_seen() -> None:
    long, short = "a = 1\n" * 41, "a = 1\n" * 40
    modules = [
        *of("flagscale_perf/spine/ring.py", long),
        *of("flagscale_perf/spine/ringer.py", long),
        *of("flagscale_perf/spine/units.py", short),
        *of("flagscale_perf/hooks.py", long),
    ]
    tests = ["tests/unit/spine/test_ring_wrap.py"]
    seen = ["flagscale_perf/spine/ringer.py:1 has 41 statements and no tests/unit/spine/test_ringer.py"]
    assert rules.check_tested(modules, tests, {"hooks.py"}) == seen


def test_a_directory_of_tests_that_is_no_package_is_seen() -> None:
    names = [
        "tests/__init__.py",
        "tests/test_a.py",
        "tests/unit/spine/test_ring.py",
        "tests/golden/sample.py",
    ]
    assert rules.check_test_packages(names) == ["tests/unit/spine/__init__.py:1 is missing"]


def test_an_unexplained_target_is_seen() -> None:
    assert rules.check_makefile("BIN := x\n.PHONY: a\na: b ## makes a\n\techo\nb:\n\techo\n$(X): y\n") == [
        "Makefile:5 b has no help"
    ]


def test_a_changeable_dataclass_is_seen() -> None:
    text = (
        "@dataclass\nclass A: ...\n@dataclasses.dataclass(slots=True)\nclass B: "
        "...\n@dataclass(frozen=True)\nclass C: ...\n"
    )
    assert rules.check_frozen(of("a.py", text)) == ["a.py:2 A is not frozen", "a.py:4 B is not frozen"]
