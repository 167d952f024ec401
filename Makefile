# The main entrance. `make` alone lists the targets.

# Other arguments are given so:  make demo DEMO_ARGS='--regions oregon'
DEMO_ARGS ?=
PYTEST_ARGS ?=
BENCH_ARGS ?=
PEERS_ARGS ?=
SOAK_MINUTES ?= 10
CHAOS_ARGS ?=
CHAOS_REGIONS ?= oregon,dublin
SURGE_ARGS ?=
LOADTEST_ARGS ?=
# 6: one region and a proxy; 15: two regions and a proxy.
FLEET_SIZE ?= 15
TERRAFORM_ARGS ?=
RELEASE_ARGS ?=
PLATFORMS_ARGS ?=
CONTAINERS_ARGS ?=
# The interpreter for .venv.
PYTHON ?= python3

export PYTHON
# Tests start hundreds of interpreters, which would each compile all modules.
unexport PYTHONDONTWRITEBYTECODE
# The folder of scripts/setup's Rust.
export PATH := $(CURDIR)/.tools/rust/bin:$(PATH)
BIN = .venv/bin
FLEET = PYTHONPATH=deploy $(BIN)/python -m fleet

.DEFAULT_GOAL = help
.PHONY: help setup python dataplane dataplane-test fuzz demo test test-slow test-long test-all crates lint types format unit integration conformance bench bench-peers profile soak chaos metrics surge loadtest wheel release bundle check-ansible fleet fleet-image fleet-down test-fleet test-platforms check-deploy check-terraform check-containers clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what is missing: .venv, RabbitMQ, Cassandra, Chromium for the browser tests; build the data plane
	@scripts/setup test

demo: ## Start the two-region world and watch it; Ctrl-C stops it (DEMO_ARGS=…)
	@scripts/setup demo
	@$(BIN)/newsfabric up $(DEMO_ARGS)

dataplane: ## Build the data plane, the gateway's native engine; installs Rust if need be
	@scripts/setup dataplane

dataplane-test: dataplane ## Check and test the Rust crates
	cargo fmt --all --check
	nice cargo clippy --all-targets --locked -- -D warnings
# Other tests run beside these: compilers have a lower priority.
	nice cargo test --locked --no-run
	cargo test --locked

# The existing data plane is tested: a new one would replace it while other tests use it.
crates:
	@if command -v cargo >/dev/null; then $(MAKE) --no-print-directory --assume-old=dataplane dataplane-test; else \
	    echo 'cargo is missing, so the crates are not tested' && test -z "$(CI)"; fi

fuzz: ## Fuzz the parsers, FUZZ_SECONDS=60 each (needs nightly Rust and cargo-fuzz)
	@scripts/fuzz

test: setup ## Lint, run the tests, and beside them check types and crates (PYTEST_ARGS=…)
	@$(MAKE) --no-print-directory lint
	@scripts/beside make --no-print-directory --keep-going types crates -- \
	    $(BIN)/pytest -n auto -m 'not (slow or long or fleet)' $(PYTEST_ARGS)

test-slow: setup ## Run the tests that take minutes each (PYTEST_ARGS=…)
	$(BIN)/pytest -n auto -m 'slow and not long' $(PYTEST_ARGS)

test-long: setup ## Run what CI plays in a shorter form: before a release (PYTEST_ARGS=…)
	$(BIN)/pytest -n auto -m long $(PYTEST_ARGS)

test-all: setup ## Run all but the long ones, in less time than one after the other (PYTEST_ARGS=…)
	$(BIN)/pytest -n auto -m 'not (long or fleet)' $(PYTEST_ARGS)

lint: python ## Check style and formatting
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: python ## Check types (mypy --strict)
	$(BIN)/mypy

format: python ## Format the code and mend what ruff can mend
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

unit: python ## Run the tests that open no socket and start no program (67 s on two cores)
	$(BIN)/pytest -n auto --no-sockets --hypothesis-profile=unit -m 'not (sockets or broker or cassandra or world or browser or cargo or slow or long or fleet)' $(PYTEST_ARGS)

integration: setup ## Run the tests that need sockets, RabbitMQ, Cassandra, a whole world or Chromium
	$(BIN)/pytest -n auto -m '(sockets or broker or cassandra or world or browser) and not (slow or long)' $(PYTEST_ARGS)

conformance: python dataplane ## Run the Autobahn TestSuite and the SockJS suite, all of both (10 minutes)
	CI=1 $(BIN)/pytest tests/conformance
	$(BIN)/python tests/conformance/autobahn.py

