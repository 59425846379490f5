//===- Simplifier.h - Rewrites of collectives -------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_SIMPLIFY_SIMPLIFIER_H
#define CONCORD_PASSES_SIMPLIFY_SIMPLIFIER_H

#include "common/Choices.h"
#include "common/CommCost.h"
#include "common/Fences.h"
#include "common/Issues.h"
#include "common/Members.h"
#include "common/RankValues.h"
#include "common/Uniform.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>

namespace concord {

struct SimplifyOptions {
  bool exact = false;
};

/// Rewrites the collectives of one function until nothing changes.
class Simplifier {
public:
  Simplifier(mlir::ModuleOp module, mlir::func::FuncOp function,
             const SimplifyOptions &options, CommCost &cost, Choices &choices);
  void run();

  /// Collectives that went away, and rewrites done.
  int64_t removed = 0, rewritten = 0;

private:
  using Issue = IssueView;

  bool round();
  bool visit(Issue issue);
  // Simplify.cpp: what needs no other form of collective.
  bool removeDead(Issue issue);
  bool removeDuplicate(Issue issue);
  bool hoist(Issue issue);
  // Algebra.cpp
  bool reduceEqual(Issue issue);
  bool moveEqual(Issue issue);
  bool reduceThenSlice(Issue issue);
  bool gatherThenSlice(Issue issue);
  bool gatherOwnSlice(Issue issue);
  bool gatherScattered(Issue issue);
  bool narrowReduction(Issue issue);
  bool addTwo(Issue issue);
  bool narrowMoved(Issue issue);
  bool widenAfterMove(Issue issue);
  bool foldConstant(Issue issue);
  bool joinLevels(Issue issue);
  bool splitLevels(Issue issue);

  /// Empty when all members of the issue's groups run this very operation and
  /// agree to reach it; else the reason id.
  llvm::StringRef whyNotAll(Issue issue) { return members.whyNotAll(issue); }
  bool isFloat(Issue issue) {
    return mlir::isa<mlir::FloatType>(issue.inputType().getElementType());
  }
  double seconds(comm::CollectiveKind kind, double bytes, Issue issue) {
    return cost.seconds(kind, bytes, issue.domain());
  }
  /// A decision, printed with --explain; a refusal is printed once, when the
  /// function has its final form.
  void done(Issue issue, llvm::StringRef action, llvm::StringRef reason,
            const llvm::Twine &keys = "");
  bool refuse(Issue issue, llvm::StringRef action, llvm::StringRef reason,
              const llvm::Twine &keys = "");
  std::string keysOf(Issue issue);

  void replace(mlir::Value from, mlir::Value to);
  void erase(Issue issue);
  void erase(mlir::Operation *op);
  /// Tells the analyses where a new operation stands.
  IssueView made(Issue view, Issue like) {
    fences.like(view.op, like.op);
    if (view.wait)
      fences.like(view.wait, like.last());
    return view;
  }
  comm::DomainOp domainFor(llvm::ArrayRef<llvm::SmallVector<int64_t>> groups,
                           llvm::StringRef name);

  mlir::ModuleOp module;
  mlir::func::FuncOp function;
  SimplifyOptions options;
  CommCost &cost;
  Choices &choices;
  int64_t world;
  bool foreign;  ///< the module came from HLO
  bool explains; ///< somebody reads the reasons
  Equality equality;
  RankValues rankValues;
  Members members;
  Fences fences;
  /// This round's issues; an erased one is null.
  llvm::SmallVector<mlir::Operation *> issues;
  llvm::DenseMap<mlir::Operation *, size_t> indices;
  /// Numbers in `issues`, by hash.
  llvm::DenseMap<size_t, llvm::SmallVector<size_t, 1>> seen;
  struct Refusal {
    mlir::Location loc;
    std::string action, reason, keys;
  };
  std::vector<Refusal> refusals;
};

} // namespace concord

#endif // CONCORD_PASSES_SIMPLIFY_SIMPLIFIER_H
