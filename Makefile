# PYTHON names the base interpreter (3.11 or newer) that .venv is made from; ARGS goes to run.py or pytest.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
TRACE_READY := .venv_trace/.ready
VLLM_READY := .venv_vllm/.ready

.DEFAULT_GOAL := help
.PHONY: help venv venv-trace venv-vllm install demo demo-rpc demo-trace demo-profile test test-trace hosts test-vllm tq-contract test-fast walk golden cite faults faults-trace fuzz oracle bench bench-profile bench-profile-truth bench-vllm bench-trace bench-trace-advice soak lint format lock audit clean rpc-peers rpc-stages

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): scripts/make_venv setup.py $(wildcard flagscale_perf/spine/_*.c) requirements/torch.txt $(wildcard requirements/lock/*.txt)
	scripts/make_venv "$(PYTHON)" .venv
	@touch $@

venv: $(READY) ## make .venv: pinned dependencies, FlagScale 0.8.0 as host, this package (editable)

$(TRACE_READY): scripts/make_trace_venv setup.py $(wildcard flagscale_perf/spine/_*.c) requirements/torch.txt requirements/lock/build.txt requirements/lock/trace.txt requirements/lock/verl.txt
	scripts/make_trace_venv "$(PYTHON)" .venv_trace
	@touch $@

venv-trace: $(TRACE_READY) ## make .venv_trace: Ray, TransferQueue and verl at pinned versions, this package (editable)

$(VLLM_READY): scripts/make_vllm_venv setup.py $(wildcard flagscale_perf/spine/_*.c) requirements/torch.txt requirements/lock/build.txt requirements/lock/vllm.txt
	scripts/make_vllm_venv "$(PYTHON)" .venv_vllm
	@touch $@

venv-vllm: $(VLLM_READY) ## make .venv_vllm: vLLM for CPUs at a pinned version, this package (editable)

install: ## install this package into the environment of PYTHON instead, beside a FlagScale of your own
	$(PYTHON) -m pip install .

demo: $(READY) ## train a small LLaMA with FlagScale's own script for a minute, monitor on, and show what it wrote
	$(BIN)/python run.py $(ARGS)

demo-rpc: $(READY) ## run a small LLaMA in two processes joined by calls, and show what was recorded of each call
	scripts/demo_rpc $(BIN)/python outputs/rpc

demo-trace: $(TRACE_READY) ## train in small over a real TransferQueue, traced, and show what the traces say of what is slow
	scripts/demo_trace .venv_trace/bin/python outputs/trace

demo-profile: $(READY) ## profile a small Qwen3 on the CPU, training and generating, and write its report and pictures
	scripts/demo_profile $(BIN)/python outputs/profile

test: $(READY) ## run every test; ARGS='-k ring' runs some
	scripts/run_tests $(BIN)/python $(ARGS)

test-trace: $(TRACE_READY) ## run the tests on real Ray, TransferQueue and verl; ARGS='-k lineage' runs some
	PYTHONPATH="$$PWD" .venv_trace/bin/python -m pytest -p no:cacheprovider -n 2 --dist loadgroup tests/trace tests/unit/trace $(ARGS)

hosts: $(READY) ## run what is proven over two machines, made of namespaces: training, calls, containers (a minute; needs root)
	$(BIN)/python -m pytest tests/processes/test_flagscale_nodes.py tests/processes/test_rpc_machines.py $(ARGS)
	$(BIN)/python -m pytest tests/processes/test_trace_membership.py -k containers $(ARGS)

faults-trace: $(TRACE_READY) ## end, stop and starve a traced job in every way there is a proof against (minutes) and renew its table of docs/operations.md
	PYTHONPATH="$$PWD" .venv_trace/bin/python -m pytest -p no:cacheprovider tests/trace/test_faults.py -m 'faults or not faults' --record $(ARGS)

test-vllm: $(VLLM_READY) ## run the tests on real vLLM (minutes: its engines start slowly); ARGS='-k compiled' runs some
	PYTHONPATH="$$PWD" .venv_vllm/bin/python -m pytest -p no:cacheprovider tests/vllm $(ARGS)

tq-contract: $(TRACE_READY) ## run TransferQueue's own tests and tutorials traced; SOURCE=DIRECTORY of a checkout of its repository
	scripts/test_transfer_queue .venv_trace/bin/python "$(SOURCE)"

test-fast: $(READY) ## run the tests that start no training
	scripts/run_tests $(BIN)/python -m 'not host and not gpu and not faults and not walk' $(ARGS)

walk: $(READY) ## type every command of the README in fresh Python environments that have the wheel (minutes; needs a package index)
	$(BIN)/python -m pytest tests/walk -m walk $(ARGS)

golden: $(READY) ## write every golden file of tests/golden anew from the code, and print what changed
	$(BIN)/python -m tests.golden

cite: $(READY) ## copy the figures of benchmarks/results into the pages that show them
	$(BIN)/python -m tests.cited

faults: $(READY) ## inject every fault there is a proof against (quarter of an hour) and renew the table of docs/operations.md
	$(BIN)/python -m pytest tests/faults -m 'faults or not faults' --record $(ARGS)

fuzz: $(READY) ## damage run files for 5 minutes and let every command read them; ARGS='--seconds 3600 --first-seed 1000000'
	$(BIN)/python -m tests.fuzz $(ARGS)

oracle: $(READY) ## compare the FLOPs formulas with real trainings and 400 random models, counted matmul by matmul (minutes); ARGS=--full for 671 B
	$(BIN)/python -m pytest tests/oracle -m oracle
	$(BIN)/python -m tests.oracle --random 400 $(ARGS)

bench: $(READY) ## run every benchmark, and say at the end which of them missed a bar
	@missed=""; for file in $(filter-out benchmarks/bench_trace.py benchmarks/bench_trace_advice.py, $(wildcard benchmarks/bench_*.py)); do echo "$$file"; $(BIN)/python "$$file" || missed="$$missed $$file"; done; \
	if [ -n "$$missed" ]; then echo "missed a bar, or failed:$$missed"; exit 1; fi

bench-profile: $(READY) ## what profiling a step costs beside other ways to do it, and how fast a million events become records (minutes); ARGS=--quick
	$(BIN)/python benchmarks/bench_profile.py $(ARGS)

bench-vllm: $(VLLM_READY) ## how far a compiled vLLM's layers are from an eager one's, and what profiling costs there (minutes)
	PYTHONPATH="$$PWD" .venv_vllm/bin/python benchmarks/profile_vllm.py $(ARGS)

bench-profile-truth: $(READY) ## what a profile says of stragglers, links, a pipeline's bubble and delays, beside what was planted (2 minutes)
	$(BIN)/python benchmarks/bench_profile_truth.py $(ARGS)

bench-trace: $(TRACE_READY) ## what tracing costs a real TransferQueue, beside logging and OpenTelemetry, and how fast its logs are read
	.venv_trace/bin/python benchmarks/bench_trace.py $(ARGS)

bench-trace-advice: $(TRACE_READY) ## whether a change of a real TransferQueue's use gains what a traced run's model says
	.venv_trace/bin/python benchmarks/bench_trace_advice.py $(ARGS)

rpc-stages: $(READY) ## run a split model by every way of splitting and carrying it, and show each beside its floors (minutes)
	$(BIN)/python examples/tee_gpu/stages.py $(ARGS)

rpc-peers: ## make .venv_rpc_peers: what benchmarks/bench_rpc.py compares with beyond .venv (needs a package index)
	$(PYTHON) -m venv .venv_rpc_peers
	.venv_rpc_peers/bin/python -m pip install --quiet --require-hashes -r requirements/lock/rpc_peers.txt

soak: $(READY) ## a million steps through ring, writer and every file: memory, cost and sizes; ARGS='--steps 100000' for fewer
	$(BIN)/python benchmarks/soak.py $(ARGS)

lint: $(READY) ## check style, types and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## put every file into the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## make requirements/lock from requirements/*.txt: every version with its hashes (minutes); ARGS=--upgrade for the newest of what they leave open
	scripts/make_lock "$(PYTHON)" $(ARGS)

audit: ## ask for known vulnerabilities of every pinned version; needs the network and says so
	scripts/audit "$(PYTHON)" $(ARGS)

clean: ## remove caches and build leftovers; keeps .venv and what runs have written
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
