#!/bin/sh
# lint.sh lint    clang-format, columns, the include rule, clang-tidy on changed files (at most TIDY_SECONDS, 150 by
#                 default)
# lint.sh tidy    clang-tidy on every .cpp
# lint.sh format  clang-format in place
# A tool that is not installed is reported and left out.
set -eu
. "$(dirname -- "$0")/common.sh"
cd "$root"
code=0
jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
wanted=14  # the release .clang-format and .clang-tidy are written for; others differ in details

tool() { command -v "$1-$wanted" 2>/dev/null || command -v "$1" 2>/dev/null; }
sources() { find src include tests bench examples -type f \( -name '*.h' -o -name '*.hpp' -o -name '*.cpp' \
                 -o -name '*.cu' -o -name '*.cuh' \) | LC_ALL=C sort; }

format_check() {
  format=$(tool clang-format) || { echo "clang-format: SKIPPED (not installed)"; return 0; }
  # One line per file, with the number of places; the places themselves are `git diff` after `make format`.
  differing=$(sources | xargs -r -n 50 "$format" --dry-run 2>&1 |
              sed -n 's/^\([^: ]*\):[0-9]*:[0-9]*: warning.*/\1/p' | uniq -c)
  if [ -z "$differing" ]; then
    echo "clang-format: ok"
    return 0
  fi
  echo "$differing"
  if "$format" --version | grep -q "version $wanted\."; then
    echo "clang-format: FAILED; \`make format\` mends it"
    return 1
  else
    echo "clang-format: differences, but this is $("$format" --version)," \
         "and the style is written for $wanted: not counted"
  fi
}

include_check() {
  if command -v python3 >/dev/null 2>&1; then
    python3 tools/check_includes.py src
  else
    echo "include rule: SKIPPED (no python3)"
  fi
}

# clang-format leaves comments as they are, and sees neither scripts nor lists (.def).
columns_check() {
  if command -v python3 >/dev/null 2>&1; then
    python3 tools/check_columns.py
  else
    echo "columns: SKIPPED (no python3)"
  fi
}

# What differs from the branch this one will join, or from the last commit, or has not been committed.
changed() {
  base=$(git merge-base HEAD '@{upstream}' 2>/dev/null || git merge-base HEAD origin/main 2>/dev/null || true)
  head=$(git rev-parse -q --verify HEAD 2>/dev/null || true)
  if [ -z "$base" ] || [ "$base" = "$head" ]; then base=$(git rev-parse -q --verify HEAD~1 2>/dev/null || true); fi
  if [ -z "$base" ]; then  # no history: everything
    sources
  else
    { git diff --name-only --diff-filter=d "$base"; git ls-files --others --exclude-standard; } | LC_ALL=C sort -u
  fi
}

tidy_check() {  # tidy_check SECONDS: the files on stdin, for at most so long
  tidy=$(tool clang-tidy) || { echo "clang-tidy: SKIPPED (not installed)"; return 0; }
  if [ ! -f build/compile_commands.json ]; then
    cmake --preset release >/dev/null ||
      { echo "clang-tidy: SKIPPED (configure failed; try \`make build\`)"; return 0; }
  fi
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  grep '\.cpp$' | while IFS= read -r file; do
    grep -q "\"file\": \"$root/$file\"" build/compile_commands.json && echo "$file" || true
  done > "$work/files"
  # GCC's precompiled headers are nothing that clang can read.
  sed 's| -fpch-preprocess||g; s| -include [^ ]*cmake_pch.hxx||g' build/compile_commands.json \
    > "$work/compile_commands.json"
  deadline=$(($(date +%s) + $1))
  # What clang lacks and GCC has: __builtin_shuffle; before 15, on x86: _Float16 without AVX512-FP16,
  # and the names of x86-64 levels.
  extra="--extra-arg=-D__builtin_shuffle(v,...)=(v)"
  [ "$(uname -m)" != x86_64 ] ||
    extra="$extra --extra-arg=-mavx512fp16 --extra-arg=-D__builtin_cpu_supports(x)=(x[0]!=0)"
  export tidy work deadline extra
  result=0
  xargs -r -P "$jobs" -I FILE sh -c '
    left=$((deadline - $(date +%s)))
    [ "$left" -gt 0 ] || { echo FILE >> "$work/late"; exit 0; }
    status=0
    timeout "$left" "$tidy" -p "$work" --quiet --extra-arg=-Wno-unknown-warning-option $extra FILE \
      > "$work/$$" 2>/dev/null || status=$?
    [ "$status" -ne 124 ] || { echo FILE >> "$work/late"; exit 0; }
    [ "$status" -eq 0 ] || { cat "$work/$$"; exit 1; }' < "$work/files" || result=1
  total=$(wc -l < "$work/files")
  late=0
  [ ! -f "$work/late" ] || late=$(wc -l < "$work/late")
  if [ "$late" -gt 0 ]; then
    echo "clang-tidy: $late of $total files not reached in $1 s; \`make tidy\` checks all"
  fi
  if [ "$result" -eq 0 ]; then echo "clang-tidy: ok ($((total - late)) files)"; else echo "clang-tidy: FAILED"; fi
  return "$result"
}

case ${1:-lint} in
format)
  format=$(tool clang-format) || { echo "format: clang-format is not installed"; exit 2; }
  sources | xargs -r -n 50 "$format" -i
  ;;
tidy) sources | tidy_check 36000 || code=1 ;;
lint)
  format_check || code=1
  columns_check || code=1
  include_check || code=1
  changed | tidy_check "${TIDY_SECONDS:-150}" || code=1
  ;;
*) echo "usage: lint.sh lint | tidy | format" >&2; exit 2 ;;
esac
exit $code
