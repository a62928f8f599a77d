#!/bin/sh
# A virtual environment with exactly what a lock names: venv.sh DIRECTORY LOCK
set -eu
if [ -L "$1" ]; then # what it leads to belongs to somebody else, and would be emptied
    echo "strandline: $1 is a link to another environment and does not match $2: remake it where it lies, or remove the link" >&2
    exit 1
fi
found=""
for candidate in "${PYTHON:-}" python3.13 python3 "$HOME/.pyenv/versions/3.13"*/bin/python; do
    [ -n "$candidate" ] || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))' >/dev/null 2>&1; then
        found=$candidate
        break
    fi
done
if [ -z "$found" ]; then
    echo "strandline: Python 3.13 is not here: install it (python.org, pyenv, brew, apt), or say where it is: make PYTHON=/path/to/python3.13 run" >&2
    exit 1
fi
"$found" -c 'import venv' 2>/dev/null || { echo "strandline: $found has no venv module: install python3.13-venv" >&2; exit 1; }
echo "strandline: making $1 with $("$found" --version) …"
"$found" -m venv --clear "$1"
"$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary :all: -r "$2"
