//===- MetaTest.cpp - Tests of common/ProgramMeta.h ----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Good metadata, and each thing that can be wrong with it.
//
//===----------------------------------------------------------------------===//

#include "common/ProgramMeta.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace concord;
using namespace concord::tools;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

const char *const kGood = R"({"abi":1,"phase":"lowered","name":"m","world":4,
 "mesh":[["dp",2],["tp",2]],"target_cpu":"x86-64-v3","digest":"00","weights":"",
 "arena_bytes":64,"arena_align":64,
 "inputs":[{"name":"x","dtype":"F32","shape":[4,6],
   "dims":[["4","4"],["1","6"]],
   "sharding":{"kind":"split","splits":[{"dim":0,"axis":"dp","outer":1},
                                        {"dim":1,"axis":"tp","outer":3}]},
   "local_shape":[2,3],"arena_offset":-1}],
 "outputs":[{"name":"y","dtype":"I64","shape":[],
   "sharding":{"kind":"replicated"},"local_shape":[]}],
 "parameters":[{"section":"w#0","bytes":10,"hash":""}],
 "kernels":0,"gate":"check","assumes":["a"]})";

std::string with(std::string_view from, std::string_view to) {
  std::string text = kGood;
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string errorOf(const std::string &text) {
  try {
    parseMeta(text, "p.so");
  } catch (const Error &error) {
    return error.what();
  }
  return "no error";
}

TEST(Meta, ReadsEverything) {
  ProgramMeta meta = parseMeta(std::string(kGood) + '\0', "p.so");
  EXPECT_EQ(meta.world, 4);
  EXPECT_EQ(meta.targetCpu, "x86-64-v3");
  EXPECT_EQ(meta.arenaBytes, 64u);
  EXPECT_EQ(meta.parameterBytes, 10u);
  ASSERT_EQ(meta.inputs.size(), 1u);
  const Entry &x = meta.inputs[0];
  EXPECT_EQ(x.dtype, DType::F32);
  EXPECT_THAT(x.localShape, ElementsAre(2, 3));
  EXPECT_EQ(x.splits[1].axis, 1u);
  EXPECT_EQ(x.splits[1].outer, 3);
  EXPECT_EQ(x.bounds[1].second, 6);
  EXPECT_THAT(meta.coordinates(1), ElementsAre(0, 1));
  EXPECT_THAT(meta.coordinates(2), ElementsAre(1, 0));
}

TEST(Meta, SaysWhatIsWrong) {
  EXPECT_THAT(errorOf("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(errorOf(with("\"abi\":1", "\"abi\":2")),
              HasSubstr("ABI 2, this comm-run knows ABI 1"));
  EXPECT_THAT(errorOf(with("\"world\":4", "\"world\":8")),
              HasSubstr("4 ranks, 'world' is 8"));
  EXPECT_THAT(errorOf(with("\"world\":4", "\"world\":-4")),
              HasSubstr("'world' is -4"));
  EXPECT_THAT(errorOf(with("\"world\":4", "\"world\":18446744073709551615")),
              HasSubstr("out of range"));
  EXPECT_THAT(errorOf(with("[\"tp\",2]", "[\"dp\",2]")),
              HasSubstr("two axes 'dp'"));
  EXPECT_THAT(errorOf(with("\"axis\":\"tp\"", "\"axis\":\"zz\"")),
              HasSubstr("'zz'"));
  EXPECT_THAT(errorOf(with("\"axis\":\"tp\"", "\"axis\":\"dp\"")),
              HasSubstr("twice over 'dp'"));
  EXPECT_THAT(errorOf(with("\"outer\":3", "\"outer\":2")),
              HasSubstr("does not divide"));
  EXPECT_THAT(errorOf(with("\"local_shape\":[2,3]", "\"local_shape\":[2,2]")),
              HasSubstr("its sharding gives [2, 3]"));
  EXPECT_THAT(errorOf(with("\"dtype\":\"F32\"", "\"dtype\":\"F31\"")),
              HasSubstr("unknown dtype 'F31'"));
  EXPECT_THAT(errorOf(with("\"dim\":1", "\"dim\":2")),
              HasSubstr("dimension 2"));
  EXPECT_THAT(errorOf(with("\"weights\":\"\"", "\"weights\":\"../x\"")),
              HasSubstr("plain file name"));
  EXPECT_THAT(errorOf(with("\"shape\":[4,6]", "\"shape\":[4,-6]")),
              HasSubstr("is -6"));
  EXPECT_THAT(errorOf(with("\"kind\":\"replicated\"", "\"kind\":\"magic\"")),
              HasSubstr("unknown sharding 'magic'"));
}

TEST(Meta, DeepNestingIsNoStackOverflow) {
  EXPECT_THAT(errorOf(std::string(1 << 20, '[')), HasSubstr("JSON"));
}

} // namespace
