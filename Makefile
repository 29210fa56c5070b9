# make demo     a whole collection with a simulated model, in under a minute after installation
# make check    the inner loop: linters, types and the tests that start no cluster; two minutes on two cores
# make test     linters, types and the tests, against a real NATS server
# make site     the documents as a site, in site/
#
# Parts of `make test` and what it leaves out:
# make lint, make unit      also with another Python: make unit PYTHON=python3.13 VENV=.venv-3.13
# make nightly              the slow tests
# make test-in NAME=vllm    the tests that need other programs, in their own environment; lists them without NAME
# make env NAME=vllm        that environment alone
# make wheel-test           the wheel, installed far from the checkout, with each Python from 3.11 to 3.13 that is here
#
# make bench-floor          CPU per rollout next to bare nats-py, as ratios
# make bench-compare BASE=x the same next to another version of gymq, a commit or a wheel; fails above +5 %
# make golden               tests/golden again, after a wanted change of messages, subjects, result files, statistics or help
# make lock                 requirements/locked.txt again, after a change of dependencies; UPGRADE=--upgrade for the newest of all
# make coverage TESTS=tests/cli   lines and branches that tests run, in worker processes too
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help demo check test site lint unit nightly env test-in wheel-test bench-floor bench-compare golden lock coverage clean

help:
	@sed -n '/^[^#]/q; s/^# \{0,1\}//p' Makefile

LOCK := requirements/locked.txt requirements/for_extras.py

$(VENV)/ready:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "gymq needs Python 3.11 or newer; say make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

# uv unpacks packages in a tenth of the time; pip installs them where only its own configuration names an index.
install_locked = { UV_FIND_LINKS="$$PIP_FIND_LINKS" $(BIN)/uv pip install --quiet --link-mode copy --python $(BIN)/python $(LOCKED) $(1) || \
	$(BIN)/python -m pip install --quiet --no-compile $(LOCKED) $(1); }

# What is installed is what the lock says and has its hashes, the tools that build packages included; `pip check` finds
# what the lock lacks. Compiled at once on all cores, since processes that tests start may not write what they compile.
LOCKED := --no-deps --no-build-isolation --require-hashes --requirement
define install
	$(BIN)/python requirements/for_extras.py build > $(VENV)/build.txt
	$(BIN)/python requirements/for_extras.py $(1) > $(VENV)/needed.txt
	$(BIN)/python -m pip install --quiet --no-compile --no-deps --require-hashes --requirement $(VENV)/build.txt
	$(call install_locked,$(VENV)/needed.txt)
	$(BIN)/python -m pip install --quiet --no-compile --no-deps --no-build-isolation --editable .
	$(BIN)/python -m pip check
	-@$(BIN)/python -W ignore -m compileall -qq -j 0 -x '/tests?/' $(VENV)/lib
endef

$(VENV)/installed: pyproject.toml $(LOCK) | $(VENV)/ready
	$(call install,resources)
	@touch $@

$(VENV)/installed-dev: pyproject.toml $(LOCK) | $(VENV)/ready
	$(call install,dev)
	@touch $@ $(VENV)/installed

$(VENV)/installed-docs: $(VENV)/installed-dev
	$(BIN)/python requirements/for_extras.py docs > $(VENV)/docs.txt
	$(call install_locked,$(VENV)/docs.txt)
	@touch $@

site: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

VENV_LOCK ?= .venv-lock
UV := uv==0.13.9

# For Python 3.11 to 3.13. vLLM has pins of its own; `verifiers` runs in an environment of its own.
lock:
	$(PYTHON) -m venv $(VENV_LOCK)
	$(VENV_LOCK)/bin/python -m pip install --quiet $(UV)
	$(VENV_LOCK)/bin/uv pip compile pyproject.toml requirements/build.in --extra dev --extra all --extra ray --extra docs \
		--universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
		--custom-compile-command 'make lock' --quiet $(UPGRADE) --output-file requirements/locked.txt

demo: $(VENV)/installed
	$(BIN)/gymq demo

test: lint unit

# Workers are imported as `gymq.workers`; mypy finds them through this link, since it does not read `__path__`.
.venv/types/gymq/workers:
	mkdir -p $(@D)
	ln -s ../../../workers $@

lint: $(VENV)/installed-dev .venv/types/gymq/workers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Three processes on two cores, since tests wait more than they compute. The scenarios of chaos need the machine for
# themselves. Compiled first: hundreds of processes import these, and where PYTHONDONTWRITEBYTECODE is set each would
# compile them again.
unit: $(VENV)/installed-dev
	@$(BIN)/python -m compileall -qq gymq workers tests
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile --ignore tests/chaos/test_chaos.py
	$(BIN)/python -m pytest tests/chaos/test_chaos.py

nightly: $(VENV)/installed-dev
	@$(BIN)/python -m compileall -qq gymq workers tests
	$(BIN)/python -m pytest -m nightly --numprocesses 2 --dist loadfile --ignore tests/chaos --ignore tests/ext/trainers/chaos
	$(BIN)/python -m pytest -m nightly tests/chaos tests/ext/trainers/chaos

# Most of a change shows in these.
check: lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile @tests/fast.txt

golden: $(VENV)/installed-dev
	GYMQ_WRITE_GOLDEN=1 $(BIN)/python -m pytest tests/golden

wheel-test: $(VENV)/installed-dev
	$(BIN)/python -m pytest tests/wheel -rs

# Failing tests fail `make unit`; here only what they ran counts. The page is htmlcov/index.html.
TESTS ?= tests workers --ignore tests/chaos --ignore tests/ext/trainers/chaos
coverage: $(VENV)/installed-dev
	-$(BIN)/coverage run -m pytest --numprocesses 2 --dist loadfile $(TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet
	$(BIN)/coverage report --skip-covered --sort cover

# CPU per rollout next to bare nats-py, as ratios.
bench-floor: $(VENV)/installed-dev
	$(BIN)/python -m benchmarks --floor

bench-compare: $(VENV)/installed-dev
	$(BIN)/python -m benchmarks.compare $(BASE) $(ARGS)

# What is in each environment, and what its tests are, is in tools/environments.toml.
env test-in: $(VENV)/installed-dev
	@$(BIN)/python tools/environments.py $(if $(filter env,$@),install,test) $(NAME) $(ARGS)

clean:
	rm -rf .venv .venv-* .gymq runs
