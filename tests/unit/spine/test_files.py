"""Files that grow by whole lines: refused paths, full disks, removed directories."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from pathlib import Path

import pytest

from flagscale_perf.spine import files
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import (
    AppendFile,
    local_path,
    lock,
    make_directory,
    open_locked,
    open_new,
    open_shared,
    replace_file,
    unwritable,
)


def heading(fresh: bool) -> bytes:
    return b"fresh\n" if fresh else b"again\n"


@pytest.fixture
def made(tmp_path: Path):
    file = AppendFile(tmp_path / "logs" / "file.log", open_shared, heading)
    yield file
    file.close()


@pytest.fixture
def small_files():
    """Every file of this process may have 100 bytes only: a write beyond them fails with EFBIG, after a short
    one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def set_limit(size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    yield set_limit
    set_limit(soft)


def test_lines_arrive_in_order_after_the_heading(made: AppendFile) -> None:
    made.write(b"one\n")
    made.write(b"two\n")
    assert made.waiting_bytes == 8
    made.flush()
    made.write(b"three\n")
    made.flush()
    assert (made.path.read_text(), made.waiting_bytes, made.size()) == ("fresh\none\ntwo\nthree\n", 0, 20)


def test_the_file_appears_with_its_heading_before_the_first_line(made: AppendFile) -> None:
    made.flush()
    made.flush()
    assert made.path.read_text() == "fresh\n"


def test_a_file_that_is_there_goes_on(made: AppendFile) -> None:
    made.path.parent.mkdir()
    made.path.write_text("old\n")
    made.write(b"new\n")
    made.flush()
    assert made.path.read_text() == "old\nagain\nnew\n"


def test_a_removed_directory_is_made_again(made: AppendFile) -> None:
    made.write(b"one\n")
    made.flush()
    shutil.rmtree(made.path.parent)
    made.write(b"two\n")
    made.flush()
    assert made.path.read_text() == "fresh\ntwo\n"


def test_a_file_moved_away_keeps_its_lines_and_a_new_one_is_begun(made: AppendFile) -> None:
    made.write(b"one\n")
    made.flush()
    made.path.rename(made.path.with_name("moved"))
    made.write(b"two\n")
    made.flush()
    assert (made.path.with_name("moved").read_text(), made.path.read_text()) == (
        "fresh\none\n",
        "fresh\ntwo\n",
    )


def test_a_full_disk_costs_nothing_once_there_is_room(made: AppendFile, small_files) -> None:
    lines = [f"line {number:03}\n".encode() for number in range(50)]
    small_files(100)
    for line in lines:
        made.write(line)
    for _ in range(3):
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            made.flush()
    assert made.size() == 100
    small_files(resource.RLIM_INFINITY)
    made.flush()
    assert made.path.read_bytes() == b"fresh\n" + b"".join(lines)


def test_a_line_cut_by_a_full_disk_is_whole_in_the_file_begun_after_it(made: AppendFile, small_files) -> None:
    made.write(b"x" * 120 + b"\n")
    small_files(100)
    with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        made.flush()
    small_files(resource.RLIM_INFINITY)
    made.path.unlink()
    made.flush()
    assert made.path.read_bytes() == b"fresh\n" + b"x" * 120 + b"\n"


def test_truncation_keeps_the_inode_and_puts_the_heading_first(made: AppendFile) -> None:
    made.write(b"one\n")
    made.flush()
    inode = made.path.stat().st_ino
    made.write(b"two\n")
    made.truncate()
    made.flush()
    assert (made.path.read_text(), made.path.stat().st_ino) == ("fresh\ntwo\n", inode)


def test_what_waits_is_bounded(made: AppendFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_WAITING_BYTES", 10)
    for line in (b"12345\n", b"abc\n"):
        made.write(line)
    with pytest.raises(OSError, match="10 bytes wait to be written, what comes now is left out"):
        made.write(b"x\n")
    made.flush()
    made.write(b"y\n")
    made.flush()
    assert made.path.read_text() == "fresh\n12345\nabc\ny\n"


def fails_once(call):
    """The call, the first time of which ends with EIO."""
    times = [1]

    def failing(*args, **kwargs):
        if times:
            times.pop()
            raise OSError(errno.EIO, "planted")
        return call(*args, **kwargs)

    return failing


def test_a_place_that_cannot_be_looked_at_gives_no_line_twice(
    made: AppendFile, small_files, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.write(b"x" * 120 + b"\n")
    small_files(100)
    with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        made.flush()
    small_files(resource.RLIM_INFINITY)
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "stat", fails_once(os.stat))
        with pytest.raises(OSError, match="planted"):
            made.flush()
    made.flush()
    assert made.path.read_bytes() == b"fresh\n" + b"x" * 120 + b"\n"


def test_a_file_whose_size_cannot_be_told_yet_gets_its_heading_all_the_same(
    made: AppendFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.write(b"one\n")
    with monkeypatch.context() as patch:

        def open_and_break(path: Path) -> int:
            fd = open_shared(path)
            patch.setattr(files.os, "fstat", fails_once(os.fstat))
            return fd

        made._open_file = open_and_break
        with pytest.raises(OSError, match="planted"):
            made.flush()
    made._open_file = open_shared
    made.flush()
    assert made.path.read_bytes() == b"fresh\none\n"


def test_a_close_that_fails_has_closed(
    made: AppendFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late news of a network file system. The number then belongs to whatever is opened next."""
    made.write(b"one\n")
    made.flush()
    made.path.rename(tmp_path / "moved")
    made.write(b"two\n")
    real = os.close

    def close(fd: int) -> None:
        real(fd)
        raise OSError(errno.EIO, "planted")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "close", close)
        with pytest.raises(OSError, match="planted"):
            made.flush()
    with (tmp_path / "somebody's").open("wb", buffering=0) as other:
        made.flush()
        other.write(b"theirs")
    assert (made.path.read_bytes(), (tmp_path / "somebody's").read_bytes()) == (b"fresh\ntwo\n", b"theirs")


def test_links_fifos_and_devices_are_refused_and_untouched(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    link, fifo = tmp_path / "link", tmp_path / "fifo"
    link.symlink_to(victim)
    os.mkfifo(fifo)
    for path in (link, fifo, Path("/dev/null")):
        with pytest.raises(OSError, match=str(path)):
            open_shared(path)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError, match="is not a regular file"):
        open_shared(fifo)
    os.close(reader)
    with pytest.raises(FileExistsError):
        open_new(link)
    assert victim.read_text() == "precious"


def test_a_file_in_the_place_of_the_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("")
    with pytest.raises(NotADirectoryError, match="logs is not a directory"):
        make_directory(tmp_path / "logs")


def test_modes_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        os.close(open_new(tmp_path / "logs" / "file"))
    finally:
        os.umask(before)
    assert (
        (tmp_path / "logs").stat().st_mode & 0o777,
        (tmp_path / "logs" / "file").stat().st_mode & 0o777,
    ) == (0o750, 0o640)


def test_a_directory_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "logs").symlink_to(tmp_path / "real")
    os.close(open_new(tmp_path / "logs" / "file"))
    assert (tmp_path / "real" / "file").is_file()


def test_only_one_may_hold_the_lock(tmp_path: Path) -> None:
    first = open_locked(tmp_path / "file")
    with pytest.raises(BlockingIOError):
        open_locked(tmp_path / "file")
    os.close(first)
    second = open_locked(tmp_path / "file")
    assert lock(second)
    os.close(second)


def test_a_file_system_without_locks_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*args):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    fd = open_locked(tmp_path / "file")
    assert not lock(fd)
    os.close(fd)


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path, small_files) -> None:
    path = tmp_path / "logs" / "summary"
    replace_file(path, b"first")
    small_files(100)
    with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        replace_file(path, b"x" * 200)
    assert [(p.name, p.read_bytes()) for p in path.parent.iterdir()] == [("summary", b"first")]
    small_files(resource.RLIM_INFINITY)
    replace_file(path, b"third")
    assert [(p.name, p.read_bytes()) for p in path.parent.iterdir()] == [("summary", b"third")]


def test_a_replacement_is_on_the_disk_before_it_takes_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "summary", []
    replace_file(path, b"first")
    monkeypatch.setattr(files.os, "fsync", lambda fd: seen.append((os.fstat(fd).st_size, path.read_bytes())))
    replace_file(path, b"the second")
    assert (seen, path.read_bytes()) == ([(10, b"first")], b"the second")


def test_what_a_killed_writer_left_of_a_replacement_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / ".summary.tmp").write_bytes(b"half")
    replace_file(tmp_path / "summary", b"whole")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("summary", b"whole")]


def test_a_path_with_a_tilde_is_the_shells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/srv/me")
    assert [local_path(text) for text in ("~/run", "~", "run/~", "/a:b//c")] == [
        *("/srv/me/run", "/srv/me", "run/~", "/a:b//c"),
    ]


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        *(
            (
                f"{scheme}://b/run",
                f"'{scheme}://b/run' is an address, not a path of this machine; write"
                " /mnt/..., where it is mounted",
            )
            for scheme in ("s3", "gs", "hdfs", "S3A", "abfs+ssl")
        ),
        ("file:///data/run", "'file:///data/run' is an address, not a path of this machine; write /data/run"),
        (
            "~nobody77/run",
            "'~nobody77/run' names the home of a user who is not known here; write the whole path",
        ),
    ],
)
def test_an_address_is_no_path(text: str, refusal: str) -> None:
    with pytest.raises(PerfError) as refused:
        local_path(text)
    assert str(refused.value) == refusal


def test_looking_leaves_nothing_behind(tmp_path) -> None:
    assert unwritable(str(tmp_path / "a/b/c")) is None
    assert list(tmp_path.iterdir()) == []
