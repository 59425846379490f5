//===- FamilyNumbers.h - What members differ in -----------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Numbers, and texts with numbers, of the members of a program with bounded
// dimensions (common/Family.h): as polynomials of the dimensions.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_FAMILYNUMBERS_H
#define CONCORD_PASSES_COMMON_FAMILYNUMBERS_H

#include "common/Family.h"

#include "mlir/IR/Diagnostics.h"

#include <map>
#include <optional>

namespace concord {

/// How the names of comm-outline's functions begin: they get the table of sizes
/// from their callers.
inline constexpr llvm::StringLiteral kNestName = "concord_nest";

/// An error at `op`: what cannot become one, and what to do about it.
mlir::InFlightDiagnostic refuse(const FamilyMembers &members,
                                mlir::Operation *op, const llvm::Twine &what);

/// Extents by the values that they have in the members.
class Fits {
public:
  explicit Fits(const FamilyMembers &members) : members(members) {}
  /// Null when the values are no polynomial.
  const Extent *operator()(const std::vector<int64_t> &values);

private:
  const FamilyMembers &members;
  std::map<std::vector<int64_t>, std::optional<Extent>> known;
};

/// One text for all members, with extents in braces; none where they differ in
/// more than numbers, or in numbers that are no polynomial.
std::optional<std::string> mergeText(const std::vector<std::string> &texts,
                                     Fits &fits);

/// What a kernel needs within the bounds.
struct Need {
  uint64_t workspace = 0, packed = 0;
  std::string error;
};

/// Makes kernels of a description at many sizes.
class Needs {
public:
  explicit Needs(const FamilyMembers &members)
      : points(onnx::trialPoints(members.dims, 512)), members(members) {}
  const Need &operator()(const std::string &text);

private:
  std::vector<std::vector<int64_t>> points;
  const FamilyMembers &members;
  std::map<std::string, Need> known;
};

/// The operations of one kind in every member, as many in each; else an error.
template <typename OpTy>
mlir::LogicalResult collect(const FamilyMembers &members,
                            std::vector<llvm::SmallVector<OpTy>> &lists) {
  lists.resize(members.modules.size());
  for (auto [k, module] : llvm::enumerate(members.modules)) {
    auto &list = lists[k];
    mlir::ModuleOp(module).walk([&](OpTy op) { list.push_back(op); });
    if (list.size() == lists[0].size())
      continue;
    size_t at = std::min(list.size(), lists[0].size());
    mlir::Operation *op =
        at < list.size() ? list[at].getOperation()
        : at < lists[0].size()
            ? lists[0][at].getOperation()
            : mlir::ModuleOp(members.modules[0]).getOperation();
    return refuse(members, op,
                  "the program does not have the same operations at all sizes");
  }
  return mlir::success();
}

} // namespace concord

#endif // CONCORD_PASSES_COMMON_FAMILYNUMBERS_H
