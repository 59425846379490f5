# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""docs/troubleshooting.md: every error is there, and every test it names exists."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
HEADER = (ROOT / "runtime" / "include" / "concord" / "concord.h").read_text()
NO_TEST = {"INTERNAL"}


def errors():
    listed = HEADER.split("#define CONCORD_ERRORS(X)")[1].split("typedef enum")[0]
    return set(re.findall(r"X\(([A-Z_]+), \d+,", listed))


def rows():
    for line in PAGE.splitlines():
        match = re.search(r"\| `(test/[\w/.]+)` `([\w.]+)` \|$", line)
        if line.startswith("|") and not line.startswith("|---") and "| test |" not in line:
            assert match, f"no test in the row: {line}"
            yield line, match.group(1), match.group(2)


def test_every_error_has_a_row():
    chapter = PAGE.split("## By error")[1].split("## The thirty")[0]
    found = set(re.findall(r"^\| `([A-Z_]+)` \|", chapter, re.M))
    assert len(errors()) >= 24
    assert errors() - NO_TEST == found
    for name in NO_TEST:
        assert f"`{name}`" in chapter


def test_every_test_exists():
    count = 0
    for line, path, name in rows():
        text = (ROOT / path).read_text()
        if "." in name:
            suite, test = name.split(".")
            assert re.search(rf"TEST(_F|_P)?\({suite}, {test}\)", text), line
        else:
            assert re.search(rf"\b(def|void) {name}\(", text), line
        count += 1
    assert count > 50


def test_errors_of_cpp_tests_are_in_their_source():
    chapter = PAGE.split("## By error")[1].split("## The thirty")[0]
    for code, path in re.findall(r"^\| `([A-Z_]+)` \|.*`(test/\S+\.cpp)`", chapter, re.M):
        assert f"CONCORD_ERROR_{code}" in (ROOT / path).read_text(), (code, path)
