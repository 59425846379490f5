//===- ReaderTest.cpp - The reader of StableHLO text ----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "concord/stablehlo/Reader.h"

#include <gtest/gtest.h>

using namespace concord;

static hlo::Module read(const std::string &text) {
  stablehlo::Notes notes;
  return stablehlo::parse(text, "t.mlir", notes);
}

static std::string errorOf(const std::string &text) {
  try {
    read(text);
  } catch (const hlo::Error &error) {
    return error.what();
  }
  return "no error";
}

/// The first instruction of an opcode in any computation.
static const hlo::Instruction *find(const hlo::Module &module,
                                    std::string_view opcode) {
  for (const hlo::Computation &computation : module.computations)
    for (const hlo::Instruction &op : computation.instructions)
      if (op.opcode == opcode)
        return &op;
  return nullptr;
}

static std::string function(const std::string &body) {
  return "module @m attributes {mhlo.num_partitions = 4 : i32, "
         "mhlo.num_replicas = 1 : i32} {\n"
         "  func.func public @main(%arg0: tensor<8x4xf32>) -> tensor<8x4xf32> "
         "{\n" +
         body + "  }\n}\n";
}

TEST(Stablehlo, PrettyForms) {
  hlo::Module module = read(function(R"(
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.add %arg0, %arg0 : tensor<8x4xf32>
    %1 = stablehlo.dot_general %0, %arg0, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x8xf32>
    %2 = stablehlo.reduce(%1 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<8x8xf32>, tensor<f32>) -> tensor<8xf32>
    %3 = stablehlo.compare  LT, %0, %arg0,  FLOAT : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xi1>
    %4 = stablehlo.select %3, %0, %arg0 : tensor<8x4xi1>, tensor<8x4xf32>
    return %4 : tensor<8x4xf32>
)"));
  EXPECT_EQ(module.name, "m");
  EXPECT_EQ(module.numPartitions, 4);
  const hlo::Instruction *dot = find(module, "dot");
  ASSERT_TRUE(dot);
  EXPECT_EQ(dot->attribute("lhs_contracting_dims"), "{1}");
  EXPECT_EQ(dot->operands.size(), 2u);
  const hlo::Instruction *reduce = find(module, "reduce");
  ASSERT_TRUE(reduce);
  EXPECT_EQ(reduce->operands.size(), 2u);
  EXPECT_EQ(reduce->shape.dims, (std::vector<int64_t>{8}));
  const hlo::Instruction *select = find(module, "select");
  ASSERT_TRUE(select);
  EXPECT_EQ(select->shape.element, "f32");
  EXPECT_EQ(find(module, "compare")->shape.element, "pred");
}

TEST(Stablehlo, GenericCollectives) {
  hlo::Module module = read(function(R"(
    %0 = "stablehlo.all_reduce"(%arg0) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.maximum %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %1:2 = "stablehlo.all_gather"(%0, %arg0) <{all_gather_dim = 1 : i64, replica_groups = dense<0> : tensor<1x1xi64>}> : (tensor<8x4xf32>, tensor<8x4xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>)
    %2 = "stablehlo.all_to_all"(%1#1) <{concat_dimension = 1 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, split_count = 4 : i64, split_dimension = 0 : i64}> : (tensor<8x16xf32>) -> tensor<2x64xf32>
    %3 = "stablehlo.collective_permute"(%0) <{source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>}> : (tensor<8x4xf32>) -> tensor<8x4xf32>
    return %3 : tensor<8x4xf32>
)"));
  const hlo::Instruction *reduce = find(module, "all-reduce");
  ASSERT_TRUE(reduce);
  EXPECT_EQ(reduce->attribute("replica_groups"), "{{0,1},{2,3}}");
  EXPECT_EQ(reduce->attribute("channel_id"), "1");
  EXPECT_EQ(reduce->attribute("use_global_device_ids"), "true");
  ASSERT_EQ(reduce->called.size(), 1u);
  EXPECT_EQ(module.computations[reduce->called[0]].instructions.back().opcode,
            "maximum");
  const hlo::Instruction *gather = find(module, "all-gather");
  ASSERT_TRUE(gather);
  EXPECT_EQ(gather->shape.elements.size(), 2u);
  EXPECT_EQ(gather->attribute("dimensions"), "{1}");
  EXPECT_EQ(gather->attribute("replica_groups"), "{{0}}");
  const hlo::Instruction *element = find(module, "get-tuple-element");
  ASSERT_TRUE(element);
  EXPECT_EQ(element->attribute("index"), "1");
  const hlo::Instruction *exchange = find(module, "all-to-all");
  EXPECT_EQ(exchange->attribute("dimensions"), "{0}");
  EXPECT_EQ(exchange->attribute("concat_dimension"), "{1}");
  EXPECT_EQ(
      find(module, "collective-permute")->attribute("source_target_pairs"),
      "{{0,1},{1,0}}");
}

TEST(Stablehlo, GroupsAsBytesAndRagged) {
  hlo::Module module = read(function(R"(
    %0 = "stablehlo.collective_broadcast"(%arg0) <{replica_groups = dense<"0x0100000000000000000000000000000003000000000000000200000000000000"> : tensor<2x2xi64>}> : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %1 = "stablehlo.all_gather"(%0) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2], [3, -1, -1]]> : tensor<2x3xi64>}> : (tensor<8x4xf32>) -> tensor<24x4xf32>
    return %0 : tensor<8x4xf32>
)"));
  EXPECT_EQ(find(module, "collective-broadcast")->attribute("replica_groups"),
            "{{1,0},{3,2}}");
  EXPECT_EQ(find(module, "all-gather")->attribute("replica_groups"),
            "{{0,1,2},{3}}");
}

TEST(Stablehlo, MeshAxes) {
  // The other axes first, then those of the collective as listed.
  auto groups = [](const std::string &mesh, const std::string &axes) {
    hlo::Module module = read(
        "sdy.mesh @mesh = " + mesh + "\n" +
        function("    %0 = \"stablehlo.all_gather\"(%arg0) <{all_gather_dim = "
                 "0 : i64, replica_groups = "
                 "#stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [" +
                 axes +
                 "]>}> : "
                 "(tensor<8x4xf32>) -> tensor<16x4xf32>\n    return %arg0 : "
                 "tensor<8x4xf32>\n"));
    return std::string(find(module, "all-gather")->attribute("replica_groups"));
  };
  std::string x = "#stablehlo.axis_ref<name = \"x\">",
              y = "#stablehlo.axis_ref<name = \"y\">";
  EXPECT_EQ(groups("<[\"x\"=2, \"y\"=2]>", x), "{{0,2},{1,3}}");
  EXPECT_EQ(groups("<[\"x\"=2, \"y\"=2]>", y), "{{0,1},{2,3}}");
  EXPECT_EQ(groups("<[\"x\"=2, \"y\"=2]>", y + ", " + x), "{{0,2,1,3}}");
  EXPECT_EQ(groups("<[\"x\"=2, \"y\"=2], device_ids=[3, 2, 1, 0]>", y),
            "{{3,2},{1,0}}");
}

TEST(Stablehlo, LoopsCaptureValues) {
  hlo::Module module = read(function(R"(
    %c = stablehlo.constant dense<3> : tensor<i32>
    %c_0 = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%iterArg = %c_0, %iterArg_1 = %arg0) : tensor<i32>, tensor<8x4xf32>
     cond {
      %1 = stablehlo.compare  LT, %iterArg, %c,  SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = stablehlo.add %iterArg_1, %arg0 : tensor<8x4xf32>
      stablehlo.return %iterArg, %1 : tensor<i32>, tensor<8x4xf32>
    }
    return %0#1 : tensor<8x4xf32>
)"));
  const hlo::Instruction *loop = find(module, "while");
  ASSERT_TRUE(loop);
  // Two carried values and the two that the regions use from outside.
  ASSERT_EQ(loop->shape.elements.size(), 4u);
  ASSERT_EQ(loop->called.size(), 2u);
  const hlo::Computation &body = module.computations[loop->called[1]];
  EXPECT_EQ(body.instructions[body.root].shape.elements.size(), 4u);
  const hlo::Computation &condition = module.computations[loop->called[0]];
  EXPECT_EQ(condition.instructions[condition.root].shape.element, "pred");
}

TEST(Stablehlo, BranchesAndCalls) {
  hlo::Module module = read(R"(
module {
  func.func @main(%p: tensor<i1>, %x: tensor<4xbf16>) -> tensor<4xbf16> {
    %0 = "stablehlo.if"(%p) ({
      %1 = func.call @f(%x) : (tensor<4xbf16>) -> tensor<4xbf16>
      stablehlo.return %1 : tensor<4xbf16>
    }, {
      stablehlo.return %x : tensor<4xbf16>
    }) : (tensor<i1>) -> tensor<4xbf16>
    return %0 : tensor<4xbf16>
  }
  func.func private @f(%x: tensor<4xbf16>) -> tensor<4xbf16> {
    %0 = stablehlo.custom_call @mine(%x) {has_side_effect = true} : (tensor<4xbf16>) -> tensor<4xbf16>
    %1 = other.op %0 : tensor<4xbf16>
    return %1 : tensor<4xbf16>
  }
}
)");
  const hlo::Instruction *branch = find(module, "conditional");
  ASSERT_TRUE(branch);
  EXPECT_EQ(branch->operands.size(), 3u);
  EXPECT_EQ(branch->called.size(), 2u);
  EXPECT_FALSE(branch->attribute("true_computation").empty());
  unsigned calls = 0;
  for (const hlo::Computation &computation : module.computations)
    for (const hlo::Instruction &op : computation.instructions)
      if (op.opcode == "custom-call") {
        EXPECT_EQ(op.attribute("custom_call_target"),
                  calls ? "\"other.op\"" : "\"mine\"");
        ++calls;
      }
  EXPECT_EQ(calls, 2u);
}

TEST(Stablehlo, ManualComputation) {
  stablehlo::Notes notes;
  hlo::Module module = stablehlo::parse(R"(
module @jit_f attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=2, "y"=4]>
  func.func public @main(%arg0: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> (tensor<8x16xf32> {jax.result_info = "result"}) {
    %0 = sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{"x"}, {"y"}]>] out_shardings=[<@mesh, [{"x"}, {"y"}]>] manual_axes={"x", "y"} (%arg1: tensor<4x4xf32>) {
      %2 = "stablehlo.all_reduce"(%arg1) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, use_global_device_ids}> ({
      ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
        %3 = stablehlo.add %arg2, %arg3 : tensor<f32>
        stablehlo.return %3 : tensor<f32>
      }) : (tensor<4x4xf32>) -> tensor<4x4xf32>
      sdy.return %2 : tensor<4x4xf32>
    } : (tensor<8x16xf32>) -> tensor<8x16xf32>
    %1 = stablehlo.add %0, %0 : tensor<8x16xf32>
    return %1 : tensor<8x16xf32>
  }
}
)",
                                        "t.mlir", notes);
  EXPECT_EQ(module.numPartitions, 8);
  EXPECT_EQ(notes.globalOperations, 1u);
  EXPECT_EQ(find(module, "all-reduce")->shape.dims,
            (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(find(module, "sdy.global_to_local")->shape.dims,
            (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(find(module, "sdy.local_to_global")->shape.dims,
            (std::vector<int64_t>{8, 16}));
  EXPECT_FALSE(module.computations[module.entry]
                   .instructions[0]
                   .attribute("sharding")
                   .empty());
}

TEST(Stablehlo, AsyncAndTransfers) {
  hlo::Module module = read(function(R"(
    %0 = "stablehlo.async_start"(%arg0) ({
    ^bb0(%x: tensor<8x4xf32>):
      %g = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}> : (tensor<8x4xf32>) -> tensor<32x4xf32>
      stablehlo.return %g : tensor<32x4xf32>
    }) : (tensor<8x4xf32>) -> !stablehlo.future<tensor<32x4xf32>>
    %1 = "stablehlo.async_done"(%0) : (!stablehlo.future<tensor<32x4xf32>>) -> tensor<32x4xf32>
    %2 = stablehlo.create_token : !stablehlo.token
    %3 = "stablehlo.send"(%arg0, %2) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 1>, source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<8x4xf32>, !stablehlo.token) -> !stablehlo.token
    %4:2 = "stablehlo.recv"(%3) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 1>, source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}> : (!stablehlo.token) -> (tensor<8x4xf32>, !stablehlo.token)
    return %4#0 : tensor<8x4xf32>
)"));
  ASSERT_TRUE(find(module, "async-start"));
  EXPECT_EQ(find(module, "async-start")->called.size(), 1u);
  ASSERT_TRUE(find(module, "async-done"));
  ASSERT_TRUE(find(module, "send"));
  EXPECT_EQ(find(module, "send")->attribute("source_target_pairs"), "{{0,1}}");
  EXPECT_EQ(find(module, "recv-done")->shape.elements.size(), 2u);
}

TEST(Stablehlo, ErrorsNameThePlace) {
  auto bad = [](const std::string &line) {
    return errorOf(function(line + "\n    return %arg0 : tensor<8x4xf32>\n"));
  };
  EXPECT_EQ(
      bad("    %0 = stablehlo.add %nope, %arg0 : tensor<8x4xf32>"),
      "t.mlir:3:5: stablehlo.add: uses %nope, which is not defined before it");
  EXPECT_NE(bad("    %0 = \"stablehlo.all_gather\"(%arg0) <{all_gather_dim = 0 "
                ": i64, "
                "replica_groups = #stablehlo.replica_group_mesh_axes<mesh = "
                "@m, axes = []>}> : "
                "(tensor<8x4xf32>) -> tensor<8x4xf32>")
                .find("refers to the mesh @m, which is not defined"),
            std::string::npos);
  EXPECT_NE(bad("    %0 = sdy.all_gather [{\"x\"}, {}] %arg0 "
                "out_sharding=<@mesh, [{}, {}]> : "
                "tensor<8x4xf32>")
                .find("has global shapes"),
            std::string::npos);
  EXPECT_NE(bad("    %0 = \"stablehlo.all_gather\"(%arg0").find("t.mlir:"),
            std::string::npos);
  EXPECT_NE(errorOf("module {").find("the text ends inside a region"),
            std::string::npos);
  EXPECT_NE(errorOf("").find("holds no function"), std::string::npos);
  std::string deep = "module {\n";
  for (int i = 0; i < 1000; ++i)
    deep += "\"a.b\"() ({\n";
  EXPECT_NE(errorOf(deep).find("nested deeper"), std::string::npos);
}

/// Whatever is cut out or changed, the answer is a module or an hlo::Error.
