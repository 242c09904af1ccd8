"""One set of colours for the page and the figure."""

from __future__ import annotations

import re

from flagscale_perf.report.palette import COLOURS, on_white, variables
from flagscale_perf.training.analysis.series import GROUP_COLOURS


def test_both_themes_name_every_colour() -> None:
    for theme in (0, 1):
        assert re.findall(r"--(\w+): #[0-9a-f]{6};", variables(theme)) == list(COLOURS)
    assert on_white("blue") == "#0072b2"


def test_what_a_training_draws_has_colours() -> None:
    assert set(GROUP_COLOURS.values()) <= set(COLOURS)
