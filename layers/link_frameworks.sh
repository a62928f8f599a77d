#!/bin/sh
# For the type checker, which knows one environment: links in VENV/adapters/frameworks to what the
# adapters' environment alone has. link_frameworks.sh VENV
set -eu
cd "$1"
others=$(echo lib/python3.*/site-packages)
rm -rf adapters/frameworks
mkdir adapters/frameworks
for package in "adapters/$others"/*; do
    name=$(basename "$package")
    # Of a namespace, as google is, both environments have parts.
    [ -e "$others/$name" ] && [ "$name" != google ] || ln -s "../$others/$name" "adapters/frameworks/$name"
done
