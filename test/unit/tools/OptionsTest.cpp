//===- OptionsTest.cpp - Tests of comm-run's command line ----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is comm-run's, what is the compiler's, and what is neither.
//
//===----------------------------------------------------------------------===//

#include "Options.h"

#include "common/HostTensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace concord::tools;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace {

std::string errorOf(std::vector<std::string> arguments) {
  try {
    parseOptions(std::move(arguments));
  } catch (const Error &error) {
    return error.what();
  }
  return "no error";
}

TEST(Options, OwnAndCompileOptionsInAnyOrder) {
  Options options = parseOptions(
      {"--mesh", "dp=2,tp=2", "model.onnx", "--comm-fuse=off", "-n", "4",
       "--dim", "seq=128", "--dim=batch=1", "--input", "x=a.npy", "--input",
       "y@1=b.npy", "--repeat", "10", "--explain"});
  EXPECT_EQ(options.program, "model.onnx");
  EXPECT_EQ(options.ranks, 4);
  EXPECT_THAT(options.compile,
              ElementsAre("--mesh", "dp=2,tp=2", "--comm-fuse=off", "--dim",
                          "seq=128", "--dim=batch=1", "--explain"));
  EXPECT_THAT(options.inputs, ElementsAre("x=a.npy", "y@1=b.npy"));
  EXPECT_EQ(options.repeat, 10);
  EXPECT_EQ(options.warmup, 1);
  EXPECT_EQ(meshSize(options), 4);
  EXPECT_EQ(compileOption(options, "--dim"), "batch=1");
}

TEST(Options, InputDoesNotSwallowTheProgram) {
  Options options = parseOptions({"--input", "x=a.npy", "p.so"});
  EXPECT_EQ(options.program, "p.so");
  EXPECT_THAT(options.compile, IsEmpty());
}

TEST(Options, StatesAndWarmup) {
  Options options = parseOptions(
      {"p.so", "--state", "past=present", "--state", "k=v", "--repeat", "5"});
  EXPECT_EQ(options.states.size(), 2u);
  EXPECT_EQ(options.states[1].second, "v");
  EXPECT_EQ(options.warmup, 0) << "a warm-up step would change the state";
  EXPECT_EQ(parseOptions({"p.so"}).warmup, 0);
}

TEST(Options, Errors) {
  EXPECT_THAT(errorOf({}), HasSubstr("no PROGRAM"));
  EXPECT_THAT(errorOf({"a.so", "b.so"}), HasSubstr("one PROGRAM at a time"));
  EXPECT_THAT(errorOf({"a.so", "-n", "0"}), HasSubstr("--ranks"));
  EXPECT_THAT(errorOf({"a.so", "-n", "x"}), HasSubstr("--ranks"));
  EXPECT_THAT(errorOf({"a.so", "-z"}), HasSubstr("-z"));
  EXPECT_THAT(errorOf({"a.so", "--tp"}), HasSubstr("--tp needs a value"));
  EXPECT_THAT(errorOf({"a.so", "--input", "x"}), HasSubstr("NAME=FILE"));
  EXPECT_THAT(errorOf({"a.so", "--state", "=x"}), HasSubstr("INPUT=OUTPUT"));
  EXPECT_THAT(errorOf({"a.so", "--repeat", "0"}), HasSubstr("--repeat"));
  EXPECT_THAT(errorOf({"a.so", "--rtol", "-1"}), HasSubstr("--rtol"));
}

TEST(Options, MeshErrors) {
  auto mesh = [](const char *text) {
    try {
      meshSize(parseOptions({"m.onnx", "--mesh", text}));
    } catch (const Error &error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(mesh("dp=2"), "no error");
  EXPECT_THAT(mesh("dp"), HasSubstr("NAME=SIZE"));
  EXPECT_THAT(mesh("dp=0"), HasSubstr("'0' is not a positive number"));
  EXPECT_THAT(mesh("dp=2x"), HasSubstr("'2x'"));
  EXPECT_THAT(mesh("a=9999,b=9999"), HasSubstr("more than 65536"));
  EXPECT_EQ(meshSize(parseOptions({"m.onnx", "--tp=2", "--dp", "3"})), 6);
  EXPECT_EQ(meshSize(parseOptions({"m.onnx"})), 0);
}

TEST(Options, HelpAndVersion) {
  EXPECT_THAT(parseOptions({"--help"}).answer, HasSubstr("Exit codes"));
  EXPECT_THAT(parseOptions({"--version"}).answer, HasSubstr("artefact ABI 1"));
  EXPECT_TRUE(parseOptions({"--env"}).env);
}

} // namespace
