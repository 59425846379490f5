//===- CompareTest.cpp - Tests of common/Compare.h and TensorFile.h ------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Tolerances, values that are not finite, and files that do not fit.
//
//===----------------------------------------------------------------------===//

#include "common/Compare.h"
#include "common/Files.h"
#include "common/Npy.h"
#include "common/TensorFile.h"
#ifdef CONCORD_TOOLS_HAVE_ONNX
#include "concord/onnx/Reader.h"
#endif

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

using namespace concord;
using namespace concord::tools;
using ::testing::HasSubstr;

namespace {

HostTensor tensorOf(DType dtype, std::vector<double> values) {
  HostTensor tensor{dtype, {static_cast<int64_t>(values.size())}, {}};
  tensor.bytes.resize(values.size() * dtypeSize(dtype));
  for (size_t i = 0; i < values.size(); ++i)
    setElement(dtype, tensor.bytes, i, values[i]);
  return tensor;
}

TEST(Compare, Tolerances) {
  HostTensor expected = tensorOf(DType::F32, {1, 100, 0});
  EXPECT_TRUE(compare(expected, expected, 0, 0).ok);
  HostTensor got = tensorOf(DType::F32, {1.0625, 100, 0});
  EXPECT_TRUE(compare(got, expected, 0.0625, 0).ok);
  Comparison off = compare(got, expected, 0.06, 0);
  EXPECT_FALSE(off.ok);
  EXPECT_EQ(off.worst, 0u);
  EXPECT_EQ(off.wrong, 1u);
  EXPECT_EQ(off.maxAbsError, 0.0625);
  EXPECT_EQ(off.got, 1.0625);
  EXPECT_TRUE(compare(got, expected, 0, 0.0625).ok);
}

TEST(Compare, WorstIsByExcessNotByError) {
  // 100.5 against 100 is within 1 %; 0.1 against 0 is not.
  Comparison result = compare(tensorOf(DType::F64, {100.5, 0.1}),
                              tensorOf(DType::F64, {100, 0}), 0.01, 1e-3);
  EXPECT_EQ(result.worst, 1u);
  EXPECT_EQ(result.maxAbsError, 0.5);
  EXPECT_EQ(result.wrong, 1u);
}

TEST(Compare, NotFinite) {
  double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  HostTensor a = tensorOf(DType::F32, {nan, inf, -inf, 1});
  EXPECT_TRUE(compare(a, a, 0, 0).ok);
  EXPECT_EQ(compare(tensorOf(DType::F32, {1, -inf, inf, nan}), a, 1, 1).wrong,
            4u);
}

TEST(Compare, IntegersAreExact) {
  HostTensor a{DType::I64, {1}, std::vector<std::byte>(8)};
  HostTensor b = a;
  // 2^62 and 2^62 + 1 are one number in double.
  a.bytes[7] = b.bytes[7] = std::byte(0x40);
  b.bytes[0] = std::byte(1);
  EXPECT_FALSE(compare(a, b, 0, 0.5).ok);
  EXPECT_TRUE(compare(a, b, 0, 1).ok);
}

TEST(Compare, TypesAndShapes) {
  HostTensor f32 = tensorOf(DType::F32, {1}), f64 = tensorOf(DType::F64, {1});
  EXPECT_TRUE(compare(f32, f64, 0, 0).ok);
  EXPECT_THAT(compare(f32, tensorOf(DType::I32, {1}), 0, 0).problem,
              HasSubstr("dtype F32, expected I32"));
  EXPECT_THAT(compare(f32, tensorOf(DType::F32, {1, 2}), 0, 0).problem,
              HasSubstr("shape [1], expected [2]"));
  // BF16 is stored as U16 in .npy files.
  HostTensor bf16 = tensorOf(DType::BF16, {1.5});
  HostTensor stored = bf16;
  stored.dtype = DType::U16;
  Comparison same = compare(bf16, stored, 0, 0);
  EXPECT_TRUE(same.ok);
  EXPECT_EQ(same.expected, 1.5);
}

TEST(TensorFile, ChecksAgainstWhatIsWanted) {
  std::filesystem::path dir =
      makePrivateDir(std::filesystem::temp_directory_path(), "tensor-");
  auto errorOf = [&](const char *file, DType dtype, Shape shape) {
    try {
      readTensorFile(dir / file, dtype, shape, "input 'x'");
    } catch (const Error &error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  writeNpy(dir / "a.npy", tensorOf(DType::F32, {1, 2}));
  writeFile(dir / "a.raw", "12345678");
  writeFile(dir / "a.txt", "12345678");
  EXPECT_EQ(errorOf("a.npy", DType::F32, {2}), "no error");
  EXPECT_THAT(errorOf("a.npy", DType::F64, {2}),
              HasSubstr("a.npy: dtype F32, but input 'x' is F64 [2]"));
  EXPECT_THAT(errorOf("a.npy", DType::F32, {1, 2}),
              HasSubstr("a.npy: shape [2], but input 'x' is F32 [1, 2]"));
  EXPECT_EQ(errorOf("a.raw", DType::I64, {1}), "no error");
  EXPECT_THAT(errorOf("a.raw", DType::I64, {2}), HasSubstr("needs 16"));
  EXPECT_THAT(errorOf("a.txt", DType::I64, {1}), HasSubstr(".npy, .pb"));
  EXPECT_THAT(errorOf("none.npy", DType::I64, {1}), HasSubstr("cannot open"));
  std::filesystem::remove_all(dir);
}

#ifdef CONCORD_TOOLS_HAVE_ONNX
TEST(TensorFile, TensorProto) {
  std::filesystem::path dir =
      makePrivateDir(std::filesystem::temp_directory_path(), "tensor-");
  HostTensor wanted = drawTensor(DType::BF16, {2, 3}, 1);
  onnx::Tensor proto = onnx::Tensor::allocate({DType::BF16, {2, 3}});
  std::copy(wanted.bytes.begin(), wanted.bytes.end(),
            proto.mutableBytes().begin());
  onnx::writeTensorProto((dir / "input_0.pb").string(), "x", proto);
  HostTensor got =
      readTensorFile(dir / "input_0.pb", DType::BF16, {2, 3}, "input 'x'");
  EXPECT_EQ(got.bytes, wanted.bytes);
  try {
    readTensorFile(dir / "input_0.pb", DType::F32, {2, 3}, "input 'x'");
    ADD_FAILURE() << "another dtype was taken";
  } catch (const Error &error) {
    EXPECT_THAT(error.what(), HasSubstr("dtype BF16, but input 'x' is F32"));
  }
  writeFile(dir / "bad.pb", std::string("\x0a\xff\xff\xff\xff\x0f", 6));
  EXPECT_THROW(readTensorFile(dir / "bad.pb"), Error);
  std::filesystem::remove_all(dir);
}
#endif

} // namespace
