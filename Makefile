# Every target sets up what it needs. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Else each of the hundreds of processes that tests and runs start would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE
# The house rules, which `make check` tests.
RULES := tests/test_layers.py tests/test_style.py tests/api/test_stubs.py
# To collect all others again takes longer than some of these tests.
ALONE = $(shell grep -rl --include='test_*.py' 'mark\.alone' tests)
# Half of the tests mostly wait for control planes, and the longest of them are begun first: two
# more, so that meanwhile others compute.
WORKERS := $(shell echo $$((2 * $$(nproc) + 2)))
PROFILE ?= smoke
SUBSTRATE ?= local
STAMP := $(VENV)/.ready-$(shell cksum requirements.lock pyproject.toml 2>/dev/null | cksum | cut -d' ' -f1)

# Optional settings that the run understands, passed on only when given.
RUN_OPTIONS := $(if $(SEED),--seed $(SEED)) $(foreach s,$(SET),--set $(s)) \
  $(if $(KUBERNETES_VERSION),--kubernetes-version $(KUBERNETES_VERSION)) $(if $(KEEP),--keep) \
  $(foreach c,$(CONTEXTS),--context $(c))

.PHONY: help
help: ## List the targets
	@echo "BigFleet and its scale-test harness. Targets:"
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "Variables of scaletest: PROFILE=$(PROFILE) SUBSTRATE=$(SUBSTRATE) SEED=n SET='key=value ...'"
	@echo "  KEEP=1 KUBERNETES_VERSION=1.x.y; with SUBSTRATE=existing CONTEXTS='name ...'"
	@echo "Known profiles: $$(ls profiles/*/profile.yaml | cut -d/ -f2 | tr '\n' ' ')" | fold -s -w 78

$(STAMP): requirements.lock pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Python >= 3.11 is needed: install python3"; exit 6; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python >= 3.11 is needed; $$($(PYTHON) --version) found. Set PYTHON=..."; exit 6; }
	@echo "setting up Python packages in $(VENV) (about a minute the first time)"
	@rm -f $(VENV)/.ready-*
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "python3 -m venv failed: on Debian, apt-get install python3-venv"; exit 6; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m bigfleet.engine.precompile
	@touch $@

.PHONY: setup
setup: $(STAMP) ## Install the pinned Python packages into .venv

.PHONY: binaries
binaries: setup ## Get the pinned Kubernetes binaries: cached or built
	@$(BIN)/python -m controlplane get

.PHONY: scaletest
scaletest: setup ## Run PROFILE on real control planes and give a verdict
	@$(BIN)/loaddriver run $(PROFILE) --substrate $(SUBSTRATE) $(RUN_OPTIONS)

.PHONY: wire
wire: setup binaries ## Play a large fleet without Kubernetes: PROFILE=fleet-4k or fleet-500k
	@$(BIN)/loaddriver wire $(if $(filter file,$(origin PROFILE)),fleet-4k,$(PROFILE)) \
	  $(if $(SEED),--seed $(SEED)) $(foreach pair,$(SET),--set '$(pair)')

# BASE and HEAD are revisions; . is this checkout as it is, with what is not committed.
.PHONY: compare
compare: setup binaries ## Did pods get slower? BASE=rev HEAD=rev PROFILE=compare-50 PAIRS=6..16
	@$(BIN)/loaddriver compare --base $(or $(BASE),main) --head $(or $(HEAD),.) \
	  --profile $(if $(filter file,$(origin PROFILE)),compare-50,$(PROFILE)) \
	  $(if $(PAIRS),--pairs $(PAIRS)) $(if $(SEED),--seed $(SEED))

.PHONY: compare-pilot
compare-pilot: setup binaries ## How small a change this machine can see, by pairs of equal systems
	@$(BIN)/loaddriver compare --base $(or $(BASE),.) --head $(or $(BASE),.) --no-facts \
	  --profile $(if $(filter file,$(origin PROFILE)),compare-50,$(PROFILE)) \
	  $(if $(PAIRS),--pairs $(PAIRS)) $(if $(SEED),--seed $(SEED))

