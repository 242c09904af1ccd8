"""Files by which the nodes of a job tell rank 0's node of their ranks, in a directory of the monitor's.

    .ranks_<key>/beacon.json    of rank 0's writer: a random token. Who does not quote it is of another start of the job
    .ranks_<key>/node_<N>.json  of the collector of the node whose first rank is N: one line about the node,
    then one a block

Each file is replaced as a whole and never written by two. They are read with bounds and believed only as far
as they parse.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import stat
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.files import make_directory
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.training.ranks.blocks import MAX_RANKS, Block, RankIdentity, decode_block
from flagscale_perf.training.ranks.identity import content_of, identity_of
from flagscale_perf.training.ranks.node import Gone

BEACON = "beacon.json"
MAX_NODE_BYTES = 4 << 20
MAX_BEACON_BYTES = 1024
ROUND_S = 1.0  # a file is looked at no more often
TOUCH_S = 3600.0
ABANDONED_S = 86_400.0  # a directory that nobody has touched for so long is of a job that was killed
_DIRECTORY = re.compile(r"\.ranks_[0-9a-f]{16}")
_NODE = re.compile(r"node_\d{1,8}\.json")
_OURS = re.compile(r"(beacon|node_\d{1,8})\.json(\.tmp)?")
_FILE_MODE = 0o640
_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class NodeReport:
    """A node's file.

    Attributes:
        token: of the beacon that its writer has seen.
        identities: of all its ranks found so far.
        gone: those that have died.
        notes: (rank, what there is to say), of the whole run.
        first_block: number of the first block here, counted over the node's whole run; earlier ones are no
            longer in the file.
        blocks: as lines, see `training.ranks.blocks`.
    """

    token: str
    identities: list[RankIdentity]
    gone: list[Gone]
    notes: list[tuple[int, str]]
    first_block: int
    blocks: list[bytes] = field(default_factory=list)

    def encode(self) -> bytes:
        """The file's content."""
        about = {
            "token": self.token,
            "ranks": [content_of(identity) for identity in self.identities],
            "gone": self.gone,
            "notes": self.notes,
            "first_block": self.first_block,
        }
        return b"\n".join([dump(about).encode(), *self.blocks, b""])

    @classmethod
    def decode(cls, content: bytes) -> NodeReport:
        """Raises ValueError."""
        first, *blocks = content.split(b"\n")
        about = _parsed(first)
        try:
            return cls(
                token=_text(about["token"]),
                identities=[identity_of(identity) for identity in _list(about["ranks"])],
                gone=[
                    Gone(_number(rank), _number(iteration), _text(why))
                    for rank, iteration, why in _list(about["gone"])
                ],
                notes=[(_number(rank), _text(text)) for rank, text in _list(about["notes"])],
                first_block=_number(about["first_block"]),
                blocks=blocks[:-1],
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"no report of a node: {error}") from None


def directory_name(key: str) -> str:
    """Of a job, in the monitor's directory."""
    return f".ranks_{key}"


def _token_in(directory: int) -> str:
    """Of the beacon. Raises OSError, ValueError."""
    return _text(_parsed(_read(directory, BEACON, MAX_BEACON_BYTES)).get("token"))


class Outbox:
    """A collector's end: one file."""

    def __init__(self, directory: Path, key: str, first_rank: int) -> None:
        """`directory` of the monitor's files."""
        self._path = directory / directory_name(key)
        self._name = f"node_{first_rank}.json"

    def token(self) -> str | None:
        """What the beacon says; None while there is none to be seen."""
        try:
            with _opened(self._path) as directory:
                return _token_in(directory)
        except (OSError, ValueError):
            return None

    def write(self, report: NodeReport) -> None:
        """Puts it in the place of the last one. Raises OSError."""
        with _opened(self._path) as directory:
            _replace(directory, self._name, report.encode())

    def leave(self) -> None:
        """Clears up where rank 0 has already done so."""
        if self.token() is None:
            with contextlib.suppress(OSError), _opened(self._path) as directory:
                _unlink(directory, [self._name])
                self._path.rmdir()


@dataclass
class _Seen:
    """What has been read of one file."""

    signature: tuple[int, ...] = ()
    next_block: int = 0
    has_complained: bool = False
    has_lost: bool = False


@dataclass
class Heard:
    """What one look into the files has brought.

    Attributes:
        reports: changed ones, without their blocks.
        blocks: those not seen before.
        complaints: what was wrong with a file, said once for each.
    """

    reports: list[NodeReport] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


