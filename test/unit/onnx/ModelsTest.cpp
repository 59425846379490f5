//===- ModelsTest.cpp - The repository's models as the reader leaves them
//---===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reduced transformers and a ResNet, written the way exporters write them
// (test/models): all their shape arithmetic must fold away.
//
//===----------------------------------------------------------------------===//

#include "TestModel.h"

using namespace concord;
using namespace concord::onnx;

namespace {

struct ModelCase {
  const char *file;
  std::map<std::string, int64_t> dims;
  int matmuls; ///< MatMul and Gemm nodes
  Shape output;
};

std::map<std::string, int> countOps(const Graph &graph) {
  std::map<std::string, int> counts;
  for (const Node &node : graph.nodes)
    ++counts[node.opType];
  return counts;
}

TEST(Models, ShapeArithmeticFoldsAway) {
  const ModelCase cases[] = {
      {"bert_tiny", {{"batch", 2}, {"seq", 16}}, 17, {2, 16, 64}},
      {"bert_tiny_op13", {{"batch", 2}, {"seq", 16}}, 17, {2, 16, 64}},
      {"gpt2_tiny", {{"batch", 2}, {"seq", 16}}, 13, {2, 16, 256}},
      {"gpt2_gemm_tiny", {{"batch", 2}, {"seq", 16}}, 13, {2, 16, 256}},
      {"llama_tiny", {{"batch", 2}, {"seq", 16}}, 20, {2, 16, 256}},
      {"llama_tiny_op23", {{"batch", 2}, {"seq", 16}}, 16, {2, 16, 256}},
      {"llama_tiny_decode", {{"batch", 2}, {"past", 5}}, 20, {2, 1, 256}},
      {"mixtral_tiny", {{"batch", 2}, {"seq", 16}}, 22, {2, 16, 160}},
      {"mlp_tiny", {{"batch", 4}}, 2, {4, 32}},
  };
  for (const ModelCase &c : cases) {
    ReadOptions options;
    options.dims = c.dims;
    const Model model =
        readModel(std::string("test/models/") + c.file + ".onnx", options);
    auto ops = countOps(model.graph);
    for (const char *folded :
         {"Shape", "Size", "Constant", "Range", "ConstantOfShape", "Identity",
          "NonZero", "Trilu"})
      EXPECT_EQ(ops.count(folded), 0u) << c.file << ": " << folded;
    EXPECT_EQ(ops["MatMul"] + ops["Gemm"], c.matmuls) << c.file;
    EXPECT_EQ(test::outputValue(model).type.shape, c.output) << c.file;
  }
}

TEST(Models, CollectivesOfBothConventions) {
  for (const char *rank : {"0", "1"})
    for (const char *kind : {"mlp_allreduce_", "mlp_nccl_"}) {
      ReadOptions options;
      options.dims["batch"] = 4;
      options.world = 2;
      const Model model = readModel(
          std::string("test/models/") + kind + rank + ".onnx", options);
      auto ops = countOps(model.graph);
      EXPECT_EQ(ops["AllReduce"] + ops["NcclAllReduce"], 1) << kind;
    }
}

TEST(Models, AnnotationsSurvive) {
  ReadOptions options;
  options.dims["batch"] = 4;
  const Model model = readModel("test/models/mlp_annotated.onnx", options);
  ASSERT_EQ(model.configurations.size(), 1u);
  EXPECT_EQ(model.configurations[0].numDevices, 2);
  size_t annotated = 0;
  for (const Node &node : model.graph.nodes)
    annotated += !node.shardings.empty();
  EXPECT_GE(annotated, 4u);
}

TEST(Models, ResNetReads) {
  ReadOptions options;
  options.dims["batch"] = 2;
  const Model model = readModel("test/models/resnet_tiny.onnx", options);
  EXPECT_GT(countOps(model.graph)["Conv"], 5);
}

} // namespace
