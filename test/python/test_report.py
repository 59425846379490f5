# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page of `comm-opt --report`: its data, that it needs nothing from the network,
and, where a Chromium is installed, that its script runs and draws."""

import html.parser
import json
import pathlib
import re
import shutil
import subprocess

import pytest

import model_runs as runs

pytestmark = pytest.mark.skipif(
    not runs.built(), reason="build/bin/comm-opt is not built")

ROOT, BIN = pathlib.Path(runs.ROOT), pathlib.Path(runs.BIN)
TOPOLOGY = ROOT / "test" / "topologies" / "two_level.json"

LAYERS = 12
PROGRAM = """
module attributes {comm.world = 16 : i64} {
  comm.domain @tp groups([[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13, 14, 15]]) priority(1)
  comm.domain @dp groups([[0, 8], [1, 9], [2, 10], [3, 11], [4, 12], [5, 13], [6, 14], [7, 15]])
  func.func @main(%x: tensor<4000000xbf16>, %w: tensor<2000000xbf16>) -> (RESULTS) {
BODY
    return VALUES : RESULTS
  }
}
"""


def program(layers):
    """A gather of weights, a product and a reduction per layer; gradients after."""
    big, half = "tensor<4000000xbf16>", "tensor<2000000xbf16>"
    body, value, grads = [], "%x", []
    for i in range(layers):
        body += [
            f"%e{i} = tensor.empty() : {big}",
            f"%g{i} = comm.all_gather @dp dim(0) ins(%w : {half}) outs(%e{i} : {big}) -> {big}",
            f'%d{i} = comm.compute "dot </script> {i}"({value}, %g{i}) {{flops = 400000000000 : i64}}'
            f" : ({big}, {big}) -> {big}",
            f"%r{i} = comm.all_reduce @tp sum ins(%d{i} : {big}) outs(%e{i} : {big}) -> {big}"]
        value = f"%r{i}"
    values = [value] + grads
    text = PROGRAM.replace("BODY", "\n".join("    " + line for line in body))
    return text.replace("VALUES", ", ".join(values)).replace(
        "RESULTS", ", ".join([big] * len(values)))


class Page(html.parser.HTMLParser):
    """Collects ids, links and the data element; complains of unbalanced tags."""
    VOID = {"meta", "input", "br", "link", "img"}

    def __init__(self):
        super().__init__()
        self.ids, self.links, self.open, self.data, self.scripts = [], [], [], "", ""

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in self.VOID:
            self.open.append((tag, attrs.get("id"), attrs.get("type")))
        if "id" in attrs:
            self.ids.append(attrs["id"])
        self.links += [attrs[key] for key in ("src", "href") if key in attrs]

    def handle_endtag(self, tag):
        assert self.open and self.open[-1][0] == tag, (tag, self.open[-3:])
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1][0] == "script":
            if self.open[-1][1] == "data":
                self.data += data
            else:
                self.scripts += data


def make(tmp_path, source, *options):
    (tmp_path / "step.mlir").write_text(source)
    page = tmp_path / "report.html"
    done = subprocess.run(
        [BIN / "comm-opt", tmp_path / "step.mlir", *options, f"--report={page}",
         "-o", tmp_path / "out.mlir"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "explain:" not in done.stderr  # that is --explain's
    assert "explain" not in (tmp_path / "out.mlir").read_text()
    return page


def parse(page):
    parser = Page()
    parser.feed(page.read_text())
    parser.close()
    assert not parser.open and not parser.links
    assert len(parser.ids) == len(set(parser.ids))
    assert not re.search(r"https?://|import\s*\(|fetch\s*\(|XMLHttp", parser.scripts)
    return parser, json.loads(parser.data)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return make(tmp_path_factory.mktemp("report"), program(LAYERS),
                f"--comm-overlap=growth=3 machine={TOPOLOGY}", "--comm-order",
                f"--topology={TOPOLOGY}")


def test_data(page):
    parser, data = parse(page)
    for name in ("timeline", "memory", "order", "decisions", "path"):
        assert name in parser.ids
    assert data["world"] == 16 and data["validated"] == "nowhere"
    assert [d["name"] for d in data["domains"]] == ["tp", "dp"]
    (only,) = data["classes"]
    assert only["ranks"] == [[0, 15]]
    issues = data["programs"][0]["issues"]
    assert len(issues) >= 2 * LAYERS
    end = data["seconds"] * 1e9
    rows = [only["host"]] + [lane["spans"] for lane in only["lanes"]]
    transfers = set()
    for spans in rows:
        before = 0
        for kind, begin, stop, index, critical in spans:
            assert 0 <= begin <= stop <= end + 1 and stop >= before
            before = stop
            if kind == 3:
                transfers.add(index)
    assert transfers == set(range(len(issues)))
    # The critical path has no holes but latencies, and ends with the step.
    path = data["path"]
    assert path and abs(path[-1]["end"] - end) < 0.02 * end
    assert sum(p["end"] - p["begin"] for p in path) <= end * 1.001
    reasons = {d["reason"] for d in data["decisions"] if d["pass"] == "comm-overlap"}
    assert "hidden" in reasons
    assert all(d["location"] and d["reason"] for d in data["decisions"])
    assert not data["memory"]["planned"] and data["memory"]["peak"] > 0


TWO_PROGRAMS = """
module attributes {comm.world = 2 : i64} {
  comm.domain @all groups([[0, 1]])
  comm.program @p0 entry(@f0) ranks([0])
  comm.program @p1 entry(@f1) ranks([1])
  func.func @f0(%x: memref<16xf32> {comm.input = 0 : i64}) {
    %a = memref.alloc() : memref<16xf32>
    comm.all_reduce @all sum ins(%a : memref<16xf32>) outs(%a : memref<16xf32>)
    comm.all_reduce @all max ins(%x : memref<16xf32>) outs(%a : memref<16xf32>)
    return
  }
  func.func @f1(%x: memref<16xf32> {comm.input = 0 : i64}) {
    %a = memref.alloc() : memref<16xf32>
    comm.all_reduce @all sum ins(%a : memref<16xf32>) outs(%a : memref<16xf32>)
    comm.all_reduce @all max ins(%a : memref<16xf32>) outs(%x : memref<16xf32>)
    return
  }
}
"""


def test_what_programs_communicate(tmp_path):
    page = make(tmp_path, TWO_PROGRAMS, "--comm-plan-workspace")
    _, data = parse(page)
    found = [(b["domain"], b["buffer"], b["symmetric"], b["offsets"])
             for b in data["memory"]["communicated"]]
    both = [["p0", 0], ["p1", 0]]
    assert found == [("all", 0, True, both), ("all", 1, True, both),
                     ("all", 0, False, [["p0", -1], ["p1", 0]]),
                     ("all", 1, False, [["p0", 0], ["p1", -1]])]
    reasons = {d["reason"] for d in data["decisions"] if d["pass"] == "comm-plan-workspace"}
    assert reasons == {"not-in-arena", "equal-offsets"}


def test_names_cannot_leave_the_data(page):
    _, data = parse(page)
    assert any("</script>" in name for name in data["programs"][0]["names"])


def test_measured(tmp_path):
    events = [{"ph": "X", "cat": "step", "name": "step 3", "pid": rank, "tid": 0,
               "ts": 100.0, "dur": 50.0, "args": {}} for rank in (0, 1)]
    events += [{"ph": "X", "cat": "collective", "name": "all_gather", "pid": 1, "tid": 1,
                "ts": 110.0, "dur": 5.0, "args": {"site": 0}},
               {"ph": "X", "cat": "compute", "name": "compute", "pid": 0, "tid": 0,
                "ts": 100.0, "dur": 10.0, "args": {}},
               {"ph": "X", "cat": "wait", "name": "wait", "pid": 0, "tid": 0,
                "ts": 112.0, "dur": 3.0, "args": {"site": 0}}]
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"traceEvents": events}))
    _, data = parse(make(tmp_path, program(2), "--comm-order", f"--report-trace={trace}"))
    measured = data["measured"]
    assert measured["step"] == 3 and abs(measured["seconds"] - 50e-6) < 1e-9
    assert measured["ranks"][0]["host"] == [[0, 0, 10000, -1, 0],
                                            [1, 12000, 15000, 0, 0]]
    assert measured["ranks"][1]["lanes"] == [{"lane": 0, "spans": [[3, 10000, 15000, 0, 0]]}]
    for text, message in (("nothing", "not JSON"), ("{}", "traceEvents"),
                          ('{"traceEvents": []}', "holds no step")):
        trace.write_text(text)
        done = subprocess.run(
            [BIN / "comm-opt", tmp_path / "step.mlir", f"--report={tmp_path / 'r.html'}",
             f"--report-trace={trace}"], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and message in done.stderr


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """16 ranks with 2,000 collectives, predicted and measured."""
    folder = tmp_path_factory.mktemp("large")
    events = []
    for rank in range(16):
        events.append({"ph": "X", "cat": "step", "name": "step 0", "pid": rank, "tid": 0,
                       "ts": 0.0, "dur": 2000 * 100.0, "args": {"program": 0}})
        for site in range(2000):
            events += [{"ph": "X", "cat": "compute", "name": "compute", "pid": rank,
                        "tid": 0, "ts": 100.0 * site, "dur": 60.0, "args": {"program": 0}},
                       {"ph": "X", "cat": "collective", "name": "x", "pid": rank, "tid": 1,
                        "ts": 100.0 * site + 60, "dur": 40.0,
                        "args": {"site": site, "program": 0}}]
    trace = folder / "trace.json"
    trace.write_text(json.dumps({"traceEvents": events}))
    return make(folder, program(1000), "--comm-order", f"--topology={TOPOLOGY}",
                f"--report-trace={trace}")


def test_large(large):
    _, data = parse(large)
    assert len(data["programs"][0]["issues"]) == 2000
    assert len(data["measured"]["ranks"]) == 16
    assert large.stat().st_size < 8_000_000


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.skipif(not CHROMIUM, reason="no chromium")
def test_drawn_by_a_browser(page, tmp_path):
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu",
         f"--user-data-dir={tmp_path}", "--virtual-time-budget=5000", "--dump-dom",
         page.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    assert 'data-ready="1"' in done.stdout
    assert int(re.search(r'data-drawn="(\d+)"', done.stdout).group(1)) > 16
    assert "hidden" in done.stdout


@pytest.mark.skipif(not CHROMIUM, reason="no chromium")
def test_large_is_drawn_by_a_browser(large, tmp_path):
    """Predicted and measured rows, in a picture of bounded detail."""
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu",
         f"--user-data-dir={tmp_path}", "--virtual-time-budget=20000", "--dump-dom",
         large.as_uri()], capture_output=True, text=True, timeout=300, check=True)
    assert 'data-ready="1"' in done.stdout
    assert 16 < int(re.search(r'data-drawn="(\d+)"', done.stdout).group(1)) < 100_000
    assert "measured step 0" in done.stdout
