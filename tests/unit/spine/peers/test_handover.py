"""Rings that change hands over a socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from flagscale_perf.spine.peers.handover import Door, connect, give, job_key


@pytest.fixture
def key(tmp_path: Path) -> str:
    return job_key("test", str(tmp_path))


@pytest.fixture
def door(key: str) -> Iterator[Door]:
    opened = Door.open(key)
    assert opened is not None
    yield opened
    opened.close()


def connected(key: str) -> socket.socket:
    connection = connect(key)
    assert connection is not None
    return connection


def test_what_a_process_gives_is_there_though_it_has_gone(door: Door, key: str) -> None:
    assert list(door.visitors()) == []
    read, write = os.pipe()
    connection = connected(key)
    give(connection, write)
    connection.close()
    os.close(write)
    (visitor,) = door.visitors()
    os.write(visitor.ring_fd, b"still there")
    assert (visitor.pid, os.read(read, 99)) == (os.getpid(), b"still there")
    os.close(read)
    os.close(visitor.ring_fd)
    visitor.connection.close()


def test_an_address_has_one_door(door: Door, key: str) -> None:
    assert Door.open(key) is None
    door.close()
    assert connect(key) is None
    again = Door.open(key)
    assert again is not None
    again.close()


def test_who_says_nothing_is_waited_for_and_who_gives_nothing_is_left_out(door: Door, key: str) -> None:
    silent, wrong = connected(key), connected(key)
    wrong.send(b"\n")
    assert list(door.visitors()) == []
    with open(os.devnull, "rb") as file:
        give(silent, file.fileno())
    (visitor,) = door.visitors()
    os.close(visitor.ring_fd)
    for each in (silent, wrong, visitor.connection):
        each.close()


def test_a_shut_door_still_lets_in_who_waits(door: Door, key: str) -> None:
    connection = connected(key)
    with open(os.devnull, "rb") as file:
        give(connection, file.fileno())
    door.shut()
    assert connect(key) is None
    (visitor,) = door.visitors()
    os.close(visitor.ring_fd)
    visitor.connection.close()
    connection.close()


def test_the_key_tells_jobs_apart() -> None:
    keys = [job_key("a", "b"), job_key("ab", ""), job_key("a"), job_key("\udcff"), job_key("?")]
    assert len(set(keys)) == 5
    assert job_key("a", "b") == keys[0]
    assert {len(key) for key in keys} == {16}
