# Every target needs only Python 3.11+ (with venv) and the package registry; `make` alone lists them.

VENV := .venv
BIN := $(VENV)/bin
LOCK_VENV := .venv-lock
HA_VENV := .venv-ha
PIP_TOOLS := pip-tools==7.6.2

# The first of these that is new enough and can make a virtual environment is used; `make setup PYTHON=...` names another.
PYTHON ?=
PYTHONS := $(or $(PYTHON),python3.13 python3.12 python3.11 python3)
define make_venv
@for python in $(PYTHONS); do \
	if $$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
		echo "$$($$python --version) makes $(1)"; \
		exec $$python -m venv --clear $(1); \
	fi; \
done; \
echo "No Python 3.11 or newer with venv among: $(PYTHONS)." >&2; \
echo "Install one (Debian, Ubuntu: apt-get install python3 python3-venv) or name it: make setup PYTHON=/path/to/python3" >&2; \
exit 1
endef
PIP_INSTALL := -m pip --disable-pip-version-check install --quiet --progress-bar off

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

.PHONY: setup
setup: $(VENV)/.installed  ## make .venv with the locked dependencies and the relay command
	@:

$(BIN)/python:
	$(call make_venv,$(VENV))

# --no-deps: the lock is complete, so nothing is resolved here; a package that it lacks is an error, not a download.
$(VENV)/.locked: requirements-dev.lock | $(BIN)/python
	$(BIN)/python $(PIP_INSTALL) --require-hashes --no-deps -r requirements-dev.lock
	@touch $@

