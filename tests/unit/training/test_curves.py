"""Loss, gradient norm and learning rate from the lines of real hosts."""

from __future__ import annotations

import pytest

from flagscale_perf.training.curves import CurveWindow, curve_of, logged_of
from flagscale_perf.training.records import CurveRecord

LINE = (
    " [2026-11-28 23:31:04] iteration       40/     100 | consumed samples:          160 | "
    "elapsed time per iteration (ms): 45.1 | learning rate: 1.000000E-04 | global batch size:     4 | "
    "lm loss: 8.341275E+00 | loss scale: 1.0 | grad norm: 1.250 | number of skipped iterations:   0 | "
    "number of nan iterations:   0 |"
)
MOE = LINE.replace(
    " loss scale",
    " load_balancing_loss: 1.003000E+00 | z_loss: 2.000000E+00 | mtp_1 loss: 8.4E+00 | loss scale",
)


@pytest.mark.parametrize(
    ("line", "figures"),
    [
        (LINE, (8.341275, 1.25, 1e-4)),
        (MOE, (8.341275, 1.25, 1e-4)),
        (MOE.replace("load_balancing_loss", "z" * 300 + " loss"), (8.341275, 1.25, 1e-4)),
        (LINE.replace("lm loss", "reduced_train_loss"), (8.341275, 1.25, 1e-4)),
        (LINE.replace("lm loss: 8.341275E+00 | ", ""), (None, 1.25, 1e-4)),
        (LINE.replace("grad norm: 1.250 | ", "").replace("1.000000E-04", "nan"), (8.341275, None, None)),
        (LINE.replace("1.250", "inf").replace("learning", "decoupled learning rate: 3E-4 | learning"),
         (8.341275, None, 1e-4)),
        (LINE.replace("lm loss: 8.341275E+00", "lm loss: what?"), (None, 1.25, 1e-4)),
    ],
)  # fmt: skip
def test_a_host_s_line(line: str, figures: tuple[float | None, ...]) -> None:
    logged = logged_of(line, 7)
    assert logged is not None
    cut = logged._replace(text=logged.text[:200])  # as the ring does
    assert curve_of(cut) == CurveRecord(40, 7, *figures)


@pytest.mark.parametrize(
    "line",
    [
        " validation loss at iteration 40 | lm loss value: 8.3E+00 | lm loss PPL: 4.2E+03 | ",
        "-" * 40,
        "learning rate: 1E-4 |",
        None,
        17,
    ],
)
def test_other_lines_are_none_of_ours(line: object) -> None:
    assert logged_of(line, 7) is None


def test_an_interval_has_the_means_and_the_last_learning_rate() -> None:
    window = CurveWindow()
    assert window.close() == {"loss": None, "grad_norm": None, "learning_rate": None}
    window.add(CurveRecord(1, 0, 8.0, 1.0, 1e-3))
    window.add(CurveRecord(2, 0, None, 2.0, 1e-4))
    window.add(CurveRecord(3, 0, 6.0, None, None))
    assert window.close() == {"loss": 7.0, "grad_norm": 1.5, "learning_rate": 1e-4}
    assert window.close()["loss"] is None, "begins anew"
