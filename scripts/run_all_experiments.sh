#!/usr/bin/env bash
# Every experiment, one after another, into one directory: `flagscale-perf bench all`, whose options these are.
# scripts/run_all_experiments.sh [--quick] [-o DIR] [--vllm-python PROGRAM] [--model DIR] ...
# PYTHON chooses the Python.
set -euo pipefail
exec "${PYTHON:-python3}" -m flagscale_perf bench all "$@"
