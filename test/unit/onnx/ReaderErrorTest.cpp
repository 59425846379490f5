//===- ReaderErrorTest.cpp - What the reader refuses, and its words
//---------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every kind of bad input ends in an error that names the file, the node or
// tensor, and what to do. The last tests damage good models at random; they
// must end in a model or an error, never in a crash.
//
//===----------------------------------------------------------------------===//

#include "TestModel.h"

using namespace concord;
using namespace concord::onnx;
using namespace concord::onnx::test;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

std::string errorOf(const std::string &path) {
  try {
    readModel(path);
  } catch (const Error &error) {
    return error.what();
  }
  return "no error";
}

std::string errorOfBytes(const std::string &bytes) {
  try {
    ModelBuilder::readBytes(bytes);
  } catch (const Error &error) {
    return error.what();
  }
  return "no error";
}

ModelBuilder oneNode(const std::string &op, int64_t opset = 17) {
  ModelBuilder m(opset);
  m.input("x", {2, 3});
  m.node(op, {"x"}, {"y"}).named("n");
  m.output("y");
  return m;
}

// --- files ------------------------------------------------------------------

TEST(BadFile, MissingOrNotAFile) {
  EXPECT_THAT(errorOf("/nowhere/m.onnx"),
              AllOf(StartsWith("/nowhere/m.onnx: "),
                    HasSubstr("No such file or directory")));
  Scratch scratch;
  EXPECT_THAT(errorOf(scratch.path.string()), HasSubstr("not a regular file"));
  EXPECT_THAT(errorOf(scratch.write("e.onnx", "")), HasSubstr("is empty"));
}

TEST(BadFile, TextIsNotAModel) {
  for (const char *text :
       {"hello world, this is a text file\n", "{\"a\": 1}\n", "# comment\n",
        "module {\n  func.func @main() {\n", "\n\n\n"})
    EXPECT_THAT(errorOfBytes(text),
                testing::AnyOf(HasSubstr("not a valid ONNX file"),
                               HasSubstr("truncated"),
                               HasSubstr("not an ONNX model")))
        << text;
}

TEST(BadFile, EveryTruncationIsAnError) {
  ModelBuilder m = oneNode("Relu");
  m.floats("w", {300}, std::vector<float>(300, 1));
  const std::string bytes = m.bytes();
  for (size_t length = 0; length < bytes.size(); ++length) {
    const std::string message = errorOfBytes(bytes.substr(0, length));
    // A cut between two fields of the model can leave a smaller whole model.
    if (length > 4 && length < bytes.size() - 16)
      EXPECT_NE(message, "no error") << length;
  }
  EXPECT_THAT(errorOfBytes(bytes.substr(0, bytes.size() / 2)),
              HasSubstr("truncated"));
}

TEST(BadFile, WithoutGraph) {
  ModelBuilder m;
  m.proto.clear_graph();
  EXPECT_THAT(m.error(), HasSubstr("holds no graph"));
}

TEST(BadFile, NestingIsBounded) {
  // Graph in attribute in node in graph, far deeper than any model.
  std::string inner;
  auto wrap = [](int field, const std::string &body) {
    std::string out;
    out.push_back(static_cast<char>(field << 3 | 2));
    size_t length = body.size();
    do {
      out.push_back(
          static_cast<char>((length & 0x7f) | (length > 0x7f ? 0x80 : 0)));
      length >>= 7;
    } while (length);
    return out + body;
  };
  for (int i = 0; i < 2000; ++i)
    inner = wrap(1, wrap(5, wrap(6, inner)));
  EXPECT_THAT(errorOfBytes(wrap(7, inner)), HasSubstr("nested more than"));
}

// --- versions ---------------------------------------------------------------

