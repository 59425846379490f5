#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The MLIR-free rooms under ThreadSanitizer and AddressSanitizer with
# UndefinedBehaviorSanitizer: ./run test sanitize [tsan|asan].

set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

for kind in ${1:-tsan asan}; do
  echo "== $kind: building into build-$kind/"
  cmake --preset "$kind" > /dev/null
  ninja -C "build-$kind"
  echo "== $kind: unit tests"
  # Leaks of a process that a test kills on purpose are no finding.
  TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1" \
  ASAN_OPTIONS="detect_leaks=0:detect_container_overflow=0" \
  UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1" \
    ctest --test-dir "build-$kind" -j2 --output-on-failure --timeout 1200
done
