# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a compiled program says about itself, read without loading it.

NAME.so holds the JSON of concord/artefact.h in its section `.concord.meta`; the
plan comes as JSON from `comm-opt --emit=plan`. Both readers refuse what is not
of the expected form with ValueError.
"""

import json
import os
import re
import struct


def elf_section(path, name):
    """Bytes of a section of a 64-bit little-endian ELF file."""
    with open(path, "rb") as file:
        data = file.read()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is not a 64-bit little-endian ELF file")
    try:
        (table,) = struct.unpack_from("<Q", data, 0x28)
        size, count, names = struct.unpack_from("<HHH", data, 0x3A)
        headers = [struct.unpack_from("<IIQQQQ", data, table + i * size)
                   for i in range(count)]
        at = headers[names][4]
        for header in headers:
            begin = at + header[0]
            label = data[begin:data.index(b"\0", begin)].decode("ascii")
            if label == name:
                return data[header[4]:header[4] + header[5]]
    except (struct.error, IndexError, OverflowError, ValueError) as error:
        raise ValueError(f"{path}: broken section table") from error
    raise ValueError(f"{path} has no section {name}: not a program of comm-opt")


def read_meta(path):
    """The object of `.concord.meta`."""
    text = elf_section(path, ".concord.meta").split(b"\0", 1)[0]
    meta = json.loads(text)
    for key in ("world", "mesh", "digest", "arena_bytes", "inputs", "outputs"):
        if key not in meta:
            raise ValueError(f"{path}: its metadata lacks {key!r}")
    return meta


def weight_bytes(path, meta, rank):
    """Bytes of NAME.weights that one rank maps: its own sections and shared ones.

    The container is safetensors; a section is `PARAMETER#RANK` or `PARAMETER#*`.
    """
    if not meta.get("weights"):
        return 0
    file_path = os.path.join(os.path.dirname(path), meta["weights"])
    with open(file_path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    total = 0
    for section, entry in header.items():
        if section.endswith(f"#{rank}") or section.endswith("#*"):
            begin, end = entry["data_offsets"]
            total += end - begin
    return total


DTYPE_BYTES = {"F32": 4, "F64": 8, "F16": 2, "BF16": 2, "I8": 1, "I16": 2,
               "I32": 4, "I64": 8, "U8": 1, "U16": 2, "U32": 4, "U64": 8,
               "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1}


def plain_kind(kind):
    """`AllReduce`, `all_reduce` and `ALL-REDUCE` are all `all_reduce`."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(kind))
    return spaced.replace("-", "_").lower()


def issues(plan):
    """All issues of a plan in order, as dictionaries with plain values.

    kind, domain (name), group (ranks per group), dtype, count, bytes (of the
    logical array), location. The members of a grouped launch are listed, the
    group itself is not.
    """
    domains = plan["domains"]
    out = []
    for program in plan["programs"]:
        for site, issue in enumerate(program["issues"]):
            if plain_kind(issue["kind"]) == "group":
                continue
            domain = issue.get("domain", 0)
            if isinstance(domain, int):
                domain = domains[domain]
            else:
                domain = next(d for d in domains if d["name"] == domain)
            dtype = str(issue.get("dtype", "F32")).upper()
            count = int(issue.get("count", 0))
            group = len(domain["groups"][0]) if domain.get("groups") else 1
            kind = plain_kind(issue["kind"])
            whole = count * group if kind in ("all_gather", "reduce_scatter",
                                              "all_to_all") else count
            out.append({"site": site, "kind": kind, "domain": domain["name"],
                        "group": group, "dtype": dtype, "count": count,
                        "elements": whole,
                        "bytes": whole * DTYPE_BYTES.get(dtype, 0),
                        "location": issue.get("location", "")})
    return out


def moved_bytes(issue):
    """Bytes that one rank sends in the bandwidth-optimal form of the collective."""
    p, size = issue["group"], issue["bytes"]
    if p < 2:
        return 0.0
    share = (p - 1) / p
    return {"all_reduce": 2 * share * size, "all_gather": share * size,
            "reduce_scatter": share * size,
            "all_to_all": share * size}.get(issue["kind"], float(size))


def _strings(value):
    return [str(v) for v in value] if isinstance(value, list) else []


def assumptions(plan):
    return _strings(plan.get("assumptions"))
