# Every target sets up .venv by itself when it has to; a second run starts at once.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Files of tests run side by side, in the order of tests/conftest.py.
PARALLEL := -n $(shell python3 -c "import os; print(1 + (os.cpu_count() or 1))") --dist loadfile --no-loadscope-reorder
# Tests and demo never talk to a model hub.
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM ?= true

.PHONY: help setup demo wheel browser test ci-extra test-all lint format types check bench docs constraints hashes audit clean
.DEFAULT_GOAL := help

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "megalabel needs Python 3.11 or newer: make PYTHON=python3.11 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing megalabel and the demo packages into $(VENV) (once, a few minutes)"
	@$(PIP) --editable '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing megalabel and the development tools into $(VENV) (once, a few minutes)"
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.demo

setup: $(VENV)/.dev  ## create .venv with everything for development

demo: $(VENV)/.demo  ## see it work: build a data set, predict, measure
	@$(BIN)/megalabel demo

browser:  ## Chromium for the tests of the page: at once if there is one, from Debian if root or in CI
	@sh tests/browser/chromium.sh

test: $(VENV)/.dev browser  ## run the tests (a few minutes at most)
	@$(BIN)/python -m pytest $(PARALLEL)

ci-extra: $(VENV)/.dev browser  ## what CI runs beside the tests: the wheel, the site, whole recipes, four ranks, injected faults
	@$(BIN)/python -m pytest $(PARALLEL) -m 'extra and not slow'

test-all: $(VENV)/.dev browser  ## run the slow tests too
	@$(BIN)/python -m pytest $(PARALLEL) -m ''

lint: $(VENV)/.dev  ## style and spelling
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/hadolint Dockerfile
	@$(BIN)/codespell src tests docs benchmarks README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md

format: $(VENV)/.dev  ## mend style
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

types: $(VENV)/.dev  ## mypy, strict on src
	@$(BIN)/mypy

check: lint types test ci-extra  ## what CI runs

wheel: $(VENV)/.dev  ## build dist/megalabel-*.whl and .tar.gz
	@$(BIN)/python -m build --outdir dist . > build.log 2>&1 || { cat build.log; exit 1; }
	@rm -f build.log; ls dist

bench: $(VENV)/.dev  ## run every benchmark and write results/
	@$(PIP) napkinxc
	@for script in $$(ls benchmarks/*.py | grep -v '/_'); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

docs: $(VENV)/.dev  ## regenerate tables and pictures from results/, then build site/index.html
	@$(BIN)/python docs/build.py
	@$(BIN)/python docs/build_site.py

constraints: $(VENV)/.dev  ## write the versions now installed to constraints.txt
	@$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > constraints.txt

hashes: $(VENV)/.dev  ## write requirements/demo.txt: demo and server, with a hash for every file but torch's
	@$(BIN)/python requirements/make_hashes.py

audit: $(VENV)/.dev  ## bill of materials (build/sbom.cdx.json), licences, known vulnerabilities
	@$(PYTHON) -m venv build/audit && build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit \
		|| echo "pip-audit could not be installed"
	@$(BIN)/python requirements/audit.py --pip-audit build/audit/bin/pip-audit

clean:  ## remove what the targets made, but for .venv
	@rm -rf build dist runs site .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
