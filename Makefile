# make demo    set up a virtual environment, sweep all methods on the built-in data, show where to look next
# make test    set up a virtual environment, lint, check types, run the tests
# make test-cluster  the tests on Ray clusters of several nodes, and sweeps one after another
# make test-oldest   the tests with the oldest supported versions of all packages, in .venv-oldest
# make dist    build the sdist and the wheel into dist/
# make docs    set up a virtual environment, build the documentation into docs/_site
# make bench   compare linear models with NumPy, SciPy and implicit (docs/performance.md)
# make clean   remove the virtual environments and all that was built
PYTHON ?= python3
VENV   ?= .venv
# Processes that run the tests, each a file at a time.
WORKERS ?= 3

# Folders of tests that `make test-oldest` runs, and its PyTorch. Older builds for Linux, such as TORCH=2.2.0, the lower bound,
# bring 2.5 GB of CUDA libraries.
OLDEST ?= tests
TORCH  ?= 2.13.0

.PHONY: demo test test-cluster test-oldest dist docs install bench clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rankbench needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test,docs]"
	@touch $@

demo: install
	$(VENV)/bin/rankbench demo

test: install
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 10

test-cluster: install
	$(VENV)/bin/python -m pytest -m "cluster and not slow" -n 2 --dist loadfile --durations 10

test-oldest: .venv-oldest/.installed-$(TORCH)
	.venv-oldest/bin/python -m pytest -n $(WORKERS) --dist loadfile --durations 5 $(OLDEST)

.venv-oldest/.installed-$(TORCH): pyproject.toml constraints-oldest.txt
	rm -rf .venv-oldest
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-oldest.txt torch==$(TORCH) -e ".[test]"
	@touch $@

dist: install
	rm -rf dist
	$(VENV)/bin/python -m build

docs: install
	$(VENV)/bin/python -m sphinx -W --keep-going -q -E -b html docs docs/_site
	@echo docs/_site/index.html

bench: install
	$(VENV)/bin/python benchmarks/linear.py

clean:
	rm -rf $(VENV) .venv-oldest build dist docs/_site docs/methods docs/jupyter_execute .pytest_cache .ruff_cache .mypy_cache .hypothesis
