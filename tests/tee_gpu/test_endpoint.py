"""Who may listen where; what is refused is left as it is."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from tensor_rpc.endpoint import Claim, check_owner, transport_of
from tensor_rpc.errors import Refused

ANOTHER_USER = 65534
root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")


def listening(path: Path, kind: int = socket.SOCK_STREAM) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, kind)
    listener.bind(str(path))
    listener.listen()
    return listener


def test_a_claim_leaves_nothing(tmp_path):
    claim = Claim(Path(f"{tmp_path}/x.ipc"))
    assert (tmp_path / "x.ipc.lock").read_text() == f"{os.getpid()}\n"
    claim.release()
    claim.release()
    assert list(tmp_path.iterdir()) == []


def test_a_second_claim_is_refused_and_names_the_first(tmp_path):
    claim = Claim(Path(f"{tmp_path}/x.ipc"))
    with pytest.raises(
        Refused, match=f"process {os.getpid()} listens at {tmp_path}/x.ipc already: end it, or"
    ):
        Claim(Path(f"{tmp_path}/x.ipc"))
    claim.release()
    Claim(Path(f"{tmp_path}/x.ipc")).release()


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_a_socket_that_answers_stays_and_one_that_does_not_goes(tmp_path, kind):
    with listening(tmp_path / "x.ipc", kind):
        with pytest.raises(Refused, match="another process listens at"):
            Claim(Path(f"{tmp_path}/x.ipc"))
        assert [path.name for path in tmp_path.iterdir()] == ["x.ipc"]
    Claim(Path(f"{tmp_path}/x.ipc")).release()
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
            Claim(Path(f"{tmp_path}/{name}"))
        with pytest.raises(Refused, match="is not a socket of this user"):
            check_owner(Path(f"{tmp_path}/{name}"))
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_text() == "precious"


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "x.ipc.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(Refused, match="cannot lock .*x.ipc.lock"):
        Claim(Path(f"{tmp_path}/x.ipc"))
    assert (tmp_path / "precious").read_text() == "precious"


def test_places_where_others_could_interfere_are_refused(tmp_path):
    with pytest.raises(Refused, match="is not there: make it"):
        Claim(Path(f"{tmp_path}/none/x.ipc"))
    with pytest.raises(Refused, match="a socket's path has at most 107"):
        Claim(Path(f"{tmp_path}/{'x' * 100}"))
    tmp_path.chmod(0o777)
    with pytest.raises(Refused, match="others could replace files in"):
        Claim(Path(f"{tmp_path}/x.ipc"))
    tmp_path.chmod(0o1777)  # like /tmp
    Claim(Path(f"{tmp_path}/x.ipc")).release()
    assert list(tmp_path.iterdir()) == []


@root_only
def test_what_belongs_to_another_user_stays(tmp_path):
    tmp_path.chmod(0o1777)
    listening(tmp_path / "x.ipc").close()
    os.chown(tmp_path / "x.ipc", ANOTHER_USER, ANOTHER_USER)
    with pytest.raises(Refused, match="is not a socket of this user .*user 65534"):
        Claim(Path(f"{tmp_path}/x.ipc"))
    with pytest.raises(Refused, match="is not a socket of this user"):
        check_owner(Path(f"{tmp_path}/x.ipc"))
    assert (tmp_path / "x.ipc").exists()


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://*:5555", "tcp://0.0.0.0:5555", "tcp://10.1.2.3:5555", "tcp://host:5555", "tcp://[::]:5555"],
)
def test_other_machines_only_where_it_is_allowed(endpoint):
    with pytest.raises(Refused, match="is open to other machines, and nothing is encrypted or authenticated"):
        transport_of(endpoint, allow_remote=False)
    assert transport_of(endpoint, allow_remote=True) == "TCP"
    for inside in ("tcp://127.0.0.1:5555", "tcp://localhost:5555", "tcp://[::1]:5555", "tcp://127.0.0.1:*"):
        assert transport_of(inside, allow_remote=False) == "TCP"


@pytest.mark.parametrize(
    "endpoint", ["/tmp/x", "http://x", "ipc://", "tcp:", "ipc://@abstract", "udp://1.2.3.4:5"]
)
def test_what_is_no_endpoint_is_refused(endpoint):
    with pytest.raises(Refused, match="write ipc:///PATH or tcp://ADDRESS:PORT"):
        transport_of(endpoint, allow_remote=True)
