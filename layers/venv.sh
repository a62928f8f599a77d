#!/bin/sh
# Set up a virtual environment with at least the packages of a lock: venv.sh DIRECTORY LOCK
set -eu
trap 'echo "strandline: interrupted" >&2; exit 130' INT TERM
found=""
for candidate in "${PYTHON:-}" python3.13 python3 "${HOME:-/root}/.pyenv/versions/3.13"*/bin/python; do
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
"$found" -c 'import ensurepip, venv' 2>/dev/null || { echo "strandline: $found has no venv module: install python3.13-venv" >&2; exit 1; }
here=$(dirname "$0")
exec sh "$here/call.sh" "$found" -I "$here/install.py" "$1" "$2"
