# Two commands matter: `make demo` and `make test`. Both set everything up first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
JOBS   ?= 2

.PHONY: setup demo test test-all lint types docs soundness bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(VENV)/.demo
	$(BIN)/quiltdp quilts models/asia.bif smoke

$(VENV)/.demo: pyproject.toml constraints.txt
	test -e $(STAMP) || { $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e . ; }
	touch $@

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

test: $(STAMP) lint types
	$(BIN)/pytest -n $(JOBS) -m 'not slow'

test-all: $(STAMP) lint types
	$(BIN)/pytest -n $(JOBS)

clean:
	rm -rf $(VENV) site build dist
