//===- HloImporter.h - The importer of HLO, one module at a time -*- C++
//-*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// HloImport.cpp walks the computations, HloFlow.cpp imports what calls others,
// communicates, or is started and done.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_IMPORT_HLOIMPORTER_H
#define CONCORD_PASSES_IMPORT_HLOIMPORTER_H

#include "import/HloCollectives.h"
#include "import/HloImport.h"

#include "comm/Comm.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringSet.h"

namespace concord::hloimport {

using namespace mlir;

inline llvm::StringRef ref(std::string_view text) {
  return {text.data(), text.size()};
}

using Leaves = SmallVector<Value, 1>;

/// A collective that was started: one entry per array that it moves.
struct Pending {
  SmallVector<comm::StartOp, 1> starts;
};

class Importer {
public:
  Importer(MLIRContext *context, const hlo::Module &source,
           const HloImportOptions &options)
      : context(context), source(source), options(options), builder(context),
        collectives(builder, source) {
    if (source.derived)
      for (size_t at = 0; at < source.text->size(); ++at)
        if ((*source.text)[at] == '\n')
          lines.push_back(static_cast<uint32_t>(at + 1));
  }

  OwningOpRef<ModuleOp> run();

private:
  /// The values of one computation while it is imported.
  struct Frame {
    uint32_t computation;
    ArrayRef<Leaves> parameters;
    std::vector<Leaves> values;
    llvm::DenseMap<uint32_t, Pending> pending;
    unsigned depth;
  };

  InFlightDiagnostic fail(const hlo::Instruction &op) {
    return emitError(locOf(op))
           << source.locate(op.begin) << ": " << ref(op.opcode) << " '"
           << ref(op.name) << "' ";
  }
  /// The instruction's name; for another syntax, where names are only numbers,
  /// its line too.
  Location locOf(const hlo::Instruction &op) {
    StringAttr name = builder.getStringAttr(ref(op.name));
    if (!source.derived)
      return NameLoc::get(name);
    auto line = llvm::upper_bound(lines, op.begin) - lines.begin();
    unsigned column = op.begin - (line ? lines[line - 1] : 0) + 1;
    return NameLoc::get(
        name, FileLineColLoc::get(context, source.path, line + 1, column));
  }
  LogicalResult findCommunication();
  const std::vector<uint32_t> &offsetsOf(const hlo::Shape &shape);
  void leafTypes(const hlo::Shape &shape, SmallVectorImpl<Type> &types);
  FailureOr<Leaves> computation(uint32_t index, ArrayRef<Leaves> parameters,
                                unsigned depth);
  LogicalResult instruction(Frame &frame, uint32_t index);
  LogicalResult compute(Frame &frame, uint32_t index);
  void describe(comm::ComputeOp made, const hlo::Instruction &op);
  LogicalResult whileLoop(Frame &frame, uint32_t index);
  LogicalResult conditional(Frame &frame, uint32_t index);
  LogicalResult inlineCall(Frame &frame, uint32_t index, uint32_t callee);
  LogicalResult collective(Frame &frame, uint32_t index, StringRef kind,
                           bool async);
  LogicalResult transfer(Frame &frame, uint32_t index);
  LogicalResult asyncStart(Frame &frame, uint32_t index);
  LogicalResult done(Frame &frame, uint32_t index);
  LogicalResult operandLeaves(Frame &frame, const hlo::Instruction &op,
                              SmallVectorImpl<Value> &leaves);
  Value opaque(Location loc, StringRef name, ValueRange operands, Type type,
               StringAttr key);
  uint32_t calledBy(const hlo::Instruction &op, std::string_view key);
  bool isPureCall(const hlo::Instruction &op);
  bool isScalarFusion(const Frame &frame, const hlo::Instruction &op);
  std::pair<DenseI64ArrayAttr, DenseI64ArrayAttr>
  partsOf(const hlo::Instruction &op, StringRef sharding);
  void findView();
  Value scalar(const hlo::Instruction &op, Value tensor);

  MLIRContext *context;
  const hlo::Module &source;
  const HloImportOptions &options;
  OpBuilder builder;
  HloCollectives collectives;
  ModuleOp module;
  std::vector<uint32_t> lines;    ///< where each line but the first begins
  std::vector<char> communicates; ///< per computation, what it calls included
  llvm::StringMap<uint32_t> computations;
  llvm::DenseMap<const hlo::Shape *, std::vector<uint32_t>> offsets;
  llvm::StringMap<Type> elementTypes;
  llvm::StringSet<> pureCalls;
  uint64_t operations = 0;
  int64_t opaqueCalls = 0;
  bool globalView = false; ///< of the entry computation
};

} // namespace concord::hloimport

#endif // CONCORD_PASSES_IMPORT_HLOIMPORTER_H
