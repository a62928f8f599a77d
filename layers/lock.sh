#!/bin/sh
# Resolve the locks: hashed, for every platform, without the address of any registry. lock.sh VENV
set -eu
compile() {
    "$venv/bin/uv" pip compile --quiet --generate-hashes --universal --no-header --no-annotate \
        --no-emit-index-url --no-emit-package strandline --no-emit-package strandline-service "$@"
}
resolve() { compile --python-version 3.13 shared/pyproject.toml "$@"; }
venv=$1
# The largest first, and the others constrained by it: what ships was tested together.
resolve --extra all --group pyproject.toml:dev -o requirements/dev.lock
within="--constraints requirements/dev.lock"
compile --python-version 3.10 pyproject.toml -o requirements/client.lock  # on older Pythons other versions, too
resolve $within --extra functions -o requirements/runtime.lock
resolve $within --extra functions --extra model -o requirements/model.lock
resolve $within --extra functions --extra graph -o requirements/graph.lock
resolve $within --extra functions --group pyproject.toml:infra -o requirements/infra.lock
left_out=$("$venv/bin/python" -c 'import layers.contents as c; print(*sorted(c.NEVER_INSTALLED))')
resolve $within --extra all $(printf -- '--no-emit-package %s ' $left_out) -o requirements/run.lock
# In environments of their own: the adapters' frameworks need an older mcp, checkov an older boto3.
compile --python-version 3.13 --constraints requirements/client.lock --group pyproject.toml:adapters pyproject.toml -o requirements/adapters.lock
printf 'checkov==3.3.30\n' | "$venv/bin/uv" pip compile --quiet --generate-hashes --universal --python-version 3.13 \
    --no-header --no-annotate --no-emit-index-url - -o requirements/checkov.lock
