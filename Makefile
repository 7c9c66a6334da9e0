# Two commands on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help demo test lint types pytest claim bench bases picture clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Two Clocks needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.all: pyproject.toml | $(BIN)/python
	@echo "Installing Two Clocks into $(VENV) (torch is most of it; a few minutes the first time)"
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[all]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.all

demo: $(VENV)/.all  ## train, forecast and switch on this machine; flags by ARGS="--exit --seed 103"
	@$(BIN)/twoclocks demo $(ARGS)

test: lint types pytest  ## lint, types and tests

lint: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.dev
	@$(BIN)/mypy

pytest: $(VENV)/.dev
	@$(BIN)/pytest -n auto --maxprocesses 4 --dist loadfile $(ARGS)

claim: $(VENV)/.all  ## measure the demo's claim over 8 fresh seeds (about 20 minutes on two cores)
	@$(BIN)/twoclocks claim $(ARGS)

bench: $(VENV)/.dev  ## benchmarks of the client, the fold and the forecast
	@$(BIN)/pytest tests/benchmarks --benchmark-only $(ARGS)

bases: $(VENV)/.all  ## remake the shipped base models
	@for task in sort sort10 add; do \
	  $(BIN)/twoclocks-train base --task $$task --out trainer/twoclocks_trainer/bases/$$task || exit; done

picture: $(VENV)/.dev  ## run the demo and take the README's screenshot of it
	@$(BIN)/python tests/dashboard/take_picture.py .github/run.png

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
