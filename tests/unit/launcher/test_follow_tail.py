"""A growing log is read line by line, each once, and hostile content does no harm."""

import os

from flagscale_perf.launcher.follow import Tail, last_lines, open_regular


def test_whole_lines_only_and_each_once(tmp_path) -> None:
    path = tmp_path / "log"
    tail = Tail(str(path))
    assert tail.lines() == []
    path.write_bytes(b"one\ntw")
    assert tail.lines() == ["one"]
    assert tail.lines() == []
    with path.open("ab") as file:
        file.write(b"o\nthree\n")
    assert tail.lines() == ["two", "three"]


def test_lines_from_before_the_start_stay_out(tmp_path) -> None:
    path = tmp_path / "log"
    path.write_text("old\n")
    tail = Tail(str(path), is_new_only=True)
    with path.open("a") as file:
        file.write("new\n")
    assert tail.lines() == ["new"]


def test_file_cut_in_place_is_read_from_its_beginning(tmp_path) -> None:
    path = tmp_path / "log"
    path.write_text("a long line\nhalf")
    tail = Tail(str(path))
    assert tail.lines() == ["a long line"]
    path.write_text("b\n")
    assert tail.lines() == ["b"]


def test_terminal_is_not_obeyed(tmp_path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\x1b[2J\xff\x00\n")
    assert Tail(str(path)).lines() == ["\\x1b[2J\N{REPLACEMENT CHARACTER}\\x00"]
    assert last_lines(str(path), 5) == ["\\x1b[2J\N{REPLACEMENT CHARACTER}\\x00"]


def test_line_without_end_takes_no_memory(tmp_path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.truncate(3 << 20)
    tail = Tail(str(path))
    for _ in range(4):
        assert tail.lines() == []
    with path.open("ab") as file:
        file.write(b"end\n")
    (line,) = tail.lines()
    assert len(line) == (1 << 16) * 4 + 3  # 64 KiB of NUL, each shown as \x00, and the end


def test_pipe_or_directory_of_that_name_is_no_log(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "", "missing"):
        assert open_regular(str(tmp_path / name)) is None
        assert last_lines(str(tmp_path / name), 3) == []
        assert Tail(str(tmp_path / name)).lines() == []
    assert Tail(str(tmp_path / "missing"), is_new_only=True).lines() == []


def test_last_lines(tmp_path) -> None:
    path = tmp_path / "log"
    path.write_text("x" * 100_000 + "\na\nb\nc")
    assert last_lines(str(path), 2) == ["b", "c"]
    assert len(last_lines(str(path), 10)[0]) == (1 << 16) - len("\na\nb\nc")
