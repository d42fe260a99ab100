#!/bin/bash
# Builds $RAY_IMAGE: the checkout on top of $RAY_BASE, as it would be installed. It takes seconds.
set -euo pipefail
tmp=$(mktemp -d -p "$KIND_HOME")
trap 'rm -rf "$tmp"' EXIT
site=$tmp/opt/venv/lib/$("$PYTHON" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')/site-packages
# setuptools leaves its build folder beside pyproject.toml: not in the checkout
mkdir "$tmp/checkout"
tar -C "$CHECKOUT" --exclude-vcs --exclude=__pycache__ --exclude=.nox --exclude=build --exclude=suites/tests \
    -c pyproject.toml README.md LICENSE src chaos clusters reports runtime suites | tar -C "$tmp/checkout" -x
"$UV" pip install -q --no-deps --python "$PYTHON" --link-mode copy --target "$site" "$tmp/checkout"
rm -rf "${site:?}/bin"
mkdir -p "$tmp/opt/venv/bin"
printf '#!/opt/venv/bin/python\nfrom shaketable.suites.command.cli import main\n\nmain()\n' >"$tmp/opt/venv/bin/shaketable"
chmod -R a+rX "$tmp/opt"
chmod 755 "$tmp/opt/venv/bin/shaketable"
"$PYTHON" -m compileall -q -s "$tmp" -p / "$site"
printf 'FROM %s\nCOPY opt /opt\n' "$RAY_BASE" >"$tmp/Dockerfile"
printf 'checkout\n' >"$tmp/.dockerignore"
DOCKER_BUILDKIT=0 docker build -q -t "$RAY_IMAGE" --label "$KEY_LABEL=$KEY" "$tmp"
