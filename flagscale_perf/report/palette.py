"""Every colour of charts and figures, after Okabe and Ito's palette for the colour-blind (2008)."""

from __future__ import annotations

# name -> on a light page, on a dark one
COLOURS = {
    "blue": ("#0072b2", "#4aa3df"),
    "sky": ("#56b4e9", "#8fd0f5"),
    "green": ("#009e73", "#2bc08f"),
    "orange": ("#e69f00", "#f0b429"),
    "red": ("#d55e00", "#f0793a"),
    "yellow": ("#f0d442", "#f2e06a"),
    "purple": ("#cc79a7", "#dd9cc0"),
    "grey": ("#8b93a1", "#7d8796"),
    "faint": ("#c3c9d2", "#4b5462"),
}
HEAT_MAP = "Cividis"
# One hue from 0 on: an amount in each cell, and the largest is the darkest.
AMOUNTS = ("#eef3f9", "#9cc4e2", "#3a8fc4", "#0b5d96", "#06324f")


def on_white(name: str) -> str:
    """The colour where there is one theme only."""
    return COLOURS[name][0]


def ink_on(name: str) -> str:
    """The colour of text that is easy to read on it, where there is one theme only."""
    return "white" if name == "blue" else "black"


def variables(theme: int) -> str:
    """Declarations of a style sheet: 0 for the light page, 1 for the dark one."""
    return " ".join(f"--{name}: {shades[theme]};" for name, shades in COLOURS.items())
