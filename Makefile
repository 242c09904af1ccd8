# PYTHON names the base interpreter (3.11 or newer) that .venv is made from; ARGS goes to run.py or pytest.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help venv install demo test test-fast faults oracle bench lint format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): scripts/make_venv setup.py $(wildcard requirements/*.txt)
	scripts/make_venv "$(PYTHON)" .venv
	@touch $@

venv: $(READY) ## make .venv: pinned dependencies, FlagScale 0.8.0 as host, this package (editable)

install: ## install this package into the environment of PYTHON instead, beside a FlagScale of your own
	$(PYTHON) -m pip install .

demo: $(READY) ## train a small LLaMA with FlagScale's own script for a minute, monitor on, and show what it wrote
	$(BIN)/python run.py $(ARGS)

test: $(READY) ## run every test; ARGS='-k ring' runs some
	$(BIN)/python -m pytest $(ARGS)

test-fast: $(READY) ## run the tests that start no training
	$(BIN)/python -m pytest -m 'not host and not gpu and not faults' $(ARGS)

faults: $(READY) ## inject every fault there is a proof against (quarter of an hour) and renew the table of docs/operations.md
	$(BIN)/python -m pytest tests/faults -m 'faults or not faults' --record $(ARGS)

oracle: $(READY) ## compare the FLOPs formulas with 400 random models counted matmul by matmul (minutes); ARGS=--full for 671 B
	$(BIN)/python -m tests.oracle --random 400 $(ARGS)

bench: $(READY) ## run every benchmark
	@for file in benchmarks/bench_*.py; do echo "$$file"; $(BIN)/python "$$file" || exit 1; done

lint: $(READY) ## check style, types and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## put every file into the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove caches and build leftovers; keeps .venv and what runs have written
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
