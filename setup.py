"""Package metadata. The version stands in flagscale_perf/__init__.py alone and is read, not imported."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
README = HERE / "README.md"
VERSION = re.search(
    r'^__version__ = "(.+)"$', (HERE / "flagscale_perf/__init__.py").read_text(encoding="utf-8"), re.MULTILINE
)

setup(
    name="flagscale-perf",
    version=VERSION[1],
    description="Performance monitor for Megatron-Core and FlagScale training",
    long_description=README.read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    packages=find_packages(include=["flagscale_perf", "flagscale_perf.*"]),
    package_data={
        "flagscale_perf": ["py.typed"],
        "flagscale_perf.report": ["page.css", "page.html", "page.js"],
    },
    # monitoring, reading and reporting need the standard library and, for training, the host's torch
    install_requires=[],
    extras_require={
        "run": ["hydra-core>=1.3", "omegaconf>=2.3"],  # run.py
        "tensorboard": ["tensorboard>=2.14"],
        "prometheus": ["prometheus-client>=0.20"],
        "watch": ["rich>=13"],
        "serve": ["starlette>=0.40", "uvicorn>=0.30"],  # flagscale-perf serve
        "figures": ["matplotlib>=3.8"],  # flagscale-perf report --format png
        "report": ["plotly>=6.0"],  # flagscale-perf report --format html
        "nvml": ["nvidia-ml-py>=12.535"],
        "dev": ["hypothesis", "matplotlib", "mypy", "pandas", "pytest", "ruff"],
    },
    entry_points={"console_scripts": ["flagscale-perf = flagscale_perf.cli:main"]},
    classifiers=[
        "Intended Audience :: Developers",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        "Topic :: System :: Monitoring",
    ],
)
