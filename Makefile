# The two commands are `make demo` and `make test`; `make help` lists the rest.
# Everything here runs on Python's standard library until the virtual environment exists.

SHELL := /bin/bash
PYTHON ?= python3
export PYTHONPATH := workers:.
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/ready

.DEFAULT_GOAL := help
.PHONY: help dev demo environment down test test-fast test-long lint generate docs recording coverage mutants simulate lock cluster cluster-down image clean

help: ## this list
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(READY): requirements-dev.lock pyproject.toml
	@$(PYTHON) -m dev.environment $(VENV)

dev: ## a Cassandra, a queue and a worker on this machine, without Kubernetes (ONCE=1: ends when a message is handled)
	@$(PYTHON) -m dev.run_local $(if $(ONCE),--until-handled)

demo: ## Headgate on a Kubernetes, with messages (SPARK=1: a bulk job too; CONTEXT=name REGISTRY=prefix: your cluster)
	@$(PYTHON) -m dev.demo up $(if $(CONTEXT),--context $(CONTEXT)) $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(TAG),--tag $(TAG)) $(if $(SPARK),--spark)

environment: ## print the environment of the demo: eval "$$(make -s environment)"
	@$(PYTHON) -m dev.demo environment

down: ## stop everything that `make demo` started
	@$(PYTHON) -m dev.demo down

test: ## run the full test suite, on servers that it starts
	@$(PYTHON) -m dev.tests all

test-fast: $(READY) ## run unit tests and simulation, without servers
	@$(PYTHON) -m dev.tests fast

test-long: $(READY) ## run the slow tests
	@$(PYTHON) -m dev.tests long

lint: $(READY) ## run ruff and mypy, and check generated files
	@$(PYTHON) -m dev.tests lint

generate: $(READY) ## write crds/, docs/schema/, docs/reference.md, docs/commands.md, the chart's roles, measured figures
	@$(PY) -m headgate.api.generate
	@$(PY) -m headgate.cli.reference
	@$(PY) -m dev.chart_files
	@$(PY) -m bench.docs

docs: $(READY) ## build the documentation site into build/site; a dead link ends the build
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet
	@echo "open build/site/index.html"

recording: $(READY) ## record docs/pictures/terminal.svg from a real run of `headgate dev`
	@$(PY) -m dev.recording

coverage: $(READY) ## print the fast tests' coverage by package
	@$(PY) -m dev.coverage_report

mutants: $(READY) ## check that tests find each deliberate breakage
	@$(PY) -m dev.mutants

simulate: $(READY) ## run many seeds (SEEDS=10000 or MINUTES=60, FIRST=n), or one with its history (SEED=n); OF=counters, operator
	@$(PY) -m dev.simulate $(if $(OF),--of $(OF)) $(if $(SEED),--seed $(SEED) $(if $(STATEMENTS),--statements),$(if $(SEEDS),--seeds $(SEEDS)) \
		$(if $(MINUTES),--minutes $(MINUTES)) $(if $(FIRST),--first $(FIRST)) $(if $(FAILURES),--failures $(FAILURES)))

bench-%: $(READY) ## run a benchmark: make bench-store, make bench-timeline [ONLY=put,path] [QUICK=1]
	@$(PY) -m bench.run $* $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)

lock: $(READY) ## resolve the dependencies and write the lock files
	@$(PY) -m dev.lock

cluster: ## start a Kubernetes on this machine
	@$(PYTHON) -m dev.cluster up $(if $(CONTEXT),--context $(CONTEXT))

cluster-down: ## stop it, and remove what it left
	@$(PYTHON) -m dev.cluster down

image: ## build the image of the working tree, and import it into the cluster (TARGET=headgate-spark, all)
	@$(PYTHON) -m dev.cluster image $(if $(TARGET),--target $(TARGET))

clean: ## remove the virtual environment and what tools cached in the tree
	@rm -rf $(VENV) $(VENV)-dev .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
