# `make demo` and `make test` install what they need into .venv first; that
# step is skipped until setup.py, pyproject.toml or constraints.txt changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo test lint test-slow format benchmark clean

help:
	@echo "make demo       synthesize speech, train, evaluate, transcribe"
	@echo "make test       fast tests, doctests, ruff, mypy and yamllint"
	@echo "make test-slow  the tests that train models (minutes)"
	@echo "make format     rewrite the code in the project's format"
	@echo "make benchmark  training speed against SpeechBrain's own recipe"
	@echo "make clean      remove .venv and the tools' caches"

install: $(INSTALLED)

$(INSTALLED): setup.py pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -c constraints.txt -e ".[dev]"
	@touch $@

demo: $(INSTALLED)
	$(BIN)/mala-asr demo $(DEMO_ARGS)

test: lint
	$(BIN)/python -m pytest

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/yamllint --strict .

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmark: $(INSTALLED)
	$(BIN)/python -m mala_asr.benchmarks.training

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache
