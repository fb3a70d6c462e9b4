#!/bin/sh
# A snapshot opens where PyTorch's do: CPython unpickles it, equal to the JSON, and torch's own viewer, if some python3
# has it, works on it.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SINTER_CACHE_DIR="$work/cache"
here=$(dirname "$0")

# The one that has torch, or else any.
python=
for candidate in /usr/bin/python3 python3; do
  "$candidate" -c 'import pickle' 2> /dev/null || continue
  [ -n "$python" ] || python=$candidate
  if "$candidate" -c 'import torch.cuda._memory_viz' 2> /dev/null; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || { echo "skipped: no python3 to unpickle with"; exit 77; }

for format in pickle json; do
  "$SINTER" memory model --predict --size tiny --device cpu --snapshot "$work/snapshot.$format" > "$work/out.txt" \
    2>&1 || { echo "FAILED: no snapshot.$format"; cat "$work/out.txt"; exit 1; }
done
"$python" "$here/check_snapshot.py" "$work/snapshot.pickle" "$work/snapshot.json"
