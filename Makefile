# Every target does the set-up it needs. A machine needs Python 3.10 or newer with pip, git, make and a C compiler.
# PYTHON names the interpreter that .venv is made from, and is read only then: make clean setup PYTHON=python3.12
# WORKERS is the number of processes that share the tests.

PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

RUNS := quickstart five-systems

# How to call litebert by its name alone.
activate = echo && echo "To type litebert instead of $(BIN)/litebert: source $(BIN)/activate"

.DEFAULT_GOAL := help
.PHONY: help setup quickstart five test test-all test-slow studies-smoke test-wheel test-peers golden lint check format docs site bench clean clean-runs

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.dev  ## .venv with everything to run, test and develop
	@$(activate)

quickstart: $(VENV)/.runtime  ## raw text to a pretrained ALBERT and its report, minutes on two cores
	$(BIN)/litebert quickstart
	@$(activate)

five: $(VENV)/.runtime  ## the five systems side by side: under 20 minutes on two cores
	LITEBERT=$(BIN)/litebert runs/five_systems.sh

test: $(VENV)/.dev  ## the tests, minutes on two cores
	$(pytest) -m "not slow and not thorough" $(if $(COVERAGE),--cov --cov-report=)

test-all: test  ## the tests, then those that try every case
	$(pytest) -m "thorough and not slow" $(if $(COVERAGE),--cov --cov-append --cov-report=)
	$(if $(COVERAGE),@$(call covered,data))
	$(if $(COVERAGE),@$(call covered,model))

test-slow: $(VENV)/.dev  ## the tests that take minutes each
	$(BIN)/python -m pytest -m slow

studies-smoke: $(VENV)/.dev  ## every study at toy size
	$(BIN)/python -m pytest -m slow tests/studies/test_smoke.py

test-wheel: $(VENV)/.dev  ## the wheel in an empty environment, its requirements from the package index
	$(BIN)/python -m pytest -m slow tests/test_wheel.py

test-peers: $(VENV)/.dev  ## what optimum and sentence-transformers make of exports, in an environment of their own
	$(BIN)/python -m pytest -m slow tests/test_peers.py

golden: $(VENV)/.dev  ## the golden runs, bit for bit against a parent commit: make golden BASE=HEAD~1
	$(BIN)/python tests/golden/compare.py --base $(or $(BASE),HEAD~1)

lint: $(VENV)/.dev  ## format, lint, types and generated docs, changing nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python docs/generate.py --check

check: COVERAGE := yes
check: lint test-all  ## all that must hold before a commit: lint, all tests but the slow ones, coverage

format: $(VENV)/.dev  ## fix format and imports
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

docs: $(VENV)/.dev  ## write the generated pages again
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/speed_chart.py

site: $(VENV)/.dev  ## the pages as a site with search, in site/; python -m http.server -d site shows it
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=src:docs $(BIN)/python -m mkdocs build --strict --quiet

bench: $(VENV)/.dev  ## all benchmarks with small options, minutes each, JSON in bench/; benchmarks/gpu.sh is for a GPU
	$(BIN)/python benchmarks/all.py --out bench

clean:  ## remove .venv and caches; trained models stay
	rm -rf $(VENV) build dist site .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache src/*.egg-info
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

clean-runs:  ## remove the models, data and reports of quickstart and five
	@du -sh $(wildcard $(RUNS)) /dev/null | sed '$$d; s/^/deleting /'
	@rm -rf $(RUNS)

# The files of tests are shared between processes.
pytest = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0

# Coverage of one room, in percent, which must reach 95.
covered = printf 'coverage of $(1), in percent: ' && \
	$(BIN)/python -m coverage report --include='src/litebert/$(1)/*' --format=total --fail-under=95

# ---- .venv: made once, and brought up to date when the requirements change -----------------------------------------

# Some systems package Python without ensurepip; there the system's pip puts a pip into .venv.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
		echo "litebert needs Python 3.10 or newer, which '$(PYTHON)' is not; name one: make PYTHON=python3.12" >&2; \
		exit 2; }
	$(PYTHON) -m venv --without-pip $(VENV)
	$(BIN)/python -m ensurepip --upgrade >/dev/null 2>&1 || $(PYTHON) -m pip install --quiet pip \
		--target "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	@touch $@

$(VENV)/.runtime: pyproject.toml constraints.txt | $(VENV)/.created
	$(PIP) install -c constraints.txt -e '.[train]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/.created
	$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $(VENV)/.runtime $@
