//===- fuzz_onnx.cpp - Fuzz target of the ONNX reader ---------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bytes are a model. They must be read or refused with `Error`.
//
//===----------------------------------------------------------------------===//

#include "../../unit/onnx/TestModel.h"
#include "../Fuzz.h"

using namespace concord;
using namespace concord::onnx::test;

/// A model that uses most of the format.
static std::string richModel() {
  ModelBuilder m(18, 11);
  m.import("mine", 1);
  m.import("com.microsoft", 1);
  m.proto.add_configuration()->set_name("c");
  m.proto.mutable_configuration(0)->set_num_devices(2);
  m.input("x", {2, 6});
  m.input("flag", {}, kBool);
  m.floats("w", {6, 6}, std::vector<float>(36, 0.5f));
  m.floats("big", {80}, std::vector<float>(80, 0.5f));
  m.ints("target", {3}, {2, 3, 2});
  auto *f = m.proto.add_functions();
  f->set_name("F");
  f->set_domain("mine");
  f->add_input("a");
  f->add_output("b");
  addNode(f, "Relu", {"a"}, {"b"});
  m.node("MatMul", {"x", "w"}, {"h"}).named("dense");
  auto *annotation = m.graph()->mutable_node(0)->add_device_configurations();
  annotation->set_configuration_id("c");
  auto *spec = annotation->add_sharding_spec();
  spec->set_tensor_name("h");
  spec->add_device(0);
  spec->add_sharded_dim()->add_simple_sharding()->set_num_shards(2);
  m.node("F", {"h"}, {"i"}).domain("mine");
  m.node("Reshape", {"i", "target"}, {"j"});
  m.node("Transpose", {"j"}, {"k"}).ints("perm", {1, 0, 2});
  m.node("AllReduce", {"k"}, {"l"}).domain("com.microsoft");
  m.node("Shape", {"l"}, {"s"});
  m.node("Expand", {"l", "s"}, {"n"});
  NodeBuilder branch = m.node("If", {"flag"}, {"y"});
  for (const char *name : {"then_branch", "else_branch"}) {
    auto *g = branch.attribute(name, onnx_wire::Attribute::GRAPH)->mutable_g();
    addNode(g, "Softmax", {"n"}, {"r"}).i("axis", -1);
    g->add_output()->set_name("r");
  }
  m.output("y");
  m.output("big");
  return m.bytes();
}

static onnx::ReadOptions options(std::string_view model) {
  onnx::ReadOptions result;
  result.foldLimit = 1 << 16;
  result.world = 2;
  // A size for a dimension that is not there is an error.
  if (model.find("batch") != model.npos)
    result.dims["batch"] = 2;
  return result;
}

std::vector<std::string> fuzz::seeds() {
  std::vector<std::string> all = {richModel()};
  // Small weights: nearly all of the bytes say something.
  for (const char *name : {"mlp_tiny", "mlp_annotated", "mlp_allreduce_0"})
    append(all,
           filesUnder(std::string("test/models/") + name + ".onnx", "", 20000));
  return all;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  try {
    onnx::readModelFromMemory(
        std::as_bytes(std::span(data, size)), "fuzz", "",
        options({reinterpret_cast<const char *>(data), size}));
    fuzz::accept();
  } catch (const onnx::Error &error) {
    fuzz::refuse(error.what());
  }
  return 0;
}
