"""A note that says who stopped a job is found by that job alone."""

from flagscale_perf.spine import stop_note


def test_only_the_job_that_is_named_a_note_finds_it(tmp_path) -> None:
    note = str(tmp_path / "note")
    environ = {stop_note.VARIABLE: note}
    assert not stop_note.is_left(environ)
    stop_note.leave(note)
    assert stop_note.is_left(environ)
    assert not stop_note.is_left({}) and not stop_note.is_left({stop_note.VARIABLE: ""})
