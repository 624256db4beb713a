# Every target sets up .venv by itself when it has to; a second run starts at once.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Tests and demo never talk to a model hub.
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM ?= true

.PHONY: help setup demo browser test test-all lint format types check bench docs constraints clean
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
	@$(BIN)/python -m pytest -n logical --dist loadfile

test-all: $(VENV)/.dev browser  ## run the slow tests too
	@$(BIN)/python -m pytest -n logical --dist loadfile -m ''

lint: $(VENV)/.dev  ## style and spelling
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/codespell src tests docs benchmarks README.md CONTRIBUTING.md CHANGELOG.md

format: $(VENV)/.dev  ## mend style
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

types: $(VENV)/.dev  ## mypy, strict on src
	@$(BIN)/mypy

check: lint types test  ## what CI runs

bench: $(VENV)/.dev  ## run every benchmark and write results/
	@$(PIP) napkinxc
	@for script in $$(ls benchmarks/*.py | grep -v '/_'); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

docs: $(VENV)/.dev  ## regenerate tables and pictures from results/
	@$(BIN)/python docs/build.py

constraints: $(VENV)/.dev  ## write the versions now installed to constraints.txt
	@$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//' > constraints.txt

clean:  ## remove what the targets made, but for .venv
	@rm -rf build dist runs .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
	@find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
