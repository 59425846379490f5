#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# comm_bench.sh BENCH [SANITIZER]: comm-bench's command line. Every operation runs and
# checks its results; bad usage ends with exit code 2. Nothing is asserted about speed.
set -eu
bench=$1
sanitizer=${2:-}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
fail() { echo "comm_bench.sh: $*" >&2; exit 1; }

for op in all_reduce all_gather reduce_scatter all_to_all broadcast reduce \
          gather scatter permute barrier; do
  "$bench" $op -n 3 -b 60 -e 60K -f 32 --iters 2 --rounds 1 -J "$out/$op.json" >"$out/$op.txt" ||
    fail "$op failed: $(cat "$out/$op.txt")"
  grep -q '"wrong":0' "$out/$op.json" || fail "$op: no checked row"
  grep -q '# Avg bus bandwidth' "$out/$op.txt" || fail "$op: no closing line"
done
"$bench" all_reduce -n 2 -b 64 -e 64 -d all -o all --iters 2 --rounds 1 >"$out/all.txt" ||
  fail "all dtypes: $(cat "$out/all.txt")"
[ "$(grep -c '^ *64 ' "$out/all.txt")" -eq 50 ] || fail "not ten dtypes times five reductions"
"$bench" all_reduce -n 2 -b 1M -e 1M -R 0 --rotate 0 --iters 2 --rounds 1 >/dev/null || fail "foreign buffers"
# Every root has its row; a factor near 1 gets to the end.
"$bench" broadcast -n 3 -r all -b 60 -e 60 --iters 2 --rounds 1 -J "$out/roots.json" >"$out/roots.txt" ||
  fail "all roots: $(cat "$out/roots.txt")"
for root in 0 1 2; do
  grep -q "none *$root " "$out/roots.txt" || fail "no row for root $root"
  grep -q "\"root\":$root," "$out/roots.json" || fail "no root $root in JSON"
done
"$bench" all_reduce -n 2 -b 8 -e 16 -f 1.01 --iters 2 --rounds 1 >/dev/null || fail "a factor near 1"
"$bench" alltoall_test -p 2 -n 3 -b 4K -e 4K -d fp16 --rounds 1 --split "DIV 1" >/dev/null ||
  fail "hccl_test spellings"
"$bench" all_gather -n 4 --split "MOD 2" -b 8K -e 8K --iters 2 --rounds 1 --skew \
  --plot "$out/plot.svg" -J "$out/now.json" >"$out/split.txt" || fail "two communicators at once"
grep -q "arrival after the first" "$out/split.txt" || fail "no skew"
grep -q "</svg>" "$out/plot.svg" || fail "no drawing"
"$bench" all_gather -n 4 -b 8K -e 8K --iters 2 --rounds 1 --baseline "$out/now.json" |
  grep -q "now/then" || fail "no comparison"
# nccl-tests' way of giving ranks; values that are out of place, by their option.
"$bench" all_reduce_perf -g 2 -t 1 -n 3 -b 4K -e 4K --rounds 1 -m 1 -G 0 -C 0 -S 0 -y 0 -x 0 -z 1 \
  >"$out/nccl.txt" || fail "nccl-tests spellings"
grep -q "all_reduce: 2 ranks" "$out/nccl.txt" || fail "-n of nccl-tests is not the ranks"
for bad in "-f 1" "-f inf" "-f 2x" "-b 8x" "-b nan" "-r one" "-c yes" "-w 1.5" "-n 2x" "--rounds 0" "-S 1"; do
  code=0
  "$bench" all_reduce -n 2 $bad >"$out/bad.txt" 2>&1 || code=$?
  [ $code -eq 2 ] || fail "$bad ended with $code"
  grep -q -e "${bad% *}: *'${bad#* }'\|${bad% *} '${bad#* }'" "$out/bad.txt" || fail "$bad: $(cat "$out/bad.txt")"
done
"$bench" --version | grep -q "^comm-bench, Concord " || fail "no version"
# What cannot be read or written is said before anything is measured.
for bad in "--baseline $out/none" "-J $out/none/x" "--plot $out/none/x"; do
  code=0
  "$bench" all_reduce -n 2 $bad >"$out/files.txt" 2>&1 || code=$?
  [ $code -eq 2 ] || fail "$bad ended with $code"
  grep -q "$out/none" "$out/files.txt" || fail "$bad: the file is not named"
