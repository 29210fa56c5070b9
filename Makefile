# make demo   a whole collection with a stand-in policy, in under a minute after installation
# make test   linters, types and the test-suite, against a real NATS server
# make chaos SEEDS=50 FIRST_SEED=1   processes killed and frozen while thousands of rollouts run
# make bench-floor   CPU per rollout next to bare nats-py, as ratios
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help demo test lint unit chaos bench bench-floor clean

help:
	@sed -n 's/^# make/make/p' Makefile

$(VENV)/pip-ready:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "gymq needs Python 3.11 or newer; say make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

$(VENV)/installed: pyproject.toml | $(VENV)/pip-ready
	$(BIN)/python -m pip install --quiet --editable '.[resources]'
	@touch $@

$(VENV)/installed-dev: pyproject.toml | $(VENV)/pip-ready
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/installed

demo: $(VENV)/installed
	$(BIN)/gymq collect --config examples/demo/config.yaml --input examples/demo/rows.jsonl \
		--output runs/demo/rollouts.jsonl --num-repeats 16 --overwrite --log-level warning

test: lint unit

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy gymq

unit: $(VENV)/installed-dev
	$(BIN)/python -m pytest --reruns 2 --reruns-delay 1

SEEDS ?= 3
FIRST_SEED ?= 1

chaos: $(VENV)/installed-dev
	$(BIN)/python -m tests.chaos --seeds $(SEEDS) --first-seed $(FIRST_SEED)

bench: $(VENV)/installed-dev
	$(BIN)/python -m benchmarks

bench-floor: $(VENV)/installed-dev
	$(BIN)/python -m benchmarks --floor

clean:
	rm -rf $(VENV) .gymq runs
