"""Package metadata. The version stands in flagscale_perf/__init__.py alone and is read, not imported."""

import re
from pathlib import Path

from setuptools import Extension, find_packages, setup

HERE = Path(__file__).parent
README = HERE / "README.md"
VERSION = re.search(
    r'^__version__ = "(.+)"$', (HERE / "flagscale_perf/__init__.py").read_text(encoding="utf-8"), re.MULTILINE
)
MEGATRON = ["torch", "megatron-core>=0.15"]
TABLES = ["duckdb>=1.3", "pyarrow>=18"]
SERVE = ["starlette>=0.40", "uvicorn>=0.30"]
RPC = ["pyzmq>=26", "msgpack>=1.0"]
TRACE = ["opentelemetry-exporter-otlp-proto-http>=1.30"]
PERFETTO = ["perfetto>=0.50"]
STACKS = ["py-spy>=0.4"]

setup(
    name="flagscale-perf",
    version=VERSION[1],
    description="Performance monitor for Megatron-Core and FlagScale training",
    long_description=README.read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=find_packages(include=["flagscale_perf", "flagscale_perf.*"]),
    # the hot path in C; where it cannot be built, Python does the same (`flagscale-perf doctor` says it)
    ext_modules=[
        Extension(
            "flagscale_perf.spine._hot",
            ["flagscale_perf/spine/_hot.c"],
            define_macros=[("VERSION", f'"{VERSION[1]}"')],
            optional=True,
        )
    ],
    package_data={
        "flagscale_perf": ["py.typed"],
        "flagscale_perf.flops": ["host_options.toml"],
        "flagscale_perf.spine": ["_hot.c", "_hot.pyi", "zh.json"],
        "flagscale_perf.report": ["page.css", "page.html", "page.js"],
    },
    # Each is imported only where it is needed; flagscale_perf/spine/packages.py says what for.
    # Without them (pip install --no-deps) the monitor still records; reading a run file needs msgspec.
    install_requires=[
        "hydra-core>=1.3",
        "omegaconf>=2.3",
        "PyYAML>=6.0",
        "tensorboard>=2.14",
        "nvidia-ml-py>=12.535",
        "rich>=13",
        "plotly>=6.0",
        "matplotlib>=3.8",
        "prometheus-client>=0.20",
        "msgspec>=0.18",
        "numpy>=1.26",
        'tomli>=2.0; python_version < "3.11"',
    ],
    extras_require={
        "megatron": MEGATRON,
        "serve": SERVE,  # flagscale-perf serve
        "rpc": RPC,  # flagscale_perf.rpc, examples/tee_gpu
        "trace": TRACE,  # --perf-otlp; flagscale-perf trace-export --format otlp
        "perfetto": PERFETTO,  # flagscale-perf trace-export -o NAME.pftrace
        "stacks": STACKS,  # stacks of a process that hangs and does not answer
        "tables": TABLES,  # flagscale-perf seal, query and report --format parquet
        "all": [*MEGATRON, *SERVE, *RPC, *TRACE, *PERFETTO, *STACKS, *TABLES, "pandas", "wandb"],
        "dev": [*TABLES, "hypothesis", "mypy", "pandas", "pytest", "ruff"],
    },
    entry_points={
        "console_scripts": ["flagscale-perf = flagscale_perf.__main__:main"],
        # loaded in each process that imports verl; patches nothing unless TQ_TRACE_ENABLED says so
        "verl.plugins": ["flagscale-perf = flagscale_perf.hosts.transfer_queue.verl_plugin"],
        # called by vLLM in each of its processes; does nothing unless FLAGSCALE_PERF_PROFILE_STEPS says so
        "vllm.general_plugins": ["flagscale-perf = flagscale_perf.hosts.profiling.vllm:from_environment"],
    },
    classifiers=[
        "Intended Audience :: Developers",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        "Topic :: System :: Monitoring",
    ],
)
