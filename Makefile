# Everything runs in .venv inside this clone; nothing outside it is changed, but that root gets the
# system's package python3-venv where it is missing.
# `make` without a goal lists the goals.

PY = .venv/bin/python
USABLE = .venv/.usable# what a user needs
READY = .venv/.ready#  and what tests and checks need
ENGINES = .venv/.engines#  and what carries out evaluations elsewhere
BOOK = .venv/.book#  and what makes a book of the documents

export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Hundreds of processes start in a run of the tests; none of them should compile anew.
unexport PYTHONDONTWRITEBYTECODE
# Nor should each that imports NumPy have threads wait for work that never comes.
export OPENBLAS_NUM_THREADS = 1

.PHONY: help setup run unit test test-levels test-browsers test-boundary test-all test-parallel test-alone test-engines goldens mutants check reference book bench attacks eval-oracle eval-campaign pins newest clean

help:
	@echo "make setup   build .venv with all that tests and checks need (other goals do it when needed)"
	@echo "make run     build .venv with what a user needs, and see the agent answer a question about a real table; only the build needs the network, nothing a key"
	@echo "make unit    run the tests that start nothing"
	@echo "make test    run these and the tests with real kernels, servers and notebooks"
	@echo "make test-levels  run what must hold of sandbox levels, attacks and browsers on every landing; its two parts: test-browsers, test-boundary"
	@echo "make test-all  run all tests: every sandbox level, browsers, attacks, goldens, too; its three parts: test-parallel, test-alone, test-engines"
	@echo "make goldens record anew all that is seen from outside: look at its difference before you commit it"
	@echo "make mutants break 300 places of the code, one at a time: which do the unit tests notice?"
	@echo "make check   lint, format and type checks"
	@echo "make reference  write docs/reference anew from the code"
	@echo "make book    make a book of all documents, in site/html: a broken link or anchor is an error"
	@echo "make bench   measure speed and memory"
	@echo "make attacks play all attacks at all sandbox levels; write docs/attacks.md"
	@echo "make eval-oracle   turns that each protocol needs at best, on AgentDojo and BFCL"
	@echo "make eval-campaign 10,000 simulated runs: what an evaluation costs beside the runs"
	@echo "make pins    choose exact versions of what constraints.txt lacks; with PINS=-U of all anew"
	@echo "make newest  run the quick tests with the newest version of every package, in .venv-newest"
	@echo "make clean   remove .venv, the book and caches"

setup: $(READY)

# Older than what it is made from, or missing: build it. Otherwise nothing is installed again.
$(USABLE): pyproject.toml constraints.txt scripts/setup.sh
	@sh scripts/setup.sh
	@touch $@

$(READY): $(USABLE)
	@sh scripts/setup.sh dev
	@touch $@

$(ENGINES): $(READY)
	@sh scripts/setup.sh engines
	@touch $@

$(BOOK): $(READY)
	@sh scripts/setup.sh book
	@touch $@

run: $(USABLE)
	@.venv/bin/kernel-agent run --model offline --data example_notebooks/data/penguins.csv \
	  "Compare the average body mass by species"
	@echo
	@echo "To ask about your own file with a real model, put your key in and run:"
	@echo
	@echo "  export OPENAI_API_KEY=..."
	@echo "  .venv/bin/kernel-agent run \"Your question\" --data your-file.csv --model gpt-5-mini"

# The folders of a tier; CONTRIBUTING.md says what is where. The first two try fewer generated examples.
UNIT = tests/unit
TEST = $(UNIT) tests/goldens tests/run tests/parts tests/kernel tests/corpus
# Levels, attacks and browsers: need system packages. What takes longest begins first.
LEVELS = tests/attacks tests/sandbox
BROWSER = tests/browser
# Three workers for two processors: a third of the time a test waits for a kernel or a server.
PARALLEL = -q -n $(shell echo $$(( ($$(nproc) * 3 + 1) / 2 ))) --dist
QUICK = --hypothesis-profile quick
WORKERS = logical
# What fails is tried once more, alone.
TIER = $(PY) scripts/tier.py

unit: $(READY)
	$(TIER) -q -n $(WORKERS) --dist loadfile $(QUICK) $(UNIT)

test: $(READY)
	$(TIER) $(PARALLEL) worksteal $(QUICK) -m "not long" $(TEST)

