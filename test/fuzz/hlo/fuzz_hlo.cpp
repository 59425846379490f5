//===- fuzz_hlo.cpp - Fuzz target of the HLO reader -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// HLO text; what is accepted is costed.
//
//===----------------------------------------------------------------------===//

#include "../Fuzz.h"
#include "concord/hlo/Module.h"

using namespace concord;

std::vector<std::string> fuzz::seeds() {
  return filesUnder("test/lit/tools", ".hlo", 20000);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try {
    hlo::Module module = hlo::parse(
        std::string(reinterpret_cast<const char *>(data), size), "f.hlo");
    fuzz::accept();
    for (uint32_t c = 0; c < module.computations.size(); ++c)
      for (uint32_t i = 0; i < module.computations[c].instructions.size(); ++i)
        (void)hlo::costOf(module, c, i);
  } catch (const hlo::Error &error) {
    fuzz::refuse(error.what());
  }
  return 0;
}
