#!/usr/bin/env bash
# Compares exact joins of whole real sets with brute force: equal pairs, within the budget. Needs ADJOIN_DATA, a folder
# with sift-200k.u8bin, sift-stars-50k.u8bin, debdesc.f16.npy and wordnet-20k.f16.npy.
set -euo pipefail
adjoin=$1
data=${ADJOIN_DATA:?set ADJOIN_DATA to the folder of the real sets}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

failures=0
check() { # file, threshold option, threshold
    "$adjoin" groundtruth "$data/$1" "$2" "$3" -o "$work/truth.csv" --quiet --force
    "$adjoin" join "$data/$1" "$2" "$3" --exact -o "$work/found.csv" --stats "$work/stats.json" --memory 256MB --quiet --force
    local pairs peak verdict=equal
    pairs=$(($(wc -l < "$work/truth.csv") - 1))
    peak=$(sed -n 's/.*"peak_bytes": \([0-9]*\).*/\1/p' "$work/stats.json")
    cmp -s <(sort "$work/truth.csv") <(sort "$work/found.csv") || { verdict=DIFFERENT; failures=$((failures + 1)); }
    printf '%-22s %-17s %-9s %9d pairs  %s  peak %d MB of 256\n' "$1" "$2" "$3" "$pairs" "$verdict" $((peak / 1000000))
}

check sift-200k.u8bin --eps 126.566
check sift-200k.u8bin --eps 226.55
check sift-stars-50k.u8bin --eps 77.57
check sift-stars-50k.u8bin --eps 174.88
for similarity in 0.95 0.9 0.85 0.8; do
    check debdesc.f16.npy --min-similarity "$similarity"
    check wordnet-20k.f16.npy --min-similarity "$similarity"
done
echo "$failures settings differ"
exit $((failures > 0))
