"""Three questions to a fleet's tables, answered by Spark: `python on_spark.py DIRECTORY ANSWERS.json`.

Of flagscale_perf nothing is imported. The machine needs Java 17 or newer. Here Spark runs in one process;
elsewhere, `master` is the cluster's, and the directory is one that all its machines see.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from lake import PERIOD_WALL_NS, Rows, answer, parts
from pyspark.sql import SparkSession

# Not percentile_disc: its answer is a floating-point number, which has no room for every nanosecond.
P95 = """
select run_id, max(steps) as steps, min(iteration_ns) as p95_ns from (
    select run_id, iteration_ns, count(*) over (partition by run_id) as steps,
        row_number() over (partition by run_id order by iteration_ns) as place
    from step where warmup = 0 and outcome = 'trained'
)
where place * 100 >= steps * 95 group by run_id order by run_id
"""
# decimals: 64 bits do not hold FLOPs times a billion
MFU = """
select global_batch_size, count(*) as steps,
    cast(sum(model_flops) as decimal(38)) * 1000000000000000 div sum(iteration_ns * peak) as mfu_ppm
from step join (
    select run_id, global_batch_size, cast(peak_flop_per_s as decimal(19)) * world_size as peak from header
) using (run_id)
where warmup = 0 and outcome = 'trained' group by global_batch_size order by global_batch_size
"""
HOSTS = f"""
with place as (select distinct run_id, rank, hostname from node),
ranked as (
    select run_id, rank, iteration, iteration - first_iteration + 1 as steps, work_ns,
        count(*) over (partition by run_id, iteration) as ranks,
        row_number() over (partition by run_id, iteration order by work_ns) as position
    from ranks left semi join (
        select * from step where at_wall_ns >= {PERIOD_WALL_NS[0]} and at_wall_ns < {PERIOD_WALL_NS[1]}
    ) using (run_id, iteration)
    where work_ns is not null
),
compared as (
    select run_id, rank, steps, work_ns - min(if(position * 2 >= ranks, work_ns, null))
        over (partition by run_id, iteration) as more_ns
    from ranked
)
select hostname, sum(steps) as steps, sum(greatest(more_ns, 0) * steps) as more_ns
from compared join place using (run_id, rank) group by hostname order by more_ns desc, hostname
"""


def main() -> None:
    """Asks all three."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "8").getOrCreate()
    for kind in ("header", "node", "ranks", "step"):
        spark.read.parquet(*parts(sys.argv[1], kind)).createOrReplaceTempView(kind)

    def rows(sql: str) -> Rows:
        return [list(row) for row in spark.sql(sql).collect()]

    questions = {"p95": P95, "mfu": MFU, "hosts": HOSTS}
    answer({name: partial(rows, sql) for name, sql in questions.items()}, Path(sys.argv[2]))
    spark.stop()


if __name__ == "__main__":
    main()
