# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""./run fuzz [TARGET...] SECONDS: libFuzzer on the readers of foreign bytes.

Builds the targets of test/fuzz into build-fuzz/ with libFuzzer, AddressSanitizer and
UndefinedBehaviorSanitizer and runs each named one, or all, for SECONDS, two at a time.
What a target has found interesting stays in build-fuzz/corpus/TARGET and is where its
next run begins. A crash, a report of a sanitizer, an input of more than a minute and
one that takes more than 1 GiB at once are findings: their inputs are written to
build-fuzz/findings, and the exit status is 1. `build/bin/unit/fuzz_TARGET FILE` runs
such an input again. The last line is "N targets, N inputs, N findings".
"""

import concurrent.futures
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build-fuzz")
FINDINGS = os.path.join(BUILD, "findings")


def call(*command):
    """Run to the end; its output. Ends the program if it fails."""
    done = subprocess.run(command, cwd=ROOT, check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(done.stdout + f"fuzz: {' '.join(command)} failed")
    return done.stdout


def configure():
    """The names of the targets that there are."""
    call("cmake", "--preset", "fuzz")
    rules = call("ninja", "-C", BUILD, "-t", "targets", "all")
    return sorted(re.findall(r"^bin/unit/fuzz_(\w+): ", rules, re.MULTILINE))


def run(target, seconds):
    """Fuzz one target; its line and its numbers of inputs and of findings."""
    program = os.path.join(BUILD, "bin", "unit", "fuzz_" + target)
    corpus = os.path.join(BUILD, "corpus", target)
    log = os.path.join(FINDINGS, target + ".log")
    env = dict(os.environ, UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1",
               # libprotobuf and others are not instrumented. Threads of a peer that
               # is given up on purpose may hold memory at the end.
               ASAN_OPTIONS="detect_leaks=0:detect_container_overflow=0")
    with open(log, "w", encoding="utf-8") as file:
        status = subprocess.run([program, "-write-seeds=" + corpus], cwd=ROOT, env=env,
                                stdout=file, stderr=file, check=False).returncode
        if status == 0:
            status = subprocess.run(
                [program, f"-max_total_time={seconds}", "-print_final_stats=1",
                 "-timeout=60", "-rss_limit_mb=3072", "-malloc_limit_mb=1024",
                 f"-artifact_prefix={FINDINGS}/{target}-", corpus],
                cwd=ROOT, env=env, stdout=file, stderr=file, check=False).returncode
    with open(log, encoding="utf-8", errors="replace") as file:
        text = file.read()
    inputs = [int(n) for n in re.findall(r"^stat::number_of_executed_units:\s*(\d+)",
                                         text, re.MULTILINE)]
    edges = [int(n) for n in re.findall(r"\bcov: (\d+)", text)]
    line = f"{target}: {sum(inputs)} inputs, {edges[-1] if edges else 0} edges"
    if status:
        line += f", A FINDING, see {os.path.relpath(log, ROOT)}"
    elif not inputs or not inputs[0]:
        line += f", RAN NOTHING, see {os.path.relpath(log, ROOT)}"
        status = 1
    return line, sum(inputs), int(status != 0)


def main(arguments):
    try:
        seconds = int(arguments[-1])
    except (IndexError, ValueError):
        print(__doc__.split("\n", maxsplit=1)[0], file=sys.stderr)
        return 2
    print("== building into build-fuzz/", flush=True)
    known = configure()
    targets = arguments[:-1] or known
    unknown = [name for name in targets if name not in known]
    if unknown:
        print(f"run: no fuzz target '{unknown[0]}'; there are {', '.join(known)}",
              file=sys.stderr)
        return 2
    call("ninja", "-C", BUILD, *("fuzz_" + name for name in targets))
    os.makedirs(FINDINGS, exist_ok=True)
    inputs = findings = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        for line, ran, found in pool.map(lambda name: run(name, seconds), targets):
            print(line, flush=True)
            inputs += ran
            findings += found
    print(f"{len(targets)} targets, {inputs} inputs, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
