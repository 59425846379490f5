//===- NodeSuiteTest.cpp - Reading the ONNX node tests
//----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Walks the backend node tests of an `onnx` package: every model must be read,
// and the inferred types of its outputs must be those of the expected tensors.
// CONCORD_ONNX_NODE_DATA names the folder of test cases; without it the
// project's Python environment is looked into. With CONCORD_ONNX_NODE_VERBOSE=1
// each failure is printed.
//
//===----------------------------------------------------------------------===//

#include "TestModel.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>

namespace fs = std::filesystem;
using namespace concord;
using namespace concord::onnx;

namespace {

std::string nodeFolder() {
  if (const char *given = std::getenv("CONCORD_ONNX_NODE_DATA"))
    return given;
  std::error_code error;
  for (const auto &entry : fs::directory_iterator(".venv/lib", error)) {
    const fs::path data =
        entry.path() / "site-packages/onnx/backend/test/data/node";
    if (fs::exists(data))
      return data.string();
  }
  return {};
}

/// Classes that Concord does not support, by the word their error contains.
bool excluded(const std::string &message) {
  for (const char *reason : {"functions of a sequence are not supported",
                             "how often the loop runs must be known",
                             "optional values are not supported",
                             "strings are not supported",
                             "random numbers are not supported",
                             "dropout in training mode",
                             "is a sequence, which",
                             "is optional, which",
                             "is of STRING",
                             "is of UINT4",
                             "is of INT4",
                             "is of UINT2",
                             "is of INT2",
                             "is of FLOAT4E2M1",
                             "is of FLOAT8E8M0",
                             "is of FLOAT8E4M3FNUZ",
                             "is of FLOAT8E5M2FNUZ",
                             "asks for UINT4",
                             "asks for INT4",
                             "asks for UINT2",
                             "asks for INT2",
                             "asks for FLOAT4E2M1",
                             "asks for FLOAT8E8M0",
                             "asks for STRING",
                             "asks for FLOAT8E4M3FNUZ",
                             "asks for FLOAT8E5M2FNUZ",
                             "asks for COMPLEX64",
                             "opset 1 is not supported",
                             "ai.onnx.preview.training"})
    if (message.find(reason) != std::string::npos)
      return true;
  return false;
}

/// Names and order of the inputs that have no initialiser.
std::vector<std::string> inputNames(const std::string &path) {
  onnx_wire::Model proto;
  const std::string bytes = test::readFile(path);
  proto.ParseFromString(bytes);
  std::vector<std::string> names;
  for (const auto &info : proto.graph().input())
    names.push_back(info.name());
  return names;
}

TEST(NodeSuite, ModelsReadAndTypesAgree) {
  const std::string folder = nodeFolder();
  if (folder.empty())
    GTEST_SKIP() << "no onnx package with node tests is installed";
  const bool verbose = std::getenv("CONCORD_ONNX_NODE_VERBOSE") != nullptr;
  const char *filter = std::getenv("CONCORD_ONNX_NODE_FILTER");
  int good = 0, left = 0, all = 0, withConstants = 0;
  std::map<std::string, int> reasons;
  std::vector<fs::path> cases;
  for (const auto &entry : fs::directory_iterator(folder))
    cases.push_back(entry.path());
  std::sort(cases.begin(), cases.end());
  for (const fs::path &test : cases) {
    if (filter && test.filename().string().find(filter) == std::string::npos)
      continue;
    const std::string path = (test / "model.onnx").string();
    if (!fs::exists(path))
      continue;
    ++all;
    std::string message;
    try {
      ReadOptions options;
      Model model;
      const fs::path data = test / "test_data_set_0";
      const std::vector<std::string> names = inputNames(path);
      // The declared shapes of inputs may be symbolic: take the data's.
      std::map<std::string, Tensor> inputs;
      for (size_t i = 0; i < names.size(); ++i) {
        const fs::path file = data / ("input_" + std::to_string(i) + ".pb");
        if (!fs::exists(file))
          continue;
        try {
          inputs[names[i]] = readTensorProto(file.string());
          options.inputShapes[names[i]] = inputs[names[i]].type.shape;
        } catch (const Error &) {
          // Not a tensor; reading the model says so.
        }
      }
      try {
        model = readModel(path, options);
      } catch (const Error &error) {
        if (std::string(error.what()).find("--const") == std::string::npos)
          throw;
        options.constantInputs = inputs;
        model = readModel(path, options);
        ++withConstants;
      }
      for (size_t i = 0; i < model.graph.outputs.size(); ++i) {
        const fs::path file = data / ("output_" + std::to_string(i) + ".pb");
        const Tensor expected = readTensorProto(file.string());
        const TensorType &type =
            model.graph.values[model.graph.outputs[i]].type;
        if (!(type == expected.type)) {
          auto show = [](const TensorType &t) {
            std::string text(dtypeName(t.dtype));
            for (int64_t dim : t.shape)
              text += "," + std::to_string(dim);
            return text;
          };
          throw Error("output " + std::to_string(i) + " inferred as " +
                      show(type) + " and is " + show(expected.type));
        }
      }
      ++good;
      continue;
    } catch (const Error &error) {
      message = error.what();
    }
    if (excluded(message)) {
      ++left;
      continue;
    }
    if (verbose)
      std::cout << test.filename().string() << ": "
                << message.substr(message.rfind("model.onnx: ") ==
                                          std::string::npos
                                      ? 0
                                      : message.rfind("model.onnx: ") + 12)
                << "\n";
  }
  const int counted = all - left;
  std::cout << "node tests: " << good << " of " << counted << " read ("
            << withConstants << " with inputs as constants), " << left
            << " of unsupported classes, " << all << " in all\n";
  if (!filter)
    EXPECT_GE(good, counted * 95 / 100);
}

} // namespace
