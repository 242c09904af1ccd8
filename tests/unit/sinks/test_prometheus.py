"""Both ways to Prometheus, read back by the library's own parser."""

from __future__ import annotations

import json
import socket
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from flagscale_perf.sinks.base import SinkContext
from flagscale_perf.sinks.prometheus import PrometheusPortSink, PrometheusTextfileSink
from tests.fakes import free_port, make_context, make_facts, make_header, make_step, sample_run


def context_of(directory: Path, may_serve: bool = True, **config: str) -> SinkContext:
    return make_context(
        make_header(facts=make_facts(device='H"200\\'), **config), directory, print, may_serve=may_serve
    )


def samples_of(text: str) -> dict[str, float]:
    """`name{labels}` to value, of a text the parser takes."""
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    assert all(family.documentation and family.type in ("counter", "gauge") for family in families)
    found = {}
    for family in families:
        for sample in family.samples:
            found[sample.name + (json.dumps(sample.labels) if sample.labels else "")] = sample.value
    return found


@pytest.fixture
def port_sink(tmp_path: Path) -> Iterator[PrometheusPortSink]:
    sink = PrometheusPortSink.open(context_of(tmp_path, perf_prometheus_port=str(free_port())))
    assert sink is not None
    yield sink
    sink.close()


def scraped(sink: PrometheusPortSink) -> dict[str, float]:
    server = sink._server
    with urlopen(f"http://{server.server_name}:{server.server_port}/metrics", timeout=30) as answer:
        return samples_of(answer.read().decode())


def test_a_scrape_shows_what_was_flushed_and_only_loopback_hears(port_sink: PrometheusPortSink) -> None:
    port_sink.flush()
    assert port_sink._server.server_name == "127.0.0.1"
    assert scraped(port_sink)["flagscale_perf_tokens_total"] == 0
    port_sink.write(make_step(1))
    assert scraped(port_sink)["flagscale_perf_tokens_total"] == 0
    port_sink.flush()
    found = scraped(port_sink)
    assert (found["flagscale_perf_tokens_total"], found["flagscale_perf_last_iteration"]) == (1024, 1)


def test_a_port_in_use_is_an_error_that_names_it_until_it_is_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        sink = PrometheusPortSink(context_of(tmp_path, perf_prometheus_port=str(port)))
        sink.write(make_step(1))
        for _ in range(2):
            with pytest.raises(OSError, match=f"127.0.0.1:{port}: Address already in use"):
                sink.flush()
    try:
        sink.flush()
        assert scraped(sink)["flagscale_perf_tokens_total"] == 1024
    finally:
        sink.close()


def test_no_port_is_opened_in_a_training(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no port is opened in the training process"):
        PrometheusPortSink.open(context_of(tmp_path, may_serve=False, perf_prometheus_port="9400"))


def test_the_textfile_is_replaced_whole_and_others_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "textfiles" / "x.prom"
    sink = PrometheusTextfileSink.open(
        context_of(tmp_path, may_serve=False, perf_prometheus_textfile=str(path))
    )
    assert sink is not None
    sink.flush()
    before = path.stat()
    assert [value for name, value in samples_of(path.read_text()).items() if "_running" in name] == [1]
    for record in sample_run():
        sink.write(record)
    sink.flush()
    sink.close()
    after = path.stat()
    assert (stat.S_IMODE(after.st_mode), after.st_ino != before.st_ino) == (0o644, True)
    found = samples_of(path.read_text())
    where, when = f'"log_dir": "{tmp_path}"', '"session_id": "20240129_103000"'
    assert found[f"flagscale_perf_running{{{where}, {when}}}"] == 0
    assert found[f'flagscale_perf_end_info{{{where}, "reason": "completed", {when}}}'] == 1
    assert found[f'flagscale_perf_iterations_total{{{where}, "outcome": "data_skipped", {when}}}'] == 3
    assert any('"device": "H\\"200\\\\"' in name for name in found)
    assert [each.name for each in path.parent.iterdir()] == ["x.prom"]


def series_of(context: SinkContext) -> list[str]:
    sink = PrometheusTextfileSink(context)
    for record in sample_run():
        sink.write(record)
    sink.flush()
    families = text_string_to_metric_families(
        Path(context.options.perf_prometheus_textfile or "").read_text()
    )
    return [json.dumps([each.name, each.labels]) for family in families for each in family.samples]


def test_runs_in_one_directory_of_textfiles_have_no_series_in_common(tmp_path: Path) -> None:
    def context(name: str, directory: str, session_id: str = "20240129_103000") -> SinkContext:
        option = {"perf_prometheus_textfile": str(tmp_path / f"{name}.prom")}
        made = context_of(tmp_path / directory, **option)
        return replace(made, header=replace(made.header, session_id=session_id))

    runs = [context("a", "one"), context("b", "two"), context("c", "two", "20240129_103000_2")]
    series = [name for run in runs for name in series_of(run)]
    assert len(set(series)) == len(series) > 3 * 40


def test_of_two_runs_with_one_file_the_later_has_it_and_the_earlier_says_so(tmp_path: Path) -> None:
    path, sinks = tmp_path / "x.prom", []
    for session_id in ("20240129_103000", "20240129_103000_2"):
        made = context_of(tmp_path, perf_prometheus_textfile=str(path))
        sinks.append(
            PrometheusTextfileSink(replace(made, header=replace(made.header, session_id=session_id)))
        )
    first, second = sinks
    for sink in (first, second, first):
        sink.write(make_step(1))
        sink.flush()
    with pytest.raises(OSError, match=f"session 20240129_103000_2 writes {path}, too"):
        first.write(make_step(2))
    first.flush()
    second.write(make_step(2))
    second.flush()
    assert 'session_id="20240129_103000"' not in path.read_text()
    path.unlink()  # nobody's any more
    first.flush()
    assert 'session_id="20240129_103000"' in path.read_text()


def test_nothing_new_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "x.prom"
    sink = PrometheusTextfileSink(context_of(tmp_path, perf_prometheus_textfile=str(path)))
    sink.flush()
    path.unlink()
    sink.flush()
    assert not path.exists()


@pytest.mark.parametrize("kind", [PrometheusPortSink, PrometheusTextfileSink])
def test_without_the_package_they_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    options = {"perf_prometheus_port": "9400", "perf_prometheus_textfile": "/nonexistent/x.prom"}
    with pytest.raises(ImportError):
        kind.open(context_of(tmp_path, **options))
