#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The MLIR-free rooms under ThreadSanitizer and AddressSanitizer with
# UndefinedBehaviorSanitizer: ./run test sanitize [tsan|asan]. A kind that fails, or is
# not built, does not keep the other from running; the last line has what both did.

set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

for kind in "$@"; do
  case "$kind" in
    tsan|asan) ;;
    *) echo "run: no sanitizer '$kind'; there are tsan and asan" >&2; exit 2 ;;
  esac
done
[ $# -gt 0 ] || set -- tsan asan

reports=()
status=0
for kind in "$@"; do
  report=$PWD/build-$kind/sanitize.xml
  reports+=("$kind=$report")
  rm -f "$report"
  echo "== $kind: building into build-$kind/"
  cmake --preset "$kind" > /dev/null &&
    ninja -C "build-$kind" | awk 'NR % 50 == 1 || !/^\[/ { print; fflush() }' ||
    { echo "== $kind: the build failed" >&2; status=1; continue; }
  echo "== $kind: unit tests"
  # Leaks of a process that a test kills on purpose are no finding. libprotobuf is not
  # instrumented, which makes its containers look overflowed.
  TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1" \
  ASAN_OPTIONS="detect_leaks=0:detect_container_overflow=0" \
  UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1" \
    ctest --test-dir "build-$kind" -j2 --output-on-failure \
      --output-junit "$report" || status=1
done
python3 test/run_tests.py --reports "${reports[@]}" || status=1
exit $status
