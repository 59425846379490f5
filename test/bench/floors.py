# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the benches have in common: tools to call, a table of rows with floors, options.

    options = arguments(__doc__).parse_args()
    table = Table()
    table.add("all_reduce_1MiB", 51.2, "us", 60)
    return table.finish(options)

A floor is a bound that a value must keep: from above, or with at_most=False from below.
`-J FILE` writes {"rows": [{"name", "value", "unit", "floor", "ok"}]}, and whatever else a
row was given. The exit status is 1 when a floor is missed.
"""

import argparse
import ctypes
import json
import os
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("CONCORD_BIN", os.path.join(ROOT, "build", "bin"))
MIB = 1 << 20


class Failed(Exception):
    """A tool ended with an error; the text is the command and the end of what it said."""


def call(command, timeout=600):
    """Runs a command to its end: its CompletedProcess, with standard output and error as
    text. Raises Failed."""
    command = list(map(str, command))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout,
                              check=False)
    except subprocess.TimeoutExpired as error:
        said = "".join(text.decode(errors="replace")[-1000:] for text in
                       (error.stdout, error.stderr) if text)
        raise Failed(f"{' '.join(command)}\nnot done after {timeout} s, having said\n"
                     f"{said or 'nothing'}") from error
    if done.returncode:
        raise Failed(" ".join(command) + "\n" + done.stdout[-1000:] + done.stderr[-2000:])
    return done


def tool(name):
    """The path of one of the build's programs."""
    return os.path.join(BIN, name)


def kernel_workspace(text, cache={}):
    """Bytes of scratch that a kernel needs, by the kernels' own library. Raises Failed for
    a description that it refuses."""
    if text in cache:
        return cache[text]
    library = ctypes.CDLL(os.path.join(BIN, "..", "lib", "libconcord.so"))

    class Info(ctypes.Structure):
        _fields_ = [("struct_size", ctypes.c_uint32),
                    ("num_inputs", ctypes.c_uint32),
                    ("num_outputs", ctypes.c_uint32),
                    ("packed_input", ctypes.c_uint32),
                    ("workspace_bytes", ctypes.c_uint64),
                    ("packed_weight_bytes", ctypes.c_uint64)]

    info, handle = Info(struct_size=ctypes.sizeof(Info)), ctypes.c_void_p()
    if library.concord_kernel_create(text.encode(), ctypes.byref(handle),
                                     ctypes.byref(info)):
        library.concord_kernel_last_error.restype = ctypes.c_char_p
        raise Failed(library.concord_kernel_last_error().decode())
    library.concord_kernel_destroy(handle)
    cache[text] = info.workspace_bytes
    return cache[text]


def arguments(doc):
    """A parser with what every bench takes: -J and --quick."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-J", "--json", metavar="FILE", help="write the rows to FILE")
    parser.add_argument("--quick", action="store_true",
                        help="few and short turns, whose figures do not count")
    return parser


class Table:
    """Rows and their floors, in the order in which they were added."""

    def __init__(self):
        self.rows, self.began = [], time.monotonic()

    def add(self, name, value, unit, floor=None, at_most=True, note="", **more):
        """A row; `note` goes behind its line, `more` into the file. A floor is missed by a
        value of None (not measured), and by one that is not a number."""
        ok = floor is None or (value is not None and
                               (value <= floor if at_most else value >= floor))
        self.rows.append({"name": name, "value": value, "unit": unit, "floor": floor,
                          "ok": ok, **more, "_line": (at_most, note)})
        return ok

    @property
    def ok(self):
        return all(row["ok"] for row in self.rows)

    def show(self):
        """A line per floor, and how many there are."""
        print()
        floors = [row for row in self.rows if row["floor"] is not None]
        for row in floors:
            at_most, note = row["_line"]
            value = "not measured" if row["value"] is None else f"{row['value']:.3f}"
            print(f"{'ok  ' if row['ok'] else 'MISS'} {row['name']}: {value} {row['unit']} "
                  f"{'<=' if at_most else '>='} {row['floor']:.3f}"
                  f"{' (' + note + ')' if note else ''}")
        missed = sum(not row["ok"] for row in floors)
        print(f"{len(floors)} floors, {missed} missed, {self.seconds():.0f} s")

    def seconds(self):
        """Since the table was made."""
        return time.monotonic() - self.began

    def write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"rows": [{k: v for k, v in row.items() if k != "_line"}
                                for row in self.rows]}, file, indent=1)
            file.write("\n")

    def finish(self, options):
        """Shows, writes where -J says, and gives the exit status."""
        self.show()
        if getattr(options, "only", None):
            print("--only: a part of the rows")
        if options.quick:
            print("--quick: too few steps for the figures to count")
        if options.json:
            self.write(options.json)
        return 0 if self.ok else 1