class Inbox:
    """Rank 0's end: the beacon, and everybody's files."""

    def __init__(self, directory: Path, key: str, max_files: int) -> None:
        """Raises OSError where the files cannot be."""
        self._path = directory / directory_name(key)
        self._max_files = max_files
        self._token = secrets.token_hex(16)
        self._seen: dict[str, _Seen] = {}
        self._round: deque[str] = deque()  # files still to be looked at
        self._round_ns = self._touched_ns = monotonic_ns()
        prune(directory, self._path.name)
        self._make()

    def _make(self) -> None:
        """The directory, and this job's beacon in it. Raises OSError."""
        make_directory(self._path)
        with _opened(self._path) as fd:
            _replace(fd, BEACON, dump({"token": self._token}).encode())

    def look(self, budget_ns: int) -> Heard:
        """Reads changed files for so long, but one at least: all of them in turn over several calls. Raises
        OSError.

        What somebody has removed of the directory is made again.
        """
        heard = Heard()
        now_ns = monotonic_ns()
        deadline_ns = now_ns + budget_ns
        if not self._has_beacon():
            self._make()
        with _opened(self._path) as directory:
            if not self._round and now_ns >= self._round_ns:
                self._begin_round(directory, now_ns)
            while self._round:
                self._read(directory, self._round.popleft(), heard)
                if monotonic_ns() >= deadline_ns:
                    break
        return heard

    def close(self, budget_ns: int) -> Heard:
        """A last look at everything, then the directory goes. Raises OSError."""
        self._round, self._round_ns = deque(), 0
        heard = self.look(budget_ns)
        with (
            contextlib.suppress(OSError, ValueError),
            _opened(self._path) as directory,
        ):  # what stays goes with its age
            if _token_in(directory) == self._token:  # and not somebody else's by now
                _unlink(
                    directory, [BEACON, *(name for name in os.listdir(directory) if _OURS.fullmatch(name))]
                )
                self._path.rmdir()  # a collector that was just writing clears it up
        return heard

    def _has_beacon(self) -> bool:
        """Anybody's: of a successor's it is not for us to take the place."""
        try:
            with _opened(self._path) as directory:
                return bool(_token_in(directory))
        except (OSError, ValueError):
            return False

    def _begin_round(self, directory: int, now_ns: int) -> None:
        self._round_ns = now_ns + int(ROUND_S * NS_PER_S)
        self._round.extend(sorted(filter(_NODE.fullmatch, os.listdir(directory)))[: self._max_files])
        if now_ns - self._touched_ns >= TOUCH_S * NS_PER_S:
            self._touched_ns = now_ns
            os.utime(BEACON, dir_fd=directory)

    def _read(self, directory: int, name: str, heard: Heard) -> None:
        seen = self._seen.setdefault(name, _Seen())
        try:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            signature = (found.st_ino, found.st_mtime_ns, found.st_size)
            if signature != seen.signature:
                seen.signature = signature
                self._take(NodeReport.decode(_read(directory, name, MAX_NODE_BYTES)), seen, heard)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            if not seen.has_complained:
                seen.has_complained = True
                heard.complaints.append(f"{name}: {error}")

    def _take(self, report: NodeReport, seen: _Seen, heard: Heard) -> None:
        """Raises ValueError; what was good before the bad part is kept."""
        if report.token != self._token:
            return
        if report.first_block + len(report.blocks) < seen.next_block:  # another collector, which counts anew
            seen.next_block = report.first_block
        known = max(0, seen.next_block - report.first_block)
        if report.first_block > seen.next_block and not seen.has_lost:
            seen.has_lost = True
            heard.complaints.append(
                f"{report.first_block - seen.next_block} blocks were gone before they were read, and perhaps more later"
            )
        fresh, report.blocks[:] = report.blocks[known:], []
        seen.next_block = max(seen.next_block, report.first_block + known + len(fresh))
        heard.reports.append(report)
        ranks = {identity.rank for identity in report.identities}
        for line in fresh:
            block = decode_block(_json(line))
            if block.rank not in ranks:
                raise ValueError(f"a block of rank {block.rank}, which is none of the node's")
            heard.blocks.append(block)


def prune(directory: Path, keep: str) -> None:
    """Removes what killed jobs have left, by age; only our own files. Raises OSError if the directory cannot
    be read.
    """
    for name in os.listdir(directory):
        if _DIRECTORY.fullmatch(name) and name != keep:
            with contextlib.suppress(OSError), _opened(directory / name) as fd:
                files = [file for file in os.listdir(fd) if _OURS.fullmatch(file)]
                ages = [
                    os.fstat(fd).st_mtime,
                    *(os.stat(file, dir_fd=fd, follow_symlinks=False).st_mtime for file in files),
                ]
                if time.time() - max(ages) > ABANDONED_S:
                    _unlink(fd, files)
                    (directory / name).rmdir()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """The directory itself, not what a link of that name leads to. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK)
    try:
        yield fd
    finally:
        os.close(fd)


def _replace(directory: int, name: str, content: bytes) -> None:
    """No fsync: what a crash loses here is of no use after it. Raises OSError."""
    temporary = f"{name}.tmp"
    _unlink(directory, [temporary])
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, _FILE_MODE, dir_fd=directory)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
    os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)


def _read(directory: int, name: str, limit: int) -> bytes:
    """Raises OSError, ValueError for what is longer or no regular file."""
    fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _NO_LINK, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("no regular file")
        with open(fd, "rb", closefd=False) as file:
            content = file.read(limit + 1)
    finally:
        os.close(fd)
    if len(content) > limit:
        raise ValueError(f"longer than {limit} bytes")
    return content


def _unlink(directory: int, names: list[str]) -> None:
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)


def _json(line: bytes) -> Any:
    try:
        return json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _parsed(line: bytes) -> dict[str, Any]:
    content = _json(line)
    if not isinstance(content, dict):
        raise ValueError("no JSON object")
    return content


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > MAX_BEACON_BYTES:
        raise ValueError("no text where one belongs")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise ValueError("no number where one belongs")
    return value


def _list(value: Any) -> list[Any]:
    if type(value) is not list or len(value) > MAX_RANKS:
        raise ValueError("no list where one belongs")
    return value
