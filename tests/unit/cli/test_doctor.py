"""What `doctor` says of this package itself; of hosts: tests/processes/test_flagscale_enable.py."""

from __future__ import annotations

from argparse import Namespace

import pytest

from flagscale_perf.cli import doctor
from flagscale_perf.spine import hot

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
    assert doctor.DoctorCommand().run(Namespace()) == 1
    assert lines in capsys.readouterr().out
