"""The file by which a server is asked for a profile."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.profile.asked import (
    PRESENCE_FILE,
    REQUEST_FILE,
    Request,
    is_looked_into,
    look_into,
    request_in,
    requested,
)
from flagscale_perf.spine.errors import PerfError

GIVEN = Request("a", 1_700_000_000.0, 5.0, 20, None)


def test_a_request_stands_as_long_as_its_maker_and_leaves_nothing(tmp_path: Path) -> None:
    assert request_in(tmp_path) is None
    with requested(tmp_path, GIVEN):
        assert request_in(tmp_path) == GIVEN
    assert request_in(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_one_at_a_time(tmp_path: Path) -> None:
    with requested(tmp_path, GIVEN):
        again = requested(tmp_path, GIVEN._replace(name="b"))
        with pytest.raises(PerfError, match="asked for before and is not written yet"), again:
            pass
        assert request_in(tmp_path) == GIVEN
    with requested(tmp_path, GIVEN._replace(name="b")):
        assert request_in(tmp_path) == GIVEN._replace(name="b")


def test_what_a_killed_command_left_behind_is_no_request_and_in_nobodys_way(tmp_path: Path) -> None:
    now = GIVEN._replace(begin_unix_s=time.time())
    (tmp_path / REQUEST_FILE).write_text(json.dumps(now._asdict()))
    assert request_in(tmp_path) is None
    with requested(tmp_path, now):
        assert request_in(tmp_path) == now


@pytest.mark.parametrize(
    "changed",
    [
        {"seconds": 0},
        {"seconds": 61},
        {"seconds": "5"},
        {"name": 1},
        {"steps": "3"},
        {"requests": 2.5},
        {"x": 1},
    ],
)
def test_what_means_nothing_is_no_request(changed: dict[str, Any], tmp_path: Path) -> None:
    with requested(tmp_path, GIVEN):
        (tmp_path / REQUEST_FILE).write_text(json.dumps(GIVEN._asdict() | changed))
        assert request_in(tmp_path) is None


def test_whether_a_server_looks(tmp_path: Path) -> None:
    assert is_looked_into(tmp_path / "absent") is False
    with open(look_into(tmp_path)), open(look_into(tmp_path)):  # two workers
        assert is_looked_into(tmp_path) is True
    assert is_looked_into(tmp_path) is False
    assert [path.name for path in tmp_path.iterdir()] == [PRESENCE_FILE]
