//===- fuzz_reader.cpp - libFuzzer target of the ONNX reader
//----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bytes are a model. They must be read or refused with `Error`; anything else
// (a crash, another exception, a sanitizer report, an allocation beyond
// libFuzzer's limit) is a finding. Built with -DCONCORD_FUZZ=ON; run for
// example as
//   build/bin/fuzz_onnx_reader -max_total_time=60 -rss_limit_mb=1024 CORPUS
// with test/models and the ONNX node tests as corpus.
//
//===----------------------------------------------------------------------===//

#include "concord/onnx/Reader.h"

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  concord::onnx::ReadOptions options;
  // Bind what the models of the corpus leave open.
  options.foldLimit = 1 << 16;
  try {
    concord::onnx::readModelFromMemory(std::as_bytes(std::span(data, size)),
                                       "fuzz", "", options);
  } catch (const concord::onnx::Error &) {
    // Refused, which is a good end.
  }
  return 0;
}
