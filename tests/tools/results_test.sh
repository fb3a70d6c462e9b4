#!/bin/sh
# docs/results: its tables are what its records give, and the check that says so sees what it should. Every record of
# sinter's shows.
set -eu
command -v python3 > /dev/null || { echo "no python3"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1
fail() { echo "FAILED: $*"; exit 1; }

python3 "$SINTER_SOURCE_DIR/bench/results_tables.py" --check

mkdir -p "$work/bench" "$work/docs"
cp "$SINTER_SOURCE_DIR/bench/"*.py "$SINTER_SOURCE_DIR/bench/"*.sh "$work/bench"
cp -R "$SINTER_SOURCE_DIR/docs/"* "$work/docs"
results=$work/docs/results
finds() {  # finds TEXT: the check fails, and says so
  python3 "$work/bench/results_tables.py" --check > "$work/out" && fail "the check does not see: $1"
  grep -qF -- "$1" "$work/out" || { cat "$work/out"; fail "the check does not say: $1"; }
}
change() { sed "$2" "$1" > "$work/changed" && mv "$work/changed" "$1"; }  # change FILE SED

cp "$results/compiled.md" "$work/compiled.md"
change "$results/compiled.md" 's/| small | 1.48 |/| small | 9.48 |/'
finds "compiled.md: a table is not what its records give"
cp "$work/compiled.md" "$results/compiled.md"
echo 'At `abcdef0` it was faster, [they say](h200-compiled/nowhere.json).' >> "$results/compiled.md"
finds "compiled.md: abcdef0 is the commit of no record"
finds "nowhere.json leads nowhere"
cp "$work/compiled.md" "$results/compiled.md"
cp "$results/gpu-test.json" "$results/another.json"
finds "another.json: no page has a table of it"
rm "$results/another.json"
change "$results/gpu-test.json" 's/"commit": "\([0-9a-f]*\)"/"commit": "\1-dirty"/'
finds "gpu-test.json: from an uncommitted build"

for record in $(grep -rl '"schema": *"sinter.record.v1"' "$SINTER_SOURCE_DIR/docs/results" --include='*.json'); do
  "$SINTER" show "$record" > "$work/out" 2>&1 || { cat "$work/out"; fail "$record does not show"; }
done
echo "results: ok"
