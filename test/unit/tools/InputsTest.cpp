//===- InputsTest.cpp - Tests of comm-run's inputs -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every way to give an input, and every way to give a wrong one.
//
//===----------------------------------------------------------------------===//

#include "Inputs.h"

#include "common/Files.h"
#include "common/Npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fs = std::filesystem;
using namespace concord;
using namespace concord::tools;
using ::testing::HasSubstr;
using Kind = InputSource::Kind;

namespace {

ProgramMeta program() {
  return parseMeta(R"({"abi":1,"name":"m","world":2,"mesh":[["tp",2]],
    "inputs":[
     {"name":"x","dtype":"F32","shape":[2,4],"sharding":{"kind":"replicated"}},
     {"name":"a=b@1","dtype":"I64","shape":[2],"sharding":{"kind":"replicated"}},
     {"name":"r","dtype":"I32","shape":[3],"sharding":{"kind":"per_rank"}},
     {"name":"past","dtype":"F32","shape":[4],"sharding":
       {"kind":"split","splits":[{"dim":0,"axis":"tp"}]}}],
    "outputs":[
     {"name":"present","dtype":"F32","shape":[4],"sharding":
       {"kind":"split","splits":[{"dim":0,"axis":"tp"}]}},
     {"name":"whole","dtype":"F32","shape":[4],"sharding":{"kind":"replicated"}}
    ]})",
                   "m.so");
}

std::vector<InputSources> resolve(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "m.so");
  return resolveInputs(parseOptions(std::move(arguments)), program());
}

std::string errorOf(std::vector<std::string> arguments) {
  try {
    resolve(std::move(arguments));
  } catch (const Error &error) {
    return error.what();
  }
  return "no error";
}

TEST(Inputs, EveryForm) {
  auto sources = resolve({"--input", "x=fill:1.5", "--input",
                          "a=b@1=range:5..9", "--input", "r@1=dir=/f.npy"});
  EXPECT_EQ(sources[0][0].kind, Kind::Fill);
  EXPECT_EQ(sources[0][0].value, 1.5);
  EXPECT_EQ(sources[1][0].kind, Kind::Range);
  EXPECT_EQ(sources[1][0].high, 9);
  ASSERT_EQ(sources[2].size(), 2u);
  EXPECT_EQ(sources[2][0].kind, Kind::Drawn);
  EXPECT_EQ(sources[2][1].kind, Kind::File);
  EXPECT_EQ(sources[2][1].file, "dir=/f.npy");
  EXPECT_EQ(sources[3][0].kind, Kind::Drawn);
  // Without @ a per-rank input is the same for every rank.
  sources = resolve({"--input", "r=f.npy"});
  EXPECT_EQ(sources[2][0].file, "f.npy");
  EXPECT_EQ(sources[2][1].file, "f.npy");
}

TEST(Inputs, Errors) {
  EXPECT_THAT(errorOf({"--input", "z=f.npy"}),
              HasSubstr("no such input; its inputs are 'x', 'a=b@1', 'r'"));
  EXPECT_THAT(errorOf({"--input", "x@0=f.npy"}),
              HasSubstr("one tensor for all ranks; give it without @0"));
  EXPECT_THAT(errorOf({"--input", "r@2=f.npy"}),
              HasSubstr("there are 2 ranks, 0 to 1"));
  EXPECT_THAT(errorOf({"--input", "x=a.npy", "--input", "x=b.npy"}),
              HasSubstr("'x' is given twice"));
  EXPECT_THAT(errorOf({"--input", "r=a.npy", "--input", "r@0=b.npy"}),
              HasSubstr("given twice"));
  EXPECT_THAT(errorOf({"--input", "x=range:0..4"}),
              HasSubstr("'x' is F32; range: draws integers"));
  EXPECT_THAT(errorOf({"--input", "r=range:4..4"}),
              HasSubstr("LOW below HIGH"));
  EXPECT_THAT(errorOf({"--input", "x=fill:one"}),
              HasSubstr("'one' is not a number"));
}

TEST(Inputs, States) {
  auto sources = resolve({"--state", "past=present"});
  EXPECT_EQ(sources[3][0].kind, Kind::Zero);
  sources = resolve({"--state", "past=present", "--input", "past=f.npy"});
  EXPECT_EQ(sources[3][0].kind, Kind::File);
  EXPECT_THAT(errorOf({"--state", "past=whole"}),
              HasSubstr("split differently over the ranks"));
  EXPECT_THAT(errorOf({"--state", "x=present"}),
              HasSubstr("the input is F32 [2, 4], the output F32 [4]"));
  EXPECT_THAT(
      errorOf({"--state", "past=none"}),
      HasSubstr("no output 'none'; its outputs are 'present', 'whole'"));
  EXPECT_THAT(errorOf({"--state", "none=present"}), HasSubstr("no input"));
  EXPECT_THAT(errorOf({"--state", "past=present", "--state", "past=present"}),
              HasSubstr("another --state"));
}

TEST(Inputs, Directory) {
  fs::path dir = makePrivateDir(fs::temp_directory_path(), "inputs-");
  EXPECT_THAT(errorOf({"--input-dir", dir}),
              HasSubstr("has a file for none of the inputs"));
  writeFile(dir / "x.npy", "");
  writeFile(dir / "input_3.pb", "");
  writeFile(dir / "r@1.npy", "");
  auto sources = resolve({"--input-dir", dir, "--input", "x=fill:0"});
  EXPECT_EQ(sources[0][0].kind, Kind::Fill) << "--input goes first";
  EXPECT_EQ(sources[1][0].kind, Kind::Drawn);
  EXPECT_EQ(sources[2][0].kind, Kind::Drawn);
  EXPECT_EQ(sources[2][1].file, dir / "r@1.npy");
  EXPECT_EQ(sources[3][0].file, dir / "input_3.pb");
  fs::remove_all(dir);
}

TEST(Inputs, MadeTensors) {
  ProgramMeta meta = program();
  HostTensor ones = makeInput(meta.inputs[0], {Kind::Fill, "", 1}, 0, 0);
  EXPECT_EQ(ones.shape, (Shape{2, 4}));
  EXPECT_EQ(elementAt(ones.dtype, ones.bytes, 7), 1);
  // Each input, each seed and, where it is per rank, each rank has its own
  // data.
  HostTensor a = makeInput(meta.inputs[0], {}, 0, 0);
  EXPECT_EQ(a.bytes, makeInput(meta.inputs[0], {}, 0, 0).bytes);
  EXPECT_NE(a.bytes, makeInput(meta.inputs[0], {}, 1, 0).bytes);
  InputSource wide{Kind::Range, "", 0, 0, 1000000};
  EXPECT_NE(makeInput(meta.inputs[2], wide, 0, 0).bytes,
            makeInput(meta.inputs[2], wide, 0, 1).bytes);
}

} // namespace
