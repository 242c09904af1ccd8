"""All sessions of a directory as aligned text."""

from __future__ import annotations

from flagscale_perf.analysis.history import History, Session
from flagscale_perf.report.sections import Pair, goodput_rows
from flagscale_perf.report.text import block
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.units import number
from flagscale_perf.training.analysis.fold import goodput_bar


def render_history(history: History) -> str:
    """The whole text, newline at the end; no character in it can move a terminal's cursor."""
    count = len(history.sessions)
    title = f"{count} session{'s' * (count != 1)} in {history.directory}, as restarts of one experiment"
    blocks = [
        block(title, map(_session, history.sessions)),
        block("Goodput", goodput_rows(goodput_bar(history.goodput.as_dict()))),
    ]
    if history.unreadable:
        blocks.append(block("Left out", [("", reason) for reason in history.unreadable]))
    return "\n".join(blocks)


def _session(session: Session) -> Pair:
    is_empty = session.last_iteration is None
    done = "no iteration" if is_empty else f"iterations {session.first_iteration} to {session.last_iteration}"
    parts = [done, session.end_reason]
    if session.gap_ns:
        parts.insert(0, f"{number(session.gap_ns / NS_PER_S, 1)} s later")
    if session.redone:
        parts.append(f"{session.redone} of them done again later")
    return "session", f"{session.session_id}: {', '.join(parts)}"
