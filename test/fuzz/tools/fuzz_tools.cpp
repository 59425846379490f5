//===- fuzz_tools.cpp - Fuzz target of the tools' readers -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The first byte chooses the reader, the rest is the file: an .npy tensor, an
// ELF artefact (whose metadata are read as well), metadata alone, an .onnx file
// scanned for external data, a serialised TensorProto, a rank's job file, or an
// artefact as comm-doctor takes it. Anything but success or Error is a finding.
//
//===----------------------------------------------------------------------===//

#include "../../unit/tools/ElfImage.h"
#include "../Fuzz.h"
#include "Compile.h"
#include "comm-doctor/Elf.h"
#include "common/ElfFile.h"
#include "common/Npy.h"
#include "common/ProgramMeta.h"
#include "common/Sharding.h"
#include "common/TensorFile.h"
#include "concord-rank/JobFile.h"
#include "concord/onnx/Reader.h"

#include <cstdlib>
#include <unistd.h>

using namespace concord;
using namespace concord::tools;

namespace {

const char *const kMeta =
    R"({"abi":1,"phase":"lowered","name":"m","world":4,)"
    R"("mesh":[["dp",2],["tp",2]],"target_cpu":"x86-64-v3","digest":"00",)"
    R"("weights":"","arena_bytes":64,"arena_align":64,"dims":[{"name":"n",)"
    R"("min":1,"max":8}],"inputs":[{"name":"x","dtype":"F32","shape":[4,6],)"
    R"("sharding":{"kind":"split","splits":[{"dim":0,"axis":"dp","outer":1},)"
    R"({"dim":1,"axis":"tp","outer":3}]},"local_shape":[2,3],)"
    R"("arena_offset":-1}],"outputs":[{"name":"y","dtype":"I64","shape":[],)"
    R"("sharding":{"kind":"replicated"},"local_shape":[]}],)"
    R"("parameters":[{"section":"w#0","bytes":10,"hash":""}],)"
    R"("kernels":0,"gate":"check","assumes":["a"]})";

std::string textOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

std::string npy(DType dtype, std::vector<int64_t> shape) {
  std::string text = npyHeader(dtype, shape);
  return text + std::string(*numBytes(dtype, shape), 'x');
}

std::string tensorProto() {
  const std::string path =
      "/tmp/fuzz_tools." + std::to_string(::getpid()) + ".pb";
  onnx::Tensor tensor;
  tensor.type.dtype = DType::F32;
  tensor.type.shape = {2, 2};
  std::string bytes(16, 'x');
  tensor.bytes = std::as_bytes(std::span(bytes.data(), bytes.size()));
  onnx::writeTensorProto(path, "t", tensor);
  std::string text = fuzz::filesUnder(path, "", 1 << 20).at(0);
  ::unlink(path.c_str());
  return text;
}

void readMetadata(std::span<const std::byte> bytes) {
  ProgramMeta meta = parseMeta(textOf(bytes), "fuzz");
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

void read(char reader, std::span<const std::byte> bytes) {
  switch (reader) {
  case '0': {
    HostTensor tensor = parseNpy(bytes, "fuzz");
    if (numBytes(tensor.dtype, tensor.shape) != tensor.bytes.size())
      std::abort();
    break;
  }
  case '1':
    if (auto section = elfSection(bytes, ".concord.meta", "fuzz"))
      readMetadata(*section);
    break;
  case '2':
    readMetadata(bytes);
    break;
  case '3':
    if (externalDataNames(bytes).empty())
      throw Error("none");
    break;
  case '4': {
    fuzz::MemoryFile file(textOf(bytes));
    onnx::readTensorProto(file.path());
    break;
  }
  case '5': {
    fuzz::MemoryFile file(textOf(bytes));
    readJobFile(file.path());
    break;
  }
  case '6': {
    std::span<const std::byte> section;
    std::string error;
    if (!doctor::findSection(bytes, ".concord.meta", section, error))
      throw Error(error);
    // All of it lies in the file.
    for (std::byte each : section)
      (void)*const_cast<const volatile std::byte *>(&each);
    break;
  }
  default:
    throw Error("no such reader");
  }
}

} // namespace

std::vector<std::string> fuzz::seeds() {
  Image image;
  image.data = kMeta;
  image.sections[2].sh_size = image.data.size();
  std::string elf = textOf(image.bytes());
  return {
      "0" + npy(DType::F32, {2, 2}), "0" + npy(DType::BF16, {3, 1, 2}),
      std::string("0\x93NUMPY\1\0\x47\0", 11) +
          "{'descr': '>i8', 'fortran_order': True, 'shape': (2, 2), }"
          "            \n" +
          std::string(32, 'y'),
      "1" + elf, std::string("2") + kMeta,
      // An external-data entry: {key: "location", value: "w.bin"}.
      std::string("3\x6a\x11\x0a\x08location\x12\x05w.bin"),
      "4" + tensorProto(),
      R"(5{"program":"p.so","inputs":[{"name":"x","file":"x.raw","shape":[2]}],)"
      R"("outputs":[{"name":"y","file":"y.raw"}],"repeat":3,"warmup":1,)"
      R"("state":[{"input":"x","output":"y"}],"slots":0.5,"json":"a",)"
      R"("trace":"b","trace_steps":2,"gather":{"ranks":[{"outputs":[],)"
      R"("json":"c"}]}})",
      "6" + elf};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  try {
    read(char(data[0]), std::as_bytes(std::span(data + 1, size - 1)));
    fuzz::accept();
  } catch (const std::runtime_error &error) {
    // Error and onnx::Error are such; readJobFile has no type of its own.
    fuzz::refuse(error.what());
  }
  return 0;
}
