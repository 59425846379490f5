//===- ReaderTest.cpp - Reading good ONNX models
//----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the reader makes of models: data of every dtype and place, names, order,
// folding, functions, branches, collectives and annotations. Errors are in
// ReaderErrorTest.cpp.
//
//===----------------------------------------------------------------------===//

#include "TestModel.h"

#include <algorithm>

using namespace concord;
using namespace concord::onnx;
using namespace concord::onnx::test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace {

std::vector<std::string> opTypes(const Graph &graph) {
  std::vector<std::string> types;
  for (const Node &node : graph.nodes)
    types.push_back(node.opType);
  return types;
}

/// x[2,3] -> Relu -> y.
ModelBuilder reluModel() {
  ModelBuilder m;
  m.input("x", {2, 3});
  m.node("Relu", {"x"}, {"y"});
  m.output("y");
  return m;
}

TEST(Reader, SmallModel) {
  const Model model = reluModel().read();
  EXPECT_EQ(model.irVersion, 8);
  EXPECT_EQ(model.opsets.at(""), 17);
  ASSERT_EQ(model.graph.nodes.size(), 1u);
  EXPECT_EQ(model.graph.nodes[0].name, "Relu#0");
  EXPECT_EQ(model.graph.nodes[0].opset, 17);
  EXPECT_EQ(outputValue(model).name, "y");
  EXPECT_EQ(outputValue(model).type, (TensorType{DType::F32, {2, 3}}));
}

TEST(Reader, FileAndMemoryGiveTheSame) {
  Scratch scratch;
  const std::string path =
      scratch.write("m.onnx", reluModel().proto.SerializeAsString());
  const Model model = readModel(path);
  EXPECT_EQ(model.path, path);
  EXPECT_EQ(outputValue(model).name, "y");
}

// --- tensor data ------------------------------------------------------------

struct DtypeCase {
  int wire;
  DType dtype;
};
constexpr DtypeCase kDtypes[] = {
    {1, DType::F32},   {2, DType::U8},      {3, DType::I8},
    {4, DType::U16},   {5, DType::I16},     {6, DType::I32},
    {7, DType::I64},   {9, DType::BOOL},    {10, DType::F16},
    {11, DType::F64},  {12, DType::U32},    {13, DType::U64},
    {16, DType::BF16}, {17, DType::F8E4M3}, {19, DType::F8E5M2}};

TEST(TensorData, RawAndTypedOfEveryDtypeAgree) {
  for (const DtypeCase &c : kDtypes) {
    // The bits 1, 0, 1 are values of every dtype.
    onnx_wire::Tensor typed;
    const size_t size = dtypeSize(c.dtype);
    std::string raw(3 * size, '\0');
    for (int i = 0; i < 3; ++i) {
      const int bit = i % 2 == 0;
      raw[i * size] = static_cast<char>(bit);
      switch (c.dtype) {
      case DType::F32: {
        const float value = bit ? 1.5f : 0.0f;
        std::memcpy(&raw[i * size], &value, size);
        typed.add_float_data(value);
        break;
      }
      case DType::F64: {
        const double value = bit ? 1.5 : 0.0;
        std::memcpy(&raw[i * size], &value, size);
        typed.add_double_data(value);
        break;
      }
      case DType::I64:
        typed.add_int64_data(bit);
        break;
      case DType::U32:
      case DType::U64:
        typed.add_uint64_data(static_cast<uint64_t>(bit));
        break;
      default:
        typed.add_int32_data(bit);
      }
    }
    for (bool useRaw : {false, true}) {
      ModelBuilder m;
      onnx_wire::Tensor tensor = typed;
      if (useRaw) {
        tensor.Clear();
        tensor.set_raw_data(raw);
      }
      tensor.set_name("w");
      tensor.set_data_type(c.wire);
      tensor.add_dims(3);
      *m.graph()->add_initializer() = tensor;
      m.output("w", c.wire);
      const Model model = m.read();
      const Value &value = outputValue(model);
      ASSERT_TRUE(value.constant) << dtypeName(c.dtype);
      EXPECT_EQ(value.type, (TensorType{c.dtype, {3}}));
      EXPECT_EQ(std::string(reinterpret_cast<const char *>(
                                value.constant->bytes.data()),
                            value.constant->bytes.size()),
                raw)
          << dtypeName(c.dtype) << (useRaw ? " raw" : " typed");
    }
  }
}

TEST(TensorData, SmallFloatsHaveTheirValues) {
  auto value = [](DType dtype, std::vector<uint16_t> bits) {
    Tensor t = Tensor::allocate({dtype, {static_cast<int64_t>(bits.size())}});
    for (size_t i = 0; i < bits.size(); ++i)
      std::memcpy(t.mutableBytes().data() + i * dtypeSize(dtype), &bits[i],
                  dtypeSize(dtype));
    return t;
  };
  const Tensor half = value(DType::F16, {0x3c00, 0xc000, 0x7c00, 0x0001});
  EXPECT_EQ(half.floatAt(0), 1.0);
  EXPECT_EQ(half.floatAt(1), -2.0);
  EXPECT_TRUE(std::isinf(half.floatAt(2)));
  EXPECT_EQ(half.floatAt(3), std::ldexp(1.0, -24));
  EXPECT_EQ(value(DType::BF16, {0x4049}).floatAt(0), 3.140625);
  const Tensor e4m3 = value(DType::F8E4M3, {0x38, 0x7e, 0x7f, 0x01});
  EXPECT_EQ(e4m3.floatAt(0), 1.0);
  EXPECT_EQ(e4m3.floatAt(1), 448.0);
  EXPECT_TRUE(std::isnan(e4m3.floatAt(2)));
  EXPECT_EQ(e4m3.floatAt(3), std::ldexp(1.0, -9));
  const Tensor e5m2 = value(DType::F8E5M2, {0x3c, 0x7c});
  EXPECT_EQ(e5m2.floatAt(0), 1.0);
  EXPECT_TRUE(std::isinf(e5m2.floatAt(1)));
}

TEST(TensorData, BoolsAreNormalised) {
  ModelBuilder m;
  fillTensor<char>(m.graph()->add_initializer(), "w", kBool, {3}, {0, 7, 1});
  m.output("w", kBool);
  const Model model = m.read();
  EXPECT_THAT(outputValue(model).constant->ints(), ElementsAre(0, 1, 1));
  EXPECT_EQ(static_cast<int>(outputValue(model).constant->bytes[1]), 1);
}

TEST(TensorData, LargeRawDataIsReferredToInTheFile) {
  ModelBuilder m;
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i);
  m.floats("w", {1000}, values);
  m.output("w");
  Scratch scratch;
  const Model model = readModel(scratch.write("m.onnx", m.bytes()));
  const Tensor &tensor = *outputValue(model).constant;
  EXPECT_EQ(tensor.floatAt(999), 999.0);
  // Bytes in the mapping have the file's offset, which is no multiple of 64.
  EXPECT_NE(reinterpret_cast<uintptr_t>(tensor.bytes.data()) % 64, 0u);
}

