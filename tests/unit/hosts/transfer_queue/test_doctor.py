"""What `doctor` says of a TransferQueue: what is there, what is missing and what stands in the way."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flagscale_perf.hosts.hook_points import HookPoint
from flagscale_perf.hosts.transfer_queue import doctor
from flagscale_perf.hosts.transfer_queue.doctor import find_queue

CLIENT = """
class AsyncTransferQueueClient:
    async def async_put(self): ...
    async def async_get_data(self): ...
"""
ON = {"TQ_TRACE_ENABLED": "1", "VERL_LOGGING_LEVEL": "INFO"}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A TransferQueue with a client, and nothing else of what is wrapped."""
    (tmp_path / "transfer_queue").mkdir()
    (tmp_path / "transfer_queue/__init__.py").write_text("raise SystemExit('it is not to be run')")
    (tmp_path / "transfer_queue/client.py").write_text(CLIENT)
    (tmp_path / "transferqueue-0.1.11.dist-info").mkdir()
    (tmp_path / "transferqueue-0.1.11.dist-info/METADATA").write_text(
        "Name: TransferQueue\nVersion: 0.1.11\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def test_without_the_queue_there_is_nothing_to_say(monkeypatch) -> None:
    monkeypatch.setattr(doctor, "versions", lambda packages: {})
    assert find_queue({}, True) is None


def test_what_is_there_and_what_is_missing_is_read_and_not_run(installed) -> None:
    queue = find_queue(ON, True)
    assert queue is not None and queue.works
    assert queue.versions["TransferQueue"] == "0.1.11"
    assert queue.hooks[:2] == (
        HookPoint("transfer_queue.client.AsyncTransferQueueClient.async_put", True, "operations at all"),
        HookPoint("transfer_queue.client.AsyncTransferQueueClient.async_get_data", True, "operations at all"),
    )
    assert {hook.found for hook in queue.hooks[2:11]} == {False}
    assert queue.remarks == ()
    (installed / "transfer_queue/client.py").write_text("")
    changed = find_queue(ON, True)
    assert changed is not None and not changed.works


@pytest.mark.parametrize(
    ("environment", "begin"),
    [
        ({}, "switched off; TQ_TRACE_ENABLED=1"),
        (
            {"TQ_TRACE_ENABLED": "maybe"},
            "nothing is traced: TQ_TRACE_ENABLED: 'maybe' is neither true nor false; write true or false",
        ),
        (ON | {"VERL_LOGGING_LEVEL": "warn"}, "VERL_LOGGING_LEVEL=warn hides the lines"),
        ({"TQ_TRACE_ENABLED": "1"}, "VERL_LOGGING_LEVEL is not set, and its WARN hides the lines"),
        (ON | {"TRANSFER_QUEUE_ENABLE": "0"}, "TRANSFER_QUEUE_ENABLE=0"),
        (ON | {"TQ_TRACE_STDOUT": "1"}, "Ray shows one of many lines"),
        (ON | {"RAY_JOB_CONFIG_JSON_ENV_VAR": "{}"}, "the workers of a submitted job"),
    ],
)
def test_what_stands_in_the_way_is_said(installed, environment, begin) -> None:
    queue = find_queue(environment, True)
    assert queue is not None
    (remark,) = queue.remarks
    assert remark.startswith(begin)


@pytest.mark.parametrize(
    "environment",
    [
        ON | {"VERL_LOGGING_LEVEL": "DEBUG", "TRANSFER_QUEUE_ENABLE": "1"},
        ON | {"TQ_TRACE_STDOUT": "1", "RAY_DEDUP_LOGS": "0"},
        ON | {"TQ_TRACE_STDOUT": "1", "RAY_DEDUP_LOGS_ALLOW_REGEX": "TQ"},
    ],
)
def test_nothing_is_said_where_all_is_well(installed, environment) -> None:
    queue = find_queue(environment, True)
    assert queue is not None and queue.remarks == ()


def test_without_enable_it_is_said_how_far_tracing_reaches(installed) -> None:
    queue = find_queue(ON, False)
    assert queue is not None
    assert queue.remarks[0].startswith("tracing reaches no process by itself; flagscale-perf enable lets it")
