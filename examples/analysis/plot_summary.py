"""The analysis of the documentation, as it is printed there: the newest summary of a directory into pandas
and matplotlib.

python examples/analysis/plot_summary.py [LOG_DIR]        (default: logs/perf_monitor)

Needs pandas and matplotlib. Without a display set MPLBACKEND=Agg; then nothing is shown and the figures are
printed.
"""

import glob
import json
import sys

try:
    import matplotlib.pyplot as plt
    import pandas as pd
except ImportError as error:
    sys.exit(f"this needs {error.name}: {error}\n{sys.executable} -m pip install pandas matplotlib")

directory = sys.argv[1] if len(sys.argv) > 1 else "logs/perf_monitor"

# Read the JSON summary: the name has the session's start in it, so the last one is the newest.
paths = sorted(glob.glob(f"{directory}/perf_summary_*.json"))
if not paths:
    sys.exit(f"no perf_summary_*.json in {directory!r}; give the directory of --perf-log-dir")
try:
    with open(paths[-1]) as f:
        data = json.load(f)
    df = pd.DataFrame(data["iteration_logs"])  # a row for each line of the log
    df[["iteration", "TFLOPS_per_GPU", "tokens_per_sec"]]
except (OSError, ValueError, KeyError, TypeError) as error:
    sys.exit(f"{paths[-1]}: no summary of flagscale_perf ({error!r}); give the directory of --perf-log-dir")

# Draw the TFLOPS.
plt.figure(figsize=(10, 6))
plt.plot(df["iteration"], df["TFLOPS_per_GPU"])
plt.xlabel("Iteration")
plt.ylabel("TFLOPS per GPU")
plt.title("Training Performance")
plt.show()

# Statistics.
print(f"Average TFLOPS: {df['TFLOPS_per_GPU'].mean():.2f}")
print(f"Peak TFLOPS: {df['TFLOPS_per_GPU'].max():.2f}")
print(f"Throughput: {df['tokens_per_sec'].mean():.0f} tokens/s")