TEST(TensorData, FileCannotClaimMappedPlaces) {
  // The fields that the reader uses to say where data lies are removed from
  // what a file brings along.
  ModelBuilder m;
  auto *tensor = m.graph()->add_initializer();
  fillTensor<float>(tensor, "w", kFloat, {2}, {});
  tensor->set_mapped_offset(0);
  tensor->set_mapped_length(8);
  m.output("w");
  EXPECT_THAT(m.error(), HasSubstr("initializer 'w'"));
}

TEST(TensorData, ExternalFileWithOffset) {
  Scratch scratch;
  std::string bytes(64, '\0');
  const float values[2] = {1.5f, 2.5f};
  bytes.append(reinterpret_cast<const char *>(values), sizeof values);
  std::filesystem::create_directory(scratch.path / "weights");
  scratch.write("weights/w.bin", bytes);
  ModelBuilder m;
  auto *tensor = m.graph()->add_initializer();
  fillTensor<float>(tensor, "w", kFloat, {2}, {});
  tensor->clear_raw_data();
  tensor->set_data_location(1);
  auto add = [&](const char *key, const char *value) {
    auto *entry = tensor->add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  };
  add("location", "weights/w.bin");
  add("offset", "64");
  add("length", "8");
  m.output("w");
  const Model model = readModel(scratch.write("m.onnx", m.bytes()));
  EXPECT_EQ(outputValue(model).constant->floatAt(1), 2.5);
}

