"""Figures held against arithmetic: the shipped file of them, and each kind by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.rpc.costs.claims import (
    Claim,
    Overlap,
    Parts,
    Product,
    Rate,
    Remark,
    RoundTrip,
    Rows,
    Verdict,
    judge_all,
    read_figures,
)
from flagscale_perf.spine.errors import PerfError
from tests.unit.rpc.calibrations import FIXED

SHIPPED = Path(__file__).parents[4] / "examples/tee_gpu/reported_figures.toml"


@pytest.mark.parametrize(
    ("claim", "can_be", "because"),
    [
        # 100 MiB at 10 GB/s
        (
            Rate("x", mib=100, ms=5),
            False,
            "100 MiB in 5 ms is 21 GB/s; memory is copied at 10 GB/s here: 10.5 ms for one copy of it",
        ),
        (
            Rate("x", mib=100, ms=20, copies=2),
            False,
            "100 MiB in 20 ms is 5.24 GB/s; memory is copied at 10 GB/s here: 21 ms for the 2 copies of it",
        ),
        (
            Rate("x", mib=100, ms=20),
            True,
            "100 MiB in 20 ms is 5.24 GB/s; memory is copied at 10 GB/s here: 10.5 ms for one copy of it",
        ),
        (Parts("x", parts=[40.0, 33.7], whole=100, unit="%"), False, "40 + 33.7 = 73.7 %, not 100"),
        (Parts("x", parts=[44.25, -32.59], whole=(10, 20), unit="s"), True, "44.25 - 32.59 = 11.66 s"),
        (
            Parts("x", parts=[44.25, -32.59], whole=(15, 20), unit="s"),
            False,
            "44.25 - 32.59 = 11.66 s, not 15 to 20",
        ),
        (Product("x", factors=[4, 16], claimed=64, unit="calls"), True, "4 x 16 = 64 calls"),
        (
            Product("x", factors=[98, 38.27], claimed=3750.46 * 1024, unit="KB"),
            False,
            "98 x 38.27 = 3,750.46 KB, not 3,840,471.04: 1024 times too large: the unit is wrong",
        ),
        (
            Product("x", factors=[125.49], divided_by=[0.491], claimed=255.23, within=0.0005),
            False,
            "125.49 / 0.491 = 255.58, not 255.23",
        ),
        (
            RoundTrip("x", transport="tcp", ms=50),
            False,
            "a round trip of ZeroMQ over TCP takes 0.04 ms here: 50 ms is 1,250 times that",
        ),
        # the unix socket's 8 us are not ZeroMQ's
        (
            RoundTrip("x", transport="IPC", ms=0.01),
            False,
            "a round trip of ZeroMQ over IPC takes 0.025 ms here: 0.01 ms is less than its wake-ups and "
            "system calls take",
        ),
        (
            RoundTrip("x", transport="IPC", ms=0.2),
            True,
            "a round trip of ZeroMQ over IPC takes 0.025 ms here",
        ),
        (RoundTrip("x", transport="RDMA", ms=1), None, "no round trip of ZeroMQ over RDMA was measured here"),
        (
            Overlap("x", "one chain", gain=0.3, shorter_s=0.77, whole_s=44.25),
            False,
            "what overlaps is 0.77 of 44.25 s: at most 1.74 %; one chain",
        ),
        (
            Overlap("x", gain=0.3, shorter_s=20, whole_s=50),
            True,
            "what overlaps is 20 of 50 s: at most 40.00 %",
        ),
        (Rows("x", values=[1.0, 2.0], rows=5), False, "2 rows, not 5; the largest is not first"),
        (Rows("x", values=[2.0, 1.0], rows=2), True, ""),
        (Remark("x", "float16 overflows", can_be=False), False, "float16 overflows"),
    ],
)
def test_each_kind_shows_its_arithmetic(claim: Claim, can_be: bool | None, because: str) -> None:
    assert claim.judge(FIXED) == Verdict("x", can_be, because)


def test_every_shipped_figure_that_cannot_be_is_named() -> None:
    verdicts = judge_all(read_figures(SHIPPED).claim, FIXED)
    assert [v.says for v in verdicts if v.can_be is not False] == [
        "goal: 1-2 s in all",
        "5-6 calls a layer to 4: 20-30 % less RPC",
        "one call a layer (fused_layer)",
    ]
    assert len(verdicts) == 28
    assert all(v.because for v in verdicts)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[run]\ncalls = 1", "Object missing required field `sent_mib` - at `$.run`"),
        ('[[claim]]\nkind = "guess"\nsays = "x"', "Invalid value 'guess' - at `$.claim[0].kind`"),
        ('[[claim]]\nkind = "rows"\nsays = "x"\nvalues = []\nrows = 1\nmore = 1', "unknown field `more`"),
        ("[run", "Expected ']'"),
    ],
)
def test_a_file_that_is_not_understood_says_where(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "figures.toml"
    path.write_text(text)
    with pytest.raises(PerfError) as raised:
        read_figures(path)
    assert str(path) in str(raised.value)
    assert says in str(raised.value)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(PerfError, match="No such file or directory; name a file of figures"):
        read_figures(tmp_path / "none.toml")
