# Each recipe works in a fresh clone: it builds VENV first, with the Python (3.10 or newer) that PYTHON names, and with the
# Django that DJANGO names: DJANGO="django~=5.2.0". Neither changes a VENV that exists.
PYTHON ?= python3
VENV ?= .venv
DJANGO ?=
BIN := $(VENV)/bin
# With uv on PATH the environments are there in a fifth of the time.
UV := $(shell command -v uv)
PIP := $(BIN)/python -m pip install --disable-pip-version-check
INSTALL := $(if $(UV),uv pip install --python $(BIN)/python,$(PIP) --no-compile)
# The pip that comes with a Python may know no dependency groups.
READY := $(if $(UV),true,$(PIP) --quiet 'pip>=25.1')

# Tests start hundreds of processes. Each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := test
.PHONY: quick types units test foreign clients peers commerce reach chaos model browser lint format demo bench docs pictures screenshots

# Run this after each change: it takes less than a minute, and needs no service.
quick: $(VENV)/dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(MAKE) --no-print-directory --jobs=2 types units

types: $(VENV)/dev
	$(BIN)/mypy

units: $(VENV)/dev
	DATABASE=sqlite $(BIN)/python -m pytest -q -x -n 2 --dist=worksteal -m "unit and not (faults or needs or slow)"

# TEST="postgresql -- -k purge" runs a part of it.
test: $(VENV)/dev
	$(BIN)/python -m tests.run $(TEST)

# These eight are in tests/proofs/, whose README.md says what each proves, and what it needs.

# Other projects' suites, in an environment of their own; FOREIGN="djangorestframework" runs one of them.
foreign: $(VENV)/dev
	$(BIN)/python -m tests.proofs.foreign $(FOREIGN)

# Official clients of APIs against guarded views, in an environment of their own; CLIENTS="-k stripe" runs some of them.
clients: $(VENV)/dev
	$(BIN)/python -m tests.proofs.clients $(CLIENTS)

# The same requests to a view under other packages and under ours, in an environment of its own; PEERS="-k idemkit" runs some of them.
peers: $(VENV)/dev
	$(BIN)/python -m tests.proofs.peers $(PEERS)

# Suites of protocols of agentic commerce against shops, in environments of their own; COMMERCE="ucp -k rules" runs some of them.
commerce: $(VENV)/dev
	$(BIN)/python -m tests.proofs.commerce $(COMMERCE)

# Other servers, drivers and Pythons, which it downloads: tests/proofs/README.md names them. REACH="pgbouncer" runs one of
# them, REACH=python all whose names begin so.
reach: $(VENV)/dev
	$(BIN)/python -m tests.proofs.reach $(REACH)

# PostgreSQL restarts every few seconds under clients that retry; CHAOS_CLIENTS, CHAOS_SECONDS and CHAOS_PAUSE say how hard.
# CHAOS=--failover: a primary is killed for good each time, and its synchronous standby promoted.
chaos: $(VENV)/dev
	$(BIN)/python -m tests.proofs.chaos $(CHAOS)

# Every history of a small world, in which the core's own functions decide; it prints what each seeded mistake would do.
model: $(VENV)/dev
	$(BIN)/python -m tests.proofs.model

# HTML forms and fetch.js in a headless Chromium, with htmx and Turbo, which npm fetches into .cache/.
browser: $(VENV)/dev $(VENV)/browser
	mkdir -p .cache/browser && cp tests/proofs/browser/package.json .cache/browser/
	npm install --prefix .cache/browser --no-audit --no-fund
	DATABASE=sqlite $(BIN)/python -m pytest -q tests/proofs/browser

lint: $(VENV)/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

demo: $(VENV)/demo
	$(BIN)/python -m testproject.demo

bench: $(VENV)/dev
	$(BIN)/python -m benchmarks $(BENCH_FLAGS)

# Needs Graphviz (dot), but only if the source of a picture has changed.
pictures: $(VENV)/dev
	$(BIN)/python -m tests.docs.drawing

# Takes screenshots of the demo's admin in a Chromium, and draws its dashboard with Prometheus. Run it after its pages have changed.
screenshots: $(VENV)/screenshots
	$(BIN)/python -m tests.docs.screenshots
	$(BIN)/python -m tests.docs.dashboard

docs: pictures
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# One stamp per dependency group of pyproject.toml, with the extras that it needs: all, but for these. A group is rebuilt when
# pyproject.toml changes.
EXTRAS_demo := [client,prometheus,rest]
EXTRAS_screenshots := $(EXTRAS_demo)
EXTRAS_test-core := [redis,rest]

$(VENV)/%: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer, please: make PYTHON=python3.12")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(READY)
	@echo "Installing the group $* into $(VENV)"
	@$(INSTALL) --quiet --editable '.$(or $(EXTRAS_$*),[all])' --group $* $(if $(DJANGO),'$(DJANGO)')
	@touch $@
