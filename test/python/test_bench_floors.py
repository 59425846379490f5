# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of floors that every bench ends with (test/bench/floors.py)."""

import json
import os
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "test", "bench"))

from floors import Failed, Table, arguments, call  # noqa: E402


def test_floors_from_both_sides_and_the_file(tmp_path, capsys):
    table = Table()
    assert table.add("kept", 1.0, "us", 1.0)
    assert table.add("kept from below", 2.0, "x", 1.5, at_most=False, note="at 1 KiB")
    assert table.add("shown alone", 7, "us")
    path = tmp_path / "rows.json"
    options = arguments("doc").parse_args(["-J", str(path)])
    assert table.finish(options) == 0
    said = capsys.readouterr().out
    assert "ok   kept: 1.000 us <= 1.000\n" in said
    assert "ok   kept from below: 2.000 x >= 1.500 (at 1 KiB)\n" in said
    assert "2 floors, 0 missed" in said
    rows = json.loads(path.read_text())["rows"]
    assert rows[0] == {"name": "kept", "value": 1.0, "unit": "us", "floor": 1.0,
                       "ok": True}
    assert [row["ok"] for row in rows] == [True, True, True]


@pytest.mark.parametrize("value,floor,at_most", [
    (1.01, 1.0, True), (0.99, 1.0, False), (None, 1.0, True),
    (float("nan"), 1.0, True), (float("nan"), 1.0, False)])
def test_a_missed_floor_is_the_exit_status(value, floor, at_most, capsys):
    table = Table()
    table.add("kept", 0.0, "us", 1.0)
    assert not table.add("missed", value, "us", floor, at_most)
    assert table.finish(arguments("doc").parse_args(["--quick"])) == 1
    said = capsys.readouterr().out
    assert "MISS missed: " in said
    assert "2 floors, 1 missed" in said
    assert "--quick" in said


def test_a_failed_tool_says_what_it_said():
    with pytest.raises(Failed, match="sh -c .*\nwhy it is so"):
        call(["sh", "-c", "echo why it is so >&2; exit 3"])
    with pytest.raises(Failed, match="not done after"):
        call(["sleep", "5"], timeout=0.1)
