# Two commands do everything: `make demo` fuses a sample model and prints the report, `make test` is what CI runs.
# Both make and fill .venv when it is missing or pyproject.toml has changed, and need Python >= 3.11, pip and make. uv
# installs the packages, because it is faster; where it does not run, pip does.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
OPENVINO := .venv-openvino
OLDEST := .venv-oldest
# What is installed depends on pyproject.toml alone: an editable install follows the code by itself.
HASH := $(shell cksum < pyproject.toml | cut -d ' ' -f 1)
INSTALLED := $(VENV)/installed-$(HASH)
INSTALLED_DEV := $(VENV)/installed-dev-$(HASH)
MODEL ?= sample_models/bert_torchscript.onnx
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
INSTALL = { $(PIP) uv && $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --editable '$(1)'; } || $(PIP) --editable '$(1)'

.PHONY: help demo install test lint types tests test-thorough test-openvino test-oldest dist format clean

help:
	@echo 'make demo     fuse a sample model ($(MODEL)) and print the report'
	@echo 'make test     lint, types and tests, as CI runs them'
	@echo 'make test-thorough   the tests with every pair of alternatives, and more draws'
	@echo 'make test-openvino   test what runs on OpenVINO, in an environment of its own'
	@echo 'make test-oldest     fuse the sample models with the oldest packages that pyproject.toml allows'
	@echo 'make dist     build the source distribution and the wheels into dist/, and try each'
	@echo 'make format   let ruff put the code in its format'
	@echo 'make clean    remove .venv, caches and built files'

demo: $(INSTALLED)
	$(BIN)/onnx-subgraph fuse $(MODEL) --output-dir build/demo

install: $(INSTALLED_DEV)

# Types are checked beside the tests, because mypy uses one core only.
test: lint
	@$(MAKE) --no-print-directory --jobs 2 types tests

lint: $(INSTALLED_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-actions action.yml

types: $(INSTALLED_DEV)
	$(BIN)/mypy

tests: $(INSTALLED_DEV)
	$(BIN)/pytest -n 2 --dist worksteal

# Draws more examples, and runs the slow tests.
test-thorough: $(INSTALLED_DEV)
	$(BIN)/pytest -n 2 --dist worksteal --thorough

# A pure wheel, and one with the compiled kernels for each processor that Linux wheels are made for.
dist: $(INSTALLED_DEV)
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	ONNX_SUBGRAPH_WHEEL=x86_64 $(BIN)/python -m build --no-isolation --wheel
	ONNX_SUBGRAPH_WHEEL=aarch64 $(BIN)/python -m build --no-isolation --wheel
	ONNX_SUBGRAPH_DIST=dist $(BIN)/pytest tests/cli/test_wheel.py

format: $(INSTALLED_DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# onnxruntime's wheels exclude each other, so the one with OpenVINO has an environment of its own.
test-openvino: $(OPENVINO)/installed-$(HASH)
	$(OPENVINO)/bin/pytest -rs tests/providers

$(OPENVINO)/installed-$(HASH):
	@test -n '$(PYTHON)' || { echo 'Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3'; exit 2; }
	$(PYTHON) -m venv --clear $(OPENVINO)
	$(OPENVINO)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(OPENVINO)/bin/python -m pip uninstall --quiet --yes onnxruntime
	$(OPENVINO)/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps onnxruntime-openvino
	@touch $@

# The newest packages are tested by `make test`.
test-oldest: $(OLDEST)/installed-$(HASH)
	$(OLDEST)/bin/pytest -p no:cacheprovider tests/sample_models tests/operators

$(OLDEST)/installed-$(HASH):
	@test -n '$(PYTHON)' || { echo 'Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3'; exit 2; }
	$(PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST)/bin/python --resolution lowest-direct --editable '.[report]' \
		'hypothesis>=6.100' 'jsonschema>=4.20' 'pytest>=8.2'
	@touch $@

$(BIN)/python:
	@test -n '$(PYTHON)' || { echo 'Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3'; exit 2; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 2; }

$(INSTALLED): | $(BIN)/python
	$(call INSTALL,.)
	@rm -f $(VENV)/installed-*
	@touch $@

$(INSTALLED_DEV): | $(BIN)/python
	$(call INSTALL,.[dev])
	@rm -f $(VENV)/installed-*
	@touch $(INSTALLED) $@

clean:
	rm -rf $(VENV) $(OPENVINO) $(OLDEST) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
