"""Every fault of the catalog, for real: what is promised holds, and how well it held is noted for the
page.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.faults import injections, page, ranks, results, shim
from tests.faults.catalog import CATALOG
from tests.faults.fault import Fault
from tests.faults.job import ITERATIONS, LOG_DIRECTORY, LOOP, Start, command_of, hold, job
from tests.faults.promises import Ended, Figures, Promises
from tests.faults.shim import Shim

MARKS = {False: (pytest.mark.faults,), True: ()}
Healthy = Callable[[str, tuple[str, ...], str], Ended]


def case(fault: Fault) -> object:
    marks = MARKS[fault.short] + ((pytest.mark.host,) if fault.host != LOOP else ())
    return pytest.param(fault, id=fault.name, marks=marks)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shim.build(tmp_path_factory.mktemp("shim"))


@pytest.fixture(scope="module")
def healthy(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Healthy:
    """The same training without a monitor and without a fault; run once for each command line and what is
    planted.
    """

    @cache
    def run(host: str, arguments: tuple[str, ...], planted: str) -> Ended:
        directory = tmp_path_factory.mktemp("healthy")
        with calm(library, directory) as quiet:
            command, environment = command_of(host, arguments, monitored=False)
            environment = merged(environment, injections.planted(directory, planted))
            with job(directory, quiet, Start(command, environment)) as running:
                ended = Ended.of(running, running.end(), host)
        assert ended.code >= 0, f"the host itself hangs: {ended.output[-3000:]}"
        assert injections.SEEN in ended.output if planted else ended.done == ITERATIONS[host], ended.output[
            -3000:
        ]
        return ended

    return run


@contextmanager
def calm(library: Path, directory: Path) -> Iterator[Shim]:
    """A shim that lets everything work until told otherwise."""
    quiet = Shim(library, directory.with_name(f"{directory.name}.control"), directory / LOG_DIRECTORY)
    try:
        yield quiet
    finally:
        quiet.close()


@pytest.mark.parametrize("fault", [case(fault) for fault in CATALOG])
def test_what_is_promised_holds(
    fault: Fault, library: Path, healthy: Healthy, tmp_path: Path, record: page.Record
) -> None:
    figures: Figures | None = None
    for number in range(fault.times):
        directory = tmp_path / str(number)
        directory.mkdir()
        found = run_once(fault, library, healthy, directory)
        figures = figures.joined(found) if figures else found
    assert figures is not None
    record(fault.name, figures.as_dict())


def run_once(fault: Fault, library: Path, healthy: Healthy, directory: Path) -> Figures:
    reference = healthy(fault.host, fault.arguments, fault.planted)
    command, environment = command_of(fault.host, fault.arguments, monitored=True)
    holds = _holds_of(fault)
    holding = injections.HOLDING if holds and fault.host != LOOP else ""
    environment = merged(environment, injections.planted(directory, holding + fault.planted))
    with calm(library, directory) as failing:
        environment = merged(environment, fault.prepare(directory, failing))
        environment |= hold(directory, *holds)
        start = Start([*fault.within, *command, *fault.options], environment)
        with fault.around(directory, start.port):
            with job(directory, failing, start) as running:
                if fault.at:
                    running.read_until(fault.at)
                fault.act(running)
                running.go_on()
                ended = Ended.of(running, running.end(), fault.host)
            promises = Promises(fault, running, ended, reference)
            figures = promises.check()
    assert promises.broken == [], ended.said()
    assert injections.victim_is_untouched(running)
    fault.then(running)
    return figures


def _holds_of(fault: Fault) -> list[int]:
    """The iterations at which a training waits for the fault and for its end, so that on a busy machine
    neither comes too late. None for two nodes: they find each other only while they train. A loop that is
    ended at a random moment waits shortly before its own end.
    """
    if fault.jobs > 1 or ranks.TWO_NODES in fault.arguments:
        return []
    is_random = fault.host == LOOP and fault.ends_early
    begins = fault.at or (ITERATIONS[LOOP] - 1 if is_random else 0)
    return [iteration for iteration in (begins, getattr(fault.act, injections.UNTIL, 0)) if iteration]


def merged(environment: dict[str, str], more: dict[str, str]) -> dict[str, str]:
    """With more variables; modules that are to be imported before others come first."""
    paths = [each[injections.MODULES] for each in (more, environment) if injections.MODULES in each]
    return environment | more | {injections.MODULES: os.pathsep.join(paths)}


@pytest.fixture(scope="session")
def record(pytestconfig: pytest.Config) -> Iterator[page.Record]:
    """Of the figures of each fault."""
    yield from page.recorder(pytestconfig, results.write)
