from flagscale_perf.spine.nearest import did_you_mean, is_misspelt

KNOWN = ("perf_log_interval", "perf_log_dir", "enable_perf_monitor")


def test_the_nearest_known_name_is_proposed() -> None:
    assert did_you_mean("perf_log_intervall", KNOWN) == " (did you mean perf_log_interval?)"
    assert did_you_mean("something_else", KNOWN) == ""


def test_a_slip_is_told_from_another_name() -> None:
    names = [
        "perf_log_intervall",
        "enable_perf_monitr",
        "perf_log_dir",
        "enable_monitor",
        "log_dir",
        "hidden_size",
    ]
    assert [is_misspelt(name, KNOWN) for name in names] == [True, True, True, False, False, False]
