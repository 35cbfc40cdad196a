# Two commands matter: `make demo` and `make test`. Both set everything up first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   := $(VENV)/.demo-installed
DEV    := $(VENV)/.dev-installed
DOCS   := $(VENV)/.docs-installed
LOWEST := .venv-lowest
KERNELS := src/quiltdp/compiled/_kernels.so
JOBS   ?= 2
SEEDS  ?= 20000
INPUTS ?= 20000
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Many small tables: one thread each beats the start-up cost of more.
export OMP_NUM_THREADS ?= 1

.PHONY: help setup compiled demo test test-all chromium test-lowest lint types docs figures notebooks mutants soundness fuzz bench bench-quick clean

help:
	@echo 'make demo       set up, then moral graph, quilts, influence table and noise of a bundled model'
	@echo 'make test       set up, then lint, types, doctests and all quick tests'
	@echo 'make test-all   the same with the slow tests'
	@echo 'make test-lowest  the quick tests with the oldest dependencies that pyproject.toml allows'
	@echo 'make setup      only make $(VENV), with everything for development'
	@echo 'make compiled   the hot loops in C anew, after a change of theirs'
	@echo 'make docs       build the documentation into site/, its pictures included'
	@echo 'make notebooks  run the notebooks in place: what they show is today'"'"'s'
	@echo 'make soundness  attack every bound on SEEDS=$(SEEDS) random models; goes on where it stopped'
	@echo 'make fuzz       read INPUTS=$(INPUTS) broken files with every reader'
	@echo 'make mutants    apply deliberate breaks one by one: a test must notice each'
	@echo 'make bench      everything side by side with pgmpy and pyAgrum, into docs/benchmarks/'
	@echo 'make bench-quick  the same in two minutes'
	@echo 'make clean      remove everything that was made'

setup: $(DEV)

# -- environments ------------------------------------------------------------------------------

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'quiltdp needs Python 3.11 or newer: make PYTHON=/path/to/python3 ...' >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || $(PYTHON) -m virtualenv --quiet $(VENV) || \
	  { rm -rf $(VENV); echo 'no environment could be made: install python3-venv' >&2; exit 1; }

$(DEMO): pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing quiltdp into $(VENV) ...'
	@test -e $(DEV) || $(PIP) --editable .
	@$(BIN)/python -m compileall -q src
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing quiltdp and its tools into $(VENV) ...'
	@$(PIP) --editable '.[dev]'
	@$(BIN)/python -m compileall -q src
	@touch $@

$(DOCS): pyproject.toml constraints.txt | $(BIN)/python
	@echo 'installing the documentation tools into $(VENV) ...'
	@$(PIP) --editable '.[docs]'
	@touch $@

# -- what people run -----------------------------------------------------------------------------

# The hot loops in C. Without a compiler their twins in numpy do the same work, more slowly.
compiled: $(DEV) $(KERNELS)

$(KERNELS): $(wildcard src/quiltdp/compiled/*.[ch]) src/quiltdp/compiled/build.py | $(DEMO)
	@$(BIN)/python -m quiltdp.compiled.build

demo: $(DEMO) $(KERNELS)
	$(BIN)/quiltdp quilts models/asia.bif --moral
	$(BIN)/quiltdp quilts models/asia.bif smoke --max-nearby 1
	$(BIN)/quiltdp quilts models/asia.bif
	$(BIN)/quiltdp calibrate models/asia.bif --epsilon 1 --budget 10

test: lint types compiled
	$(BIN)/python -m pytest -n $(JOBS) -m 'not slow'

test-all: lint types compiled chromium
	$(BIN)/python -m pytest -n $(JOBS)

# The browser tests of the report drive Debian's Chromium; without it they are skipped.
chromium:
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium; } >/dev/null 2>&1 || \
	  echo 'Chromium could not be installed: the browser tests will be skipped'

test-lowest:
	$(PYTHON) -m venv $(LOWEST)
	$(PYTHON) tools/lower_bounds.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check \
	  --constraint $(LOWEST)/constraints.txt --editable '.[dev]'
	$(LOWEST)/bin/python -m pytest -n $(JOBS) -m 'not slow'

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV)
	$(BIN)/mypy

docs: $(DOCS) figures
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

figures: $(DEV)
	$(BIN)/python tools/figures.py

notebooks: $(DEV)
	$(BIN)/python tools/notebooks.py

mutants: $(DEV)
	$(BIN)/python tools/mutants.py

soundness: $(DEV)
	$(BIN)/python benchmarks/soundness.py --seeds $(SEEDS) --docs docs/benchmarks/soundness.md

fuzz: $(DEV)
	$(BIN)/python benchmarks/fuzz.py --inputs $(INPUTS) --docs docs/benchmarks/fuzz.md

# pyAgrum is a peer to compare with, not a dependency: without it its columns stay empty.
bench bench-quick: compiled
	@$(PIP) --editable '.[agrum]' || echo 'pyAgrum could not be installed: its columns stay empty'
	$(BIN)/python benchmarks/bench.py $(if $(findstring quick,$@),--quick) --docs docs/benchmarks

clean:
	rm -rf $(VENV) $(LOWEST) site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -f $(KERNELS)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
