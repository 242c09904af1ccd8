# PYTHON names the base interpreter (3.11 or newer) that environments are made from, TORCH another version of torch than the pinned one;
# ARGS goes to run.py or pytest.
PYTHON ?= python3
BIN := .venv/bin
RUN := .venv/.run-ready
TEST := .venv/.test-ready
TRACE_READY := .venv_trace/.ready
VLLM_READY := .venv_vllm/.ready
FLEET_READY := .venv_fleet/.ready
# uv writes no bytecode: the first process that imports a module does, and where none may, each compiles torch anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv venv-trace venv-vllm venv-fleet install demo demo-rpc demo-trace demo-job demo-profile fleet test test-all test-rpc test-trace hosts test-hosts test-vllm tq-contract test-fast walk golden pages pictures cite faults fuzz oracle bench bench-stale soak lint format release lock audit clean

# A target is listed below the word before its colon; one without such a word is for scripts, or a page says when to type it.
help: ## list the targets
	@for group in run test measure maintain; do \
		printf '%s\n' "$$group"; \
		awk -F " ## $$group: " 'NF == 2 {sub(/:.*/, "", $$1); printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST); \
	done
	@echo "ARGS goes to the program: make test ARGS='-k ring -x'"

# $(call environment,DIRECTORY,KIND): makes or completes one; the target's file says that it is there.
environment = @"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "$(PYTHON) is not Python 3.11 or newer; name one that is: make $(or $(MAKECMDGOALS),demo) PYTHON=python3.12" >&2; exit 1; }; \
	"$(PYTHON)" scripts/make_env $(1) $(2) && touch $@
