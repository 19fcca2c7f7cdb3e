#!/usr/bin/env bash
# Times of build and join on generated vectors, the median of five runs each.
set -euo pipefail
adjoin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

median() { # label, command...
    local label=$1
    shift
    for _ in 1 2 3 4 5; do
        local begun=$EPOCHREALTIME
        "$@"
        awk -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }'
    done | sort -g | sed -n 3p | xargs printf '%-40s %8.2f s\n' "$label"
}

"$adjoin" gen --rows 100000 --dimensions 128 --element u8 -o "$work/set.u8bin" --quiet
median "build, 100,000 x 128 u8" "$adjoin" build "$work/set.u8bin" -o "$work/store" --force --quiet
median "join --exact, eps 150" "$adjoin" join "$work/store" --eps 150 --exact --quiet