TEST(BadVersion, IrAndOpset) {
  ModelBuilder m = oneNode("Relu");
  m.proto.set_ir_version(15);
  EXPECT_THAT(m.error(), HasSubstr("IR version 15 is not supported"));
  m.proto.set_ir_version(2);
  EXPECT_THAT(m.error(), HasSubstr("IR version 2 is not supported"));
  EXPECT_THAT(oneNode("Relu", 0).error(),
              HasSubstr("opset 0 is not supported"));
  EXPECT_THAT(oneNode("Relu", 5).error(),
              HasSubstr("the operator exists from opset 6 on"));
  EXPECT_THAT(oneNode("Relu", 99).error(),
              HasSubstr("opset 99 is not supported"));
  ModelBuilder none = oneNode("Relu");
  none.proto.clear_opset_import();
  EXPECT_THAT(none.error(), HasSubstr("imports no opset"));
}

// --- operators --------------------------------------------------------------

TEST(BadNode, AttentionMasksThatDoNotFit) {
  for (const std::vector<Dim> &mask :
       {std::vector<Dim>{2, 4, 3, 5, 2}, {3, 1, 3, 5}, {3, 6}}) {
    ModelBuilder m(23);
    m.input("q", {2, 4, 3, 8});
    m.input("k", {2, 4, 5, 8});
    m.input("v", {2, 4, 5, 8});
    m.input("m", mask);
    m.node("Attention", {"q", "k", "v", "m"}, {"y"}).named("n");
    m.output("y");
    EXPECT_THAT(m.error(), HasSubstr("and should broadcast to F32[2,4,3,5]"));
  }
}

TEST(BadNode, UnknownAndUnsupportedOperators) {
  EXPECT_EQ(oneNode("Frobnicate").error(),
            "m.onnx: node 'n' (Frobnicate, opset 17): unknown operator; "
            "express it with operators of docs/onnx.md or add it as a model "
            "function");
  EXPECT_THAT(oneNode("Loop").error(), HasSubstr("its body is missing"));
  EXPECT_THAT(oneNode("Scan").error(), HasSubstr("its body is missing"));
  EXPECT_THAT(oneNode("SequenceAt").error(),
              HasSubstr("operand 0 is no sequence"));
  EXPECT_THAT(oneNode("SequenceMap").error(),
              HasSubstr("functions of a sequence are not"));
  EXPECT_THAT(oneNode("OptionalGetElement").error(),
              HasSubstr("optional values are not"));
  EXPECT_THAT(oneNode("StringConcat").error(), HasSubstr("strings are not"));
  EXPECT_THAT(oneNode("RandomNormalLike").error(),
              HasSubstr("random numbers are not"));
  EXPECT_THAT(oneNode("LSTM").error(), HasSubstr("operand 1 is missing"));
  EXPECT_EQ(oneNode("Gelu", 17).error(),
            "m.onnx: node 'n' (Gelu, opset 17): the operator exists from opset "
            "20 on; the model imports an older one");
}

TEST(BadNode, ShapesThatDoNotFit) {
  ModelBuilder m;
  m.input("x", {2, 3});
  m.input("w", {4, 5});
  m.node("MatMul", {"x", "w"}, {"y"}).named("dense");
  m.output("y");
  EXPECT_EQ(m.error(),
            "m.onnx: node 'dense' (MatMul, opset 17): a matrix product of "
            "F32[2,3] and F32[4,5]: the inner dimensions 3 and 4 differ");
}

TEST(BadNode, BroadcastDtypeAndRankErrors) {
  ModelBuilder m;
  m.input("x", {2, 3});
  m.input("w", {4});
  m.node("Add", {"x", "w"}, {"y"});
  m.output("y");
  EXPECT_THAT(m.error(), HasSubstr("[2,3] and [4] cannot be broadcast"));
  ModelBuilder d;
  d.input("x", {2});
  d.input("w", {2}, kInt64);
  d.node("Add", {"x", "w"}, {"y"});
  d.output("y");
  EXPECT_THAT(d.error(), HasSubstr("insert a Cast"));
  ModelBuilder t;
  t.input("x", {2, 3});
  t.node("Transpose", {"x"}, {"y"}).ints("perm", {0, 1, 2});
  t.output("y");
  EXPECT_THAT(t.error(), HasSubstr("perm [0,1,2] does not fit F32[2,3]"));
  ModelBuilder a;
  a.input("x", {2, 3});
  a.node("Softmax", {"x"}, {"y"}).i("axis", 2);
  a.output("y");
  EXPECT_THAT(a.error(), HasSubstr("axis is 2 and the tensor has 2"));
}

