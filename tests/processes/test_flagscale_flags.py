"""What findings tell a user to change is there to be changed."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest

from flagscale_perf.arguments import add_perf_arguments
from flagscale_perf.training.analysis.findings.findings import RULES
from tests.processes import flagscale as fs

HOST_FLAGS = """
import argparse, json
from megatron.training.arguments import add_megatron_arguments
parser = add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
print(json.dumps([flag for action in parser._actions for flag in action.option_strings]))
"""

OUR_COMMAND = re.compile("`flagscale-perf [^`]*`")
# Of later hosts: advised only where the run's arguments have them; tests/hosts looks them up there.
LATER_FLAGS = {"--hybrid-context-parallel", "--max-seqlen-per-dp-cp-rank"}


@pytest.mark.host
def test_every_flag_that_a_finding_names_is_one_of_the_host_or_ours(tmp_path: Path) -> None:
    (tmp_path / "flags.py").write_text(HOST_FLAGS)
    result = fs.run(fs.workers(1, "flags.py"), tmp_path)
    assert result.returncode == 0, result.output
    parser = add_perf_arguments(argparse.ArgumentParser(add_help=False))
    known = {
        *json.loads(result.output.splitlines()[-1]),
        *(flag for action in parser._actions for flag in action.option_strings),
    }
    changes = [change for rule in RULES for change in rule.changes]
    named = {
        word.split()[0]  # its value may stand behind it
        for change in changes
        for word in (*change.flags, *re.findall(r"--[a-z][a-z-]+", OUR_COMMAND.sub("", change.text)))
        if word.startswith("--")
    }
    assert len(named) > 20
    assert named - known == LATER_FLAGS
