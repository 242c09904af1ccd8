"""What a process is asked for before anybody parses."""

import pytest

from flagscale_perf.hosts.asked import rehearsal_mode


@pytest.mark.parametrize(
    ("argv", "environ", "mode"),
    [
        ([], {}, "auto"),
        (["--rehearse-on-cpu", "never"], {}, "never"),
        (["--x", "--rehearse-on-cpu=always"], {}, "always"),
        ([], {"FLAGSCALE_PERF_REHEARSE_ON_CPU": "never"}, "never"),
        (["--rehearse-on-cpu", "always"], {"FLAGSCALE_PERF_REHEARSE_ON_CPU": "never"}, "always"),
    ],
)
def test_rehearsal_mode_is_known_before_anybody_parses(argv, environ, mode):
    assert rehearsal_mode(argv, environ) == mode
