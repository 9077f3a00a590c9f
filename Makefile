# make demo: set up, then every gate that this machine can run.   make test: linters and tests.
VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= python3
# the plain torch package carries CUDA; without an NVIDIA GPU the CPU build is enough
TORCH ?= $(shell command -v nvidia-smi >/dev/null 2>&1 && echo "torch>=2.8,<2.16" || echo "torch==2.13.0")
TRITON ?= triton>=3.6,<3.10

.PHONY: demo test lint setup clean

demo: setup
	$(BIN)/pagegate doctor
	$(BIN)/pagegate ci

test: setup lint
	$(BIN)/python -m pytest -q -n 2

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check "$(TORCH)" "$(TRITON)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .pagegate .hypothesis
