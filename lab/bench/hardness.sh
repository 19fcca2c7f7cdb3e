#!/usr/bin/env bash
# Are generated vectors as hard to join as real ones? Counts the pairs that an exact join compares per vector, for real
# sets and for generated ones of equal size, at the thresholds at which a vector has 10 and 100 neighbors on average.
# Needs ADJOIN_DATA, a folder with sift-200k.u8bin, to which the generator was fitted, and perhaps some of the other
# sets below. Options such as --hardness are passed to `adjoin gen`.
set -euo pipefail
adjoin=$1
shift
data=${ADJOIN_DATA:?set ADJOIN_DATA to the folder of the real sets}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
means=(10 100)
sample=10000

little_endian() { printf '\\x%02x\\x%02x\\x%02x\\x%02x' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) $(($1 >> 24)); }

first_rows() { # file, rows, destination; 128 dimensions of u8
    printf '%b' "$(little_endian "$2")$(little_endian 128)" > "$3"
    tail -c +9 "$1" | head -c $(($2 * 128)) >> "$3" || true # tail reports the closed pipe
}

# Raises a threshold until the sampled rows have enough neighbors. Then writes the distances in ascending order to a
# file.
near_distances() { # file, rows
    local eps=20 enough
    enough=$(rank "$2" "${means[-1]}")
    while :; do
        "$adjoin" groundtruth "$1" --sample $sample --eps $eps -o "$work/near.csv" --quiet --force
        (($(wc -l < "$work/near.csv") <= enough)) || break
        eps=$((eps * 5 / 4))
    done
    tail -n +2 "$work/near.csv" | cut -d, -f3 | sort -g > "$work/near"
}

# Prints how many pairs contain a sampled row if a row has a mean number of neighbors. A pair of two sampled rows counts
# once.
rank() { awk -v n="$1" -v s=$sample -v k="$2" 'BEGIN { if (s > n) s = n; printf "%d", s * k * (1 - s / (2 * n)) }'; }

measure() { # file, rows: prints a line for each mean, "eps neighbors-found compared"
    near_distances "$1" "$2"
    "$adjoin" build "$1" -o "$work/store" --quiet --force
    local mean eps
    for mean in "${means[@]}"; do
        eps=$(sed -n "$(rank "$2" "$mean")p" "$work/near")
        "$adjoin" join "$work/store" --eps "$eps" --exact --stats "$work/stats.json" --quiet --force
        awk -F'[:,]' -v n="$2" -v eps="$eps" \
            '/"candidate_pairs"/ { c = $2 } /"pairs"/ { p = $2 } END { print eps, 2 * p / n, c / n }' "$work/stats.json"
    done
}

compare() { # file, rows
    [ -e "$data/$1" ] || { echo "$1 is not there"; return; }
    first_rows "$data/$1" "$2" "$work/real.u8bin"
    "$adjoin" gen --rows "$2" --dimensions 128 --element u8 "${options[@]}" -o "$work/made.u8bin" --quiet --force
    measure "$work/real.u8bin" "$2" > "$work/real"
    measure "$work/made.u8bin" "$2" > "$work/made"
    paste -d' ' <(printf '%s\n' "${means[@]}") "$work/real" "$work/made" | awk -v name="$1" -v rows="$2" '
        { printf "%-21s %7d %5d %9.1f %9.1f %10.1f %9.1f %9.1f %10.1f %7.2f\n", name, rows, $1, $2, $3, $4, $5, $6, $7, $7 / $4 }'
}

options=("$@")
echo "                                    -------- real set --------  ------ generated set ------"
echo "set                      rows  mean       eps     found   compared       eps     found   compared   ratio"
compare sift-200k.u8bin 200000
compare sift-200k.u8bin 50000
compare sift-stars-50k.u8bin 50000
compare sift-900k.u8bin 900000
compare sift-stars-900k.u8bin 900000