TEST(TensorData, ProtoFilesRoundTrip) {
  Scratch scratch;
  for (const DtypeCase &c : kDtypes) {
    Tensor tensor = Tensor::allocate({c.dtype, {2, 200}});
    for (size_t i = 0; i < tensor.bytes.size(); ++i)
      tensor.mutableBytes()[i] =
          std::byte(c.dtype == DType::BOOL ? i % 2 : i % 251);
    const std::string path = (scratch.path / "t.pb").string();
    writeTensorProto(path, "t", tensor);
    const Tensor back = readTensorProto(path);
    EXPECT_EQ(back.type, tensor.type);
    EXPECT_TRUE(std::equal(back.bytes.begin(), back.bytes.end(),
                           tensor.bytes.begin(), tensor.bytes.end()));
  }
}

// --- names and order --------------------------------------------------------

TEST(Names, OwnOrTypeAndIndexAndUnique) {
  ModelBuilder m;
  m.input("x", {2});
  m.node("Relu", {"x"}, {"a"}).named("act");
  m.node("Relu", {"a"}, {"b"}).named("act");
  m.node("Relu", {"b"}, {"y"});
  m.output("y");
  const Model model = m.read();
  EXPECT_EQ(model.graph.nodes[0].name, "act");
  EXPECT_EQ(model.graph.nodes[1].name, "act#1");
  EXPECT_EQ(model.graph.nodes[2].name, "Relu#2");
}

TEST(Names, NodesInAnyOrderAreSorted) {
  ModelBuilder m;
  m.input("x", {2});
  m.node("Neg", {"b"}, {"y"});
  m.node("Relu", {"x"}, {"a"});
  m.node("Exp", {"a"}, {"b"});
  m.output("y");
  EXPECT_THAT(opTypes(m.read().graph), ElementsAre("Relu", "Exp", "Neg"));
}

TEST(Names, InitialisersMayBeListedAsInputs) {
  ModelBuilder m(7, 3);
  m.input("x", {2});
  m.input("w", {2});
  m.floats("w", {2}, {1, 2});
  m.node("Add", {"x", "w"}, {"y"});
  m.output("y");
  const Model model = m.read();
  EXPECT_EQ(model.graph.inputs.size(), 1u);
}

TEST(Dims, BoundByNameAndExpression) {
  ModelBuilder m;
  m.input("x", {"batch", "past + 2*seq"});
  m.node("Relu", {"x"}, {"y"});
  m.output("y");
  ReadOptions options;
  options.dims = {{"batch", 3}, {"past", 5}, {"seq", 4}};
  const Model model = m.read(options);
  EXPECT_EQ(outputValue(model).type.shape, (Shape{3, 13}));
}

TEST(Dims, WholeShapesCanBeGiven) {
  ModelBuilder m;
  m.input("x", {"batch", "seq"});
  m.node("Relu", {"x"}, {"y"});
  m.output("y");
  ReadOptions options;
  options.inputShapes["x"] = {2, 9};
  EXPECT_EQ(outputValue(m.read(options)).type.shape, (Shape{2, 9}));
}

// --- outputs, copies and dead code ------------------------------------------

TEST(Simplify, IdentityAndDropoutVanish) {
  ModelBuilder m;
  m.input("x", {2});
  m.node("Identity", {"x"}, {"a"});
  m.node("Dropout", {"a"}, {"b"});
  m.node("Cast", {"b"}, {"c"}).i("to", kFloat);
  m.node("Relu", {"c"}, {"d"});
  m.node("Identity", {"d"}, {"y"});
  m.output("y");
  const Model model = m.read();
  EXPECT_THAT(opTypes(model.graph), ElementsAre("Relu"));
  EXPECT_EQ(outputValue(model).name, "y");
}

