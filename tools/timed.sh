#!/bin/sh
# timed.sh NAME COMMAND…: runs the command and prints how long it took.
name=$1; shift
start=$(date +%s)
"$@"
code=$?
echo "== $name: $(($(date +%s) - start)) s$([ $code -eq 0 ] || echo ", FAILED") =="
exit $code
