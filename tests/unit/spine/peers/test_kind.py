"""How a collector process comes to its instrument."""

import pytest

from flagscale_perf.spine.peers.kind import load_kind
from flagscale_perf.training.ranks.kind import RANKS
from tests.toy_peers import TOYS


@pytest.mark.parametrize("kind", [TOYS, RANKS])
def test_a_kind_is_found_at_its_path(kind) -> None:
    assert load_kind(kind.path) is kind


@pytest.mark.parametrize("path", ["tests.toy_peers:NONE", "tests.no_such_module:TOYS"])
def test_a_path_that_leads_nowhere(path: str) -> None:
    with pytest.raises((AttributeError, ImportError)):
        load_kind(path)
