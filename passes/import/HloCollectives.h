//===- HloCollectives.h - Collectives of HLO as comm ops --------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_IMPORT_HLOCOLLECTIVES_H
#define CONCORD_PASSES_IMPORT_HLOCOLLECTIVES_H

#include "comm/Comm.h"
#include "concord/hlo/Module.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"

#include <map>
#include <optional>
#include <string>

namespace concord {

/// Custom calls that are known to compute only: no communication, no draining
/// of the device, no allocation.
extern const llvm::ArrayRef<const char *> kPureCustomCalls;

/// The MLIR type of an element type of HLO; unsigned integers are `ui`.
mlir::Type hloElementType(mlir::MLIRContext *context, llvm::StringRef element);

/// Knows the ranks of a module and turns replica groups into domains.
class HloCollectives {
public:
  /// What a collective instruction says, resolved.
  struct Description {
    comm::CollectiveKind kind = comm::CollectiveKind::all_reduce;
    mlir::FlatSymbolRefAttr domain;
    comm::ReductionKind reduction = comm::ReductionKind::none;
    int64_t dim = 0;
    int64_t concat = 0;    ///< all_to_all: where the parts are joined
    mlir::ArrayAttr pairs; ///< permute, send, recv
  };

  HloCollectives(mlir::OpBuilder &builder, const hlo::Module &source)
      : builder(builder), source(source) {}

  /// Settles the number of ranks; domains go to the start of `module`.
  bool begin(mlir::ModuleOp module, int64_t world, std::string &error);
  int64_t world() const { return partitions * replicas; }
  int64_t partitionCount() const { return partitions; }

  /// `op` read as a collective of `kind` ("all-reduce", ..., "send", "recv").
  std::optional<Description> describe(const hlo::Instruction &op,
                                      llvm::StringRef kind, std::string &error);
  /// The synchronous operation; yields its result.
  mlir::Value issue(mlir::Location loc, const Description &what,
                    mlir::Type type, mlir::Value input, mlir::Value init);
  comm::StartOp start(mlir::Location loc, const Description &what,
                      mlir::Value input, mlir::Value init);
  /// All ranks as one group.
  mlir::FlatSymbolRefAttr worldDomain();

  static bool isCollective(llvm::StringRef opcode);
  /// A send or recv between devices.
  static bool isTransfer(const hlo::Instruction &op);
  static bool isCommunication(const hlo::Instruction &op);

private:
  using Groups = std::vector<std::vector<int64_t>>;
  mlir::FlatSymbolRefAttr domainFor(const Groups &groups);
  bool resolve(const hlo::Instruction &op, llvm::StringRef kind, Groups &groups,
               std::string &error);
  bool resolvePairs(const hlo::Instruction &op, llvm::StringRef kind,
                    Groups &pairs, std::string &error);
  bool spend(int64_t ranks, std::string &error);
  std::optional<comm::ReductionKind> reductionOf(const hlo::Instruction &op);

  mlir::OpBuilder &builder;
  const hlo::Module &source;
  mlir::ModuleOp module;
  int64_t partitions = 1, replicas = 1;
  int64_t budget = int64_t(1)
                   << 26; ///< ranks in groups and pairs, all together
  std::map<Groups, mlir::FlatSymbolRefAttr> domains;
  /// (text of the groups, how they are meant) -> domain: most instructions
  /// repeat a few texts.
  std::map<std::pair<std::string_view, int>, mlir::FlatSymbolRefAttr> byText;
};

} // namespace concord

#endif // CONCORD_PASSES_IMPORT_HLOCOLLECTIVES_H
