//===- fuzz_tools.cpp - libFuzzer target of the tools' readers ------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The first byte chooses the reader, the rest is the file: an .npy tensor, an
// ELF artefact (whose metadata are read as well), metadata alone, or an .onnx
// file scanned for external data. Anything but success or Error is a finding.
// Built with -DCONCORD_FUZZ=ON; see docs/comm-run.md.
//
//===----------------------------------------------------------------------===//

#include "Compile.h"
#include "common/ElfFile.h"
#include "common/Npy.h"
#include "common/ProgramMeta.h"
#include "common/Sharding.h"

#include <cstdlib>

using namespace concord::tools;

namespace {

void readMetadata(std::span<const std::byte> bytes) {
  ProgramMeta meta = parseMeta(
      {reinterpret_cast<const char *>(bytes.data()), bytes.size()}, "fuzz");
  // What was accepted must be usable: slice the small inputs.
  for (const Entry &entry : meta.inputs) {
    uint64_t size = numBytes(entry.dtype, entry.shape).value_or(UINT64_MAX);
    if (size == UINT64_MAX)
      std::abort();
    bool narrow = true;
    for (int64_t dim : entry.shape)
      narrow &= dim <= 1 << 12;
    if (size > 1 << 16 || !narrow)
      continue;
    std::vector<std::byte> global(size);
    for (int64_t rank = 0; rank < meta.world && rank < 8; ++rank)
      if (entry.kind != Entry::Kind::PerRank &&
          sliceFor(meta, entry, rank, global).size() !=
              numBytes(entry.dtype, entry.localShape))
        std::abort();
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  std::span<const std::byte> bytes =
      std::as_bytes(std::span(data + 1, size - 1));
  try {
    switch (data[0] % 4) {
    case 0: {
      HostTensor tensor = parseNpy(bytes, "fuzz");
      if (numBytes(tensor.dtype, tensor.shape) != tensor.bytes.size())
        std::abort();
      break;
    }
    case 1:
      if (auto section = elfSection(bytes, ".concord.meta", "fuzz"))
        readMetadata(*section);
      break;
    case 2:
      readMetadata(bytes);
      break;
    case 3:
      externalDataNames(bytes);
      break;
    }
  } catch (const Error &) {
    // Refused, which is a good end.
  }
  return 0;
}
