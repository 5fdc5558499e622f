# Everything a newcomer types. Each target sets up its own .venv when it has to, and is quick when nothing changed.
PYTHON ?= python3
PIP = .venv/bin/pip --disable-pip-version-check --quiet
PY = .venv/bin/python

.PHONY: demo test check bench format clean

demo: .venv/.core
	@.venv/bin/stakes plan --published docvqa

test: .venv/.dev
	$(PY) -m pytest

check: .venv/.dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

bench: .venv/.bench
	$(PY) benchmarks/allocation.py
	$(PY) benchmarks/resize.py
	$(PY) benchmarks/selection.py --device cpu --blocks 2
	$(PY) benchmarks/answering.py

format: .venv/.dev
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"stakes needs Python 3.11 or later, this is {v[0]}.{v[1]}; run: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv

# One stamp per set of extras: reinstalls only when the project file or the pins change.
.venv/.core: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) install --constraint constraints.txt --editable .
	@touch $@

.venv/.dev: .venv/.core
	$(PIP) install --constraint constraints.txt --editable '.[dev,local,hub]'
	@touch $@

.venv/.bench: .venv/.dev
	$(PIP) install --constraint constraints.txt --editable '.[bench]'
	@touch $@
