"""A run's report in Python: what holds it back, and the phases of each interval as a table.

python examples/analysis/read_report.py RUN_DIR_OR_FILE

Needs pandas for the table; the report itself needs nothing but the standard library.
"""

import sys
from pathlib import Path

import pandas as pd

from flagscale_perf.analysis.run_file import find_run_file
from flagscale_perf.training.analysis.fold import read_report

report = read_report(find_run_file(Path(sys.argv[1])))

for finding in report.findings:
    gain = "" if finding.gain is None else f" (at most +{finding.gain:.1%} {finding.gain_of})"
    print(f"{finding.name}: {finding.title}{gain}")

points = [point for point in report.trend.points if point.groups_ms is not None]
df = pd.DataFrame([point.groups_ms for point in points], index=[point.iteration for point in points])
print(df.mean().round(1).to_string())
