# Every command that this project needs. Debian with python3 (3.11 or newer) and make is enough; `make setup` brings the
# rest into .venv. Tools are started as modules, because scripts of an environment may not survive a folder with spaces.

PYTHON ?=
LOCK_FLAGS ?=
PYTEST_FLAGS ?=
SERVE_FLAGS ?=
PYTHONS ?=
MUTANTS_FLAGS ?=
BASE ?=
COMPARE_FLAGS ?=
# Tests wait more than they compute (pages, kills, spoken seconds): two for each of two cores keep both busy.
WORKERS ?= 4

# Tests start hundreds of programs. Where the environment keeps Python from storing bytecode, each of them would compile every
# module that it imports anew, which is a second of processor time.
export PYTHONDONTWRITEBYTECODE :=

PY := .venv/bin/python
CHECKED := $(wildcard src tests scripts packages benchmarks examples)
# mypy stops at a folder without Python files.
TYPED := src scripts $(if $(wildcard benchmarks/*.py),benchmarks)
TYPED_TOOLS := build/typed_tools
# Each example is a folder that is started in; its modules find each other there. Their names differ between the examples.
TYPED_EXAMPLES := $(wildcard examples/*/*.py)
LINT_IMPORTS := from importlinter.cli import lint_imports_command as lint; lint(prog_name="lint-imports")

.DEFAULT_GOAL := help
.PHONY: help setup models browser speech engine git node ready run test test-long test-pythons pytest lint format types imports sizes bench compare mutants lock wheels docs clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: ## Make or refresh .venv (PYTHON=... chooses the interpreter)
	@PYTHON='$(PYTHON)' sh scripts/setup.sh

# Fetched once, then only checked. Without it the tests that need it are skipped, loudly; on CI that is a failure.
models: setup ## Bring the embedding model that the tests run to build/models
	@mkdir -p build
	@$(PY) -m handrail models install minilm --directory build/models > build/models.txt 2>&1 || { \
		cat build/models.txt >&2; \
		echo "models: MiniLM could not be had, so the tests that run it are skipped." >&2; \
		[ "$$CI" != true ]; \
	}

# Without it the console's tests are skipped, loudly; on CI that is a failure. Screenshots go to build/screenshots.
browser: ## Bring the browser that the console's tests drive
	@sh scripts/browser.sh

# Without it the tests that speak to a microphone are skipped, loudly; on CI that is a failure.
speech: ## Bring the voice that speaks to the microphone in the tests
	@sh scripts/speech.sh

# Without it the tests of local models are skipped, loudly; on CI that is a failure.
engine: setup ## Bring the system library that the engine of local models needs
	@sh scripts/engine.sh

# Without it the tests of repositories are skipped, loudly; on CI that is a failure.
git: ## Bring git, for the tests of repositories
	@sh scripts/git.sh

# Without them the tests that need them are skipped, loudly; on CI that is a failure.
node: setup ## Bring the conformance suite of MCP, and clients and servers of others, from npm
	@$(PY) scripts/node_packages.py

# A project of its own, whose key and conversations are there again at the next start.
run: setup ## Serve the reference tools on this machine; SERVE_FLAGS="--port 0" takes a free port
	@mkdir -p build/run
	@[ -f build/run/handrail.toml ] || printf '[tools]\nreference = ["*"]\n' > build/run/handrail.toml
	@sh scripts/bring_model.sh
	@trap : INT; cd build/run && ../../$(PY) -m handrail serve --key-file console-key $(SERVE_FLAGS)

test: setup ## Check everything: lint, types, import directions, sizes, tests
	@$(MAKE) --no-print-directory -j 2 lint ready
	@$(MAKE) --no-print-directory pytest

# Beside `make lint`, which keeps one core busy. One after the other, because apt-get is for one at a time. Whoever imports a
# module first compiles it: workers that start at once would each compile all of them. Errors are for the tests to tell.
ready: setup
	@for part in models browser speech engine git node; do $(MAKE) --no-print-directory $$part || exit; done
	@$(PY) -m pytest --collect-only --quiet > build/collected.txt 2>&1 || true

pytest: setup models browser speech engine git node ## Run the tests alone (PYTEST_FLAGS=... is passed on)
	@$(PY) -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_FLAGS)

