"""Metrics of a process that trains, scraped over the network."""

from __future__ import annotations

from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import psutil

from tests.fakes import free_port
from tests.processes.trainer import DEADLINE_S, trainer, wait_for


def trained_tokens(port: int) -> float | None:
    """What a scrape says; None while nobody answers."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_S) as answer:
            lines = answer.read().decode().splitlines()
    except (URLError, ConnectionError):
        return None
    (line,) = [line for line in lines if line.startswith("flagscale_perf_tokens_total ")]
    return float(line.split()[1])


def listeners(process: psutil.Process) -> set[int]:
    return {each.laddr.port for each in process.net_connections("inet") if each.status == psutil.CONN_LISTEN}


def test_the_writer_serves_and_a_new_one_goes_on_counting(tmp_path: Path) -> None:
    port = free_port()
    with trainer(tmp_path, perf_prometheus_port=str(port)) as training:
        training.tell("put", 20)
        wait_for("20 steps", lambda: trained_tokens(port) == 20 * 1024)
        writer = training.writer()
        assert (listeners(writer), listeners(psutil.Process(training.process.pid))) == ({port}, set())
        writer.kill()
        training.tell("put", 5)
        seen = [wait_for("a new writer", lambda: trained_tokens(port))]
        while seen[-1] < 25 * 1024:
            seen.append(wait_for("more steps", lambda: trained_tokens(port)))
        assert seen == sorted(seen) and seen[0] >= 20 * 1024 and seen[-1] == 25 * 1024
        code, said, _ = training.end("return")
    assert (code, said.strip().endswith(".json"), trained_tokens(port)) == (0, True, None)
