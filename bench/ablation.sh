#!/usr/bin/env bash
# What orders and caches read: DiskJoin's ablation (id order and LRU, then Belady, then an order made from the graph),
# beside the orders of adjoin, on the bucket graphs of a recall of 0.9 and of 0.99, with caches of 5, 10 and 20 % of the
# store. Figures are of real runs, not of the plan. Needs ADJOIN_DATA with the set, a file of u8 vectors.
# usage: ablation.sh ADJOIN [SET EPS]
set -euo pipefail
adjoin=$1
set_name=${2:-sift-900k.u8bin}
eps=${3:-163.884}
data=${ADJOIN_DATA:?set ADJOIN_DATA to the folder of the real sets}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$adjoin" build "$data/$set_name" -o "$work/store" --quiet
bytes=$(stat -c %s "$work"/store/vectors-*.bin)

measure() { # recall, order, cache, percent
    "$adjoin" join "$work/store" --eps "$eps" --recall "$1" --strategy "rule=union,order=$2,cache=$3" \
        --cache $((bytes * $4 / 100)) --memory 4GiB --stats "$work/stats.json" --quiet --force
    awk -F'[:,]' -v name="$2 + $3" -v recall="$1" -v percent="$4" -v store="$bytes" '
        /"edges"/ { edges = $2 } /"bytes_read": [0-9]/ && !read { read = $2 } /"cache_hit_rate"/ { hits = $2 }
        /"execute"/ { seconds = $2 } /"predicted"/ { inside = 1 } inside && /"bytes_read"/ { planned = $2 }
        END { printf "%.2f  %-22s %3d %%  %8d  %6.2f  %8.2f  %8.4f  %7.2f\n", recall, name, percent, edges, planned / store, read / store, hits, seconds }
    ' "$work/stats.json"
}

echo "$set_name at $eps; reads as multiples of the store, those of the calibration included in all"
echo "R     order + cache         cache     edges    join       all  hit rate  seconds"
for recall in 0.9 0.99; do
    for percent in 5 10 20; do
        for way in "id lru" "id fifo" "id belady" "gorder belady" "rcm belady" "tree belady" "block-nested belady"; do
            # shellcheck disable=SC2086
            measure "$recall" $way "$percent"
        done
    done
done