TEST(Simplify, DropoutWithAnUnusedMaskVanishes) {
  ModelBuilder m;
  m.input("x", {2});
  m.node("Dropout", {"x"}, {"a", "unused"});
  m.node("Relu", {"a"}, {"b"});
  m.node("Dropout", {"b"}, {"y", "dead"});
  m.node("Dropout", {"b"}, {"z", "mask"});
  for (const char *name : {"y", "z"})
    m.output(name);
  m.output("mask", kBool);
  const Model model = m.read();
  EXPECT_THAT(opTypes(model.graph), ElementsAre("Relu", "Identity", "Dropout"));
  EXPECT_EQ(model.graph.nodes[0].inputs[0], model.graph.inputs[0]);
}

TEST(Simplify, OutputsKeepTheirNames) {
  ModelBuilder m;
  m.input("x", {2});
  m.floats("w", {2}, {1, 2});
  m.node("Identity", {"x"}, {"same"});
  m.node("Identity", {"w"}, {"constant"});
  m.node("Relu", {"x"}, {"r"});
  m.node("Identity", {"r"}, {"again"});
  for (const char *name : {"x", "same", "constant", "again", "r", "w"})
    m.output(name);
  const Model model = m.read();
  std::vector<std::string> names;
  for (ValueId id : model.graph.outputs)
    names.push_back(model.graph.values[id].name);
  EXPECT_THAT(names, ElementsAre("x", "same", "constant", "again", "r", "w"));
  EXPECT_EQ(model.graph.outputs[0], model.graph.inputs[0]);
  EXPECT_TRUE(outputValue(model, 2).constant);
  EXPECT_TRUE(outputValue(model, 5).constant);
  // One Identity for "same", and one for the second name of Relu's result.
  EXPECT_EQ(std::count_if(model.graph.nodes.begin(), model.graph.nodes.end(),
                          [](const Node &n) { return n.opType == "Identity"; }),
            2);
}

TEST(Simplify, DeadNodesAndTheirWeightsGo) {
  ModelBuilder m;
  m.input("x", {2});
  m.floats("w", {2}, {1, 2});
  m.node("Add", {"x", "w"}, {"unused"});
  m.node("Relu", {"x"}, {"y"});
  m.output("y");
  const Model model = m.read();
  EXPECT_THAT(opTypes(model.graph), ElementsAre("Relu"));
  EXPECT_EQ(model.graph.values.size(), 2u);
}

TEST(Simplify, SplitKeepsResultsThatNobodyTakes) {
  ModelBuilder m;
  m.input("x", {6});
  m.node("Split", {"x"}, {"a", "b", "c"});
  m.node("Relu", {"a"}, {"y"});
  m.output("y");
  const Model model = m.read();
  ASSERT_EQ(model.graph.nodes[0].outputs.size(), 3u);
  EXPECT_NE(model.graph.nodes[0].outputs[2], kNoValue);
}

// --- folding ----------------------------------------------------------------

TEST(Folding, ShapeArithmeticOfExporters) {
  ModelBuilder m;
  m.input("x", {2, 5, 12});
  m.node("Shape", {"x"}, {"s"});
  m.ints("zero", {}, {0});
  m.ints("one", {}, {1});
  m.ints("axis0", {1}, {0});
  m.ints("tail", {2}, {4, 3});
  m.node("Gather", {"s", "zero"}, {"b"});
  m.node("Gather", {"s", "one"}, {"t"});
  m.node("Unsqueeze", {"b", "axis0"}, {"b1"});
  m.node("Unsqueeze", {"t", "axis0"}, {"t1"});
  m.node("Concat", {"b1", "t1", "tail"}, {"target"}).i("axis", 0);
  m.node("Reshape", {"x", "target"}, {"y"});
  m.output("y");
  const Model model = m.read();
  EXPECT_THAT(opTypes(model.graph), ElementsAre("Reshape"));
  EXPECT_EQ(outputValue(model).type.shape, (Shape{2, 5, 4, 3}));
}

