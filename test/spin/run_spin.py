# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Model-checks the flag protocols: every *.pml in this folder, with spin.

A model says in its first comment what has to be tried: `check: NAME=VALUE ...`
must hold, completely; `mutant: NAME=VALUE ...` must fail, which shows that the
model can. Words in parentheses are for people.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).parent
LINE = re.compile(r"^ \* (check|mutant):([^(\n]*)", re.M)


def verify(model, defines, folder):
    """Run the search; (errors, complete, report)."""
    flags = [f"-D{define}" for define in defines]
    # The project's own compiler, for spin's preprocessing as well: it would take
    # gcc, which a machine with nothing but our packages does not have.
    compiler = shutil.which("clang-22") or shutil.which("cc")
    report = ""
    for command in (["spin", f"-P{compiler} -std=gnu99 -E -x c", *flags, "-a",
                     str(model)],
                    [compiler, "-O0", "-w", "-DSAFETY", "-DVECTORSZ=2048", "-o",
                     "pan", "pan.c"],
                    ["./pan", "-m200000", "-w22"]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True,
                              timeout=240, check=False)
        report = done.stdout + done.stderr
        if done.returncode != 0 and command[0] != "./pan":
            raise SystemExit(f"{model.name}: {command[0]} failed:\n{report}")
    match = re.search(r"errors: (\d+)", report)
    if not match:
        raise SystemExit(f"{model.name}: no result\n{report}")
    complete = "Search not completed" not in report and "max search depth" not in report
    return int(match.group(1)), complete, report


def main():
    if not shutil.which("spin"):
        print("spin: not installed; apt-get install spin", file=sys.stderr)
        return 2
    names = sys.argv[1:]
    models = sorted(FOLDER.glob("*.pml"))
    if names:
        models = [model for model in models if model.stem in names]
    failed = 0
    for model in models:
        tries = [(kind, words.split()) for kind, words in LINE.findall(model.read_text())]
        if {kind for kind, _ in tries} != {"check", "mutant"}:
            print(f"{model.name}: needs a check: and a mutant: line")
            failed += 1
        for kind, defines in tries:
            with tempfile.TemporaryDirectory(prefix="concord-spin-") as folder:
                errors, complete, report = verify(model, defines, folder)
            good = errors == 0 and complete if kind == "check" else errors > 0
            states = re.search(r"(\d+) states, stored", report)
            print(f"{model.name} {kind} {' '.join(defines)}: "
                  f"{'ok' if good else 'WRONG'}, {errors} errors, "
                  f"{states.group(1) if states else '?'} states"
                  f"{'' if complete or errors else ', not complete'}")
            if not good:
                print(report)
                failed += 1
    print(f"spin: {len(models)} models, {failed} failed")
    return 1 if failed or not models else 0


if __name__ == "__main__":
    sys.exit(main())