test-all: test-parallel test-alone test-engines

test-parallel: $(READY)
	$(TIER) $(PARALLEL) worksteal $(TEST) tests/suites

# What must hold of them on every landing.
test-levels: test-browsers test-boundary

# One after another: two starve each other.
test-browsers: $(READY)
	$(TIER) -q $(QUICK) -m "not long" $(BROWSER)

test-boundary: $(READY)
	$(TIER) $(PARALLEL) worksteal $(QUICK) -m "not long" $(LEVELS) $(BUT)

# All of them, one test after another: nothing disturbs what is measured.
test-alone: $(READY)
	$(TIER) -q $(LEVELS) $(BROWSER)
	KERNEL_AGENT_TEST_SANDBOX=namespaces $(TIER) -q tests/kernel/test_kernel_session.py
	KERNEL_AGENT_TEST_SANDBOX=landlock $(TIER) -q tests/kernel/test_kernel_session.py

# Dask needs seconds to start, and on a busy machine more than it waits for itself.
test-engines: $(ENGINES)
	$(TIER) -q tests/engines

goldens: $(READY)
	$(PY) tests/goldens/record.py

# Break 300 places of the code, one at a time: which do the unit tests notice?
mutants: $(READY)
	nice -n 19 $(PY) scripts/mutate.py

# Has its own packages beside those of the wheel: the dependency groups.
NOT_SHIPPED = tests benchmarks scripts example_notebooks example_scripts

check: $(READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m deptry .
	$(PY) -m deptry $(NOT_SHIPPED) --exclude '\.venv' --ignore DEP002,DEP004
	$(PY) -m mypy

# A test says when a page of it is not what the code says.
reference: $(READY)
	$(PY) scripts/reference.py

book: $(BOOK) reference
	$(PY) -m sphinx --quiet --fresh-env --write-all --fail-on-warning --keep-going --conf-dir docs --doctree-dir site/doctrees . site/html
	@echo "site/html/index.html"

bench: $(READY)
	$(PY) benchmarks/run.py
	$(PY) benchmarks/formats.py

# As root, name an interpreter for the ordinary user with KERNEL_AGENT_USER_PYTHON.
attacks: $(READY)
	PYTHONPATH=.:tests $(PY) -m attacks.collect

# The suites' packages ask for versions that the project does not want: they have their own
# environment. bfcl-eval comes without its dependencies, of which this needs mpmath only.
SUITES = .venv-suites/bin/python

.venv-suites/.ready: pyproject.toml Makefile
	@python3 -m venv .venv-suites
	@$(SUITES) -m pip install --quiet --editable '.[eval]' 'agentdojo>=0.1.35' pytest pytest-asyncio hypothesis
	@$(SUITES) -m pip install --quiet --no-deps bfcl-eval mpmath
	@touch $@

eval-oracle: .venv-suites/.ready
	@$(SUITES) -m benchmarks.oracle agentdojo --out benchmarks/results
	@$(SUITES) -m benchmarks.oracle bfcl --out benchmarks/results
	@$(SUITES) -m pytest -q tests/suites

# Exact versions for `make setup`, on all Pythons that are promised. What is pinned already stays as
# it is if it can; PINS=-U takes the newest of everything. Suites have their own environment.
OPTIONS = data otel mcp sql remote interpreter smolagents eval dask
PINS =

pins: $(READY)
	$(PY) -m uv pip compile --quiet --universal --python-version 3.11 \
	  $(OPTIONS:%=--extra %) --group dev --group engines --group book --no-annotate --no-header --no-emit-index-url $(PINS) \
	  pyproject.toml --output-file constraints.txt

# It informs, and fails nothing.
newest:
	rm -rf .venv-newest
	VENV=.venv-newest CONSTRAINTS= sh scripts/setup.sh
	VENV=.venv-newest CONSTRAINTS= sh scripts/setup.sh dev
	-.venv-newest/bin/python scripts/newer.py
	-.venv-newest/bin/python scripts/tier.py $(PARALLEL) worksteal $(QUICK) -m "not long" $(TEST)

eval-campaign: $(ENGINES)
	$(PY) benchmarks/eval_campaign.py

clean:
	rm -rf site .venv .venv-newest .venv-suites .pytest_cache .mypy_cache .ruff_cache .hypothesis
