"""Parts of `benchmarks/bench_rpc.py`: contenders, how they take turns, and the bars they are held against."""
