#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# comm-bench's command line: every operation runs and checks its results; bad
# usage ends with exit code 2. Nothing is asserted about speed.
set -eu
bench=$1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
fail() { echo "comm_bench.sh: $*" >&2; exit 1; }

for op in all_reduce all_gather reduce_scatter all_to_all broadcast reduce \
          gather scatter permute barrier; do
  "$bench" $op -n 3 -b 60 -e 60K -f 32 --iters 3 -J "$out/$op.json" >"$out/$op.txt" ||
    fail "$op failed: $(cat "$out/$op.txt")"
  grep -q '"wrong":0' "$out/$op.json" || fail "$op: no checked row"
  grep -q '# Avg bus bandwidth' "$out/$op.txt" || fail "$op: no closing line"
done
"$bench" all_reduce -n 2 -b 64 -e 64 -d all -o all --iters 2 >"$out/all.txt" ||
  fail "all dtypes: $(cat "$out/all.txt")"
[ "$(grep -c ' 64 ' "$out/all.txt")" -eq 50 ] || fail "not ten dtypes times five reductions"
"$bench" all_reduce -n 2 -b 1M -e 1M -R 0 --rotate 0 --iters 2 >/dev/null || fail "foreign buffers"
for bad in "" "nothing" "all_reduce -n 0" "all_reduce -b 9 -e 8" "all_reduce -d x" "all_reduce -r 5"; do
  code=0
  "$bench" $bad >/dev/null 2>&1 || code=$?
  [ $code -eq 2 ] || fail "'$bad' ended with $code"
done
"$bench" --help | grep -q "number of ranks" || fail "help"
