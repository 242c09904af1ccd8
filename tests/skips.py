"""The skips that are right in continuous integration, each with its reason. Where `CI` is set, any other skip
is a failure: a test that runs nowhere holds nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

MAIN = ".venv"
TOOLS = "CI_WITHOUT_TOOLS"  # set by .ci/parts.py where .ci/install_tools may not install anything


@dataclass(frozen=True)
class Accepted:
    """One kind of skip that is right.

    Attributes:
        tests: ids of the tests, as a pattern.
        says: begins what the skip gives as its reason.
        because: why nothing is lost by it.
        environment: the only one in which it is right; "" for all.
        variable: of the environment, which has to be set for it; "" for none.
    """

    tests: str
    says: str
    because: str
    environment: str = ""
    variable: str = ""

    def takes(self, test: str, reason: str) -> bool:
        """Whether it is this kind, and right here."""
        return (
            fnmatchcase(test, self.tests)
            and reason.startswith(self.says)
            and self.environment in ("", Path(sys.prefix).name)
            and (not self.variable or bool(os.environ.get(self.variable)))
        )


ELSEWHERE = "another part of .ci/parts.toml runs it, in an environment of its own"
HARDWARE = "no machine of continuous integration has such a device"
RIGHTS = "not every container may; it runs where it may"
STORE = "Debian 12 has 1.79, which takes no OTLP; tried by hand with Debian 13's"
NO_TOOLS = "nothing may be installed there, and .ci/install_tools has said so"
ACCEPTED = (
    Accepted("tests/trace/test_*", "needs Ray, TransferQueue and verl", ELSEWHERE, environment=MAIN),
    Accepted("tests/unit/report/test_otlp.py", "needs OpenTelemetry", ELSEWHERE, environment=MAIN),
    Accepted("tests/unit/sinks/test_otlp.py", "needs OpenTelemetry", ELSEWHERE, environment=MAIN),
    Accepted("tests/unit/sinks/test_otlp.py::*", "needs victoria-metrics", STORE),
    Accepted("tests/unit/whatif/test_ledger.py::*", "root may write anywhere", "runs for other users"),
    Accepted("tests/vllm/test_*", "needs vLLM", ELSEWHERE, environment=MAIN),
    Accepted("tests/gpu/test_*", "needs a CUDA device", HARDWARE),
    Accepted("tests/gpu/test_gpm.py::*", "what ", HARDWARE),
    Accepted("tests/gpu/test_gpm.py::*", "this device does not count its tensor cores", HARDWARE),
    Accepted("tests/gpu/test_nvml.py::*", "this device has no energy counter", HARDWARE),
    Accepted("tests/processes/test_wandb.py::*", "wandb is not installed", "no host here needs it"),
    Accepted("tests/processes/test_torchtitan.py::*", "TORCHTITAN_PYTHON names no", "Triton is 1 GB"),
    Accepted("tests/hosts/test_*", "no trees of hosts in", "they are not of this repository"),
    Accepted("tests/hosts/test_perf_monitor_files.py::*", "no tree there has", "there is nothing to ask"),
    Accepted("tests/contract/test_host_options.py::*", "no trees of hosts in", "the installed one is read"),
    Accepted("tests/oracle/test_residual_streams.py::*", "no trees of hosts in", "0.8.0 has no such model"),
    Accepted("tests/oracle/test_compressed_attention.py::*", "no trees of hosts in", "as above"),
    Accepted("tests/hosts/test_matrix.py::*", "it has no ", "the row is for hosts that have one"),
    Accepted("tests/hosts/test_matrix.py::*", "it asks for Python 3.12", "ENVIRONMENT names one of it"),
    Accepted("tests/*", "needs the right to make namespaces", RIGHTS),
    Accepted("tests/processes/test_liveness.py::*", "needs a C compiler", "not every image has one"),
    Accepted("tests/*", "needs the right to mount", RIGHTS),
    Accepted("tests/*", "needs a cgroup with a memory controller", RIGHTS),
    Accepted("tests/unit/training/test_cpu_limit.py::*", "no control group for CPU", RIGHTS),
    Accepted("tests/tee_gpu/test_faults.py::*", "only root can act as another user", RIGHTS),
    Accepted("tests/tee_gpu/test_endpoint.py::*", "only root can act as another user", RIGHTS),
    Accepted("tests/processes/test_rpc_recording.py::*", "root writes everywhere", "runs for other users"),
    Accepted("tests/trace/test_what_if.py::*", "other programs leave no processor", "it runs on idle ones"),
    Accepted("tests/vllm/test_bench.py::*", "a rank is a core", HARDWARE),
    Accepted("tests/processes/test_*", "none of chromium", NO_TOOLS, variable=TOOLS),
    Accepted("tests/*", "promtool is not installed", NO_TOOLS, variable=TOOLS),
)


def objection(test: str, reason: str) -> str | None:
    """What is wrong with this skip; None where nothing is."""
    reason = reason.removeprefix("Skipped: ")
    if not os.environ.get("CI") or any(row.takes(test, reason) for row in ACCEPTED):
        return None
    return (
        f"skipped: {reason}. tests/skips.py does not say that this is right in continuous integration: "
        "let it run there, or add its row with why nothing is lost"
    )


def _refuse(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail") and isinstance(report.longrepr, tuple):
        wrong = objection(report.nodeid, report.longrepr[2])
        if wrong:
            report.outcome, report.longrepr = "failed", wrong


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around pytest's own, which say that a test is skipped
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Makes a test that may not be skipped a failed one."""
    report = yield
    _refuse(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same of a whole module."""
    report = yield
    _refuse(report)
    return report
