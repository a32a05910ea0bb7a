# Everything sets itself up: Python 3.11 or newer, make and the package registries are all that is needed.
PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
READY   := $(VENV)/.ready
DB      ?= fullchain.duckdb
# Compiled once, even where the shell asks for no bytecode: each worker would compile every test, each command all of ours.
TEST    := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
# Tests wait for sandboxes as much as they compute.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')

.PHONY: demo test check ci slow test-local-llm test-harbor bench lock clean

demo: $(READY)
	$(BIN)/fullchain run quickstart --db $(DB)

test: $(READY)
	$(TEST) -n $(WORKERS) --dist loadgroup -m "not slow and not local_llm and not harbor"

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# The slow proofs, reduced, on whatever sandboxes this machine has.
ci: $(READY)
	FULLCHAIN_PROOFS=reduced $(TEST) -m slow

# The full proofs; their figures stand in docs/proofs.md.
slow: $(READY)
	$(TEST) -m slow -s

# A small real model in the loop. Fetches half a gigabyte once, into the user's cache; skipped where it cannot be had.
test-local-llm: $(READY)
	FULLCHAIN_LOCAL_LLM=1 $(TEST) -m local_llm -rs tests/local_llm

# Harbor itself, on the same tasks. Installed once, into the user's cache; skipped where it cannot run.
test-harbor: $(READY)
	FULLCHAIN_HARBOR=1 $(TEST) -m harbor -rs tests/harbor

bench: $(READY)
	$(BIN)/python -m benchmarks.call_path
	$(BIN)/python -m benchmarks.start_up
	$(BIN)/python -m benchmarks.lane_fold
	$(BIN)/python -m benchmarks.reprice
	$(BIN)/python -m benchmarks.sandboxes

$(READY): requirements.lock pyproject.toml harbor_tasks/environment.lock
	@$(PYTHON) -c 'import sys; sys.exit("fullchain needs Python 3.11 or newer, this is " + sys.version.split()[0] + \
	  ": name one with make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	$(BIN)/python -m harbor_tasks.environment
	@touch $@

# Writes the lock anew from pyproject.toml; needs uv. Versions and hashes only, no index address.
lock:
	uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header --quiet --output-file requirements.lock

clean:
	rm -rf $(VENV) build *.egg-info
