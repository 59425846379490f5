#!/usr/bin/env python3
# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""./run demo hang: the hang of a field report happens, is explained, is cured.

Sixteen processes share one device each between a serving loop in C++ (domain 1)
and a placement module in Python (domain 2). The device has one communication
slot, which an operation holds until it is complete.

1. Without an order they hang; the watchdog prints who waits for whom.
2. comm-doctor says the same from what the ranks have left behind.
3. comm-order gives both modules one order, comm-verify-order accepts it, and the
   same processes, with the plan loaded, run to their end.

Ends with exit status 0 if all of that was seen.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
BUILD = os.environ.get("CONCORD_BUILD", os.path.join(ROOT, "build"))
BIN = os.path.join(BUILD, "bin")
WORK = os.path.join(BUILD, "demo-hang")
sys.path.insert(0, os.path.join(ROOT, "python"))

os.environ.setdefault("CONCORD_LIBRARY",
                      os.path.join(BUILD, "lib", "libconcord.so"))
import concord  # noqa: E402

RANKS, STEPS = 16, 40
SERVING = os.path.join(BUILD, "lib", "libhang_serving.so")
COMMON = {
    "CONCORD_DEVICE_SLOTS": "1",
    "CONCORD_HEAP_BYTES": "64M",
    "CONCORD_HANG_REPORT": "3",
    "CONCORD_TIMEOUT": "6",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONPATH": os.path.join(ROOT, "python"),
}
# The four waits of the report: what waits (at a rank), and what for.
EXPECTED = (
    ("domain2", 11, "domain1", 11, "waits behind it"),
    ("domain1", 11, "domain1", 14, "needs"),
    ("domain1", 14, "domain2", 14, "synchronis"),
    ("domain2", 14, "domain2", 11, "needs"),
)


def say(text=""):
    print(text, flush=True)


def heading(number, text):
    say()
    say(f"{number}. {text}")


def run_ranks(steps, plan, log, extra):
    """Start the ranks; (failed rank, message, what they wrote to standard
    error)."""
    arguments = [sys.executable, os.path.join(HERE, "hang", "rank.py"), SERVING,
                 str(steps)] + ([plan] if plan else [])
    with open(log, "w", encoding="utf-8") as stream:
        failed, message = concord.launch(RANKS, arguments,
                                         {**COMMON, **extra}, timeout=40,
                                         grace=2, stderr=stream)
    with open(log, encoding="utf-8", errors="replace") as stream:
        return failed, message, stream.read()


def chain_of(text):
    """The lines of the first chain in a report, in order."""
    lines = []
    for line in text.splitlines():
        match = re.match(r"\s+(\d+)\. (.*)", line)
        if match and int(match[1]) == len(lines) + 1:
            lines.append(match[2])
        elif lines:
            break
    return lines


def is_the_report(chain):
    """The chain is the report's, from whichever of its waits it begins."""
    if len(chain) != len(EXPECTED):
        return False
    for shift in range(len(chain)):
        turned = chain[shift:] + chain[:shift]
        if all(waiter in line and f"@r{at}" in line and target in line and
               f"@r{to}" in line and why in line
               for line, (waiter, at, target, to, why) in zip(turned, EXPECTED)):
            return True
    return False


def hang():
    """Run without an order until the watchdog speaks."""
    evidence = os.path.join(WORK, "evidence")
    _, _, text = run_ranks(
        STEPS, None, os.path.join(WORK, "unordered.log"),
        {"CONCORD_ISSUE_LOG": evidence})
    at = text.find("concord: watchdog")
    if at < 0:
        say("   no hang was reported. What the ranks wrote:")
        say(text)
        return None, None
    report = text[at:].split("\nconcord:")[0]
    for line in report.splitlines():
        if line.startswith(("concord:", "  ")):
            say("   " + line)
    return chain_of(report), evidence


def doctor(evidence):
    """comm-doctor on the folder; its chain and its exit status."""
    call = [os.path.join(BIN, "comm-doctor"), evidence]
    say("   $ comm-doctor " + os.path.relpath(evidence, ROOT))
    result = subprocess.run(call, capture_output=True, text=True, check=False)
    for line in result.stdout.replace(evidence + os.sep, "").splitlines():
        say("   " + line)
    return chain_of(result.stdout), result.returncode


def compile_plan():
    """comm-opt on the two issuers' program; the plan's path."""
    plan = os.path.join(WORK, "step.json")
    call = [os.path.join(BIN, "comm-opt"), os.path.join(HERE, "hang", "step.mlir"),
            "--comm-order", "--comm-verify-order", "--emit=plan", "-o", plan]
    say("   $ comm-opt demo/hang/step.mlir --comm-order --comm-verify-order "
        "--emit=plan -o " + os.path.relpath(plan, ROOT))
    result = subprocess.run(call, capture_output=True, text=True, check=False)
    if result.returncode:
        say(result.stderr)
        return None
    with open(plan, encoding="utf-8") as stream:
        content = json.load(stream)
    say("   what every rank issues in a round, in this order:")
    for issue in content["sequences"][0]["issues"]:
        slot = issue["slot"] + (f" (bit {issue['bit']})" if issue["bit"] >= 0
                                else "")
        say(f"   {issue['position']:>5}  {issue['issuer']:<10} "
            f"{issue['kind']:<15} {issue['domain']:<8} {slot}")
    say(f"   digest {content['digest'][:16]}..., "
        f"assumes {', '.join(content['assumptions']) or 'gate=hold'}")
    return plan


def main():
    """The three parts; what was seen; the exit status."""
    begin = time.monotonic()
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    say(f"{RANKS} processes, one device each with one communication slot. Each "
        "has a serving loop")
    say("in C++ that reduces and scatters over domain 1 in every step, behind a "
        "task queue of")
    say("two stages whose second one takes workspace, and a placement module in "
        "Python that")
    say("moves experts between ranks over domain 2. Neither knows of the other.")
    heading(1, "without an order")
    chain, evidence = hang()
    hung = chain is not None
    seen = hung and is_the_report(chain)
    agrees = False
    if hung:
        heading(2, "the doctor, from the ranks' issue logs and stacks")
        again, status = doctor(evidence)
        agrees = status == 1 and is_the_report(again)
    heading(3, "compiled through comm-order")
    plan = compile_plan()
    cured = False
    if plan:
        failed, message, text = run_ranks(
            STEPS, plan, os.path.join(WORK, "ordered.log"),
            {"CONCORD_GATE_TIMEOUT": "20", "CONCORD_TIMEOUT": "20",
             "CONCORD_HANG_REPORT": "10"})
        cured = failed < 0 and not message
        if not cured:
            say(f"   {message}\n{text}")
    say()
    for what, ok in (("it hung, and the watchdog named the four waits of the "
                      "report", seen),
                     ("comm-doctor named the same four", agrees),
                     ("in the order of the plan it ran to its end", cured)):
        say(f"   {'yes' if ok else 'NO '}  {what}")
    say(f"   {time.monotonic() - begin:.1f} s; what was written is in "
        f"{os.path.relpath(WORK, ROOT)}")
    return 0 if seen and agrees and cured else 1


sys.exit(main())
