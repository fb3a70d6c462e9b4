#!/bin/sh
# Note [Two instruction sets] in src/backend/cpu/isa.h: an object compiled for a newer instruction set must not emit
# weak symbols that other objects share, or the linker may hand AVX-512 code to a machine without it.
# usage: tools/check_isa_symbols.sh build-folder (looks at the objects of the sinter_cpu_v3 and sinter_cpu_v4 targets)
set -eu
[ $# -eq 1 ] || { echo "usage: $0 build-folder" >&2; exit 2; }
objects=$(find "$1" -name '*.o' -path '*cpu_v[34]*' -o -name '*.o' -path '*/v[34]/*')
[ -n "$objects" ] || { echo "$0: no kernel objects under $1" >&2; exit 2; }
# shellcheck disable=SC2086
bad=$(nm -C -A --defined-only $objects | grep -E ' [WVuw] ' | grep -vE 'sinter::cpu_v[34]::' || true)
[ -z "$bad" ] && exit 0
echo "weak symbols shared by several instruction sets:" >&2
echo "$bad" >&2
exit 1
