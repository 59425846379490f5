//===- TestModel.h - Models built in code for the reader's tests *- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A small builder over the wire classes, and a scratch folder.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TEST_UNIT_ONNX_TESTMODEL_H
#define CONCORD_TEST_UNIT_ONNX_TESTMODEL_H

#include "concord/onnx/OpRegistry.h"
#include "concord/onnx/Reader.h"
#include "concord_onnx.pb.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

namespace concord::onnx::test {

inline std::string readFile(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// A folder that is removed with its contents.
struct Scratch {
  std::filesystem::path path;
  Scratch() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "concord-onnx-XXXXXX")
            .string();
    path = ::mkdtemp(pattern.data());
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string write(const std::string &name, const std::string &bytes) const {
    std::ofstream(path / name, std::ios::binary) << bytes;
    return (path / name).string();
  }
};

constexpr int kFloat = 1, kInt32 = 6, kInt64 = 7, kBool = 9;

/// A dimension of a declared shape: a size or a name.
struct Dim {
  int64_t size = 0;
  std::string name;
  Dim(int64_t size) : size(size) {}
  Dim(int size) : size(size) {}
  Dim(const char *name) : name(name) {}
};

inline void declare(onnx_wire::ValueInfo *info, const std::string &name,
                    int dtype, const std::vector<Dim> &dims) {
  info->set_name(name);
  auto *type = info->mutable_type()->mutable_tensor_type();
  type->set_elem_type(dtype);
  type->mutable_shape();
  for (const Dim &dim : dims) {
    auto *extent = type->mutable_shape()->add_dim();
    if (dim.name.empty())
      extent->set_dim_value(dim.size);
    else
      extent->set_dim_param(dim.name);
  }
}

template <typename T>
void fillTensor(onnx_wire::Tensor *tensor, const std::string &name, int dtype,
                const Shape &shape, const std::vector<T> &values) {
  tensor->set_name(name);
  tensor->set_data_type(dtype);
  for (int64_t dim : shape)
    tensor->add_dims(dim);
  tensor->set_raw_data(values.data(), values.size() * sizeof(T));
}

struct NodeBuilder {
  onnx_wire::Node *node;
  onnx_wire::Attribute *attribute(const std::string &name,
                                  onnx_wire::Attribute::Kind kind) {
    auto *a = node->add_attribute();
    a->set_name(name);
    a->set_type(kind);
    return a;
  }
  NodeBuilder &i(const std::string &name, int64_t value) {
    attribute(name, onnx_wire::Attribute::INT)->set_i(value);
    return *this;
  }
  NodeBuilder &f(const std::string &name, float value) {
    attribute(name, onnx_wire::Attribute::FLOAT)->set_f(value);
    return *this;
  }
  NodeBuilder &s(const std::string &name, const std::string &value) {
    attribute(name, onnx_wire::Attribute::STRING)->set_s(value);
    return *this;
  }
  NodeBuilder &ints(const std::string &name, const Shape &values) {
    auto *a = attribute(name, onnx_wire::Attribute::INTS);
    for (int64_t value : values)
      a->add_ints(value);
    return *this;
  }
  NodeBuilder &named(const std::string &name) {
    node->set_name(name);
    return *this;
  }
  NodeBuilder &domain(const std::string &name) {
    node->set_domain(name);
    return *this;
  }
};

template <typename Owner>
NodeBuilder addNode(Owner *owner, const std::string &op,
                    const std::vector<std::string> &inputs,
                    const std::vector<std::string> &outputs) {
  auto *node = owner->add_node();
  node->set_op_type(op);
  for (const std::string &name : inputs)
    node->add_input(name);
  for (const std::string &name : outputs)
    node->add_output(name);
  return {node};
}

struct ModelBuilder {
  onnx_wire::Model proto;
  explicit ModelBuilder(int64_t opset = 17, int64_t ir = 8) {
    proto.set_ir_version(ir);
    proto.mutable_graph()->set_name("g");
    import("", opset);
  }
  onnx_wire::Graph *graph() { return proto.mutable_graph(); }
  void import(const std::string &domain, int64_t version) {
    auto *opset = proto.add_opset_import();
    opset->set_domain(domain);
    opset->set_version(version);
  }
  void input(const std::string &name, const std::vector<Dim> &dims,
             int dtype = kFloat) {
    declare(graph()->add_input(), name, dtype, dims);
  }
  /// An output whose shape the test does not declare.
  void output(const std::string &name, int dtype = kFloat) {
    auto *info = graph()->add_output();
    info->set_name(name);
    info->mutable_type()->mutable_tensor_type()->set_elem_type(dtype);
  }
  void ints(const std::string &name, const Shape &shape,
            const std::vector<int64_t> &values) {
    fillTensor(graph()->add_initializer(), name, kInt64, shape, values);
  }
  void floats(const std::string &name, const Shape &shape,
              const std::vector<float> &values) {
    fillTensor(graph()->add_initializer(), name, kFloat, shape, values);
  }
  NodeBuilder node(const std::string &op,
                   const std::vector<std::string> &inputs,
                   const std::vector<std::string> &outputs) {
    return addNode(graph(), op, inputs, outputs);
  }
  std::string bytes() const { return proto.SerializeAsString(); }
  Model read(const ReadOptions &options = {},
             const std::string &directory = "") const {
    return readBytes(bytes(), options, directory);
  }
  static Model readBytes(const std::string &bytes,
                         const ReadOptions &options = {},
                         const std::string &directory = "") {
    return readModelFromMemory(
        std::as_bytes(std::span(bytes.data(), bytes.size())), "m.onnx",
        directory, options);
  }
  /// The message of the error that reading must end in.
  std::string error(const ReadOptions &options = {},
                    const std::string &directory = "") const {
    try {
      read(options, directory);
    } catch (const Error &error) {
      return error.what();
    }
    return "no error";
  }
};

inline const Value &outputValue(const Model &model, size_t i = 0) {
  return model.graph.values[model.graph.outputs.at(i)];
}

} // namespace concord::onnx::test

#endif // CONCORD_TEST_UNIT_ONNX_TESTMODEL_H
