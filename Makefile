# Everything a person or CI does here. `make` lists it.
.DEFAULT_GOAL := help
.PHONY: help setup run demo key test check format prove bench calibrate twin lock clean
SHELL := /bin/sh
VENV := .venv
PY := PYTHONPATH=shared:. $(VENV)/bin/python
READY := $(VENV)/.ready-dev

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' Makefile

setup: $(READY) ## make the virtual environment from the hashed lock (the others do it by themselves)

$(READY): requirements/dev.lock
	@sh layers/venv.sh $(VENV) requirements/dev.lock
	@touch $(READY)

run: $(READY) ## start the whole service on this machine; Ctrl-C stops it
	@$(PY) -m strandline.local.run

demo: $(READY) ## feed the conversation that ships with the project, and ask it questions
	@$(PY) -m strandline.local.demo

key: $(READY) ## make an API key while the service runs: make key ARGS="--tenant acme --user user:alice"
	@$(PY) -m strandline.cli key $(ARGS)

test: $(READY) ## run the tests, proofs at a tenth of their size
	@$(PY) -m pytest

check: $(READY) ## format, lint, imports, types
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@PYTHONPATH=shared:. $(VENV)/bin/lint-imports --no-cache
	@$(VENV)/bin/pyright
	@$(PY) -m pytest -q tests/test_conventions.py

format: $(READY) ## put the code into the house's form
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

prove: $(READY) ## run the proofs at the sizes that are promised
	@$(PY) -m pytest tests/prove tests/strandline/store tests/browser --full -s

bench: $(READY) ## measure retrieval and the cost of a call: make bench LOCOMO=path/to/locomo.json
	@test -n "$(LOCOMO)" || { echo "make bench LOCOMO=<file>: the LoCoMo data is not shipped (CC BY-NC 4.0)"; exit 2; }
	@$(PY) -m tests.bench --locomo "$(LOCOMO)" --out build/bench.json

twin: $(READY) ## fit the twin's weights anew, and try them on what they were not fitted to
	@$(PY) -m tests.bench.fit_twin

calibrate: $(READY) ## thresholds of the embedding space that STRANDLINE_EMBEDDING_* name, and what to paste
	@$(PY) -m tests.bench.calibrate $(if $(LOCOMO),--locomo "$(LOCOMO)")

lock: $(READY) ## resolve the hashed requirement locks anew
	@sh layers/lock.sh $(VENV)

clean: ## remove what was built, the data directory excepted
	rm -rf build .pytest_cache .ruff_cache .hypothesis $(VENV)
