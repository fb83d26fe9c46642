# Everything runs in .venv inside this clone; nothing outside it is changed.
# `make` without a goal lists the goals.

PYTHON = .venv/bin/python
READY = .venv/.ready

export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help setup run test check bench attacks clean

help:
	@echo "make setup   build the virtual environment .venv (the other goals do it when needed)"
	@echo "make run     see the agent answer a question about a real table; needs no key, no network"
	@echo "make test    run all tests"
	@echo "make check   lint, format and type checks"
	@echo "make bench   measure speed and memory"
	@echo "make attacks play all attacks at all sandbox levels; write the table in SECURITY.md"
	@echo "make clean   remove .venv and caches"

setup: $(READY)

# Older than what it is made from, or missing: build it. Otherwise nothing is installed again.
$(READY): pyproject.toml scripts/setup.sh
	@sh scripts/setup.sh
	@touch $(READY)

run: $(READY)
	@.venv/bin/kernel-agent run --model offline --data example_notebooks/data/penguins.csv \
	  "Compare the body mass of the species"
	@echo
	@echo "To ask about your own file with a real model, put your key in and run:"
	@echo
	@echo "  OPENAI_API_KEY=... .venv/bin/kernel-agent run \"Your question\" --data your-file.csv --model gpt-5-mini"

test: $(READY)
	$(PYTHON) -m pytest

check: $(READY)
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

bench: $(READY)
	$(PYTHON) benchmarks/run.py
	$(PYTHON) benchmarks/formats.py

# As root, name an interpreter for the ordinary user with KERNEL_AGENT_USER_PYTHON.
attacks: $(READY)
	PYTHONPATH=.:tests $(PYTHON) -m attacks.collect

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis
