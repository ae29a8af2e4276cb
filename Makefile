# Tidewheel: every task of a developer is a target here. `make` lists them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
# The first that runs and fits (a pyenv shim may be on the PATH and not run); PYTHON=/path/to/python chooses another.
PYTHON ?= $(shell for name in python3 python3.13 python3.12 python3.11 python3.14; do \
  if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo "$$name"; break; fi; done)
ARGS ?=
LOG ?= sqlite

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

##@ Start here
.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n\033[1m%s\033[0m\n", substr($$0, 5)} \
	  /^[a-z][a-z-]*:.*## / {printf "  \033[36m%-10s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\nOptions: LOG=kafka (demo), ARGS="-k name" (passed on to pytest, the demo and the benchmark), PYTHON=python3.12 (setup)\n'

# The demo alone needs less than a developer does; on Kafka it may need testcontainers.
DEMO_READY := $(if $(or $(wildcard $(STAMP)),$(filter kafka,$(LOG))),$(STAMP),$(VENV)/.demo)

.PHONY: demo
demo: $(DEMO_READY) ## Run the example DAG over real weather data to a finished report; LOG=kafka does it on a real Kafka
	@$(BIN)/tidewheel demo --log $(LOG) $(ARGS)

.PHONY: setup
setup: $(STAMP) ## Create .venv with the project and its developer tools (a no-op when it is up to date)
	@echo "ready: $(BIN)/tidewheel"

$(STAMP): EXTRA := dev
$(VENV)/.demo: EXTRA := demo
$(STAMP) $(VENV)/.demo: pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
	  echo "error: no Python 3.11 or newer found (python3 is $$(python3 -V 2>&1 | head -1))." \
	       "Install one, or say where it is: make setup PYTHON=/path/to/python3.12" >&2; exit 2; fi
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "error: $(PYTHON) is not a Python 3.11 or newer ($$("$(PYTHON)" -V 2>&1 | head -1))." \
	       "Say where one is: make setup PYTHON=/path/to/python3.12" >&2; exit 2; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "error: $(PYTHON) has no venv module. On Debian or Ubuntu: apt install python3-venv" >&2; exit 2; }
	@if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then echo "creating $(VENV) with $(PYTHON)"; "$(PYTHON)" -m venv --clear $(VENV); fi
	@echo "installing Tidewheel with what '$(EXTRA)' needs into $(VENV)"
	@$(BIN)/python -m pip install --quiet --no-compile --editable '.[$(EXTRA)]'
	@touch $@

##@ Check
# Where something all tests need is broken, the first failures say so; the rest would take hours to say it again.
BOUNDS := --maxfail=15 --max-worker-restart=1

.PHONY: test
test: $(STAMP) ## Run every test, those on a real Kafka and Postgres included
ifeq ($(strip $(ARGS)),)
	@$(BIN)/python -m pytest -m computing -n auto --dist worksteal $(BOUNDS) -q
	@$(BIN)/python -m pytest -m 'not computing' -n 3 --dist loadfile $(BOUNDS) -q
else
	@$(BIN)/python -m pytest $(ARGS)
endif

.PHONY: unit
unit: $(STAMP) ## Run the tests that need no server
	@$(BIN)/python -m pytest -m 'not kafka and not postgres' --ignore=tests/e2e $(ARGS)

.PHONY: contract
contract: $(STAMP) ## Run the contract that every log driver must pass
	@$(BIN)/python -m pytest tests/log $(ARGS)

.PHONY: simulate
simulate: $(STAMP) ## Play the engine under faults and virtual time; ARGS="--seeds 20000 --jobs 2" plays more
	@$(BIN)/tidewheel simulate --faults $(ARGS)

.PHONY: check
check: lint types layers tidy ## Lint, types, layers and house rules

.PHONY: lint
lint: $(STAMP) ## Style and formatting (ruff)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo "run: make format" >&2; exit 1; }

.PHONY: format
format: $(STAMP) ## Format the code and fix what can be fixed by itself
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

.PHONY: types
types: $(STAMP) ## Types (mypy, strict)
	@$(BIN)/mypy

.PHONY: layers
layers: $(STAMP) ## A layer may import only those below it (import-linter)
	@$(BIN)/lint-imports

.PHONY: tidy
tidy: $(STAMP) ## House rules: sizes, names, docstrings
	@$(BIN)/python -m pytest -q tests/tidy

##@ Run
.PHONY: dev
dev: $(STAMP) ## Everything in one process over examples/features: embedded log, embedded Postgres, API on port 8420
	@$(BIN)/tidewheel dev examples/features $(ARGS)

.PHONY: kafka
kafka: $(STAMP) ## Start a local Kafka broker in the foreground: Docker if it answers, else Maven's jars
	@$(BIN)/python tools/kafka.py $(ARGS)

.PHONY: postgres
postgres: $(STAMP) ## Start a local Postgres in the foreground, from its Python package
	@$(BIN)/python tools/postgres.py $(ARGS)

.PHONY: bench
bench: $(STAMP) ## Measure throughput and delays on a real Kafka and Postgres; writes build/bench.json
	@$(BIN)/python -m benchmarks $(ARGS)

.PHONY: backlog
backlog: $(STAMP) ## Measure memory under a million waiting triggers and events on a real Kafka; writes build/backlog.json
	@$(BIN)/python -m benchmarks.backlog $(ARGS)

.PHONY: fanout
fanout: $(STAMP) ## Measure what a fan-out of 10,000 instances costs other DAGs on a real Kafka; writes build/fanout.json
	@$(BIN)/python -m benchmarks.fanout $(ARGS)

.PHONY: chaos
chaos: $(STAMP) ## Hundreds of faults on a real Kafka and Postgres under load, then the comparison; writes build/chaos.json
	@$(BIN)/python -m tests.chaos $(ARGS)

.PHONY: clean
clean: ## Remove what was built; keeps .venv
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