done
# The bare loops, alone and beside the rows; 8 B of three ranks are an element each.
for op in all_reduce broadcast; do
  "$bench" $op -n 2 -b 64 -e 4K -f 64 --limits --iters 2 --rounds 1 -J "$out/limit.json" \
    >"$out/limit.txt" || fail "limits of $op: $(cat "$out/limit.txt")"
  [ "$(grep -c '"limit_us":[0-9.]*[1-9]' "$out/limit.json")" -eq 2 ] || fail "$op: rows without a limit"
done
# Operands that peers cannot reach go through memory that they can.
for op in all_reduce reduce_scatter all_gather all_to_all broadcast; do
  "$bench" $op -n 2 -R 0 -b 64K -e 1M -f 16 --limits --iters 2 --rounds 1 -J "$out/limit.json" \
    >"$out/limit.txt" || fail "limits of $op of malloc: $(cat "$out/limit.txt")"
  [ "$(grep -c '"limit_by":"staged' "$out/limit.json")" -eq 2 ] || fail "$op of malloc: rows without a limit"
done
for ranks in 2 3; do
  "$bench" --limits -n $ranks -b 48 -e 192K -f 4096 --rounds 1 -J "$out/limits.json" >"$out/limits.txt" ||
    fail "limits: $(cat "$out/limits.txt")"
  for op in all_reduce all_gather reduce_scatter all_to_all broadcast; do
    grep -q "\"op\":\"$op\"" "$out/limits.json" || fail "no limit of $op for $ranks ranks"
  done
done
"$bench" all_gather -n 3 -b 8 -e 8 --iters 2 --rounds 1 | grep -q '^ *12  *1 ' || fail "8 B of three ranks"
# No system call and no allocation on the issue path; a sanitizer maps memory of its own
# wherever it is called.
code=0
"$bench" all_reduce -n 2 -b 8 -e 64K -f 8192 --issue-path -J "$out/path.json" >"$out/path.txt" 2>&1 || code=$?
if [ -z "$sanitizer" ]; then
  [ $code -eq 0 ] || fail "issue path: $(cat "$out/path.txt")"
  grep -q '"system_calls":0' "$out/path.json" || fail "issue path: no count"
else
  [ $code -le 1 ] || fail "issue path under $sanitizer: $(cat "$out/path.txt")"
  grep -q '"system_calls":[0-9]' "$out/path.json" || fail "issue path: no count"
fi
# The kernel's copy is a call, where the system permits it.
export CONCORD_ALGORITHM="all_to_all:0-inf:single_copy"
if "$bench" all_to_all -n 2 -b 64K -e 64K -R 0 --iters 2 --rounds 1 --explain | grep -q ": single_copy ("; then
  code=0
  "$bench" all_to_all -n 2 -b 64K -e 64K -R 0 --issue-path >"$out/path.txt" 2>&1 || code=$?
  [ $code -eq 1 ] || fail "calls of the kernel's copy were not counted: $(cat "$out/path.txt")"
fi
unset CONCORD_ALGORITHM
"$bench" all_reduce -n 2 --flood --rounds 1 -J "$out/flood.json" >"$out/flood.txt" || fail "flood"
grep -q '"chunk_us"' "$out/flood.json" || fail "flood: no chunk"
"$bench" all_reduce -n 3 --pairs -e 64K --rounds 1 | grep -q "GB/s" || fail "pairs"
# What is missing is named, with the packages that have it.
code=0
PATH=/nowhere "$bench" all_reduce --peer openmpi >"$out/peer.txt" 2>&1 || code=$?
[ $code -eq 2 ] || fail "a missing peer ended with $code"
grep -q "apt install openmpi-bin libopenmpi-dev" "$out/peer.txt" || fail "packages are not named"
code=0
CCL_ROOT=/nowhere VIRTUAL_ENV= "$bench" all_reduce --peer oneccl >"$out/peer.txt" 2>&1 || code=$?
[ $code -eq 2 ] || fail "a missing oneCCL ended with $code"
grep -q "pip install oneccl-devel" "$out/peer.txt" || fail "oneCCL's package is not named"
for bad in "" "nothing" "all_reduce -n 0" "all_reduce -b 9 -e 8" "all_reduce -d x" "all_reduce -r 5" \
  "all_reduce --peer nobody" "all_reduce --split MOD" "all_reduce -R 3" "all_reduce -G 1" "all_reduce --limits -R 1"; do
  code=0
  "$bench" $bad >/dev/null 2>&1 || code=$?
  [ $code -eq 2 ] || fail "'$bad' ended with $code"
done
"$bench" --help | grep -q "number of ranks" || fail "help"
