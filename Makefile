# make demo: set up, then every gate that this machine can run.   make test: linters and tests.
VENV ?= .venv
BIN := $(VENV)/bin
PYTHON ?= python3
# cpu, cuda, rocm or macos; left out, what this machine has decides
BUILD ?=

.PHONY: demo test lint setup lock clean

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

$(VENV)/.ready: pyproject.toml requirements-dev.txt suite/pagegate/bootstrap.py
	@$(PYTHON) -I suite/pagegate/bootstrap.py $(VENV) $(if $(BUILD),--build $(BUILD))
	@touch $@

# renews what make setup installs; needs uv
lock:
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --upgrade --quiet \
	  --no-emit-package torch --no-emit-package triton --custom-compile-command "make lock" \
	  --output-file requirements-dev.txt

clean:
	rm -rf $(VENV) .pagegate .hypothesis