TEST(Folding, ShapeWithStartAndEnd) {
  ModelBuilder m;
  m.input("x", {2, 5, 12});
  m.node("Shape", {"x"}, {"y"}).i("start", -2).i("end", 3);
  m.node("Size", {"x"}, {"n"});
  m.output("y", kInt64);
  m.output("n", kInt64);
  const Model model = m.read();
  EXPECT_THAT(opTypes(model.graph), IsEmpty());
  EXPECT_THAT(outputValue(model).constant->ints(), ElementsAre(5, 12));
  EXPECT_THAT(outputValue(model, 1).constant->ints(), ElementsAre(120));
}

TEST(Folding, LimitIsKept) {
  ModelBuilder m;
  m.input("x", {4});
  m.ints("n", {1}, {4});
  m.node("ConstantOfShape", {"n"}, {"z"});
  m.node("Add", {"x", "z"}, {"y"});
  m.output("y");
  ReadOptions options;
  options.foldLimit = 15;
  EXPECT_THAT(opTypes(m.read(options).graph),
              ElementsAre("ConstantOfShape", "Add"));
  options.foldLimit = 16;
  EXPECT_THAT(opTypes(m.read(options).graph), ElementsAre("Add"));
}

TEST(Folding, WeightThatOnlyOneNodeMovesIsMovedOnce) {
  ModelBuilder m;
  m.input("x", {1, 3});
  m.floats("w", {2, 3}, {1, 2, 3, 4, 5, 6});
  m.node("Transpose", {"w"}, {"wt"}).ints("perm", {1, 0});
  m.node("MatMul", {"x", "wt"}, {"y"});
  m.output("y");
  ReadOptions options;
  options.foldLimit = 0;
  const Model model = m.read(options);
  EXPECT_THAT(opTypes(model.graph), ElementsAre("MatMul"));
  const Value &w = model.graph.values[model.graph.nodes[0].inputs[1]];
  EXPECT_EQ(w.type.shape, (Shape{3, 2}));
  EXPECT_EQ(w.constant->floatAt(1), 4.0);
}

TEST(Folding, SharedWeightStays) {
  ModelBuilder m;
  m.input("x", {1, 3});
  m.floats("w", {3, 3}, std::vector<float>(9, 1));
  m.node("Transpose", {"w"}, {"wt"}).ints("perm", {1, 0});
  m.node("MatMul", {"x", "wt"}, {"a"});
  m.node("MatMul", {"a", "w"}, {"y"});
  m.output("y");
  ReadOptions options;
  options.foldLimit = 0;
  EXPECT_THAT(opTypes(m.read(options).graph),
              ElementsAre("Transpose", "MatMul", "MatMul"));
}

TEST(Folding, InputsGivenAsConstants) {
  ModelBuilder m;
  m.input("x", {6});
  m.input("shape", {2}, kInt64);
  m.node("Reshape", {"x", "shape"}, {"y"});
  m.output("y");
  ReadOptions options;
  Tensor shape = Tensor::allocate({DType::I64, {2}});
  const int64_t values[2] = {3, -1};
  std::memcpy(shape.mutableBytes().data(), values, sizeof values);
  options.constantInputs["shape"] = shape;
  const Model model = m.read(options);
  EXPECT_EQ(outputValue(model).type.shape, (Shape{3, 2}));
  EXPECT_EQ(model.graph.inputs.size(), 1u);
}

// --- functions --------------------------------------------------------------

/// A function scale(x; by = 2) = x + x, or LeakyRelu(alpha = by).
void addFunction(ModelBuilder &m) {
  m.import("mine", 1);
  auto *f = m.proto.add_functions();
  f->set_name("Leaky");
  f->set_domain("mine");
  f->add_input("v");
  f->add_output("w");
  auto *opset = f->add_opset_import();
  opset->set_version(16);
  auto *parameter = f->add_attribute_proto();
  parameter->set_name("slope");
  parameter->set_type(onnx_wire::Attribute::FLOAT);
  parameter->set_f(0.25f);
  NodeBuilder node = addNode(f, "LeakyRelu", {"v"}, {"w"});
  auto *reference = node.node->add_attribute();
  reference->set_name("alpha");
  reference->set_type(onnx_wire::Attribute::FLOAT);
  reference->set_ref_attr_name("slope");
}

