# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the test suites and adds them up: ./run test [SUITE...].

With --reports NAME=FILE.xml... it runs nothing and adds up JUnit files, which is
how ./run test sanitize and aarch64 end.

Each suite prints its own output and yields counts. The last line is
"N passed, N failed, N skipped"; the exit status is 1 if anything failed, or if
a suite that was asked for ran nothing.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build")
LLVM = "/usr/lib/llvm-22/bin"


class Counts:
    """What one suite did."""

    def __init__(self, passed=0, failed=0, skipped=0):
        self.passed, self.failed, self.skipped = passed, failed, skipped

    def add(self, other):
        """Count what another has counted, too."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self):
        return (f"{self.passed} passed, {self.failed} failed, "
                f"{self.skipped} skipped")


def call(arguments, **options):
    """Run with output passing through; the exit status."""
    sys.stdout.flush()
    return subprocess.run(arguments, cwd=ROOT, check=False, **options).returncode


def from_junit(path, status):
    """Counts of a JUnit file; a runner that failed without one is a failure."""
    counts = Counts()
    try:
        cases = list(xml.parse(path).getroot().iter("testcase"))
    except (OSError, xml.ParseError):
        cases = []
    for case in cases:
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            counts.failed += 1
        elif "skipped" in kinds:
            counts.skipped += 1
        else:
            counts.passed += 1
    if status != 0 and counts.failed == 0:
        counts.failed = 1
    return counts


def unit(folder):
    """GoogleTest binaries and other programs registered with ctest."""
    report = os.path.join(folder, "unit.xml")
    status = call(["ctest", "--test-dir", BUILD, "-j2", "--output-on-failure",
                   "--output-junit", report, "--timeout", "600"])
    return from_junit(report, status)


def lit(folder):
    """FileCheck tests of dialects, passes and tools."""
    report = os.path.join(folder, "lit.xml")
    status = call([f"{LLVM}/lit", "-s", "-v", "-j2", "--xunit-xml-output", report,
                   os.path.join(ROOT, "test", "lit")],
                  env={**os.environ, "CONCORD_BUILD": BUILD})
    return from_junit(report, status)


def python(folder):
    """pytest: whole models, command lines, the in-process API."""
    report = os.path.join(folder, "python.xml")
    status = call([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                   f"--junitxml={report}", "test/python", "test/system"])
    return from_junit(report, status)


def nodes(_folder):
    """The ONNX backend node tests."""
    with subprocess.Popen([sys.executable, "test/node_suite/run_suite.py"],
                          cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        last = ""
        for line in process.stdout:
            sys.stdout.write(line)
            if line.strip():
                last = line
    match = re.search(r"(\d+) passed, (\d+) failed, (\d+) skipped", last)
    if not match:
        return Counts(failed=1)
    counts = Counts(*map(int, match.groups()))
    if process.returncode and not counts.failed:
        counts.failed = 1
    return counts


def docs(_folder):
    """Generated pages are those of the sources."""
    status = call(["bash", "docs/generate.sh", "--check"])
    return Counts(passed=int(status == 0), failed=int(status != 0))


def spin(_folder):
    """Models of the flag protocols."""
    with subprocess.Popen([sys.executable, "test/spin/run_spin.py"], cwd=ROOT,
                          stdout=subprocess.PIPE, text=True) as process:
        counts = Counts()
        for line in process.stdout:
            sys.stdout.write(line)
            counts.passed += ": ok," in line
            counts.failed += ": WRONG," in line
    if process.returncode and not counts.failed:
        counts.failed = 1
    return counts


SUITES = {"unit": unit, "lit": lit, "python": python, "nodes": nodes, "docs": docs,
          "spin": spin}


def reports(arguments):
    """Add up JUnit files that others have written."""
    total = Counts()
    for argument in arguments:
        name, _, path = argument.partition("=")
        counts = from_junit(path, 0)
        if counts.passed + counts.failed == 0:
            counts.failed = 1
        print(f"== {name}: {counts}")
        total.add(counts)
    print(total)
    return 1 if total.failed else 0


def main(names):
    """Run the suites named, or all."""
    if names[:1] == ["--reports"]:
        return reports(names[1:])
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        print(f"run: no suite '{unknown[0]}'; there are {', '.join(SUITES)}",
              file=sys.stderr)
        return 2
    total = Counts()
    with tempfile.TemporaryDirectory(prefix="concord-test-") as folder:
        for name in names or SUITES:
            begin = time.monotonic()
            print(f"== {name}: {SUITES[name].__doc__.strip()}", flush=True)
            counts = SUITES[name](folder)
            if counts.passed + counts.failed == 0:
                print(f"== {name}: ran nothing")
                counts.failed = 1
            print(f"== {name}: {counts} ({time.monotonic() - begin:.0f} s)",
                  flush=True)
            total.add(counts)
    print(total)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
