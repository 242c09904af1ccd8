"""Tests on real Ray, TransferQueue and verl. They are in an environment of their own, which `make test-trace`
makes; elsewhere each module here is skipped.

A Ray takes ten seconds to start, and its queue as many: all tests that need them in their own process share
one, and run in the same process of pytest-xdist.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.leaks import Traces, left_behind
from tests.trace import warm_workers

HERE = Path(__file__).parent
REPO = HERE.parents[1]
NEEDED = ("ray", "transfer_queue", "verl")
REASON = "needs Ray, TransferQueue and verl; `make test-trace` runs it where they are"
# A queue needs a CPU for its controller and one for each unit, whatever the machine has.
CPUS = 8
# TransferQueue warns on each operation where it has more threads than the machine has CPUs.
VARIABLES = {"TQ_NUM_THREADS": "2", "RAY_DEDUP_LOGS": "0"}
SETUP_HOOK = "tests.trace.tracing.begin_worker"


class _NotHere(pytest.Module):
    """A module that cannot be imported here."""

    def collect(self) -> Iterable[pytest.Item]:
        pytest.skip(REASON, allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Modules here import what they need at their top, so that they are not even imported elsewhere."""
    if all(importlib.util.find_spec(name) for name in NEEDED):
        return None
    return _NotHere.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here has the marker `trace`."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("trace")


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """As elsewhere, except for what belongs to the Ray: it opens and closes sockets as it likes,
    and the clients of its queue have threads.
    """
    before = Traces.now()
    yield
    found = left_behind(before, allowed=_is_of_ray)
    if found:
        pytest.fail("left behind: " + "; ".join(found), pytrace=False)


def _is_of_ray(row: str) -> bool:
    import ray

    return ray.is_initialized() and row.startswith(("open socket:", "thread "))


@pytest.fixture(scope="session")
def ray_session() -> Iterator[Path]:
    """A Ray with eight CPUs, and where it keeps what its workers print. They have the variables of this
    process.
    """
    import ray

    directory = tempfile.mkdtemp(prefix="ray-")  # short: Ray makes sockets in it
    environment = dict(os.environ)
    os.environ |= VARIABLES
    (site := Path(directory, "site")).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in warm_workers.environment(site).items():
            patch.setenv(name, value)
        ray.init(
            address="local",
            num_cpus=CPUS,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            _temp_dir=directory,
            runtime_env={"worker_process_setup_hook": SETUP_HOOK},
        )
    yield Path(directory) / "session_latest/logs"
    ray.shutdown()
    os.environ.clear()
    os.environ |= environment
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def queue(ray_session: Path) -> Iterator[Any]:
    """`transfer_queue`, begun with two storage units. Who asks for samples that are not there is told so."""
    import transfer_queue
    from omegaconf import OmegaConf

    transfer_queue.init(OmegaConf.create({"controller": {"polling_mode": True}}))
    yield transfer_queue
    transfer_queue.close()
