"""What `doctor` says of this package itself; of hosts: tests/processes/test_flagscale_enable.py."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest

from flagscale_perf.cli import doctor
from flagscale_perf.hosts.doctor import OWN_LOOP, Host
from flagscale_perf.hosts.importable import Lack
from flagscale_perf.spine import hot, packages

LACK = Lack("megatron.core.x imports triton, which is not installed: install it", is_lent=True)
HOST = Host("Megatron-LM (core 0.18.2)", "a.loop", Path("a/loop.py"), (), lacks=(LACK,), commit="571370c")
IN_USE = """\
extension   in use      the monitor's part of each step; without it, up to half as much again
"""
MISSING = """\
extension   NOT IN USE  the monitor's part of each step; without it, up to half as much again
            install again with a C compiler and Python's headers, and without FLAGSCALE_PERF_PLAIN_PYTHON
"""


@pytest.mark.parametrize(("built", "lines"), [(hot, IN_USE), (None, MISSING)])
def test_whether_the_extension_is_in_use_and_what_its_absence_costs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], built: object, lines: str
) -> None:
    monkeypatch.setattr(hot, "load", lambda: built)
    for name in ("find_hosts", "_device_lines"):
        monkeypatch.setattr(doctor, name, list)
    assert doctor.DoctorCommand().run(Namespace(json=False)) == 1
    assert lines in capsys.readouterr().out


def test_a_core_that_a_host_brings_along_is_not_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said once which version there is, where, and that there is nothing to do."""
    place = Path("/of/FlagScale/Megatron-LM")
    core = Host("Megatron-Core 0.15.0", OWN_LOOP, place / "megatron/core/models/gpt/gpt_model.py", ())
    part = next(each for each in packages.PARTS if each.module == doctor.CORE)
    monkeypatch.setattr(packages.Part, "version", None)
    for hosts, lines in (
        ([HOST, core], ["0.15.0", f"found in {place}: nothing to install"]),
        ([], ["MISSING", part.line]),
    ):
        monkeypatch.setattr(doctor, "find_hosts", lambda hosts=hosts: hosts)
        doctor.DoctorCommand().run(Namespace(json=False))
        shown = capsys.readouterr().out.splitlines()
        at = next(number for number, line in enumerate(shown) if part.name in line.split())
        assert lines[0] in shown[at].split() and shown[at + 1].strip() == lines[1]


def test_a_host_that_cannot_be_imported_is_called_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "find_hosts", lambda: [HOST])
    assert doctor.DoctorCommand().run(Namespace(json=False)) == 0
    line = f"CANNOT BE IMPORTED: {LACK.text} (a rehearsal on the CPU stands in for it)"
    assert line in capsys.readouterr().out


def test_a_script_reads_each_hosts_commit_and_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "find_hosts", lambda: [HOST])
    assert doctor.DoctorCommand().run(Namespace(json=True)) == 0
    (host,) = json.loads(capsys.readouterr().out)["hosts"]
    assert (host["name"], host["commit"], host["works"]) == (HOST.name, "571370c", True)
    assert host["lacks"] == [{"text": LACK.text, "is_lent": True}]
    monkeypatch.setattr(doctor, "find_hosts", list)
    assert doctor.DoctorCommand().run(Namespace(json=True)) == 1
