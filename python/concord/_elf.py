# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The metadata of an artefact, without loading it.

How many ranks a program wants must be known before a job can be made for it.
"""

import json
import struct


def read_meta(path):
    """The JSON of section .concord.meta as a dict. Raises ValueError when the file
    is not a program compiled by comm-opt."""
    with open(path, "rb") as file:
        data = file.read()
    section = _section(data, b".concord.meta", path)
    try:
        meta = json.loads(section.split(b"\0", 1)[0])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: its metadata are damaged: {error}") from None
    world = meta.get("world") if isinstance(meta, dict) else None
    if not isinstance(world, int) or not 1 <= world <= 1 << 16:
        raise ValueError(f"{path}: its metadata name no number of ranks")
    return meta


def _section(data, name, path):
    if data[:6] != b"\x7fELF\x02\x01" or len(data) < 64:
        raise ValueError(f"{path}: not a compiled program")
    offset, = struct.unpack_from("<Q", data, 40)
    entry, count, names = struct.unpack_from("<HHH", data, 58)

    def header(index):
        at = offset + index * 64
        if entry != 64 or at + 64 > len(data):
            raise ValueError(f"{path}: its section table is damaged")
        # name, type, flags, address, offset, size
        return struct.unpack_from("<IIQQQQ", data, at)

    table = header(names)
    strings = data[table[4]:table[4] + table[5]]
    for index in range(count):
        head = header(index)
        end = strings.find(b"\0", head[0])
        if end >= 0 and strings[head[0]:end] == name:
            return data[head[4]:head[4] + head[5]]
    raise ValueError(f"{path}: not a program compiled by comm-opt")
