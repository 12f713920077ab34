# The commands of the README: `make demo`, `make test`, `make docs`. Each sets up its own environment first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BASE := $(VENV)/.base
DOCS := $(VENV)/.docs
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt

# Packages are installed without bytecode and tests start dozens of processes: what the first compiles, the others read,
# whatever the environment says of bytecode.
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test docs check pytest format clean

demo: $(BASE)
	$(BIN)/defocus demo --out demo
	@echo "'source $(BIN)/activate' makes defocus a command of this shell"

# The site, in build/site: generated pages, figures of the lenses (GALLERY=few, all or none), executed notebooks; every
# link of it and of the repository's Markdown is checked.
GALLERY ?= few
docs: $(DOCS)
	$(BIN)/python tools/lens_gallery.py docs/generated/gallery --lenses $(GALLERY)
	$(BIN)/python -m sphinx -W --keep-going -n -q -b html -d build/doctrees docs build/site
	$(BIN)/python tools/check_links.py build/site
	@echo "look at $(CURDIR)/build/site/index.html"

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
	rm -rf $(VENV) demo build docs/generated

# The environment: made anew whenever the pins or the project's requirements change. A demo needs the package alone;
# tests add PyTorch, Ray and their own tools, four fifths of it all. The pip that comes with Python 3.11 takes twice as
# long to find what to install.
define environment
	$(PYTHON) -c 'import sys; sys.exit("defocus needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(PIP) pip
endef

$(BASE): pyproject.toml constraints.txt
	$(environment)
	$(PIP) -e .
	@touch $@

$(READY): pyproject.toml constraints.txt
	$(environment)
	$(PIP) -e '.[dev,depth]'
	@touch $(BASE) $@

$(DOCS): pyproject.toml constraints.txt
	$(environment)
	$(PIP) -e '.[docs,train,web]'
	@touch $(BASE) $@