TEST(Functions, InlinedWithDefaultsAndArguments) {
  ModelBuilder m;
  addFunction(m);
  m.input("x", {2});
  m.node("Leaky", {"x"}, {"a"}).domain("mine").named("first");
  m.node("Leaky", {"a"}, {"y"}).domain("mine").f("slope", 0.5f);
  m.output("y");
  const Model model = m.read();
  ASSERT_THAT(opTypes(model.graph), ElementsAre("LeakyRelu", "LeakyRelu"));
  EXPECT_EQ(model.graph.nodes[0].floatAttr("alpha", 0), 0.25);
  EXPECT_EQ(model.graph.nodes[0].name, "first/LeakyRelu#0");
  EXPECT_EQ(model.graph.nodes[0].opset, 16);
  EXPECT_EQ(model.graph.nodes[1].floatAttr("alpha", 0), 0.5);
}

// --- If ---------------------------------------------------------------------

/// y = If(c) then x + x (rows of `w` wide) else Neg(x) with x from outside.
void addIf(ModelBuilder &m) {
  NodeBuilder node = m.node("If", {"c"}, {"y"});
  for (bool then : {true, false}) {
    auto *branch = node.attribute(then ? "then_branch" : "else_branch",
                                  onnx_wire::Attribute::GRAPH)
                       ->mutable_g();
    branch->set_name(then ? "t" : "e");
    if (then)
      addNode(branch, "Add", {"x", "w"}, {"r"});
    else
      addNode(branch, "Neg", {"z"}, {"r"});
    branch->add_output()->set_name("r");
  }
}

TEST(If, DecidedOnesAreInlined) {
  for (bool condition : {true, false}) {
    ModelBuilder m;
    m.input("x", {2});
    m.input("z", {2});
    m.floats("w", {2}, {1, 2});
    fillTensor<char>(m.graph()->add_initializer(), "c", kBool, {},
                     {static_cast<char>(condition)});
    addIf(m);
    m.output("y");
    EXPECT_THAT(opTypes(m.read().graph),
                ElementsAre(condition ? "Add" : "Neg"));
  }
}

TEST(If, OpenOnesKeepBothBranchesWithExplicitCaptures) {
  ModelBuilder m;
  m.input("x", {2});
  m.input("z", {2});
  m.input("c", {}, kBool);
  m.floats("w", {2}, {1, 2});
  addIf(m);
  m.output("y");
  const Model model = m.read();
  ASSERT_THAT(opTypes(model.graph), ElementsAre("If"));
  const Node &node = model.graph.nodes[0];
  ASSERT_EQ(node.inputs.size(), 3u); // the condition, x and z
  EXPECT_EQ(model.graph.values[node.inputs[1]].name, "x");
  EXPECT_EQ(model.graph.values[node.inputs[2]].name, "z");
  for (const char *name : {"then_branch", "else_branch"}) {
    const auto &graph =
        *std::get<std::shared_ptr<Graph>>(*node.attribute(name));
    ASSERT_EQ(graph.inputs.size(), 2u) << name;
    EXPECT_EQ(graph.values[graph.inputs[0]].name, "x");
    EXPECT_EQ(graph.values[graph.inputs[1]].name, "z");
    EXPECT_EQ(graph.values[graph.outputs[0]].type.shape, (Shape{2}));
  }
  NodeView view;
  view.node = &node;
  const OpDef *def = findOp("", "If");
  ASSERT_TRUE(def);
  EXPECT_FALSE(def->kernel);
  def->infer(view);
  EXPECT_EQ(view.outputs[0], outputValue(model).type);
  const auto &then =
      *std::get<std::shared_ptr<Graph>>(*node.attribute("then_branch"));
  EXPECT_TRUE(then.values[then.nodes[0].inputs[1]].constant);
}

