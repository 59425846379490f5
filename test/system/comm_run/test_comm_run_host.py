# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""comm-run --topology on invented machines, --preflight on this one."""

import json
import subprocess

import pytest

from comm_run_support import BIN, fixture

TWO_SOCKETS = "package:2 [numa] l3:1 core:4 pu:2"

# Two packages of one core each, numbered 1 and 0, with an interface at each.
XML = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0x0000000f" complete_cpuset="0x0000000f"
   allowed_cpuset="0x0000000f" nodeset="0x00000003" complete_nodeset="0x00000003"
   allowed_nodeset="0x00000003" gp_index="1">
  {packages}
 </object>
</topology>
"""
PACKAGE = """<object type="Package" os_index="{p}" cpuset="{mask}" complete_cpuset="{mask}"
    nodeset="{node}" complete_nodeset="{node}" gp_index="{g}0">
   <object type="NUMANode" os_index="{p}" cpuset="{mask}" complete_cpuset="{mask}"
     nodeset="{node}" complete_nodeset="{node}" gp_index="{g}1" local_memory="1073741824"/>
   {cores}
   <object type="Bridge" gp_index="{g}6" bridge_type="0-1" depth="0"
     bridge_pci="0000:[0{p}-0{p}]">
    <object type="PCIDev" gp_index="{g}7" pci_busid="0000:0{p}:00.0"
      pci_type="0200 [8086:10d3] [8086:10d3] 00" pci_link_speed="0.0">
     <object type="OSDev" gp_index="{g}8" name="eth{p}" osdev_type="2"/>
    </object>
   </object>
  </object>"""
CORE = """<object type="Core" os_index="{c}" cpuset="{mask}" complete_cpuset="{mask}"
     nodeset="{node}" complete_nodeset="{node}" gp_index="{g}2{c}">
    <object type="PU" os_index="{c}" cpuset="{mask}" complete_cpuset="{mask}"
      nodeset="{node}" complete_nodeset="{node}" gp_index="{g}3{c}"/>
   </object>"""


def machine():
    """Even processing units on package 0, odd ones on package 1."""
    packages = []
    for p in range(2):
        node = f"0x{1 << p:08x}"
        cores = "".join(CORE.format(c=c, mask=f"0x{1 << c:08x}", node=node, g=p + 2)
                        for c in (p, p + 2))
        packages.append(PACKAGE.format(p=p, g=p + 2, node=node, cores=cores,
                                       mask=f"0x{(1 << p) | (1 << p + 2):08x}"))
    return XML.format(packages="".join(packages))


def topology(comm_run, tmp_path, *arguments):
    path = tmp_path / "map.json"
    comm_run("--topology", "--json", path, *arguments)
    return json.loads(path.read_text())


def test_topologies_that_cannot_be_read(comm_run, tmp_path):
    gone, wrong = tmp_path / "gone.xml", tmp_path / "wrong.xml"
    wrong.write_text("<topology")
    assert f"{gone}: cannot be read: No such file" in comm_run("--topology", "--xml", gone,
                                                               code=2).stderr
    assert f"{wrong}: is not a topology" in comm_run("--topology", "--xml", wrong, code=2).stderr


def test_synthetic(comm_run, tmp_path):
    found = topology(comm_run, tmp_path, "--synthetic", TWO_SOCKETS)
    assert (found["packages"], found["numa_nodes"], found["cores"], found["cpus"]) == (2, 2, 8, 16)
    assert [rank["package"] for rank in found["ranks"]] == [0] * 4 + [1] * 4
    assert [rank["core"] for rank in found["ranks"]] == list(range(8))
    # One hardware thread per core before any second one.
    assert len({rank["cpu"] for rank in found["ranks"]}) == 8
    close = topology(comm_run, tmp_path, "--synthetic", TWO_SOCKETS, "-n", 4)
    assert {rank["package"] for rank in close["ranks"]} == {0}
    spread = topology(comm_run, tmp_path, "--synthetic", TWO_SOCKETS, "-n", 4, "--bind", "spread")
    assert [rank["numa"] for rank in spread["ranks"]] == [0, 0, 1, 1]
    threads = topology(comm_run, tmp_path, "--synthetic", TWO_SOCKETS, "-n", 16)
    assert len({rank["cpu"] for rank in threads["ranks"]}) == 16
    crowd = topology(comm_run, tmp_path, "--synthetic", TWO_SOCKETS, "-n", 32)
    assert crowd["oversubscribed"]
    assert [rank["cpu"] for rank in crowd["ranks"][:4]] == [0, 0, 1, 1]


def test_xml_order_and_interfaces(comm_run, tmp_path):
    path = tmp_path / "machine.xml"
    path.write_text(machine())
    found = topology(comm_run, tmp_path, "--xml", path)
    assert found["nics"] == ["eth0", "eth1"]
    # The system numbers cores across the packages; neighbours must not be so.
    assert [rank["cpu"] for rank in found["ranks"]] == [0, 2, 1, 3]
    assert [rank["nic"] for rank in found["ranks"]] == ["eth0", "eth0", "eth1", "eth1"]
    assert [rank["numa"] for rank in found["ranks"]] == [0, 0, 1, 1]
    assert found["cost"]["placed"] < found["cost"]["numbered"]


def test_dot_and_text(comm_run):
    dot = comm_run("--topology", "--synthetic", TWO_SOCKETS, "--dot", "-").stdout
    assert dot.startswith("digraph topology {")
    assert '"rank 7" -> "cpu 14";' in dot
    text = comm_run("--topology").stdout
    assert text.startswith("host ")
    assert "levels between neighbours" in text


@pytest.mark.parametrize("arguments,words", [
    (("--synthetic", "package:0x"), "is not in hwloc's notation"),
    (("--xml", "/nonexistent.xml"), "/nonexistent.xml: "),
    (("--bind", "tight"), "tight"),
    (("--preflight",), "one at a time"),
])
def test_wrong_use(comm_run, arguments, words):
    assert words in comm_run("--topology", *arguments, code=2).stderr


def test_health(comm_run, tmp_path):
    if not (BIN / "comm-opt").exists():
        pytest.skip("comm-opt is not built")
    baseline, report = tmp_path / "base.json", tmp_path / "r.json"
    done = comm_run("--health", "-n", 2, "--baseline", baseline)
    assert "stored as the baseline" in done.stdout
    stored = json.loads(baseline.read_text())
    assert stored["ranks"] == 2 and stored["latency_us"] > 0 and stored["busbw"] > 0
    # Against itself, with room for whatever else runs here.
    comm_run("--health", "-n", 2, "--baseline", baseline, "--tolerance", 1000)
    # Against a time when all was much faster.
    baseline.write_text(json.dumps(dict(stored, large_us=stored["large_us"] / 1e5)))
    done = comm_run("--health", "-n", 2, "--baseline", baseline, "--tolerance", 900,
                    "--json", report, code=1)
    assert "DEGRADED" in done.stdout
    found = json.loads(report.read_text())
    assert found["degraded"] and found["baseline"]["large_us"]["degraded"]
    baseline.write_text("[]")
    assert "no baseline" in comm_run("--health", "-n", 2, "--baseline", baseline, code=2).stderr
    baseline.write_text(json.dumps(dict(stored, large_us="fast")))
    assert 'it has no number "large_us"' in comm_run("--health", "-n", 2, "--baseline",
                                                     baseline, code=2).stderr
    assert comm_run.left_behind() == []


STEP = """
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @step(%x: tensor<64xf32>, %o: tensor<64xf32>) -> tensor<64xf32> {
    %0 = comm.all_reduce @tp sum ins(%x : tensor<64xf32>) outs(%o : tensor<64xf32>)
           -> tensor<64xf32>
    return %0 : tensor<64xf32>
  }
}
"""


def test_health_is_a_slot_of_the_program(comm_run, tmp_path):
    if not (BIN / "comm-opt").exists():
        pytest.skip("comm-opt is not built")
    program, baseline, report = tmp_path / "p.mlir", tmp_path / "b.json", tmp_path / "r.json"
    program.write_text(STEP)
    call = (program, "--health", "--baseline", baseline, "--repeat", 30, "--json", report)
    done = comm_run(*call)
    assert "stored as the baseline" in done.stdout and "output " in done.stdout
    stored, found = json.loads(baseline.read_text()), json.loads(report.read_text())
    assert found["health"]["latency_us"] == stored["latency_us"] > 0
    # The slot was used in some rounds, and the step went on in all of them.
    for rank in found["ranks"]:
        assert 0 < rank["issuers"]["health_program"] <= 31
        assert rank["issuers"]["step_program"] == 31
    baseline.write_text(json.dumps(dict(stored, large_us=stored["large_us"] / 1e5)))
    done = comm_run(*call, "--tolerance", 900, code=1)
    assert "DEGRADED" in done.stdout and json.loads(report.read_text())["health"]["degraded"]
    # No round has it: nothing is said about health.
    assert "no round had the health check" in comm_run(*call, "--slots", 0, code=4).stderr


def test_health_of_a_program_without_one(comm_run):
    assert "has no health check" in comm_run(fixture(2), "--health", code=2).stderr


def test_preflight(comm_run, tmp_path):
    path = tmp_path / "p.json"
    done = comm_run("--preflight", "-n", 2, "--json", path, CONCORD_HEAP_BYTES="64M")
    report = json.loads(path.read_text())
    assert report["ready"]
    assert [check["check"] for check in report["checks"]] == [
        "versions", "interfaces", "limits", "shared memory", "processes", "clocks",
        "environment"]
    assert "preflight for 2 ranks: ready" in done.stdout


def test_preflight_finds_what_is_wrong(comm_run):
    done = comm_run("--preflight", code=1, CONCORD_TIMEOUT="soon")
    assert "CONCORD_TIMEOUT=soon is not a number of seconds" in done.stdout
    assert "this host cannot join" in done.stdout
    limited = comm_run.command("--preflight", "-n", 8)
    done = subprocess.run(["sh", "-c", 'ulimit -n 40; exec "$@"', "sh", *limited],
                          env=comm_run.env, capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == 1
    assert "open files: 40, 8 ranks need 112" in done.stdout
