//===- fuzz_stablehlo.cpp - Fuzz target of the StableHLO reader -----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The text of a StableHLO module, as JAX prints it or in generic form; what is
// accepted is costed.
//
//===----------------------------------------------------------------------===//

#include "../Fuzz.h"
#include "concord/stablehlo/Reader.h"

using namespace concord;

std::vector<std::string> fuzz::seeds() {
  std::vector<std::string> all;
  for (const char *name :
       {"stablehlo.mlir", "stablehlo-jax-forms.mlir", "stablehlo-uniform.mlir",
        "stablehlo-uniform-axes.mlir", "stablehlo-uniform-gspmd.mlir"})
    for (const std::string &file :
         filesUnder(std::string("test/lit/tools/") + name, "", 100000))
      // Several modules in a file, as FileCheck tests have them.
      for (size_t at = 0; at < file.size();) {
        size_t end = std::min(file.find("\n// -----", at), file.size());
        std::string one = file.substr(at, end - at);
        at = end + 1;
        if (stablehlo::looksLikeStablehlo(one))
          all.push_back(one);
      }
  return all;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string text(reinterpret_cast<const char *>(data), size);
  (void)stablehlo::looksLikeStablehlo(text);
  try {
    stablehlo::Notes notes;
    hlo::Module module = stablehlo::parse(text, "f.mlir", notes);
    fuzz::accept();
    for (uint32_t c = 0; c < module.computations.size(); ++c)
      for (uint32_t i = 0; i < module.computations[c].instructions.size(); ++i)
        (void)hlo::costOf(module, c, i);
  } catch (const hlo::Error &error) {
    fuzz::refuse(error.what());
  }
  return 0;
}