$(VENV)/.installed: $(VENV)/.locked pyproject.toml
	$(BIN)/python $(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: run
run: setup  ## start everything on this machine, send a first event and show its receipt closing
	$(BIN)/relay up --dev --demo

.PHONY: test
test: check domain-coverage  ## set up, check, then run every test
	@$(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: failover
failover: setup  ## lose twenty primaries under load, and nothing that was accepted
	@RELAY_FAILOVER_ROUNDS=20 $(BIN)/python -m pytest -q --timeout 1800 tests/system/test_quorum_machines_lost.py

.PHONY: fleet
fleet: setup  ## start, stop, kill and halt processes of a fleet at random for some minutes; RELAY_FLEET_SEED repeats one
	@RELAY_FLEET_ROUNDS=60 RELAY_FLEET_SEED=$${RELAY_FLEET_SEED:-$$(date +%s)} \
		$(BIN)/python -m pytest -q -s --timeout 1800 tests/system/test_fleet.py

# Patroni stays out of the locked environment of Relay, and has a lock of its own.
$(HA_VENV)/.installed: ops/patroni/requirements.lock
	$(call make_venv,$(HA_VENV))
	$(HA_VENV)/bin/python $(PIP_INSTALL) --require-hashes --no-deps -r ops/patroni/requirements.lock
	@touch $@

.PHONY: test-ha
test-ha: setup $(HA_VENV)/.installed  ## kill ten leaders under Patroni and load; RELAY_HA_KILLS=2 is a shorter run
	@RELAY_TEST_HA=1 $(BIN)/python -m pytest -q -s --timeout 3600 tests/system/test_patroni.py tests/system/test_pgbouncer.py

.PHONY: domain-coverage
domain-coverage: setup  ## the domain's own tests must take each of its branches
	@$(BIN)/coverage run -m pytest -q tests/domain
	@$(BIN)/coverage report

.PHONY: check
check: lint format-check types contracts  ## format, lint, types and contracts, changing nothing

.PHONY: format
format: setup  ## put the source into its one format, and mend what can be mended by itself
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

.PHONY: format-check
format-check: setup  ## fail if `make format` would change anything
	@$(BIN)/ruff format --check .

.PHONY: lint
lint: setup  ## ruff
	@$(BIN)/ruff check .

.PHONY: types
types: setup  ## mypy, strict, over src and tests
	@$(BIN)/mypy

.PHONY: contracts
contracts: setup  ## import-linter: which room may import which
	@$(BIN)/lint-imports --no-logo

.PHONY: schema
schema: setup  ## write src/relay/store/schema.sql anew from the migrations
	@$(BIN)/python -m tests.store.schema_dump

.PHONY: soak
soak: setup  ## many processes append, claim and record for a minute; a test does the same for a few seconds
	@RELAY_TEST_SOAK_SECONDS=60 $(BIN)/python -m pytest -q -s tests/store/test_soak.py

.PHONY: bench
bench: setup  ## drain a backlog and keep up with posts, beside two floors: rates, times, and what each delivery costs
	$(BIN)/relay loadtest bench

.PHONY: bench-check
bench-check: setup  ## fail if Relay takes more of its floors, of the log or of commits than the recorded baseline: three runs
	@$(BIN)/python -m tests.loadtest.guard

.PHONY: bench-baseline
bench-baseline: setup  ## record what bench-check compares with, on an idle machine
	@$(BIN)/python -m tests.loadtest.guard --write

.PHONY: bench-quorum
bench-quorum: setup  ## time until the 202 with two of three servers, beside one server's and the bare wait
	$(BIN)/relay loadtest quorum

.PHONY: bench-fairness
bench-fairness: setup  ## healthy endpoints alone, beside one that hangs with 10,000 owed, and beside a hundred dead ones
	$(BIN)/relay loadtest fairness

.PHONY: bench-fan-out
bench-fan-out: setup  ## acks of 1,000 endpoints that share a receipt, recorded by four processes, beside receipts of their own
	$(BIN)/relay loadtest fan-out

.PHONY: bench-horizon
bench-horizon: setup  ## drain a backlog before, beside and after a transaction that keeps an old snapshot for minutes
	@$(BIN)/python -m tests.loadtest.horizon

.PHONY: bench-flat
bench-flat: setup  ## what a delivery costs with much due, much behind, many endpoints, large payloads, TLS; ONLY=tls for one
	@$(BIN)/python -m tests.loadtest.flat $(foreach name,$(ONLY),--only $(name))

.PHONY: bench-retention
bench-retention: setup  ## ingest while days with a million attempts are dropped and a day of events is pruned
	@$(BIN)/python -m tests.loadtest.retention

.PHONY: bench-claims
bench-claims: setup  ## what a claim costs per row: a small queue beside 1,000,000 rows, half of them in a closed lane
	@$(BIN)/python -m tests.store.claim_costs

.PHONY: bench-scale
bench-scale: setup  ## what an event costs the server, and what a gateway, a dispatcher and the server do among 1,000,000 endpoints
	@$(BIN)/python -m tests.loadtest.flow
	@$(BIN)/python -m tests.loadtest.heads
	@$(BIN)/python -m tests.loadtest.scale

.PHONY: load-test
load-test: setup  ## measure one configuration after the other on a quiet machine, and write docs/load-test.md anew
	$(BIN)/relay loadtest sweep --output docs/load-test/sweep.json --force --page docs/load-test.md

.PHONY: simulate-claims
simulate-claims: setup  ## how many dispatchers one database feeds: a model with a seed, a table in seconds
	@$(BIN)/python -m tests.loadtest.claim_simulation

# The tool that locks stays out of the locked environment. Comments and options that name a registry are left out, so the
# lock works with whichever one pip is set up for. The two locks agree: the second is resolved under the first.
LOCK := CUSTOM_COMPILE_COMMAND="make lock" $(LOCK_VENV)/bin/pip-compile --quiet --generate-hashes --allow-unsafe \
	--strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options

.PHONY: lock
lock: $(LOCK_VENV)/bin/pip-compile  ## resolve what is asked for anew into the locks (UPGRADE=--upgrade takes newer versions)
	$(LOCK) $(UPGRADE) --output-file requirements.lock pyproject.toml
	$(LOCK) $(UPGRADE) --extra dev --constraint requirements.lock --output-file requirements-dev.lock pyproject.toml
	$(LOCK) $(UPGRADE) --output-file ops/patroni/requirements.lock ops/patroni/requirements.in

$(LOCK_VENV)/bin/pip-compile:
	$(call make_venv,$(LOCK_VENV))
	$(LOCK_VENV)/bin/python $(PIP_INSTALL) $(PIP_TOOLS)

.PHONY: clean
clean:  ## remove what these targets made, but no data
	rm -rf $(VENV) $(LOCK_VENV) $(HA_VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache \
		.hypothesis .coverage htmlcov
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
