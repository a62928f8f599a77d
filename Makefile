# Everything a person or CI does here. `make` lists it.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help npm run demo key quick test adapters check format examples prove upgrade bench house layers synth preflight first-key teardown smoke scale prices lock clean
SHELL := /bin/sh
# Compiled modules are kept, whatever the environment says: tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=
VENV := .venv
PY := PYTHONPATH=shared:. $(VENV)/bin/python
CALL := PYTHONPATH=shared:. sh layers/call.sh $(VENV)/bin/python
LEAN := $(VENV)/.ready-run
READY := $(VENV)/.ready-dev
ADAPTERS := $(VENV)/adapters/.ready

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' Makefile

$(LEAN): requirements/run.lock
	@sh layers/venv.sh $(VENV) requirements/run.lock
	@touch $(LEAN)

$(READY): requirements/dev.lock
	@sh layers/venv.sh $(VENV) requirements/dev.lock
	@touch $(LEAN) $(READY)

$(ADAPTERS): requirements/adapters.lock $(READY)
	@sh layers/venv.sh $(VENV)/adapters requirements/adapters.lock
	@sh layers/link_frameworks.sh $(VENV)
	@touch $(ADAPTERS)

npm:
	@command -v npm >/dev/null && command -v node >/dev/null || { echo "strandline: Node.js with npm is not here, which tests and builds of the stack need: install Node.js 20 or later (nodejs.org, brew, apt). make run and make demo do without." >&2; exit 1; }
	@major=$$(node -p 'process.versions.node.split(".")[0]'); [ "$$major" -ge 20 ] || { echo "strandline: Node.js $$major is here, and the CDK needs 20 or later: install it (nodejs.org, brew, apt)." >&2; exit 1; }

run: $(LEAN) ## start the whole service on this machine; Ctrl-C stops it; PORT=9000: another port; TLS=1: HTTPS, client certificates
	@$(if $(findstring command,$(origin PORT)),STRANDLINE_PORT='$(PORT)' )$(CALL) -m strandline.local.run_interruptible strandline.local.run $(if $(TLS),--tls)

demo: $(LEAN) ## beside a running service: fill a memory, ask it, state a fact, erase; in half a minute
	@$(CALL) -m strandline.local.run_interruptible events.demo.tour

key: $(LEAN) ## make an API key while the service runs: make key ARGS="--tenant acme --user user:alice"
	@$(CALL) -m strandline.local.run_interruptible strandline.commands.main operate keys create $(ARGS)

quick: $(READY) ## run the tests that need no database and no other program, in under a minute
	@$(PY) -m pytest -q --quick -m "not source" -n 2 --dist worksteal

test: npm $(READY) node_modules ## run the tests in four processes, and of the proofs a sample
	@$(PY) -m pytest -m "not source" -n 4 --dist worksteal --durations=10 --durations-min=5

adapters: $(ADAPTERS) ## test the adapters with their frameworks, in an environment of their own, beside a service
	@PYTHONPATH=shared:. $(VENV)/adapters/bin/python -m pytest -q --confcutdir=tests/strandline/adapters tests/strandline/adapters $(ARGS)

check: $(READY) $(ADAPTERS) ## format, lint, imports, types, conventions
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@PYTHONPATH=shared:. $(VENV)/bin/lint-imports --no-cache
	@$(VENV)/bin/pyright
	@$(VENV)/bin/pyright --pythonversion 3.10 $$($(PY) layers/client_files.py)
	@$(PY) -m pytest -q -m source $$(grep -rl 'mark\.source' tests --include='test_*.py')

format: $(READY) ## put the code into the house's form
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

examples: $(READY) ## write the answers of the API's examples as the service gives them now
	@$(PY) -m pytest -q tests/strandline/apidocs/test_examples.py -k match_service_answers --renew-examples

prove: npm $(READY) node_modules ## run the proofs at the sizes that are promised; make prove ARGS="--cases 50000 fold"
	@$(PY) -m tests.prove $(ARGS)

upgrade: $(READY) ## test the previous code on this schema: make upgrade SINCE=<commit or tag>
	@$(PY) -m tests.prove.upgrade $(SINCE)

CORPORA = $(if $(LOCOMO),--locomo "$(LOCOMO)") $(if $(TALKS),--talks "$(TALKS)") $(if $(BEAM),--beam "$(BEAM)") $(if $(VECTORS),--vectors "$(VECTORS)")

bench: $(READY) $(if $(filter cold-start,$(NAME)),npm node_modules) ## measure: make bench NAME=recall; without a name, the list of measurements
	@$(PY) -m tests.bench $(NAME) $(CORPORA) $(ARGS)

house: $(READY) ## measure the shape of the code: make house BEFORE=<commit> shows a commit beside it; LIST=1: names; DRAW=60: so many definitions by chance
	@$(PY) -m tests.bench.house $(if $(BEFORE),--before "$(BEFORE)") $(if $(LIST),--list) $(if $(DRAW),--draw $(DRAW))

prices: $(READY) ## write what it costs into docs/cost.md, from infra/prices.py
	@$(PY) -m infra.cost_tables

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

preflight: npm $(READY) node_modules ## ask an account what a stage's deployment would lack: make preflight ARGS="-c stage=prod"
	@$(PY) -m infra.preflight $(ARGS)

first-key: $(READY) ## after a deployment: make a tenant's first key: make first-key ARGS="--tenant acme"
	@$(PY) -m infra.first_key $(ARGS)

teardown: $(READY) ## list what a deleted stack left: make teardown STACK=strandline-dev; DELETE=1: delete it for good
	@$(PY) -m infra.teardown "$(STACK)" $(if $(DELETE),--delete)

smoke: $(READY) ## check a deployment by thirteen checks: KEY=<the operator's key> make smoke URL=https://...
	@$(PY) -m infra.smoke "$(URL)"

lock: $(READY) ## resolve the hashed requirement locks
	@sh layers/lock.sh $(VENV)

clean: ## remove what was built, the data directory excepted
	rm -rf build cdk.out .pytest_cache .ruff_cache .hypothesis $(VENV)
