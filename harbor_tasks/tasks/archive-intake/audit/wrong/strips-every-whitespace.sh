#!/bin/bash
# Files /app/incoming into /app/archive by RULES.md.
set -euo pipefail
export LC_ALL=C
cd /app/incoming
archive=/app/archive
rm -rf "$archive"
mkdir -p "$archive"
declare -A region by_digest

while IFS=$'\t' read -r code area _; do
    case $code in ''|'#'*) continue ;; esac
    region[$code]=$area
done </app/stations.tsv

# header FILE: prints station, date and kind, one a line; a missing one is an empty line.
header() {
    awk '
        !/^#/ { exit }
        {
            sub(/\r$/, ""); sub(/^#[ \t]*/, ""); sub(/[ \t]+$/, "")
            colon = index($0, ":")
            if (!colon) next
            key = tolower(substr($0, 1, colon - 1)); value = substr($0, colon + 1)
            sub(/[ \t]+$/, "", key); sub(/^[ \t]+/, "", value)
            if (value != "" && !(key in seen)) seen[key] = value
        }
        END {
            kind = ("kind" in seen) ? tolower(seen["kind"]) : "unspecified"
            gsub(/[ ]+/, "-", kind)
            print toupper(seen["station"]); print seen["date"]; print kind
        }' <"$1"
}

skip() { printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$archive/SKIPPED.tsv"; }

: >"$archive/SKIPPED.tsv"
: >"$archive/manifest.unsorted"
while IFS= read -r -d '' path; do
    path=${path#./}
    case $path in
        *.csv) extension=.csv ;;
        *.txt) extension=.txt ;;
        *) skip "$path" type ''; continue ;;
    esac
    if [ ! -s "./$path" ]; then skip "$path" empty ''; continue; fi
    digest=$(sha256sum <"./$path")
    digest=${digest%% *}
    if [ -n "${by_digest[$digest]:-}" ]; then skip "$path" duplicate "${by_digest[$digest]}"; continue; fi
    { IFS= read -r station; IFS= read -r date; IFS= read -r kind; } < <(header "./$path")
    if [ -z "$station" ]; then skip "$path" header station; continue; fi
    if ! [[ $date =~ ^[0-9]{4}-[0-9]{2}-[0-9]{2}$ ]]; then skip "$path" header date; continue; fi
    if [ -z "${region[$station]:-}" ]; then skip "$path" station "$station"; continue; fi
    folder=${region[$station]}/${date:0:4}/${date:5:2}
    base=$folder/${station}_${date}_$kind
    target=$base$extension
    copy=1
    while [ -e "$archive/$target" ]; do
        copy=$((copy + 1))
        target=$base-$copy$extension
    done
    mkdir -p "$archive/$folder"
    cp "./$path" "$archive/$target"
    by_digest[$digest]=$path
    printf '%s\t%s\t%s\t%s\n' "$digest" "$(($(wc -c <"./$path")))" "$target" "$path" >>"$archive/manifest.unsorted"
done < <(find . -type f -print0 | sort -z)

sort -t $'\t' -k 3,3 "$archive/manifest.unsorted" >"$archive/MANIFEST.tsv"
rm "$archive/manifest.unsorted"
awk -F '\t' -v OFS='\t' '
    NR == FNR { if ($0 !~ /^#/ && NF > 1) { count[$2] += 0; bytes[$2] += 0 } next }
    { area = substr($3, 1, index($3, "/") - 1); count[area]++; bytes[area] += $2 }
    END { for (area in count) print area, count[area], bytes[area] }
' /app/stations.tsv "$archive/MANIFEST.tsv" | sort >"$archive/totals.regions"
awk -F '\t' -v OFS='\t' '{ print; n += $2; b += $3 } END { print "TOTAL", n, b }' \
    "$archive/totals.regions" >"$archive/TOTALS.tsv"
rm "$archive/totals.regions"
cat "$archive/TOTALS.tsv"
