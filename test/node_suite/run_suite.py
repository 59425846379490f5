#!/usr/bin/env python3
# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the ONNX backend node tests through build/bin/comm-node-suite.

  run_suite.py                   world 1, and two ranks where a dimension divides
  run_suite.py --only REGEX      some of them (no check of the pass rate)
  run_suite.py --list            what would run, and what is left out and why
  run_suite.py --print-failures  lines for expected_failures.txt

The driver reads `MODEL DATA_SET RANKS AXIS RTOL ATOL` lines, separated by tabs
(AXIS is dp, tp or -), and answers each with one line: PASS, FAIL message, ERROR
message, or SKIP message when nothing could be split over the ranks. Two driver
processes share the work; one that crashes or hangs costs the case it was at and
is started again.

expected_failures.txt names what is known to fail, with a reason each. The suite
fails when a listed case passes or another one fails, and when fewer than 95 % of
the cases that are not left out pass at world 1.
"""

import argparse
import collections
import json
import os
import queue
import re
import selectors
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)

import manifest  # noqa: E402

RTOL, ATOL = 1e-3, 1e-7  # the suite's own
REQUIRED = 0.95

Job = collections.namedtuple("Job", "case data_set ranks axis")
Outcome = collections.namedtuple("Outcome", "job verdict message")


def job_name(job):
    suffix = "" if job.ranks == 1 else f"@{job.axis}{job.ranks}"
    last = "" if job.data_set == "test_data_set_0" else f"/{job.data_set}"
    return job.case.name + last + suffix


def read_expected(path):
    """Name (with or without @axis) -> reason."""
    expected = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.split("#", 1)[0].strip()
            if not line:
                continue
            parts = line.split(None, 1)
            if len(parts) < 2:
                sys.exit(f"{path}:{number}: {parts[0]} has no reason")
            if parts[0] in expected:
                sys.exit(f"{path}:{number}: {parts[0]} is listed twice")
            expected[parts[0]] = parts[1]
    return expected


class Driver:
    """One driver process, answering in lockstep."""

    def __init__(self, command, timeout):
        self.command, self.timeout = command, timeout
        self.process = None
        self.buffer = b""

    def start(self):
        self.buffer = b""
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        self.errors = collections.deque(maxlen=20)
        pipe = self.process.stderr
        errors = self.errors

        def drain():
            for line in pipe:
                errors.append(line.decode(errors="replace").strip())

        threading.Thread(target=drain, daemon=True).start()

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _line(self):
        """The next answer; None at end of file, '' on a timeout."""
        end = time.monotonic() + self.timeout
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.buffer:
                if not selector.select(max(0.0, end - time.monotonic())):
                    return ""
                block = os.read(self.process.stdout.fileno(), 1 << 16)
                if not block:
                    return None
                self.buffer += block
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode(errors="replace").strip()

    def ask(self, job):
        if not self.process:
            self.start()
        case = job.case
        request = "\t".join([os.path.join(case.folder, "model.onnx"),
                             os.path.join(case.folder, job.data_set),
                             str(job.ranks), job.axis, str(RTOL), str(ATOL)])
        try:
            self.process.stdin.write(request.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self._line()
        if answer == "":
            self.stop()
            return Outcome(job, "ERROR", f"no answer in {self.timeout} s")
        if answer is None:
            code = self.process.wait()
            last = " | ".join(list(self.errors)[-3:])
            self.process = None
            how = f"signal {-code}" if code < 0 else f"exit status {code}"
            return Outcome(job, "ERROR", f"driver ended with {how}: {last}")
        verdict, _, message = answer.partition(" ")
        if verdict not in ("PASS", "FAIL", "ERROR", "SKIP"):
            self.stop()
            return Outcome(job, "ERROR", f"driver said {answer!r}")
        return Outcome(job, verdict, message)


def run_jobs(jobs, command, processes, timeout, progress):
    todo, outcomes, lock = queue.Queue(), [], threading.Lock()
    for job in jobs:
        todo.put(job)
    begin = time.monotonic()

    def work():
        driver = Driver(command, timeout)
        while True:
            try:
                job = todo.get_nowait()
            except queue.Empty:
                break
            outcome = driver.ask(job)
            with lock:
                outcomes.append(outcome)
                if progress and len(outcomes) % 250 == 0:
                    print(f"  {len(outcomes)} of {len(jobs)} "
                          f"({time.monotonic() - begin:.0f} s)", flush=True)
        driver.stop()

    threads = [threading.Thread(target=work) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(outcomes, key=lambda o: job_name(o.job))


def judge(outcomes, expected):
    """Sort outcomes into lists by what they mean for the suite."""
    groups = {k: [] for k in ("passed", "failed", "known", "fixed", "unsplit")}
    for outcome in outcomes:
        name = job_name(outcome.job)
        base = name.split("@", 1)[0]
        # A case that fails on one rank needs no second line for two.
        listed = name in expected or base in expected
        bad = outcome.verdict in ("FAIL", "ERROR") or (
            outcome.verdict == "SKIP" and outcome.job.ranks == 1)
        if outcome.verdict == "SKIP" and not bad:
            groups["unsplit"].append(outcome)
        elif bad:
            groups["known" if listed else "failed"].append(outcome)
        elif name in expected:
            groups["fixed"].append(outcome)
        else:
            groups["passed"].append(outcome)
    return groups


def left_out_table(cases):
    counts = collections.Counter(c.excluded[0] for c in cases if c.excluded)
    lines = []
    for name, (_, why) in manifest.CLASSES.items():
        lines.append(f"  left out: {counts[name]:4}  {name}: {why}")
    newest = manifest.SUPPORTED[""]
    lines.append(f"  left out: {counts['opset']:4}  opset above the supported "
                 f"one ({newest} by default), or a preview domain")
    return lines


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--driver", default=os.path.join(
        os.environ.get("CONCORD_BIN", os.path.join(ROOT, "build", "bin")),
        "comm-node-suite"))
    parser.add_argument("--only", type=re.compile)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--print-failures", action="store_true")
    parser.add_argument("--world-one", action="store_true",
                        help="leave the runs on two ranks out")
    parser.add_argument("--max-opset", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--expected", default=os.path.join(
        HERE, "expected_failures.txt"))
    parser.add_argument("-J", "--json")
    options = parser.parse_args()
    begin = time.monotonic()
    if options.max_opset:
        manifest.SUPPORTED[""] = options.max_opset
    cases = manifest.load(pattern=options.only)
    running = [c for c in cases if not c.excluded]
    jobs = [Job(c, d, 1, "-") for c in running for d in c.data_sets]
    if not options.world_one:
        jobs += [Job(c, d, 2, axis) for c in running for d in c.data_sets
                 if (axis := manifest.axis_for_two(c))]
    if options.list:
        for case in cases:
            why = ": ".join(case.excluded) if case.excluded else (
                "runs, also with " + axis + " 2" if (
                    axis := manifest.axis_for_two(case)) else "runs")
            print(f"{case.name}  [{' '.join(case.ops)}]  {why}")
        return 0
    expected = read_expected(options.expected)
    # A line that names no case is an error: what it excused is gone.
    if not options.only:
        known = {job_name(j) for j in jobs} | {c.name for c in running}
        unknown = sorted(set(expected) - known)
        if unknown and not options.world_one:
            print("expected_failures.txt names no case that runs: "
                  + ", ".join(unknown))
            return 1
    if not os.access(options.driver, os.X_OK):
        print(f"{options.driver} is not built; run ./run build")
        return 1
    print(f"ONNX node tests of onnx {manifest.onnx.__version__}: {len(cases)} "
          f"cases, {len(running)} run, {len(jobs)} runs", flush=True)
    for line in left_out_table(cases):
        print(line)
    outcomes = run_jobs(jobs, [options.driver], options.jobs, options.timeout,
                        True)
    groups = judge(outcomes, expected)
    for outcome in groups["failed"]:
        if options.print_failures:
            print(f"{job_name(outcome.job)}  {outcome.verdict.lower()}: "
                  f"{outcome.message[:160]}")
        else:
            print(f"  {outcome.verdict} {job_name(outcome.job)}: "
                  f"{outcome.message[:300]}")
    for outcome in groups["fixed"]:
        print(f"  PASSES, but is listed in expected_failures.txt: "
              f"{job_name(outcome.job)}")
    one = [o for o in outcomes if o.job.ranks == 1]
    good = sum(o.verdict == "PASS" for o in one)
    rate = good / len(one) if one else 1.0
    two = [o for o in outcomes if o.job.ranks == 2]
    print(f"  world 1: {good} of {len(one)} pass ({100 * rate:.1f} %, at least "
          f"{100 * REQUIRED:.0f} % required)")
    for axis in ("dp", "tp"):
        of_axis = [o for o in two if o.job.axis == axis]
        if of_axis:
            count = collections.Counter(o.verdict for o in of_axis)
            print(f"  --{axis} 2: {count['PASS']} of {len(of_axis)} pass, "
                  f"{count['SKIP']} have nothing to split")
    seconds = time.monotonic() - begin
    print(f"  {seconds:.1f} s with {options.jobs} driver processes")
    failed = len(groups["failed"]) + len(groups["fixed"])
    too_few = not options.only and rate < REQUIRED
    if too_few:
        print(f"  FAIL pass rate {100 * rate:.1f} %")
        failed += 1
    left_out = len(cases) - len(running)
    skipped = left_out + len(groups["known"]) + len(groups["unsplit"])
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"seconds": seconds, "rate": rate, "outcomes": [
                {"name": job_name(o.job), "verdict": o.verdict,
                 "message": o.message} for o in outcomes]}, file, indent=1)
    print(f"{len(groups['passed'])} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
