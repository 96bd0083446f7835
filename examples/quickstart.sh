#!/usr/bin/env bash
# Installs what is needed into .venv, then runs the quickstart. Needs nothing but Python 3.10+ with pip and venv; no account.
#
#   bash examples/quickstart.sh [arguments of examples/quickstart.py]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo "Setting up .venv (the first time takes a minute or two) ..." >&2
python=$(bash .ci/setup examples)
exec "$python" examples/quickstart.py "$@"