locks = $(patsubst %,requirements/lock/%.txt,uv build $(1))
SOURCES := $(wildcard scripts/make_env/*.py flagscale_perf/spine/_*.c) setup.py requirements/torch.txt $(if $(TORCH),.ALWAYS)
.ALWAYS:

$(RUN): $(SOURCES) $(call locks,run flagscale)
	$(call environment,.venv,run)

# what `run` has, and more
$(TEST): $(SOURCES) $(call locks,test flagscale accelerate core bridge lightning)
	$(call environment,.venv,test)
	@touch $(RUN)

venv: $(TEST) ## maintain: .venv: pinned dependencies, FlagScale, this package

$(TRACE_READY): $(SOURCES) $(call locks,trace verl core)
	$(call environment,.venv_trace,trace)

venv-trace: $(TRACE_READY) ## make .venv_trace: Ray, TransferQueue and verl at pinned versions, this package (editable)

$(VLLM_READY): $(SOURCES) $(call locks,vllm)
	$(call environment,.venv_vllm,vllm)

venv-vllm: $(VLLM_READY) ## make .venv_vllm: vLLM for CPUs at a pinned version, this package (editable)

$(FLEET_READY): $(SOURCES) $(call locks,fleet)
	$(call environment,.venv_fleet,fleet)

venv-fleet: $(FLEET_READY) ## make .venv_fleet: Ray Data, Spark and DuckDB at pinned versions, this package (editable)

install: ## run: into the environment of PYTHON, beside your FlagScale
	$(PYTHON) -m pip install .

demo: $(RUN) ## run: train a small LLaMA, and show what the monitor wrote
	$(BIN)/python run.py $(ARGS)

demo-rpc: $(RUN) ## run: a LLaMA in two processes, and what each call took
	scripts/demo_rpc $(BIN)/python outputs/rpc

demo-trace: $(TRACE_READY) ## run: train over a real TransferQueue, and show what is slow
	scripts/demo_trace .venv_trace/bin/python outputs/trace

# Without ARGS all three faults of examples/rl_job are planted, otherwise what it says: ARGS='--steps 24' plants none.
demo-job: $(TRACE_READY) ## run: a small RL job with every instrument, as one report
	scripts/demo_job .venv_trace/bin/python outputs/job $(ARGS)

demo-profile: $(RUN) ## run: profile a small Qwen3 on the CPU
	scripts/demo_profile $(BIN)/python outputs/profile

# Needs Java; outputs/fleet is kept, and asked again.
fleet: $(FLEET_READY) ## ask 2,000 made-up runs by DuckDB, Ray Data and Spark (examples/fleet; minutes); ARGS=RUNS for fewer
	.venv_fleet/bin/python examples/fleet/compare.py outputs/fleet $(ARGS)

# The tests of one file stay in one process; the longest file starts first (tests/durations.py). Three, as trainings wait half of the time.
tests = $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

test: $(TEST) ## test: unit tests and short trainings (25 minutes)
	$(tests) $(ARGS)

test-all: ## test: everything (an hour); PARTS="lint oracle" for some of it
	PYTHON="$(PYTHON)" "$(PYTHON)" .ci/parts.py --all $(PARTS)

test-rpc: $(TEST) ## test: the split inference of examples/tee_gpu
	$(tests) tests/tee_gpu -m rpc $(ARGS)

test-trace: $(TRACE_READY) ## test: the tests on real Ray, TransferQueue and verl
	PYTHONPATH="$$PWD" .venv_trace/bin/python -m pytest -o cache_dir=.pytest_cache/trace -n 2 --dist loadfile --no-loadscope-reorder tests/trace tests/unit/report/test_otlp.py tests/unit/sinks/test_otlp.py $(ARGS)

hosts: $(TEST) ## test: what is proven over two machines (needs root)
	$(BIN)/python -m pytest tests/processes/test_flagscale_nodes.py $(ARGS)
	$(BIN)/python -m pytest tests/tee_gpu/test_machines.py -m rpc $(ARGS)
	$(BIN)/python -m pytest tests/processes/test_trace_membership.py -k containers $(ARGS)

test-hosts: $(if $(ENVIRONMENT),,$(TEST)) ## test: train with Bridge, Lightning, each tree in HOSTS=DIR
	$(or $(ENVIRONMENT),.venv)/bin/python -m pytest tests/hosts tests/processes/test_bridge.py tests/processes/test_lightning.py -m other_host $(ARGS)

test-vllm: $(VLLM_READY) ## test: the tests on real vLLM (minutes)
	PYTHONPATH="$$PWD" .venv_vllm/bin/python -m pytest -p no:cacheprovider tests/vllm $(ARGS)

tq-contract: $(TRACE_READY) ## TransferQueue's own tests and tutorials, traced; FILES='test_(client|metadata)' for some of the tests
	scripts/test_transfer_queue .venv_trace/bin/python "$(FILES)"

test-fast: $(TEST) ## test: the tests that start no training
	$(tests) -m 'not host and not gpu and not faults and not long and not oracle and not walk and not rpc' $(ARGS)

walk: $(TEST) ## test: commands of README and docs, in fresh environments
	$(BIN)/python -m pytest tests/walk -m walk $(ARGS)

golden: $(TEST) ## maintain: write every golden file anew, and print what changed
	$(BIN)/python -m tests.golden

pages: $(TEST) ## docs/generated, from the tables in the code
	$(BIN)/python -m tests.pages

# A run of each instrument in build/pictures; needs Chromium (.ci/install_tools).
pictures: $(TEST) $(TRACE_READY) ## renew docs/images from real runs (minutes)
	$(BIN)/python -m tests.pictures $(ARGS)

cite: $(TEST) ## copy figures of benchmarks/results into the pages
	$(BIN)/python -m tests.cited

# OF=trace: those of a traced job, on real Ray and TransferQueue. Either renews its table of docs/generated/faults.md.
faults: $(if $(OF),$(TRACE_READY),$(TEST)) ## test: every fault that is promised to do no harm; or OF=trace
	PYTHONPATH="$$PWD" .venv$(OF:%=_%)/bin/python -m pytest -p no:cacheprovider $(if $(OF),tests/trace/test_faults.py,tests/faults) -m 'faults or not faults' --record $(ARGS)

fuzz: $(TEST) ## test: damaged run files through every command (5 minutes)
	$(BIN)/python -m tests.fuzz $(ARGS)

oracle: $(TEST) ## test: the FLOPs formulas beside counted trainings (minutes)
	$(BIN)/python -m pytest tests/oracle -m oracle -n 2
	$(BIN)/python -m tests.oracle --random 150 $(ARGS)

# benchmarks/bench_NAME.py; those that need another environment than .venv run only where they are named.
BENCHMARKS := $(patsubst benchmarks/bench_%.py,%,$(wildcard benchmarks/bench_*.py))
OTHER := $(if $(filter vllm,$(NAME)),vllm)$(if $(filter trace trace_advice,$(NAME)),trace)
bench: $(if $(OTHER),.venv_$(OTHER)/.ready,$(TEST)) ## measure: every benchmark; NAME=profile for one
	$(if $(filter-out $(BENCHMARKS),$(NAME)),$(error no benchmark $(NAME): NAME is one of $(BENCHMARKS)))
	@missed=""; for name in $(or $(NAME),$(filter-out vllm trace trace_advice,$(BENCHMARKS))); do echo "$$name"; \
	PYTHONPATH="$$PWD" .venv$(OTHER:%=_%)/bin/python "benchmarks/bench_$$name.py" $(ARGS) || missed="$$missed $$name"; done; \
	if [ -n "$$missed" ]; then echo "missed a bar, or failed:$$missed"; exit 1; fi

bench-stale: $(TEST) ## list the results that are older than the code they are of
	$(BIN)/python -m benchmarks.provenance

soak: $(TEST) ## a million steps through every file (minutes)
	$(BIN)/python benchmarks/soak.py $(ARGS)

lint: $(TEST) ## test: style, types and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(TEST) ## maintain: put every file into the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

release: ## maintain: build and check a release, into dist/
	@scripts/release "$(PYTHON)"

lock: ## maintain: requirements/lock from requirements/*.txt
	@"$(PYTHON)" scripts/make_env/lock.py $(ARGS)

audit: ## maintain: known vulnerabilities of every pinned version
	scripts/audit "$(PYTHON)" $(ARGS)

clean: ## maintain: remove caches and build leftovers
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +
