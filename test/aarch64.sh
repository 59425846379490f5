#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The rooms that need no MLIR and no foreign libraries, cross-compiled for aarch64, and
# their unit tests under qemu-user: ./run test aarch64 [TEST-REGEX].

set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."

missing=""
for package in g++-aarch64-linux-gnu qemu-user libgtest-dev libgmock-dev; do
  dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
    missing="$missing $package"
done
if [ -n "$missing" ]; then
  [ "$(id -u)" = 0 ] || sudo=sudo
  echo "== installing with apt:$missing"
  ${sudo:-} apt-get update -q
  ${sudo:-} apt-get install -y -q --no-install-recommends $missing
fi

echo "== building into build-aarch64/"
cmake -G Ninja -B build-aarch64 -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" \
  -DCMAKE_BUILD_TYPE=Release -DCONCORD_BUILD_TESTS=ON \
  -DCONCORD_ROOMS="runtime;kernels;analysis" > /dev/null
ninja -C build-aarch64 | awk 'NR % 50 == 1 || !/^\[/ { print; fflush() }'

echo "== unit tests under qemu-aarch64"
# The emulator is slow: deadlines that tests set or keep are ten times as long.
report=$PWD/build-aarch64/aarch64.xml
rm -f "$report"
status=0
CONCORD_TEST_TIME_SCALE=10 \
  ctest --test-dir build-aarch64 -j2 --output-on-failure \
    --output-junit "$report" ${1:+-R "$1"} || status=1
python3 test/run_tests.py --reports "aarch64=$report" || status=1
exit $status
