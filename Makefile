PYTHON ?= python3
K2_PYTHON ?= python3.11
BIN := .venv/bin
K2 := .venv-k2/bin

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

.venv-k2/installed: tests/real_k2/requirements.txt tests/real_k2/k2.txt
	$(K2_PYTHON) -m venv .venv-k2 && $(K2)/python -m pip install --quiet --requirement tests/real_k2/requirements.txt
	$(K2)/python -m pip install --quiet --no-deps --require-hashes --requirement tests/real_k2/k2.txt
	touch $@

test-k2: .venv-k2/installed  ## Compare the pruned loss with the real k2 (in .venv-k2: Python 3.11 on Linux, 3.5 GB)
	$(K2)/python -m pytest --config-file tests/real_k2/pytest.ini tests/real_k2

check: setup  ## Everything that must hold: format, lint, types, imports, tests, notebooks, records
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/pyright && $(BIN)/lint-imports
	$(MAKE) test test-k2
	$(BIN)/python -m pytest -n 0 --timeout 600 --nbmake notebooks && $(BIN)/python -m chunkwise.records --check

.venv/bench: .venv/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,bench]'
	touch $@

bench: .venv/bench .venv-k2/installed  ## Run the benchmarks under experiments/bench; ratios go to runs/bench
	for benchmark in experiments/bench/bench_*.py; do $(BIN)/python $$benchmark || exit 1; done

.PHONY: help setup demo test test-k2 check bench
