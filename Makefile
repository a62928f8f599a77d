# Everything a person or CI does here. `make` lists it.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help npm setup run demo key quick test check format prove upgrade bench bench-recall bench-references bench-held-out bench-growth bench-graph bench-analytics bench-conflicts bench-graph-reading bench-reading bench-weights fit-relevance bench-chains bench-graph-extraction bench-changes house pictures cold calibrate fit-heuristic prices scale layers synth smoke lock clean
SHELL := /bin/sh
# Compiled modules are kept, whatever the environment says: tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=
VENV := .venv
PY := PYTHONPATH=shared:. $(VENV)/bin/python
CALL := PYTHONPATH=shared:. sh layers/call.sh $(VENV)/bin/python
LEAN := $(VENV)/.ready-run
READY := $(VENV)/.ready-dev

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' Makefile

setup: $(READY) ## make the virtual environment from the hashed lock (the others do it by themselves)

$(LEAN): requirements/run.lock
	@sh layers/venv.sh $(VENV) requirements/run.lock
	@touch $(LEAN)

$(READY): requirements/dev.lock
	@sh layers/venv.sh $(VENV) requirements/dev.lock
	@touch $(LEAN) $(READY)

npm:
	@command -v npm >/dev/null && command -v node >/dev/null || { echo "strandline: Node.js with npm is not here, which tests and builds of the stack need: install Node.js 22 or later (nodejs.org, brew, apt). make run and make demo do without." >&2; exit 1; }

run: $(LEAN) ## start the whole service on this machine; Ctrl-C stops it; TLS=1: HTTPS, client certificates
	@$(CALL) -m strandline.local.run_interruptible strandline.local.run $(if $(TLS),--tls)

demo: $(LEAN) ## beside a running service: fill a memory, ask it, state a fact, erase; in half a minute
	@$(CALL) -m strandline.local.run_interruptible events.demo.tour

key: $(LEAN) ## make an API key while the service runs: make key ARGS="--tenant acme --user user:alice"
	@$(CALL) -m strandline.local.run_interruptible strandline.cli key $(ARGS)

quick: $(READY) ## run the tests that need no database and no other program, in under a minute
	@$(PY) -m pytest -q --quick -m "not source" -n 2 --dist worksteal

test: npm $(READY) node_modules ## run the tests in four processes, and of the proofs a sample
	@$(PY) -m pytest -m "not source" -n 4 --dist worksteal

check: $(READY) ## format, lint, imports, types, conventions
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@PYTHONPATH=shared:. $(VENV)/bin/lint-imports --no-cache
	@$(VENV)/bin/pyright
	@$(VENV)/bin/pyright --pythonversion 3.10 $$($(PY) layers/client_files.py)
	@$(PY) -m pytest -q -m source $$(grep -rl 'mark\.source' tests --include='test_*.py')

format: $(READY) ## put the code into the house's form
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

.PHONY: examples
examples: $(READY) ## write the answers of the API's examples anew, as the service gives them
	@$(PY) -m pytest -q tests/functions/test_examples.py -k answers_as_it_says --renew-examples

prove: $(READY) ## run the proofs at the sizes that are promised; make prove ARGS="--cases 50000 fold"
	@$(PY) -m tests.prove $(ARGS)

upgrade: $(READY) ## test the code of before on this schema: make upgrade SINCE=<commit or tag>
	@$(PY) -m tests.prove.upgrade $(SINCE)

bench: $(READY) ## measure retrieval and the cost of a call: make bench LOCOMO=path/to/locomo.json
	@test -n "$(LOCOMO)" || { echo "make bench LOCOMO=<file>: the LoCoMo data is not shipped (CC BY-NC 4.0)"; exit 2; }
	@$(PY) -m tests.bench --locomo "$(LOCOMO)" --out build/bench.json

CORPORA = $(if $(LOCOMO),--locomo "$(LOCOMO)") $(if $(TALKS),--talks "$(TALKS)") $(if $(BEAM),--beam "$(BEAM)") $(if $(VECTORS),--vectors "$(VECTORS)")

bench-recall: $(READY) ## measure how well recall answers: LOCOMO=<file> TALKS=<folder> BEAM=<clone> VECTORS=<file>, all optional
	@$(PY) -m tests.bench.recall_quality $(CORPORA)

bench-references: $(READY) ## the part of bench-recall about references: make bench-references LOCOMO=<file> TALKS=<folder>
	@$(PY) -m tests.bench.references_quality $(if $(LOCOMO),--locomo "$(LOCOMO)") $(if $(TALKS),--talks "$(TALKS)")