metrics: python ## Write docs/metrics.md anew from the code
	$(BIN)/python scripts/metrics

bench: ## Measure speed and print a table (BENCH_ARGS=…)
	@scripts/setup demo
	@$(BIN)/python -m bench $(BENCH_ARGS)

bench-peers: ## The gateway beside nchan, Mercure, ws, sockjs-node, Socket.IO, picows, Tornado (PEERS_ARGS=…)
	@scripts/setup demo
	@scripts/setup peers
	@$(BIN)/python -m bench.peers $(PEERS_ARGS)

profile: ## Flame graphs and the highest costs of a gateway and a router under load (PROFILE_ARGS=…)
	@scripts/setup demo
	@scripts/setup profile
	@$(BIN)/python -m bench.profile $(PROFILE_ARGS)

wheel: python dataplane ## Build one wheel that holds Python and the data plane, in dist/
	rm -f dist/newsfabric-*.whl
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/newsfabric-*.whl

bundle: wheel ## Build one archive of the wheel and all that it needs, for hosts without a registry
	@scripts/bundle

check-ansible: ## Check roles and playbooks with ansible-lint
	@scripts/setup ansible
	cd deploy/ansible && PATH="$(CURDIR)/.tools/ansible/bin:$$PATH" ansible-lint --strict

release: python dataplane ## Make wheel, packages, SBOMs, checksums in dist/release, try each; uploads nothing (RELEASE_ARGS=…)
	@scripts/setup release
	@PYTHONPATH=deploy $(BIN)/python -m release $(RELEASE_ARGS)

soak: dataplane ## Churn against a native gateway, memory must stay flat (SOAK_MINUTES=10)
	$(BIN)/python -m bench.soak --minutes $(SOAK_MINUTES)

surge: python dataplane ## 20,000 readers come and go in a world that grows by itself, ten minutes (SURGE_ARGS=…)
	@$(BIN)/python -m loadtest.surge $(SURGE_ARGS)

loadtest: python dataplane ## Two minutes of breaking news with locust in a world of its own (LOADTEST_ARGS=…)
	@scripts/setup loadtest
	@$(BIN)/python -m loadtest.locusts $(LOADTEST_ARGS)

chaos: setup ## Break everything for ten minutes and account for each message (CHAOS_ARGS=… CHAOS_REGIONS=…)
	@$(BIN)/newsfabric up --detach --regions $(CHAOS_REGIONS) --retail 2 --store cassandra --state .world-chaos --port-base 29000 --timeout 400
	@$(BIN)/newsfabric chaos run --state .world-chaos --report chaos-report $(CHAOS_ARGS); \
	    result=$$?; $(BIN)/newsfabric down --state .world-chaos; exit $$result

fleet-image:
	@scripts/setup fleet
	@$(FLEET) check
	@$(MAKE) --no-print-directory bundle
	@$(FLEET) image

fleet: fleet-image ## Boot fifteen real machines here and run the fabric on them, as root (FLEET_SIZE=6)
	@$(FLEET) deploy --size $(FLEET_SIZE)

fleet-down: python ## End the fleet; leaves nothing but its image
	@$(FLEET) down

test-fleet: fleet-image ## Test the fleet on real machines, as root (PYTEST_ARGS=…)
	$(BIN)/pytest -m fleet $(PYTEST_ARGS)

test-platforms: dataplane python ## Play README, broker tests and chaos on fresh Debians, as root, 40 minutes each (PLATFORMS_ARGS=trixie)
	@scripts/setup fleet
	@$(FLEET) platforms $(PLATFORMS_ARGS)

check-terraform: ## Check deploy/terraform: format, schema, tests with a mocked provider (needs tofu or terraform)
	@scripts/check-terraform $(TERRAFORM_ARGS)

check-deploy: python dataplane ## Check all of deploy/: ansible-lint, Terraform, the chart, their tests; what can't be checked is named
	@scripts/setup ansible
	@if [ -z "$(CI)" ] && command -v go >/dev/null; then scripts/setup deploy; fi
	@scripts/check-deploy

check-containers: ## Check deploy/helm and deploy/containers (needs helm; CONTAINERS_ARGS=--build builds the images, needs buildah)
	@scripts/check-containers $(CONTAINERS_ARGS)

clean: ## Remove .venv, .tools, target and every cache
	@test ! -e .world || { echo 'error: a world may be running here: .venv/bin/newsfabric down' >&2; exit 1; }
	@test ! -e .fleet/fleet.json || { echo 'error: a fleet may be running here: make fleet-down' >&2; exit 1; }
	rm -rf .fleet .venv .tools target dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

python:
	@scripts/setup python