TEST(BadNode, MissingOperandAndWrongAttributeKind) {
  ModelBuilder m;
  m.input("x", {2, 3});
  m.node("MatMul", {"x"}, {"y"});
  m.output("y");
  EXPECT_THAT(m.error(), HasSubstr("operand 1 ('B') is missing"));
  ModelBuilder k;
  k.input("x", {2, 3});
  k.node("Softmax", {"x"}, {"y"}).s("axis", "one");
  k.output("y");
  EXPECT_THAT(k.error(), HasSubstr("attribute 'axis' should be an integer"));
}

TEST(BadNode, AttributeNamesCannotForgeDescriptions) {
  ModelBuilder m;
  m.input("x", {2, 3});
  m.node("Relu", {"x"}, {"y"}).i("a in=[[f32,1]] b", 1);
  m.output("y");
  EXPECT_THAT(m.error(), HasSubstr("has a name that no operator uses"));
}

TEST(BadNode, DataThatMustBeKnown) {
  ModelBuilder m;
  m.input("x", {6});
  m.input("n", {2}, kInt64);
  m.node("Abs", {"n"}, {"target"});
  m.node("Reshape", {"x", "target"}, {"y"}).named("r");
  m.output("y");
  try {
    m.read();
    FAIL();
  } catch (const NeedsConstantInput &error) {
    EXPECT_STREQ(error.what(),
                 "m.onnx: node 'r' (Reshape, opset 17): the result's shape "
                 "depends on operand 1 ('shape'), which is not known at "
                 "compile time; 'target' is computed from input n; bind that "
                 "to data with --const n=FILE, or export the model so that no "
                 "shape depends on data (docs/onnx.md)");
    EXPECT_EQ(error.inputs, std::vector<std::string>{"n"});
  }
}

TEST(BadNode, HugeShapesAreRefused) {
  ModelBuilder m;
  m.input("x", {2});
  m.ints("n", {2}, {INT64_MAX, INT64_MAX});
  m.node("ConstantOfShape", {"n"}, {"y"});
  m.output("y");
  EXPECT_THAT(m.error(), HasSubstr("is too large"));
  ModelBuilder r;
  r.ints("a", {}, {INT64_MIN});
  r.ints("b", {}, {INT64_MAX});
  r.ints("c", {}, {1});
  r.node("Range", {"a", "b", "c"}, {"y"});
  r.output("y", kInt64);
  EXPECT_THAT(r.error(), HasSubstr("the range is too long"));
  ModelBuilder d;
  d.ints("a", {}, {0});
  d.ints("b", {}, {INT64_MIN});
  d.ints("c", {}, {-1});
  d.node("Range", {"a", "b", "c"}, {"y"});
  d.output("y", kInt64);
  EXPECT_THAT(d.error(), HasSubstr("the range is too long"));
  ModelBuilder g;
  g.import("com.microsoft", 1);
  g.input("x", {int64_t{1} << 40});
  g.node("AllGather", {"x"}, {"y"})
      .domain("com.microsoft")
      .i("group_size", INT64_MAX);
  g.output("y");
  EXPECT_THAT(g.error(), HasSubstr("group_size is"));
}

// --- names and graphs -------------------------------------------------------

TEST(BadGraph, CycleNamesItsNodes) {
  ModelBuilder m;
  m.input("x", {2});
  m.node("Add", {"x", "c"}, {"a"}).named("one");
  m.node("Relu", {"a"}, {"b"}).named("two");
  m.node("Neg", {"b"}, {"c"}).named("three");
  m.node("Exp", {"c"}, {"y"}).named("after");
  m.output("y");
  const std::string message = m.error();
  EXPECT_THAT(message, HasSubstr("the graph has a cycle"));
  for (const char *name : {"'one'", "'two'", "'three'"})
    EXPECT_THAT(message, HasSubstr(name));
  EXPECT_THAT(message, testing::Not(HasSubstr("'after'")));
}

