# The two commands of the README: `make demo` and `make test`. Each sets up its own environment first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Packages are installed without bytecode and tests start dozens of processes: what the first compiles, the others read,
# whatever the environment says of bytecode.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test check pytest format clean

demo: $(READY)
	$(BIN)/defocus demo --out demo

# The checks run beside the tests.
test: $(READY)
	$(MAKE) --no-print-directory --jobs=2 check pytest

pytest: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) demo

# The environment: made anew whenever the pins or the project's requirements change.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("defocus needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[dev,depth]'
	@touch $@
