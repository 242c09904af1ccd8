"""Values of options as users write them."""

from __future__ import annotations

import pytest

from flagscale_perf.options.values import Steps, parse_address, parse_ranks
from flagscale_perf.spine.errors import PerfError


@pytest.mark.parametrize(
    ("text", "steps"),
    [("20", Steps(20, 20)), ("20-22", Steps(20, 22)), (" 20-22/100 ", Steps(20, 22, 100))],
)
def test_steps(text: str, steps: Steps) -> None:
    assert Steps.parse(text) == steps
    assert Steps.parse(str(steps)) == steps


@pytest.mark.parametrize("text", ["", "x", "0", "0-3", "5-4", "1-10/9", "1-2-3", "-3"])
def test_what_are_no_steps_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(PerfError, match=repr(text)):
        Steps.parse(text)


def test_ranks() -> None:
    assert parse_ranks("0,2-3") == {0, 2, 3}
    for wrong in ("", "3-1", "a"):
        with pytest.raises(PerfError, match=f"{wrong!r} is not a list of ranks"):
            parse_ranks(wrong)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9400", ("127.0.0.1", 9400)),
        (" 1 ", ("127.0.0.1", 1)),
        ("0.0.0.0:65535", ("0.0.0.0", 65535)),
        ("node0:9400", ("node0", 9400)),
        ("[::1]:9400", ("::1", 9400)),
    ],
)
def test_a_port_alone_is_served_on_this_machine_only(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", [":9400", "::1:9400", "[]:9400", "a b:9400", "a/b:9400", "[[::1]]:9400", "a\x1b:1"]
)
def test_what_is_not_a_host_is_refused(text: str) -> None:
    with pytest.raises(PerfError) as refused:
        parse_address(text)
    assert str(refused.value) == (
        f"{text!r} is not an address to listen at; "
        "write for example 9400, or 0.0.0.0:9400 for every address of the machine"
    )


@pytest.mark.parametrize("text", ["", "0", "65536", "-1", "node0:", "node0:http", "٩٤٠٠", "000009400"])
def test_what_is_not_a_port_is_refused(text: str) -> None:
    with pytest.raises(PerfError) as refused:
        parse_address(text)
    assert str(refused.value) == (
        f"{text!r} has no port from 1 to 65535; "
        "write for example 9400, or 0.0.0.0:9400 for every address of the machine"
    )
