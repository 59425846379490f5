//===- Issues.h - Collectives in tensor form, taken apart -------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the passes that rewrite collectives share: one view of a synchronous
// operation and of a start with its wait; building one like another; and the
// elementwise operations and slices around them, be they linalg and tensor
// operations or opaque compute of a foreign graph.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_ISSUES_H
#define CONCORD_PASSES_COMMON_ISSUES_H

#include "comm/Comm.h"
#include "common/RankValues.h"

#include "mlir/IR/Builders.h"

#include <optional>

namespace concord {

/// One collective on tensors: a synchronous operation, or a start whose one
/// wait is in the same block.
struct IssueView {
  comm::CollectiveOpInterface op;
  comm::WaitOp wait; ///< null: synchronous
  mlir::Value result;

  comm::CollectiveKind kind() { return op.getCollectiveKind(); }
  mlir::Value input() { return op.getCollectiveInput(); }
  mlir::RankedTensorType inputType() {
    return mlir::cast<mlir::RankedTensorType>(input().getType());
  }
  mlir::RankedTensorType type() {
    return mlir::cast<mlir::RankedTensorType>(result.getType());
  }
  /// The operation whose result the collective's is.
  mlir::Operation *last() { return wait ? wait.getOperation() : op; }
  comm::DomainOp domain() {
    return comm::lookupDomain(op, op.getCollectiveDomain());
  }
};

/// The view of `op`; nothing for sends, receives, barriers, memrefs, and starts
/// that are waited for elsewhere.
std::optional<IssueView> viewIssue(comm::CollectiveOpInterface op);
/// The view whose result is `value`.
std::optional<IssueView> viewIssueOf(mlir::Value value);

/// What a collective is, apart from its data.
struct IssueForm {
  comm::CollectiveKind kind = comm::CollectiveKind::all_reduce;
  mlir::FlatSymbolRefAttr domain;
  comm::ReductionKind reduction = comm::ReductionKind::none;
  int64_t dim = -1; ///< of all_gather, reduce_scatter, scatter, gather
  int64_t root = -1;
};
/// An operation of that form where `like` is: synchronous, or started and
/// waited for where `like` is. Keeps discardable attributes (lane, slot) but
/// for `site`. `input` must be defined before `like.op`. Supports all_reduce,
/// all_gather, reduce_scatter and broadcast.
IssueView buildIssue(IssueView like, const IssueForm &form, mlir::Value input,
                     mlir::RankedTensorType type);
/// The same operation on other data.
IssueView cloneIssue(IssueView like, mlir::Value input,
                     mlir::RankedTensorType type);
/// Takes the operations away; nothing may use the result any more.
void eraseIssue(IssueView view);

/// Bytes of a static tensor, and of the array that a cost is said of: the
/// larger of what goes in and what comes out.
uint64_t tensorBytes(mlir::Type type);
uint64_t wholeBytes(IssueView view);

//===----------------------------------------------------------------------===//
// Elementwise operations
//===----------------------------------------------------------------------===//

enum class Elementwise { None, Add, Sub, Mul, Max, Min, And, Or };

/// What an operation with one result does to two operands of its own type, or
/// None. Half precision that is computed in f32 and rounded once counts.
Elementwise matchBinary(mlir::Operation *op, mlir::Value &left,
                        mlir::Value &right);
/// The operand whose elements `op` converts to another type, or null.
mlir::Value matchConvert(mlir::Operation *op);
/// The same elementwise operation on other operands, all of `shape`.
mlir::Value cloneElementwise(mlir::OpBuilder &builder, mlir::Operation *op,
                             mlir::ValueRange operands,
                             llvm::ArrayRef<int64_t> shape);
/// `value` times `factor`, elementwise; as opaque compute when `value` is of a
/// foreign graph. Null when the element type cannot hold the factor exactly.
mlir::Value multiply(mlir::OpBuilder &builder, mlir::Location loc,
                     mlir::Value value, int64_t factor, bool opaque);
/// Whether `value` comes from, or goes to, opaque compute.
bool isForeign(mlir::Value value);

//===----------------------------------------------------------------------===//
// Slices and reshapes
//===----------------------------------------------------------------------===//

/// A dense part of a tensor: tensor.extract_slice, or HLO's slice and
/// dynamic-slice.
struct SliceView {
  mlir::Operation *op = nullptr;
  mlir::Value source, result;
  /// Where it begins, per dimension: an attribute or a scalar.
  llvm::SmallVector<mlir::OpFoldResult> offsets;
  llvm::ArrayRef<int64_t> sizes;
};
std::optional<SliceView> matchSlice(mlir::Operation *op);

/// The dimension along which `slice` takes block r of as many as the group has
/// members, on group rank r, everything else whole; -1 when it does not.
int64_t ownShardDim(const SliceView &slice, comm::DomainOp domain,
                    RankValues &values);
/// The dimension and block number when it is the same block on all ranks.
std::optional<std::pair<int64_t, int64_t>>
fixedBlock(const SliceView &slice, int64_t blocks, RankValues &values);

/// Whether `op` keeps all elements in row-major order.
bool isReshape(mlir::Operation *op);
/// `value` in another shape of as many elements.
mlir::Value reshapeTo(mlir::OpBuilder &builder, mlir::Location loc,
                      mlir::Value value, llvm::ArrayRef<int64_t> shape);

} // namespace concord

#endif // CONCORD_PASSES_COMMON_ISSUES_H
