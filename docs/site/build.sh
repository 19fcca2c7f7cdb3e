#!/usr/bin/env bash
# Builds the documentation site into site/. A dead link, a page without a place or a broken reference is an error. ADJOIN
# names the program whose help is printed; by default the one of `make build`, which is built if it does not exist.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
venv=${DOCS_VENV:-$PWD/target/venv-docs}
export ADJOIN=${ADJOIN:-$PWD/target/release/adjoin}

[[ -x $ADJOIN ]] || cargo build --release --locked -p adjoin-cli
if ! cmp --quiet docs/requirements.txt "$venv/requirements.txt"; then
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r docs/requirements.txt
    cp docs/requirements.txt "$venv"
fi
NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build --strict --quiet
echo "the site is in site/index.html"