// --- collectives and annotations --------------------------------------------

TEST(Collectives, InferenceConventions) {
  ModelBuilder m;
  m.import(".com.microsoft", 1); // as exporters misspell it
  m.input("x", {4, 3});
  m.node("AllReduce", {"x"}, {"a"}).domain(".com.microsoft");
  m.node("AllGather", {"a"}, {"b"})
      .domain("com.microsoft")
      .i("axis", 1)
      .i("group_size", 4);
  m.node("AllToAll", {"b"}, {"y"}).domain("com.microsoft").i("group_size", 2);
  m.output("y");
  const Model model = m.read();
  ASSERT_THAT(opTypes(model.graph),
              ElementsAre("AllReduce", "AllGather", "AllToAll"));
  EXPECT_EQ(model.graph.nodes[0].domain, "com.microsoft");
  EXPECT_EQ(outputValue(model).type.shape, (Shape{4, 12}));
}

TEST(Collectives, TrainingConventionsTakeGroupSizes) {
  ModelBuilder m;
  m.import("com.microsoft", 1);
  m.input("x", {8, 3});
  m.node("NcclAllReduce", {"x"}, {"a"}).i("group_type", 0);
  m.node("NcclReduceScatter", {"a"}, {"b"})
      .domain("com.microsoft")
      .i("group_type", 4);
  m.node("NcclAllGather", {"b"}, {"c"})
      .domain("com.microsoft")
      .i("group_type", 0);
  m.output("b");
  m.output("c");
  ReadOptions options;
  options.world = 8;
  options.groupSizes[4] = 2;
  const Model model = m.read(options);
  EXPECT_EQ(outputValue(model, 0).type.shape, (Shape{4, 3}));
  EXPECT_EQ(outputValue(model, 1).type.shape, (Shape{32, 3}));
  EXPECT_EQ(model.graph.nodes[0].domain, "com.microsoft");
}

TEST(Annotations, ResolvedToDevicesAndCounts) {
  ModelBuilder m(23, 11);
  auto *configuration = m.proto.add_configuration();
  configuration->set_name("two");
  configuration->set_num_devices(4);
  m.input("x", {"batch", 8});
  NodeBuilder node = m.node("Relu", {"x"}, {"y"});
  auto *annotation = node.node->add_device_configurations();
  annotation->set_configuration_id("two");
  annotation->set_pipeline_stage(3);
  auto *spec = annotation->add_sharding_spec();
  spec->set_tensor_name("x");
  spec->add_device(-1);
  spec->add_device(3);
  auto *group = spec->add_index_to_device_group_map();
  group->set_key(-1);
  group->add_value(0);
  group->add_value(2);
  auto *dim = spec->add_sharded_dim();
  dim->set_axis(0);
  auto *simple = dim->add_simple_sharding();
  simple->set_dim_param("batch");
  simple->set_num_shards(2);
  m.output("y");
  ReadOptions options;
  options.dims["batch"] = 6;
  const Model model = m.read(options);
  ASSERT_EQ(model.configurations.size(), 1u);
  EXPECT_EQ(model.configurations[0].numDevices, 4);
  const Node &read = model.graph.nodes[0];
  EXPECT_EQ(read.pipelineStage, 3);
  ASSERT_EQ(read.shardings.size(), 1u);
  EXPECT_EQ(read.shardings[0].tensorName, "x");
  EXPECT_EQ(read.shardings[0].operand, 0);
  EXPECT_EQ(read.shardings[0].result, -1);
  EXPECT_EQ(read.shardings[0].devices,
            (std::vector<std::vector<int64_t>>{{0, 2}, {3}}));
  ASSERT_EQ(read.shardings[0].dims.size(), 1u);
  EXPECT_EQ(read.shardings[0].dims[0].axis, 0);
  EXPECT_EQ(read.shardings[0].dims[0].dims,
            (std::vector<std::pair<int64_t, int64_t>>{{6, 2}}));
}