bench-held-out: $(READY) ## rank each conversation by weights chosen without it: as bench-recall, ARGS=--ideas
	@$(PY) -m tests.bench.held_out $(CORPORA) $(ARGS)

bench-growth: $(READY) ## measure how recall and the topic index grow: make bench-growth ARGS="1000 10000 100000"
	@$(PY) -m tests.bench.growth $(ARGS)

bench-graph: $(READY) ## measure search and traversal of the graph beside bare SQL: make bench-graph ARGS="100000"
	@$(PY) -m tests.bench.graph $(ARGS)

bench-conflicts: $(READY) ## measure how well contradicting facts are found
	@$(PY) -m tests.bench.conflicts

bench-graph-reading: $(READY) ## measure what the graph gives to recall and contexts: make bench-graph-reading LOCOMO=<file>, optional
	@$(PY) -m tests.bench.graph_reading $(if $(LOCOMO),--locomo "$(LOCOMO)") $(ARGS)

bench-reading: $(READY) ## write what readers answer questions from: make bench-reading LOCOMO=<file>, optional
	@$(PY) -m tests.bench.reading $(if $(LOCOMO),--locomo "$(LOCOMO)") $(ARGS)

bench-weights: $(READY) ## measure recency and importance in recall's order: make bench-weights LOCOMO=<file>, optional
	@$(PY) -m tests.bench.recall_weights $(if $(LOCOMO),--locomo "$(LOCOMO)")

bench-analytics: $(READY) ## measure the graph's analytics: make bench-analytics ARGS="1000 10000 100000"
	@$(PY) -m tests.bench.analytics $(ARGS)

fit-relevance: $(READY) ## fit recall's weights anew, to the corpora of bench-recall
	@$(PY) -m tests.bench.fit_relevance $(CORPORA) $(ARGS)

bench-chains: $(READY) ## measure how well topics are cut and named, on conversations with known topics
	@$(PY) -m tests.bench.chains $(ARGS)

bench-graph-extraction: $(READY) ## measure what the heuristic model extracts for the knowledge graph: ARGS=--list names it
	@$(PY) -m tests.bench.graph_extraction $(ARGS)

bench-changes: $(READY) ## measure whether the current value is told, and never a stale one alone: ARGS=--list shows all
	@$(PY) -m tests.bench.changes $(ARGS)

house: $(READY) ## measure the shape of the code: make house BEFORE=<commit> shows a commit beside it; LIST=1: names
	@$(PY) -m tests.bench.house $(if $(BEFORE),--before "$(BEFORE)") $(if $(LIST),--list)

pictures: $(READY) ## draw the command line into docs/cli-*.svg, from real runs
	@$(PY) -m tests.bench.command_pictures

prices: $(READY) ## write what it costs into docs/cost.md, from infra/prices.py
	@$(PY) -m infra.prices

cold: npm $(READY) node_modules ## measure cold starts from the built layers: make cold ARGS="--runs 15 ingest query"
	@$(PY) -m tests.bench.cold_start $(ARGS)

fit-heuristic: $(READY) ## fit the heuristic model's weights anew into weights.json, and test them on held-out conversations
	@$(PY) -m tests.bench.fit_heuristic

calibrate: $(READY) ## thresholds of the embedding space that STRANDLINE_EMBEDDING_* name, and what to paste
	@$(PY) -m tests.bench.calibrate $(if $(LOCOMO),--locomo "$(LOCOMO)")

layers: npm $(READY) node_modules ## build the layers and function assets, for arm64 and for this machine
	@$(PY) layers/build.py $(ARGS)

node_modules: package-lock.json
	@npm ci --silent
	@touch node_modules

synth: npm $(READY) node_modules ## write the stack's template to cdk.out: make synth ARGS="-c stage=prod"
	@$(PY) layers/build.py --arch arm64
	@node_modules/.bin/cdk synth --quiet $(ARGS)

scale: $(READY) ## write what a stack serves into docs/scale.md, from infra/capacity_estimate.py
	@$(PY) -m infra.capacity_estimate

smoke: $(READY) ## check a deployment by twelve calls: make smoke URL=https://... KEY=<the operator's key>
	@KEY="$(KEY)" $(PY) -m infra.smoke "$(URL)"

lock: $(READY) ## resolve the hashed requirement locks anew
	@sh layers/lock.sh $(VENV)

clean: ## remove what was built, the data directory excepted
	rm -rf build cdk.out .pytest_cache .ruff_cache .hypothesis $(VENV)
