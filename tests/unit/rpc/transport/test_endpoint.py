"""Who may listen where; what is refused is left as it is."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from flagscale_perf.rpc.errors import Refused
from flagscale_perf.rpc.options import ClientOptions, ServerOptions
from flagscale_perf.rpc.transport.endpoint import (
    Claim,
    check_owner,
    clear_after,
    client_endpoint,
    private_directory,
    server_endpoint,
    side_socket,
)

ANOTHER_USER = 65534
root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")


def listening(path: Path, kind: int = socket.SOCK_STREAM) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, kind)
    listener.bind(str(path))
    listener.listen()
    return listener


def test_a_claim_leaves_nothing(tmp_path):
    claim = Claim(f"ipc://{tmp_path}/x.ipc")
    assert (tmp_path / "x.ipc.lock").read_text() == f"{os.getpid()}\n"
    claim.release()
    claim.release()
    assert list(tmp_path.iterdir()) == []


def test_a_second_claim_is_refused_and_names_the_first(tmp_path):
    claim = Claim(f"ipc://{tmp_path}/x.ipc")
    with pytest.raises(
        Refused, match=f"process {os.getpid()} listens at {tmp_path}/x.ipc already: end it, or"
    ):
        Claim(f"ipc://{tmp_path}/x.ipc")
    claim.release()
    Claim(f"ipc://{tmp_path}/x.ipc").release()


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
@pytest.mark.parametrize("name", ["x.ipc", "x.ipc.unix"])
def test_a_socket_that_answers_stays_and_one_that_does_not_goes(tmp_path, kind, name):
    with listening(tmp_path / name, kind):
        with pytest.raises(Refused, match="another process listens at"):
            Claim(f"ipc://{tmp_path}/x.ipc")
        assert [path.name for path in tmp_path.iterdir()] == [name]
    Claim(f"ipc://{tmp_path}/x.ipc").release()
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_socket_stays(tmp_path):
    (tmp_path / "file").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "directory").mkdir()
    before = sorted(tmp_path.rglob("*"))
    for name in ("file", "link", "directory"):
        with pytest.raises(
            Refused, match="is not a socket of this user .*, and is not removed: name another"
        ):
            Claim(f"ipc://{tmp_path}/{name}")
        with pytest.raises(Refused, match="is not a socket of this user"):
            check_owner(f"ipc://{tmp_path}/{name}")
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_text() == "precious"


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "x.ipc.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(Refused, match="cannot lock .*x.ipc.lock"):
        Claim(f"ipc://{tmp_path}/x.ipc")
    assert (tmp_path / "precious").read_text() == "precious"


def test_places_where_others_could_interfere_are_refused(tmp_path):
    with pytest.raises(Refused, match="is not there: make it"):
        Claim(f"ipc://{tmp_path}/none/x.ipc")
    with pytest.raises(Refused, match="a socket's path has at most 107"):
        Claim(f"ipc://{tmp_path}/{'x' * 100}")
    tmp_path.chmod(0o777)
    with pytest.raises(Refused, match="others could replace files in"):
        Claim(f"ipc://{tmp_path}/x.ipc")
    tmp_path.chmod(0o1777)  # like /tmp
    Claim(f"ipc://{tmp_path}/x.ipc").release()
    assert list(tmp_path.iterdir()) == []


@root_only
def test_what_belongs_to_another_user_stays(tmp_path):
    tmp_path.chmod(0o1777)
    listening(tmp_path / "x.ipc").close()
    os.chown(tmp_path / "x.ipc", ANOTHER_USER, ANOTHER_USER)
    with pytest.raises(Refused, match="is not a socket of this user .*user 65534"):
        Claim(f"ipc://{tmp_path}/x.ipc")
    with pytest.raises(Refused, match="is not a socket of this user"):
        check_owner(f"ipc://{tmp_path}/x.ipc")
    assert (tmp_path / "x.ipc").exists()


def test_beside_a_private_path_and_otherwise_in_the_users_own_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert side_socket(f"ipc://{tmp_path}/x.ipc") == f"{tmp_path}/x.ipc.unix"
    tmp_path.chmod(0o755)
    inside = Path(side_socket(f"ipc://{tmp_path}/x.ipc"))
    assert inside.parent == tmp_path / "flagscale_perf" == private_directory()
    assert inside.parent.stat().st_mode & 0o777 == 0o700
    inside.parent.chmod(0o755)
    with pytest.raises(Refused, match=r"is not a directory of this user alone \(0700\)"):
        private_directory()


def test_a_private_directory_that_is_a_link_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "flagscale_perf").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="is not a directory of this user alone"):
        private_directory()


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://*:5555", "tcp://0.0.0.0:5555", "tcp://10.1.2.3:5555", "tcp://host:5555", "tcp://[::]:5555"],
)
def test_other_machines_only_where_it_is_allowed(endpoint):
    with pytest.raises(Refused, match="is open to other machines, and nothing is encrypted or authenticated"):
        server_endpoint(ServerOptions(endpoint=endpoint))
    with pytest.raises(Refused, match="write tcp://127.0.0.1:PORT, or set allow_remote=True"):
        client_endpoint(ClientOptions(endpoint=endpoint))
    assert server_endpoint(ServerOptions(endpoint=endpoint, allow_remote=True)) == endpoint
    for inside in ("tcp://127.0.0.1:5555", "tcp://localhost:5555", "tcp://[::1]:5555", "tcp://127.0.0.1:*"):
        assert server_endpoint(ServerOptions(endpoint=inside)) == inside


@pytest.mark.parametrize(
    "endpoint", ["/tmp/x", "http://x", "ipc://", "tcp:", "ipc://@abstract", "udp://1.2.3.4:5"]
)
def test_what_is_no_endpoint_is_refused(endpoint):
    with pytest.raises(Refused, match="write ipc:///PATH, tcp://ADDRESS:PORT or inproc://NAME"):
        client_endpoint(ClientOptions(endpoint=endpoint))


def test_what_a_killed_server_left_is_removed_and_what_a_live_one_has_is_not(tmp_path):
    code = (
        "import sys, socket\nfrom flagscale_perf.rpc.transport.endpoint import Claim\n"
        "claim = Claim(sys.argv[1])\ns = socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1][6:])\ns.listen()\n"
        "print('there', flush=True)\nsys.stdin.read()"
    )
    endpoint = f"ipc://{tmp_path}/x.ipc"
    with subprocess.Popen(
        [sys.executable, "-c", code, endpoint], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"there\n"
        clear_after(endpoint, process.pid, 0)
        assert len(list(tmp_path.iterdir())) == 2
        process.kill()
        process.wait()
        clear_after(endpoint, process.pid + 1, 0)
        assert len(list(tmp_path.iterdir())) == 2
        clear_after(endpoint, process.pid, 0)
        assert list(tmp_path.iterdir()) == []
