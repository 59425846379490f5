//===- Cast.cpp - Conversions of dtype
//--------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Cast goes through the source's type of computation, which holds every value
// of the source exactly, so there is one rounding at most.
//
//===----------------------------------------------------------------------===//

#include "Plan.h"

#include <algorithm>
#include <cstring>

using namespace concord;
using namespace concord::kernels;
using namespace concord::kernels::onnx;

namespace {

/// Cast and CastLike; the target is the result's dtype.
Body buildCast(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &y = node.output(0);
  require(x.count == y.count, "the result has another size");
  std::string rounding = node.strAttr("round_mode", "up");
  require(rounding == "up" || rounding == "down" || rounding == "nearest",
          "unknown round_mode");
  bool saturate = node.intAttr("saturate", 1) != 0;
  DType from = x.dtype, to = y.dtype;
  int64_t count = x.count;
  return [=](const Run &r) {
    if (from == to) {
      if (count)
        std::memmove(r.out(0), r.in(0), size_t(count) * dtypeSize(from));
      return;
    }
    forNumbers(from, [&]<class T>() {
      constexpr int64_t kChunk = 512;
      T buffer[kChunk];
      for (int64_t at = 0; at < count; at += kChunk) {
        int64_t n = std::min(kChunk, count - at);
        loadAs(from, r.in(0) + at * int64_t(dtypeSize(from)), n, buffer);
        storeAs(buffer, n, to, r.out(0) + at * int64_t(dtypeSize(to)),
                saturate);
      }
    });
  };
}

Body buildBitCast(Plan &plan) {
  const TensorInfo &x = plan.node.input(0), &y = plan.node.output(0);
  require(x.bytes() == y.bytes() && x.elementSize() == y.elementSize(),
          "the result has another size");
  size_t bytes = size_t(x.bytes());
  return [=](const Run &r) {
    if (bytes)
      std::memmove(r.out(0), r.in(0), bytes);
  };
}

} // namespace

void onnx::addCast(OpTable &ops) {
  ops["cast"] = buildCast;
  ops["castlike"] = buildCast;
  ops["bitcast"] = buildBitCast;
}
