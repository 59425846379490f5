//===- Fused.h - onnxruntime's fused operators ------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ONNX_FUSED_H
#define CONCORD_ONNX_FUSED_H

#include "Wire.h"
#include "concord/onnx/OpRegistry.h"
#include "concord_onnx.pb.h"

#include <optional>

namespace concord::onnx::detail {

/// What one of the operators that onnxruntime's optimiser makes computes, as a
/// function of standard operators (each of which it was made from); none for
/// any other operator. The types of the operands in `view` must be known.
/// Throws Error for what has no standard counterpart.
std::optional<wire::Function> fusedFunction(const NodeView &view);

/// Whether `op` of the standard domain may have such a meaning.
bool isStandardFused(const std::string &op);

} // namespace concord::onnx::detail

#endif // CONCORD_ONNX_FUSED_H