test-long: lint models browser speech engine git node ## Run every test, the long ones too, with many more examples
	@HANDRAIL_TEST_PROFILE=long $(PY) -m pytest -n $(WORKERS) --dist worksteal -m "" $(PYTEST_FLAGS)

test-pythons: setup models ## Run the tests without a browser on every Python found; PYTHONS="3.12 3.13" chooses
	@$(PY) scripts/test_pythons.py --only "$(PYTHONS)" -- $(PYTEST_FLAGS)

lint: setup ## Check format, style, types, import directions, sizes and names
	@$(PY) -m ruff format --check --quiet --output-format concise $(CHECKED) || { echo "Run make format."; exit 1; }
	@$(PY) -m ruff check --quiet $(CHECKED)
	@$(MAKE) --no-print-directory types imports sizes

# A tool's folder may be called "kb-search", which Python cannot import, and every tool has a handler.py, which mypy would
# take for one module. So each folder is checked through a link with an importable name.
types: setup
	@rm -rf $(TYPED_TOOLS) && mkdir -p $(TYPED_TOOLS)
	@for handler in src/handrail/tools/*/handler.py src/handrail_reference/tools/*/handler.py examples/*/tools/*/handler.py; do \
		[ -f "$$handler" ] || continue; \
		folder=$$(dirname "$$handler"); \
		ln -s "../../$$folder" "$(TYPED_TOOLS)/$$(basename "$$folder" | tr - _)"; \
	done
	@MYPYPATH=src$(subst $() ,,$(patsubst %/,:%,$(sort $(dir $(TYPED_EXAMPLES))))) \
		$(PY) -m mypy --no-error-summary $(TYPED) $(TYPED_EXAMPLES) $(if $(wildcard src/handrail/tools/*/handler.py),$(TYPED_TOOLS))

imports: setup
	@mkdir -p build
	@$(PY) -c '$(LINT_IMPORTS)' --no-logo > build/imports.txt || { cat build/imports.txt; exit 1; }

sizes: setup
	@$(PY) scripts/check_sizes.py
	@$(PY) scripts/check_names.py

format: setup ## Format the code and mend what can be mended safely
	@$(PY) -m ruff check --quiet --fix --exit-zero $(CHECKED)
	@$(PY) -m ruff format $(CHECKED)

# Beside the results, not in .venv: only a comparison needs it. Where it cannot be had, the benchmark says so.
build/dbos: scripts/dbos.lock
	@rm -rf $@ && mkdir -p build
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: --target $@ -r $< || { \
		rm -rf $@; \
		echo "bench: DBOS could not be had, so nothing is compared with it." >&2; \
	}

bench: setup build/dbos ## Run the benchmarks
	@$(PY) -m benchmarks

compare: setup ## Compare times with an older commit, side by side (BASE=453f22c COMPARE_FLAGS="--pairs 15")
	@$(PY) scripts/compare.py $(BASE) $(COMPARE_FLAGS)

# Beside the results, not in .venv: nothing else needs it. Can be stopped at any time; the next run continues.
build/mutants/tools: scripts/mutants.lock
	@rm -rf $@ && mkdir -p build/mutants
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: --target $@ -r $<

mutants: setup build/mutants/tools ## Try small faults in ledger, claim, confirmation and budget (MUTANTS_FLAGS="claims --minutes 10")
	@$(PY) scripts/mutants.py $(MUTANTS_FLAGS)

lock: ## Write requirements.lock anew (LOCK_FLAGS=--upgrade takes newer versions)
	@PYTHON='$(PYTHON)' sh scripts/setup.sh lock $(LOCK_FLAGS)

wheels: setup ## Build the wheels of both packages into dist
	@rm -rf dist
	@$(PY) -m pip wheel --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation --wheel-dir dist . packages/handrail-reference
	@ls dist

docs: setup ## Regenerate the documentation that is made from code
	@$(PY) scripts/generate_docs.py
	@$(PY) scripts/install_table.py

clean: ## Remove everything that was generated
	@rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
