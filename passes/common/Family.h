//===- Family.h - One program from its members ------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A model with bounded dimensions is compiled as a few members of static shape
// (concord/onnx/Family.h), which are the same program but for numbers. Here the
// members become one program: numbers that differ are read from a table that
// the runtime fills from polynomials when a shape is bound.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_FAMILY_H
#define CONCORD_PASSES_COMMON_FAMILY_H

#include "concord/onnx/Family.h"
#include "concord/plan.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace concord {

/// Marks a member until its buffers have the sizes that they need at most:
/// comm-plan-workspace leaves it alone.
inline constexpr llvm::StringLiteral kSizesPending = "comm.sizes_pending";
/// Asks for a member to be lowered as soon as its buffers have their sizes.
inline constexpr llvm::StringLiteral kToLower = "comm.to_lower";
/// The bounded dimensions, [name, least, greatest] each; on members.
inline constexpr llvm::StringLiteral kDims = "comm.dims";
/// On a buffer: bytes that it has at most.
inline constexpr llvm::StringLiteral kMaxBytes = "comm.max_bytes";

struct FamilyMembers {
  std::vector<onnx::BoundedDim> dims;
  std::vector<std::vector<int64_t>> points; ///< sizes of the dimensions
  mlir::SmallVector<mlir::ModuleOp> modules;
};

/// Gives every buffer of the bufferized members the size that it has at most
/// within the bounds, workspace of kernels too, and takes `kSizesPending` off.
mlir::LogicalResult shareBufferSizes(const FamilyMembers &members);

/// The plan of the whole family: counts and buffers at their maximum.
mlir::FailureOr<plan::Plan> mergePlans(const FamilyMembers &members,
                                       std::vector<plan::Plan> plans);

/// Makes the first of the lowered members the program of the family.
mlir::LogicalResult mergeLowered(const FamilyMembers &members);

} // namespace concord

#endif // CONCORD_PASSES_COMMON_FAMILY_H