TEST(BadGraph, MissingInitializer) {
  ModelBuilder m;
  m.input("x", {2});
  m.node("Add", {"x", "weight"}, {"y"}).named("n");
  m.output("y");
  EXPECT_EQ(m.error(),
            "m.onnx: node 'n' (Add) reads 'weight', which is no input, no "
            "initializer and no node's output; the model is incomplete");
}

TEST(BadGraph, NamesGivenTwice) {
  ModelBuilder m = oneNode("Relu");
  m.node("Neg", {"x"}, {"y"}).named("second");
  EXPECT_THAT(m.error(), HasSubstr("'y' is produced twice, by node 'n' and by "
                                   "node 'second'"));
  ModelBuilder s = oneNode("Relu");
  s.input("z", {2, 3});
  s.node("Neg", {"z"}, {"x"}).named("second");
  EXPECT_THAT(s.error(), HasSubstr("'x' is defined twice"));
  ModelBuilder w = oneNode("Relu");
  w.floats("w", {1}, {1});
  w.floats("w", {1}, {1});
  EXPECT_THAT(w.error(), HasSubstr("'w' is defined twice"));
}

TEST(BadGraph, OutputsThatNobodyProducesOrDeclaredWrongly) {
  ModelBuilder m = oneNode("Relu");
  m.output("z");
  EXPECT_THAT(m.error(), HasSubstr("output 'z' is produced by no node"));
  ModelBuilder d;
  d.input("x", {2, 3});
  d.node("Relu", {"x"}, {"y"});
  declare(d.graph()->add_output(), "y", kFloat, {2, 4});
  EXPECT_THAT(d.error(), HasSubstr("declared with shape [2,4] and computed as "
                                   "F32[2,3]"));
  ModelBuilder t = oneNode("Relu");
  t.graph()
      ->mutable_output(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->set_elem_type(kInt64);
  EXPECT_THAT(t.error(), HasSubstr("declared as INT64"));
}

TEST(BadGraph, FunctionsThatCallThemselvesOrGrow) {
  ModelBuilder m;
  m.import("mine", 1);
  m.input("x", {2});
  m.node("F0", {"x"}, {"y"}).domain("mine");
  m.output("y");
  auto add = [&](const std::string &name, const std::string &calls, int times) {
    auto *f = m.proto.add_functions();
    f->set_name(name);
    f->set_domain("mine");
    f->add_input("a0");
    for (int i = 0; i < times; ++i)
      addNode(f, calls, {"a" + std::to_string(i)},
              {"a" + std::to_string(i + 1)})
          .domain("mine");
    f->add_output("a" + std::to_string(times));
  };
  add("F0", "F0", 1);
  EXPECT_THAT(m.error(), HasSubstr("the function calls itself"));
  m.proto.clear_functions();
  for (int i = 0; i < 12; ++i)
    add("F" + std::to_string(i), "F" + std::to_string(i + 1), 16);
  auto *last = m.proto.add_functions();
  last->set_name("F12");
  last->set_domain("mine");
  last->add_input("a");
  last->add_output("b");
  addNode(last, "Relu", {"a"}, {"b"});
  EXPECT_THAT(m.error(), HasSubstr("nodes after inlining"));
}

TEST(BadGraph, BranchesThatDisagree) {
  ModelBuilder m;
  m.input("x", {2});
  m.input("c", {}, kBool);
  NodeBuilder node = m.node("If", {"c"}, {"y"}).named("if");
  for (bool then : {true, false}) {
    auto *branch = node.attribute(then ? "then_branch" : "else_branch",
                                  onnx_wire::Attribute::GRAPH)
                       ->mutable_g();
    if (then)
      addNode(branch, "Relu", {"x"}, {"r"});
    else
      addNode(branch, "Concat", {"x", "x"}, {"r"}).i("axis", 0);
    branch->add_output()->set_name("r");
  }
  m.output("y");
  EXPECT_THAT(m.error(),
              AllOf(HasSubstr("F32[2] in one branch and F32[4] in the other"),
                    HasSubstr("--const c=FILE")));
}

// --- inputs and dimensions --------------------------------------------------

TEST(BadInput, UnboundAndUnknownDimensions) {
  ModelBuilder m;
  m.input("ids", {"batch", "seq"});
  m.node("Relu", {"ids"}, {"y"});
  m.output("y");
  ReadOptions options;
  EXPECT_EQ(m.error(options),
            "m.onnx: input 'ids': dimension 0 ('batch') is not bound; give its "
            "size, for example --dim batch=128 --dim seq=128");
  options.dims["batch"] = 2;
  EXPECT_EQ(m.error(options),
            "m.onnx: input 'ids': dimension 1 ('seq') is not bound; give its "
            "size, for example --dim seq=128");
  options.dims["sequence"] = 4;
  EXPECT_EQ(m.error(options),
            "m.onnx: --dim sequence: the model has no dimension of this name; "
            "it has batch, seq");
  options.dims = {{"batch", -1}, {"seq", 4}};
  EXPECT_THAT(m.error(options), HasSubstr("cannot be negative"));
}

TEST(BadInput, ShapesTypesAndBindings) {
  ModelBuilder m = oneNode("Relu");
  auto *type = m.graph()->mutable_input(0)->mutable_type();
  type->mutable_tensor_type()->clear_shape();
  EXPECT_THAT(m.error(), HasSubstr("declares no shape; give it, for example "
                                   "--shape x=1x128"));
  ReadOptions options;
  options.inputShapes["y"] = {1};
  EXPECT_THAT(oneNode("Relu").error(options),
              HasSubstr("--shape y: the model has no input of this name; it "
                        "has x"));
  options.inputShapes = {{"x", {2, 3, 4}}};
  EXPECT_THAT(oneNode("Relu").error(options), HasSubstr("has 2 dimensions"));
  options.inputShapes = {};
  options.constantInputs["x"] = Tensor::allocate({DType::I64, {2, 3}});
  EXPECT_THAT(oneNode("Relu").error(options),
              HasSubstr("the constant given for it is I64[2,3]"));
  ModelBuilder s = oneNode("Relu");
  s.graph()->mutable_input(0)->mutable_type()->mutable_sequence_type();
  EXPECT_THAT(s.error(), HasSubstr("is a sequence, which is not supported"));
  ModelBuilder o = oneNode("Relu");
  o.graph()->mutable_input(0)->clear_type();
  EXPECT_THAT(o.error(), HasSubstr("has no type"));
}

// --- tensors ----------------------------------------------------------------

TEST(BadTensor, DtypesAndCounts) {
  ModelBuilder m;
  fillTensor<char>(m.graph()->add_initializer(), "w", 8, {1}, {0});
  m.output("w");
  EXPECT_THAT(m.error(), HasSubstr("initializer 'w' is of STRING"));
  ModelBuilder c;
  c.floats("w", {3}, {1, 2});
  c.output("w");
  EXPECT_EQ(c.error(), "m.onnx: initializer 'w': 8 bytes of data, and the "
                       "shape [3] of F32 needs 12");
  ModelBuilder t;
  auto *typed = t.graph()->add_initializer();
  typed->set_name("w");
  typed->set_data_type(kFloat);
  typed->add_dims(1000000000);
  typed->add_float_data(1);
  t.output("w");
  EXPECT_THAT(t.error(), HasSubstr("float_data holds 1 elements"));
  ModelBuilder n;
  n.floats("w", {-1}, {});
  n.output("w");
  EXPECT_THAT(n.error(), HasSubstr("negative dimension"));
  ModelBuilder h;
  h.floats("w", {INT64_MAX, INT64_MAX}, {});
  h.output("w");
  EXPECT_THAT(h.error(), HasSubstr("too large"));
  ModelBuilder sparse = oneNode("Relu");
  sparse.graph()->add_sparse_initializer()->mutable_values()->set_name("s");
  EXPECT_THAT(sparse.error(), HasSubstr("'s' is sparse"));
}

struct External {
  Scratch scratch;
  ModelBuilder model;
  onnx_wire::Tensor *tensor = nullptr;
  External() {
    std::filesystem::create_directory(scratch.path / "model");
    scratch.write("outside.bin", std::string(64, 'x'));
    scratch.write("model/inside.bin", std::string(16, 'x'));
    std::filesystem::create_symlink(scratch.path / "outside.bin",
                                    scratch.path / "model" / "link.bin");
    std::filesystem::create_symlink(scratch.path,
                                    scratch.path / "model" / "up");
    tensor = model.graph()->add_initializer();
    fillTensor<float>(tensor, "w", kFloat, {4}, {});
    tensor->set_data_location(1);
    model.output("w");
  }
  std::string error(const std::string &location, const std::string &offset = "",
                    const std::string &length = "") {
    tensor->clear_external_data();
    auto add = [&](const char *key, const std::string &value) {
      if (value.empty())
        return;
      auto *entry = tensor->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    };
    add("location", location);
    add("offset", offset);
    add("length", length);
    return errorOf(scratch.write("model/m.onnx", model.bytes()));
  }
};

TEST(BadTensor, ExternalDataStaysInTheFolder) {
  External e;
  EXPECT_EQ(e.error("inside.bin"), "no error");
  EXPECT_THAT(e.error("../outside.bin"), HasSubstr("climbs out of the model's "
                                                   "folder"));
  EXPECT_THAT(e.error("sub/../../outside.bin"), HasSubstr("climbs out"));
  EXPECT_THAT(e.error((e.scratch.path / "outside.bin").string()),
              HasSubstr("absolute path"));
  EXPECT_THAT(e.error("link.bin"), HasSubstr("symbolic link"));
  EXPECT_THAT(e.error("up/outside.bin"), HasSubstr("symbolic link"));
  EXPECT_THAT(e.error("missing.bin"), HasSubstr("cannot be opened"));
  EXPECT_THAT(e.error("."), HasSubstr("'.'"));
  EXPECT_THAT(e.error(""), HasSubstr("is not a file name"));
  EXPECT_THAT(e.error(std::string("in\0side", 7)),
              HasSubstr("'in\\x00side' is not a file name"));
  EXPECT_THAT(e.model.error(), HasSubstr("without a folder"));
}

TEST(BadTensor, ExternalDataOffsetsAndLengths) {
  External e;
  EXPECT_EQ(e.error("inside.bin", "0", "16"), "no error");
  EXPECT_THAT(e.error("inside.bin", "8"), HasSubstr("has 16 bytes, and 16 at "
                                                    "offset 8 are needed"));
  EXPECT_THAT(e.error("inside.bin", "18446744073709551615"),
              HasSubstr("are needed"));
  EXPECT_THAT(e.error("inside.bin", "-4"), HasSubstr("not a number of bytes"));
  EXPECT_THAT(e.error("inside.bin", "0", "12"), HasSubstr("12 bytes of data"));
  EXPECT_THAT(e.error("inside.bin", "0", "12x"),
              HasSubstr("not a number of bytes"));
}

TEST(BadTensor, ProtoFiles) {
  Scratch scratch;
  EXPECT_THROW(readTensorProto((scratch.path / "none.pb").string()), Error);
  EXPECT_THROW(readTensorProto(scratch.write("t.pb", "text")), Error);
  EXPECT_THROW(writeTensorProto((scratch.path / "no" / "t.pb").string(), "t",
                                Tensor::allocate({DType::F32, {1}})),
               Error);
}

TEST(BadAnnotation, UnknownConfigurationAndDevice) {
  ModelBuilder m = oneNode("Relu");
  auto *annotation = m.graph()->mutable_node(0)->add_device_configurations();
  annotation->set_configuration_id("missing");
  EXPECT_THAT(m.error(), HasSubstr("device configuration 'missing'"));
  auto *configuration = m.proto.add_configuration();
  configuration->set_name("missing");
  configuration->set_num_devices(2);
  auto *spec = annotation->add_sharding_spec();
  spec->set_tensor_name("x");
  spec->add_device(2);
  EXPECT_THAT(m.error(), HasSubstr("names device 2 of 2"));
  spec->set_tensor_name("elsewhere");
  EXPECT_THAT(m.error(), HasSubstr("is for 'elsewhere', which it neither reads "
                                   "nor produces"));
  ReadOptions options;
  options.configuration = "other";
  EXPECT_THAT(m.error(options),
              HasSubstr("there is no device configuration 'other'"));
}

} // namespace
