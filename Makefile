PYTHON ?= python3
BIN := .venv/bin

help:  ## Show the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: .venv/installed  ## Make .venv with the pinned packages (nothing to do the second time)
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv && $(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: setup  ## Train, evaluate and stream on the embedded corpus; report under runs/demo (10 minutes, two cores)
	$(BIN)/python -m chunkwise.cli.demo

test: setup  ## Run the tests
	$(BIN)/python -m pytest

check: setup  ## Everything that must hold: format, lint, types, imports, tests, notebooks, records
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/pyright && $(BIN)/lint-imports
	$(MAKE) test
	$(BIN)/python -m pytest --nbmake notebooks && $(BIN)/python -m chunkwise.records --check

.venv/bench: .venv/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,bench]'
	touch $@

bench: .venv/bench  ## Run the benchmarks under experiments/bench; ratios go to runs/bench
	for benchmark in experiments/bench/bench_*.py; do $(BIN)/python $$benchmark || exit 1; done

.PHONY: help setup demo test check bench