TEST(Annotations, MetadataIsKept) {
  ModelBuilder m = reluModel();
  auto *entry = m.graph()->mutable_node(0)->add_metadata_props();
  entry->set_key("comm.domain");
  entry->set_value("tp");
  EXPECT_EQ(m.read().graph.nodes[0].metadata.at("comm.domain"), "tp");
}

// --- the registry -----------------------------------------------------------

TEST(Registry, SortedAndComplete) {
  std::span<const OpDef> ops = allOps();
  EXPECT_TRUE(std::is_sorted(
      ops.begin(), ops.end(), [](const OpDef &a, const OpDef &b) {
        return std::tie(a.domain, a.name) < std::tie(b.domain, b.name);
      }));
  for (const OpDef &op : ops)
    EXPECT_EQ(findOp(op.domain, op.name), &op);
  // What exports of BERT, GPT-2, Llama, Mixtral and ResNet use.
  std::stringstream names(
      "MatMul Gemm Add Sub Mul Div Pow Sqrt Erf Tanh Softmax ReduceMean "
      "LayerNormalization Reshape Transpose Split Slice Concat Gather "
      "Unsqueeze Squeeze Shape Cast Constant ConstantOfShape Range Where "
      "Expand Equal Less Trilu Min Max Sigmoid Neg Cos Sin Reciprocal "
      "RMSNormalization RotaryEmbedding Attention CumSum ScatterND TopK "
      "OneHot NonZero GatherElements GatherND ScatterElements ReduceSum Not "
      "And Or Conv BatchNormalization Relu MaxPool AveragePool "
      "GlobalAveragePool Sum Flatten Gelu");
  for (std::string name; names >> name;)
    EXPECT_TRUE(findOp("", name)) << name;
  EXPECT_FALSE(findOp("", "Nonsense"));
}

TEST(Registry, DocsListEveryOperator) {
  const std::string page = readFile("docs/onnx.md");
  ASSERT_FALSE(page.empty()) << "run from the repository's root";
  size_t rows = 0;
  for (size_t at = page.find("| operator |");
       (at = page.find("\n| ", at + 1)) != std::string::npos;)
    ++rows;
  EXPECT_EQ(rows, allOps().size());
  for (const OpDef &op : allOps()) {
    std::string row = "\n| ";
    if (!op.domain.empty())
      row += std::string(op.domain) + ".";
    row += std::string(op.name) + " | " + std::to_string(op.sinceOpset) +
           " | " + (op.shard ? "yes" : "") + " |";
    EXPECT_NE(page.find(row), std::string::npos) << row;
  }
}

TEST(Describe, RendersMechanically) {
  Node node;
  node.opType = "Conv";
  node.opset = 11;
  node.inputs = {0, 1, kNoValue};
  node.outputs = {2};
  node.attributes["pads"] = std::vector<int64_t>{1, 1};
  node.attributes["alpha"] = 0.1;
  node.attributes["mode"] = std::string("a\"b\\c");
  node.attributes["group"] = int64_t{2};
  node.attributes["scales"] = std::vector<double>{1.0, 0.5};
  Tensor value = Tensor::allocate({DType::F32, {1}});
  const float two = 2.5f;
  std::memcpy(value.mutableBytes().data(), &two, 4);
  node.attributes["value"] = value;
  NodeView view;
  view.node = &node;
  view.inputs = {{DType::F32, {1, 2, 8}}, {DType::F32, {4, 1, 3}}, {}};
  view.outputs = {{DType::F32, {1, 4, 8}}};
  EXPECT_EQ(describe(view),
            "onnx.conv attr.alpha=0.1 attr.group=2 attr.mode=\"a\\\"b\\\\c\" "
            "attr.pads=[1,1] attr.scales=[1,0.5] attr.value=[f32,2.5] "
            "in=[[f32,1,2,8],[f32,4,1,3],[none]] opset=11 out=[[f32,1,4,8]]");
  node.attributes["value"] = Tensor::allocate({DType::F32, {2}});
  EXPECT_EQ(describe(view), "");
}

} // namespace
