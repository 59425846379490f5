//===- CompileTest.cpp - Tests of comm-run's compile step ----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The cache key changes with everything the result depends on; what kind of
// program a file is; the compiler's arguments.
//
//===----------------------------------------------------------------------===//

#include "Compile.h"

#include "common/Files.h"
#include "concord/cost/Machine.h"

#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fs = std::filesystem;
using namespace concord::tools;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

class CompileTest : public ::testing::Test {
protected:
  void SetUp() override {
    dir = makePrivateDir(fs::temp_directory_path(), "compile-");
    writeFile(dir / "comm-opt", "the compiler");
    writeFile(dir / "m.onnx", "a model");
  }
  void TearDown() override { fs::remove_all(dir); }

  std::string key(const std::string &name = "m.onnx",
                  std::vector<std::string> arguments = {"--tp=2"}) {
    return cacheKey(dir / name, 2, arguments, dir / "comm-opt");
  }

  fs::path dir;
};

TEST_F(CompileTest, KeyIsByContent) {
  std::string first = key();
  EXPECT_EQ(first.size(), 64u);
  EXPECT_EQ(key(), first);
  fs::last_write_time(dir / "m.onnx",
                      fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(key(), first) << "the same content at another time";
  writeFile(dir / "m.onnx", "A model");
  EXPECT_NE(key(), first);
}

TEST_F(CompileTest, KeyCoversOptionsAndCompiler) {
  std::string first = key();
  EXPECT_NE(key("m.onnx", {"--tp=4"}), first);
  EXPECT_NE(key("m.onnx", {"--tp", "=2"}), key("m.onnx", {"--tp=", "2"}));
  fs::last_write_time(dir / "comm-opt",
                      fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_NE(key(), first);
}

TEST_F(CompileTest, KeyCoversFilesThatOptionsName) {
  writeFile(dir / "c.pb", "1");
  std::vector<std::string> joined = {"--const=x=" + (dir / "c.pb").string()};
  std::vector<std::string> apart = {"--const", "x=" + (dir / "c.pb").string()};
  std::string first = key("m.onnx", joined), second = key("m.onnx", apart);
  writeFile(dir / "c.pb", "2");
  EXPECT_NE(key("m.onnx", joined), first);
  EXPECT_NE(key("m.onnx", apart), second);
}

TEST_F(CompileTest, KeyCoversTheCalibration) {
  const char *had = std::getenv("XDG_CACHE_HOME");
  std::string before = had ? had : "";
  ::setenv("XDG_CACHE_HOME", dir.c_str(), 1);
  std::string without = key();
  fs::create_directory(dir / "concord");
  writeFile(concord::cost::defaultCalibrationPath(), "one");
  std::string first = key();
  writeFile(concord::cost::defaultCalibrationPath(), "another");
  std::string second = key();
  had ? ::setenv("XDG_CACHE_HOME", before.c_str(), 1)
      : ::unsetenv("XDG_CACHE_HOME");
  EXPECT_NE(first, without);
  EXPECT_NE(second, first);
}

TEST_F(CompileTest, KeyCoversExternalData) {
  std::string entry("\x0a\x08location\x12\x06w.data", 18);
  writeFile(dir / "m.onnx", "start" + entry + "end");
  std::string without = key();
  writeFile(dir / "w.data", "weights");
  std::string with = key();
  EXPECT_NE(with, without);
  writeFile(dir / "w.data", "more weights");
  EXPECT_NE(key(), with);
}

TEST_F(CompileTest, KeyCoversWeightsOfMlir) {
  writeFile(dir / "p.mlir", "module {}");
  std::string without = key("p.mlir");
  writeFile(dir / "p.weights", "w");
  EXPECT_NE(key("p.mlir"), without);
}

TEST_F(CompileTest, KeyCoversEveryRanksModel) {
  writeFile(dir / "r_0.onnx", "0");
  writeFile(dir / "r_1.onnx", "1");
  std::string first = key("r_{rank}.onnx");
  writeFile(dir / "r_1.onnx", "2");
  EXPECT_NE(key("r_{rank}.onnx"), first);
}

TEST(ExternalData, ScanIsBounded) {
  auto scan = [](std::string_view text) {
    return externalDataNames(
        std::as_bytes(std::span(text.data(), text.size())));
  };
  std::string entry("\x0a\x08location\x12\x03", 12);
  EXPECT_THAT(scan("x" + entry + "abcd" + entry + "efg"),
              ElementsAre("abc", "efg"));
  EXPECT_TRUE(scan(entry).empty());
  EXPECT_TRUE(scan(entry + "ab").empty());
  EXPECT_TRUE(scan(std::string("\x0a\x08location\x12\xff\xff\xff\xff\xff", 16))
                  .empty());
  EXPECT_TRUE(scan("").empty());
}

TEST_F(CompileTest, Classify) {
  writeFile(
      dir / "a.mlir",
      "module @m attributes {comm.abi = 1 : i32, comm.world = 4 : i64} {}");
  Source partitioned = classify(dir / "a.mlir");
  EXPECT_EQ(partitioned.kind, Source::Kind::Partitioned);
  EXPECT_EQ(partitioned.world, 4);
  writeFile(dir / "b.mlir", "module attributes {comm.world = 1 : i64} {}");
  EXPECT_EQ(classify(dir / "b.mlir").kind, Source::Kind::Model);
  writeFile(dir / "c.mlir", "module {}");
  EXPECT_EQ(classify(dir / "c.mlir").kind, Source::Kind::Model);
  EXPECT_EQ(classify(dir / "m.onnx").kind, Source::Kind::Model);
  writeFile(dir / "p", "\x7f"
                       "ELF...");
  EXPECT_EQ(classify(dir / "p").kind, Source::Kind::Artefact);
  EXPECT_EQ(classify("m_{rank}.onnx").kind, Source::Kind::PerRankModels);
  EXPECT_THROW(classify(dir / "none.onnx"), Error);
  EXPECT_THROW(classify(dir), Error);
}

TEST(CompileArguments, RanksBecomeTp) {
  Options options = parseOptions({"m.onnx", "-n", "4"});
  EXPECT_THAT(compileArguments(options, {Source::Kind::Model}),
              ElementsAre("--tp=4", "--comm-pipeline", "--emit=so"));
  EXPECT_THAT(compileArguments(options, {Source::Kind::Partitioned, 4}),
              ElementsAre("--comm-pipeline", "--emit=so"));
  EXPECT_THAT(compileArguments(options, {Source::Kind::PerRankModels}),
              ElementsAre("--world=4", "--comm-pipeline", "--emit=so"));
  options =
      parseOptions({"m.onnx", "-n", "4", "--dp=4", "--comm-pipeline=fuse=0"});
  EXPECT_THAT(compileArguments(options, {Source::Kind::Model}),
              ElementsAre("--dp=4", "--comm-pipeline=fuse=0", "--emit=so"));
  options = parseOptions({"m.onnx", "-n", "1"});
  EXPECT_THAT(compileArguments(options, {Source::Kind::Model}),
              ElementsAre("--comm-pipeline", "--emit=so"));
}

TEST_F(CompileTest, WrongNumberOfRanksIsSaidBeforeCompiling) {
  auto errorOf = [&](std::vector<std::string> arguments) {
    try {
      obtainArtefact(parseOptions(std::move(arguments)));
    } catch (const Error &error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  writeFile(dir / "a.mlir", "module attributes {comm.world = 4 : i64} {}");
  EXPECT_THAT(errorOf({dir / "a.mlir", "-n", "2"}),
              HasSubstr("was partitioned for 4 ranks, but -n asks for 2"));
  EXPECT_THAT(errorOf({dir / "m.onnx", "-n", "2", "--mesh=tp=4"}),
              HasSubstr("has 4 ranks, but -n asks for 2"));
  EXPECT_THAT(errorOf({dir / "m_{rank}.onnx"}), HasSubstr("needs -n N"));
  writeFile(dir / "p.so", "\x7f"
                          "ELF");
  EXPECT_THAT(errorOf({dir / "p.so", "--tp=2"}),
              HasSubstr("compiled already, so '--tp=2' cannot be applied"));
}

} // namespace
