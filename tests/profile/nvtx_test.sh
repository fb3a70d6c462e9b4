#!/bin/sh
# Ranges reach tools that listen to NVTX (nsys, ncu): phases, modules and ops, properly nested.
set -eu
[ -n "${SINTER_NVTX_INCLUDE:-}" ] || { echo "SKIPPED: this build has no NVTX headers"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
${CC:-cc} -shared -fPIC -I"$SINTER_NVTX_INCLUDE" "$SINTER_SOURCE_DIR/tests/profile/nvtx_probe.c" \
  -o "$work/probe.so" 2> "$work/cc.txt" ||
  { echo "SKIPPED: no C compiler that builds the probe:"; cat "$work/cc.txt"; exit 77; }
NVTX_INJECTION64_PATH="$work/probe.so" "$SINTER" bench model --device cpu --d-model 32 --d-ff 64 --layers 2 --heads 4 \
  --vocab 97 --ctx 16 --batch 2 --warmup 0 --steps 1 > /dev/null 2> "$work/heard.txt"
for range in 'domain sinter' +step +forward +layers.1 +attn +flash +backward +optimizer +adamw; do
  grep -qx -- "$range" "$work/heard.txt" || { echo "FAILED: no $range"; exit 1; }
done
pushed=$(grep -c '^+' "$work/heard.txt"); popped=$(grep -cx -- '-' "$work/heard.txt")
# Ranges open when the first memory is allocated are left without having been announced.
[ "$popped" -ge "$pushed" ] && [ $((popped - pushed)) -le 4 ] ||
  { echo "FAILED: $pushed entered, $popped left"; exit 1; }
