"""What collectives and messages say of the clocks of the machines whose ranks they join."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flagscale_perf.analysis.clocks import Bound, none_left_before
from flagscale_perf.analysis.session import Session
from flagscale_perf.profile.analysis.communication import RankCollectives, operations_of
from flagscale_perf.profile.analysis.source import read_profile

_ALL_FOR_ALL = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})


def bounds_of(sessions: Sequence[Session]) -> Iterator[Bound]:
    """Nobody has a result that all take part in before all have begun, nor a message before it is sent."""
    ranks = [rank for session in sessions for rank in RankCollectives.of(read_profile(session))]
    clocks = {rank.rank: rank.clock for rank in ranks}
    for operation in operations_of(ranks):
        if operation.transfer_ns is None:
            continue
        sides = [
            (clocks[each.rank], each.start_ns, each.start_ns + each.total_ns) for each in operation.sides
        ]
        if operation.operation in _ALL_FOR_ALL:
            yield from none_left_before(sides)
        elif operation.operation == "send_recv":
            one, other = (bool(each.is_send) for each in operation.sides)
            if one != other:
                sender, taker = sides if one else sides[::-1]
                yield Bound(*sender[:2], taker[0], taker[2])
