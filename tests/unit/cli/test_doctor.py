"""What `doctor` says of this package itself; of hosts: tests/processes/test_flagscale_enable.py."""

from __future__ import annotations

from argparse import Namespace

import pytest

from flagscale_perf.cli import doctor
from flagscale_perf.spine import hot

IN_USE = """\
extensions  _hot      in use      the monitor's part of each step; without it, up to half as much again
            _reading  in use      reading of run files and logs; without it, several times slower
"""
ONE_MISSING = """\
extensions  _hot      in use      the monitor's part of each step; without it, up to half as much again
            _reading  NOT IN USE  reading of run files and logs; without it, several times slower
                      install again with a C compiler and Python's headers, and without \
FLAGSCALE_PERF_PLAIN_PYTHON
"""


@pytest.mark.parametrize(("built", "lines"), [({"_hot", "_reading"}, IN_USE), ({"_hot"}, ONE_MISSING)])
def test_which_extensions_are_in_use_and_what_the_absence_of_one_costs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], built: set[str], lines: str
) -> None:
    monkeypatch.setattr(hot, "load", lambda name: hot if name in built else None)
    for name in ("find_hosts", "_device_lines"):
        monkeypatch.setattr(doctor, name, list)
    assert doctor.DoctorCommand().run(Namespace()) == 1
    assert lines in capsys.readouterr().out
