//===- fuzz_case.cpp - Fuzz target of the case reader ---------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A .case file; what is accepted is judged within small bounds.
//
//===----------------------------------------------------------------------===//

#include "../Fuzz.h"
#include "concord/order/Case.h"
#include "concord/order/Judge.h"

#include <cstdlib>

using namespace concord;
using namespace concord::order;

std::vector<std::string> fuzz::seeds() {
  return filesUnder("test/cases", ".case", 4000);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  CaseFile file;
  CaseError error;
  if (!parseCase({reinterpret_cast<const char *>(data), size}, "f.case", file,
                 error)) {
    if (error.message.empty())
      std::abort();
    fuzz::refuse(error.message);
    return 0;
  }
  fuzz::accept();
  ExploreOptions options;
  options.bounds.states = 300;
  for (const Variant &variant : file.variants)
    judgeWithWarnings(variant.program, options);
  return 0;
}