.PHONY: compare-power
compare-power: setup ## How often comparisons err, by recorded pairs (POOLS='file ...')
	@$(BIN)/loaddriver compare-power $(or $(POOLS),docs/results/compare-pools/*.json)

.PHONY: up
up: setup ## Start PROFILE's clusters and BigFleet without load
	@$(BIN)/loaddriver up $(PROFILE) --substrate $(SUBSTRATE) $(RUN_OPTIONS)

.PHONY: down
down: setup ## End what is up or running on this machine, cleanly
	@$(BIN)/loaddriver down

.PHONY: test
test: check binaries ## All checks, then all tests, also on real control planes
	@$(BIN)/python -m bigfleet.engine.precompile # not in each worker at once
	@echo "1 of 2: tests that run side by side, with $(WORKERS) workers"
	@$(BIN)/pytest -q --numprocesses $(WORKERS) --dist loadfile --durations=10 -m "not alone" \
	  $(addprefix --ignore=,$(RULES))
	@echo "2 of 2: tests that measure, one at a time"
	@$(BIN)/pytest -q --durations=10 -m alone $(ALONE)

.PHONY: check
check: setup ## Formatting, lint, types, layers, house rules, current stubs
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted: run '$(BIN)/ruff format .'"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary & types=$$!; $(BIN)/pytest -q $(RULES) || rules=$$?; \
	  wait $$types && exit $${rules:-0}
	@echo "check: formatting, lint, types, import layers, house rules and stubs are in order"

# Containers and kind. Each says with its last line what it found.
KIND := $(BIN)/python -m kind
KIND_OPTIONS := $(if $(KUBERNETES_VERSION),--kubernetes-version $(KUBERNETES_VERSION))

.PHONY: images
images: setup ## Build what changed of the container images
	@$(KIND) images

.PHONY: kind-up
kind-up: setup ## Make a kind cluster by hand (NODES=several: three nodes)
	@$(KIND) up $(if $(NODES),--nodes $(NODES)) $(KIND_OPTIONS)

.PHONY: kind-down
kind-down: setup ## End it and put the host's settings back
	@$(KIND) down

.PHONY: kind-node-image
kind-node-image: setup ## Make kind's node image where no registry answers
	@$(KIND) node-image $(KIND_OPTIONS)

.PHONY: test-containers
test-containers: setup ## Test the images as real containers
	@$(BIN)/pytest -q -m containers tests/containers

.PHONY: truth
truth: setup ## Compare what runs report with what really happened
	@$(BIN)/pytest -q -m truth tests/truth

.PHONY: scenarios
scenarios: setup binaries ## Test an autoscaler with plain objects (ONLY=name,... SYSTEM=static-nodes)
	@$(BIN)/python -m bigfleet.engine.precompile  # not in each of five lanes at once
	@SCENARIO_ONLY="$(ONLY)" SCENARIO_SYSTEM="$(SYSTEM)" SCENARIO_LANES="$(LANES)" \
	  $(BIN)/pytest -q -m "scenarios or cluster" tests/scenarios/test_scenarios.py

.PHONY: conformance
conformance: setup ## Test the provider that comes with BigFleet against its contract
	@$(BIN)/bigfleet conformance --builtin --insecure

.PHONY: load
load: setup ## A thousand operators for MINUTES=10; a restart; memory over 10,000 decisions
	@LOAD_MINUTES=$(or $(MINUTES),10) LOAD_MACHINES=100000 $(BIN)/pytest -q -s -m "load or not load" tests/load

.PHONY: failover
failover: setup ## Kill and pause the leading coordinator 100 times and time it (ROUNDS=n)
	@ROUNDS=$(or $(ROUNDS),100) QUIET_SECONDS=$(or $(QUIET_SECONDS),120) \
	  $(BIN)/pytest -q -m failover tests/failover

.PHONY: peers
peers: setup ## Karpenter's scheduler and our engine choose machines; PODS=5000 ROUNDS=3
	@$(BIN)/python -m tests.peers.scheduling $(PODS) $(if $(ROUNDS),--rounds $(ROUNDS))

.PHONY: oracle
oracle: setup ## Compare the engine with a plain reading of its rules on SEEDS=10000 worlds
	@ORACLE_SEEDS=$(or $(SEEDS),10000) ORACLE_FIRST_SEED=$(or $(FIRST_SEED),0) \
	  $(BIN)/pytest -q -m slow tests/engine/test_engine_oracle.py

.PHONY: bench
bench: setup ## Time decisions on large fleets against targets; CYCLES=20 ROWS=text SCALE=1 BASE=rev
	@$(BIN)/python -m bigfleet.bench $(if $(CYCLES),--cycles $(CYCLES)) \
	  $(if $(ROWS),--rows "$(ROWS)") $(if $(SCALE),--scale $(SCALE)) $(if $(BASE),--base $(BASE))

.PHONY: explore
explore: setup ## Look for broken rules: 1,250 seeds of faults, and a life of 10,000 cycles
	@$(BIN)/python -m bigfleet.simulation explore
	@$(BIN)/python -m bigfleet.simulation explore --worlds lasting --seeds 150
	@$(BIN)/python -m bigfleet.simulation explore --worlds shards --seeds 150
	@$(BIN)/python -m bigfleet.simulation explore --worlds administered --seeds 100
	@$(BIN)/pytest -q -m soak tests/simulation

PROTOS := $(wildcard bigfleet/api/v1alpha1/*.proto bigfleet/adapters/coordination/etcdrpc/*.proto)
.PHONY: stubs
stubs: setup ## Generate the wire stubs again after a .proto changed
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m grpc_tools.protoc -I. --python_out=. --grpc_python_out=. \
	  --mypy_out=quiet:. --mypy_grpc_out=quiet:. $(PROTOS)

.PHONY: lock
lock: setup ## Resolve and hash the Python packages again
	@$(BIN)/uv pip compile --quiet pyproject.toml --all-extras --universal --python-version 3.11 \
	  --generate-hashes --no-header --no-annotate --upgrade -o requirements.lock

.PHONY: clean
clean: ## Remove what the targets made here (the binaries' cache stays)
	@rm -rf $(VENV) build results .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "clean: removed .venv, caches and results"
