//===- Communicated.h - What programs have in one collective ----*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ranks of one program have a buffer at one offset by construction. Where the
// members of a collective run several programs, `comm-plan-workspace` says of
// each of its buffers whether that is so, and `comm-verify-workspace` checks
// it.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_COMMUNICATED_H
#define CONCORD_PASSES_COMMON_COMMUNICATED_H

#include "comm/Comm.h"

#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <vector>

namespace concord {

/// On an issue that members run in several programs: for each of its buffers
/// (inputs, then outputs) whether it lies at one offset of the arena on all
/// members. Where it does not, the plan table has each program's offset.
inline constexpr llvm::StringLiteral kSymmetric = "symmetric";

/// The buffers of an issue in the order of the plan table: inputs, then
/// outputs; all operands of one that is one with a kernel.
llvm::SmallVector<mlir::Value> issueBuffers(comm::CollectiveOpInterface op);

/// A collective of several programs: its issue in each, in their order.
struct SharedIssue {
  struct Part {
    uint32_t program; ///< of the module's, in order
    comm::CollectiveOpInterface op;
  };
  std::vector<Part> parts;
};

/// Which issues of the module's programs are one operation, by the order that
/// comm-verify-order proves. `proven` is false where there is none; each issue
/// on a domain that several programs use is alone then.
mlir::FailureOr<std::vector<SharedIssue>> sharedIssues(mlir::ModuleOp module,
                                                       bool &proven);

/// What a buffer is a view of, and where in it.
struct BufferPlace {
  mlir::Value root;
  int64_t offset = 0;
  bool operator==(const BufferPlace &) const = default;
};
/// Follows views without strides, and loops and branches that hand on one
/// buffer. Nothing where the place is only known at run time.
std::optional<BufferPlace> placeOf(mlir::Value buffer);
/// The byte of its program's arena where a buffer begins; nothing where it lies
/// elsewhere, or its place is not known.
std::optional<int64_t> arenaOffset(mlir::Value buffer);

} // namespace concord

#endif // CONCORD_PASSES_COMMON_COMMUNICATED_H
