"""What a traced job serves to Prometheus while it runs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.contract.test_dashboards import needs_promtool
from tests.fakes import free_port
from tests.members import wait_for
from tests.trace.conftest import REPO
from tests.trace.job import ROWS, Job

ACTORS, CALLS = 2, 20
DONE = ACTORS * CALLS
OPERATIONS = "tq_client_operations_total"
RULES = REPO / "dashboards/prometheus_rules_transfer_queue.yml"

pytestmark = pytest.mark.usefixtures("queue")


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory, ray_session: Path) -> str:
    """What is served once all calls are done and their processes live."""
    directory, port = tmp_path_factory.mktemp("metrics"), free_port()
    job = Job.start(directory, ray_session, ACTORS, CALLS, FLAGSCALE_PERF_PROMETHEUS_PORT=str(port))
    job.work()
    job.join()
    pages: list[str] = []

    def has_all() -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
                pages.append(page.read().decode())
        except URLError:  # the writer is about to serve it
            return False
        return sum(value for name, _, value in series(pages[-1]) if name == OPERATIONS) >= DONE

    wait_for(has_all)
    job.end()
    return pages[-1]


def series(page: str) -> list[tuple[str, dict[str, str], float]]:
    """Name, labels and value of each."""
    return [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    ]


def values(page: str, name: str) -> dict[str, float]:
    """By the kind of operation, of those that did not fail."""
    return {
        labels.get("kind", ""): value
        for found, labels, value in series(page)
        if found == name and labels.get("status", "ok") == "ok"
    }


def test_puts_and_gets_are_those_that_were_made(scraped: str) -> None:
    prefix = "tq_client_"
    assert values(scraped, OPERATIONS) == {"put": DONE / 2, "get": DONE / 2}
    assert values(scraped, f"{prefix}rows_total") == {"put": DONE / 2 * ROWS, "get": DONE / 2 * ROWS}
    size = DONE / 2 * ROWS * 2 * 8  # two integers a row
    assert values(scraped, f"{prefix}bytes_total") == {"put": size, "get": size}
    assert values(scraped, f"{prefix}operation_seconds_count") == {"put": DONE / 2, "get": DONE / 2}
    assert values(scraped, f"{prefix}processes") == {"": ACTORS}
    assert values(scraped, f"{prefix}lost_total") == {"": 0}


def test_the_alert_rules_name_what_is_served(scraped: str) -> None:
    # Actors call no function here, and an error or a loss there is none of.
    served = {family.name for family in text_string_to_metric_families(scraped)}
    named = set(re.findall(r"\btq_client_(?:operation|stage|bytes|lost|processes)\w*", RULES.read_text()))
    assert named and {re.sub("_(total|sum|count|bucket)$", "", name) for name in named} <= served


@needs_promtool
def test_promtool_takes_what_is_served(scraped: str) -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=scraped, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
