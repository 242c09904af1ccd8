"""Where a process stands, from what torchrun sets."""

from flagscale_perf.training.ranks.place import Place

TORCHRUN = {
    "RANK": "9",
    "WORLD_SIZE": "16",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "8",
    "MASTER_ADDR": "a",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "x",
    "TORCHELASTIC_RESTART_COUNT": "0",
}


def place(**changes: str) -> Place:
    found = Place.of(TORCHRUN | changes)
    assert found is not None
    return found


def test_it_is_read_from_the_environment() -> None:
    assert place()[:4] == (9, 16, 1, 8)
    assert place().has_other_nodes
    assert not place(LOCAL_WORLD_SIZE="16").has_other_nodes


def test_without_a_launcher_there_is_none() -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        assert Place.of({key: value for key, value in TORCHRUN.items() if key != name}) is None
    assert Place.of(TORCHRUN | {"RANK": "first"}) is None


def test_where_nobody_says_how_many_are_here_there_may_be_other_nodes() -> None:
    found = Place.of({key: value for key, value in TORCHRUN.items() if key != "LOCAL_WORLD_SIZE"})
    assert found is not None
    assert (found.local_world_size, found.has_other_nodes) == (None, True)


def test_the_key_tells_jobs_and_restarts_apart_and_no_ranks() -> None:
    assert place(RANK="0", LOCAL_RANK="0").key == place().key
    others = [
        place(MASTER_PORT="29501"),
        place(MASTER_ADDR="b"),
        place(TORCHELASTIC_RESTART_COUNT="1"),
        place(TORCHELASTIC_RUN_ID="y"),
    ]
    assert len({other.key for other in [place(), *others]}) == 5


def test_two_agents_on_one_machine_have_nodes_of_their_own() -> None:
    assert place(GROUP_RANK="1").node_key == place(GROUP_RANK="1", RANK="8", LOCAL_RANK="0").node_key
    assert len({place(GROUP_RANK=node).node_key for node in "012"} | {place().node_key}) == 4


def test_a_name_that_is_no_unicode_is_as_good_as_any() -> None:
    assert place(TORCHELASTIC_RUN_ID="\udcff").key != place(TORCHELASTIC_RUN_ID="?").key
