//===- CommOps.cpp - Operations other than collectives --------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Verifiers, effects and custom syntax of domains, programs, parameters, opaque
// computation, and of the solutions (order, certificate, arena).
//
//===----------------------------------------------------------------------===//

#include "comm/Comm.h"
#include "concord/memory/Place.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/StringExtras.h"

#include <optional>
#include <vector>

using namespace mlir;
using namespace concord::comm;

/// `[[0, 1], [2, 3]]`: a list of lists of integers.
static ParseResult parseGroups(OpAsmParser &parser, ArrayAttr &groups) {
  SmallVector<Attribute> result;
  auto parseOne = [&]() -> ParseResult {
    SmallVector<int64_t> ranks;
    if (parser.parseCommaSeparatedList(OpAsmParser::Delimiter::Square, [&]() {
          return parser.parseInteger(ranks.emplace_back());
        }))
      return failure();
    result.push_back(parser.getBuilder().getDenseI64ArrayAttr(ranks));
    return success();
  };
  if (parser.parseCommaSeparatedList(OpAsmParser::Delimiter::Square, parseOne))
    return failure();
  groups = parser.getBuilder().getArrayAttr(result);
  return success();
}

static void printGroups(OpAsmPrinter &printer, Operation *, ArrayAttr groups) {
  printer << '[';
  llvm::interleaveComma(groups, printer, [&](Attribute group) {
    printer << '[';
    if (auto ranks = dyn_cast<DenseI64ArrayAttr>(group))
      llvm::interleaveComma(ranks.asArrayRef(), printer);
    printer << ']';
  });
  printer << ']';
}

//===----------------------------------------------------------------------===//
// DomainOp, ProgramOp
//===----------------------------------------------------------------------===//

LogicalResult DomainOp::verify() {
  if (getGroups().empty())
    return emitOpError("needs at least one group");
  llvm::SmallSet<int64_t, 16> seen;
  int64_t world = -1;
  if (auto module = (*this)->getParentOfType<ModuleOp>())
    if (module->hasAttr("comm.world")) {
      // Passes make a value per rank.
      constexpr int64_t kMostRanks = 1 << 20;
      world = getWorld(module);
      if (world < 1 || world > kMostRanks)
        return emitOpError()
               << "comm.world is " << world << ", not 1 to " << kMostRanks;
    }
  for (Attribute attr : getGroups()) {
    auto group = dyn_cast<DenseI64ArrayAttr>(attr);
    if (!group || group.empty())
      return emitOpError("each group must be a non-empty list of world ranks");
    for (int64_t rank : group.asArrayRef()) {
      if (rank < 0 || (world >= 0 && rank >= world))
        return emitOpError()
               << "rank " << rank << " is outside the world"
               << (world >= 0 ? " of " + std::to_string(world) : std::string())
               << (world >= 0 ? " ranks" : "");
      if (!seen.insert(rank).second)
        return emitOpError() << "rank " << rank << " is listed twice";
    }
  }
  return success();
}

SmallVector<SmallVector<int64_t>> DomainOp::getGroupRanks() {
  SmallVector<SmallVector<int64_t>> result;
  for (Attribute group : getGroups())
    result.emplace_back(cast<DenseI64ArrayAttr>(group).asArrayRef());
  return result;
}

std::optional<int64_t> DomainOp::getUniformGroupSize() {
  std::optional<int64_t> size;
  for (Attribute attr : getGroups()) {
    int64_t groupSize = cast<DenseI64ArrayAttr>(attr).size();
    if (size && *size != groupSize)
      return std::nullopt;
    size = groupSize;
  }
  return size;
}

LogicalResult ProgramOp::verify() {
  if (getRanks().empty())
    return emitOpError("needs at least one rank");
  llvm::SmallSet<int64_t, 16> seen;
  int64_t world = INT64_MAX;
  if (auto module = (*this)->getParentOfType<ModuleOp>())
    if (module->hasAttr("comm.world"))
      world = getWorld(module);
  for (int64_t rank : getRanks())
    if (rank < 0 || rank >= world || !seen.insert(rank).second)
      return emitOpError() << "rank " << rank
                           << (rank < 0        ? " is negative"
                               : rank >= world ? " is outside the world"
                                               : " is listed twice");
  Operation *entry =
      SymbolTable::lookupNearestSymbolFrom(*this, getEntryAttr());
  if (!entry)
    return emitOpError() << "entry " << getEntryAttr() << " is not defined";
  if (!isa<FunctionOpInterface>(entry))
    return emitOpError() << "entry " << getEntryAttr() << " is not a function";
  return success();
}

static LogicalResult verifyQuery(Operation *op, FlatSymbolRefAttr domain) {
  if (!lookupDomain(op, domain))
    return op->emitOpError() << "domain " << domain << " is not defined";
  return success();
}

LogicalResult RankOp::verify() { return verifyQuery(*this, getDomainAttr()); }
LogicalResult SizeOp::verify() { return verifyQuery(*this, getDomainAttr()); }

//===----------------------------------------------------------------------===//
// WeightOp
//===----------------------------------------------------------------------===//

LogicalResult WeightOp::verify() {
  if (getSection().empty())
    return emitOpError("needs a section name");
  auto type = cast<ShapedType>(getResult().getType());
  if (!type.hasStaticShape())
    return emitOpError("has a static shape");
  if (getPack()) {
    if (type.getRank() != 1 || !type.getElementType().isInteger(8))
      return emitOpError("that is packed yields bytes: a 1-D i8 tensor");
    if (!getPart())
      return emitOpError("that is packed says with `part` what is packed");
    type = dyn_cast<ShapedType>(*getPart());
    if (!type || !type.hasStaticShape())
      return emitOpError("`part` must be a static tensor type");
  }
  if (!getGlobal()) {
    if (getSplits() && !getSplits()->empty())
      return emitOpError("with splits needs the `global` shape");
    return success();
  }
  SmallVector<int64_t> shape(*getGlobal());
  if (getSplits()) {
    for (auto split : getSplits()->getAsRange<SplitAttr>()) {
      DomainOp domain = lookupDomain(*this, split.getDomain());
      if (!domain)
        return emitOpError()
               << "splits over unknown domain " << split.getDomain();
      auto size = domain.getUniformGroupSize();
      int64_t dim = split.getDim();
      if (!size)
        return emitOpError() << "splits over " << split.getDomain()
                             << ", whose groups differ in size";
      if (dim < 0 || dim >= static_cast<int64_t>(shape.size()))
        return emitOpError() << "splits dimension " << dim << " of a rank-"
                             << shape.size() << " tensor";
      int64_t outer = split.getOuter();
      if (outer < 1 || shape[dim] % outer != 0 ||
          shape[dim] / outer % *size != 0)
        return emitOpError() << "dimension " << dim << " of size " << shape[dim]
                             << " does not split into " << outer
                             << " blocks of " << *size << " parts";
      shape[dim] /= *size;
    }
  }
  if (ArrayRef<int64_t>(shape) != type.getShape())
    return emitOpError() << "splits leave [" << shape << "], not the declared ["
                         << type.getShape() << "]";
  return success();
}

//===----------------------------------------------------------------------===//
// KernelOp, ComputeOp
//===----------------------------------------------------------------------===//

static LogicalResult verifyDestinationStyle(Operation *op, OperandRange inits,
                                            ResultRange results) {
  bool tensors = llvm::all_of(
      inits, [](Value init) { return isa<TensorType>(init.getType()); });
  bool memrefs = llvm::all_of(
      inits, [](Value init) { return isa<MemRefType>(init.getType()); });
  if (!tensors && !memrefs)
    return op->emitOpError("mixes tensors and memrefs in outs");
  if (inits.empty())
    return success();
  if (memrefs && !results.empty())
    return op->emitOpError("on memrefs has no results");
  if (!tensors || memrefs)
    return success();
  if (results.size() != inits.size())
    return op->emitOpError() << "has " << results.size() << " results for "
                             << inits.size() << " outs";
  for (auto [init, result] : llvm::zip(inits, results))
    if (init.getType() != result.getType())
      return op->emitOpError() << "result type " << result.getType()
                               << " differs from outs type " << init.getType();
  return success();
}

LogicalResult KernelOp::verify() {
  if (getDescription().empty())
    return emitOpError("needs a description");
  if (getInits().empty())
    return emitOpError("needs at least one out");
  if (auto absent = getAbsent()) {
    int64_t present = llvm::count(*absent, false);
    int64_t given = getInputs().size() + getInits().size() - getWorkspace();
    if (present != given)
      return emitOpError() << "marks " << present
                           << " pointers as present but has " << given;
  }
  return verifyDestinationStyle(*this, getInits(), getResults());
}

void KernelOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  for (OpOperand &operand : getInputsMutable())
    if (isa<MemRefType>(operand.get().getType()))
      effects.emplace_back(MemoryEffects::Read::get(), &operand);
  for (OpOperand &operand : getInitsMutable())
    if (isa<MemRefType>(operand.get().getType()))
      effects.emplace_back(MemoryEffects::Write::get(), &operand);
}

/// Operands that opaque compute writes: `destinations` of them, and
/// `workspace`, behind all others. -1 when it does not say, and any memref may
/// be written.
static int64_t numWritten(ComputeOp op) {
  auto destinations = op->getAttrOfType<IntegerAttr>("destinations");
  bool workspace = op->hasAttr("workspace");
  return destinations ? destinations.getInt() + workspace : -1;
}

void ComputeOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  if (getTouchesAll() || getTouches()) {
    effects.emplace_back(MemoryEffects::Read::get(), IssueResource::get());
    effects.emplace_back(MemoryEffects::Write::get(), IssueResource::get());
  }
  int64_t written = numWritten(*this);
  auto count = static_cast<int64_t>(getOperands().size());
  for (OpOperand &operand : getOperandsMutable())
    if (isa<MemRefType>(operand.get().getType())) {
      bool isWritten = operand.getOperandNumber() >= count - written;
      if (written < 0 || !isWritten)
        effects.emplace_back(MemoryEffects::Read::get(), &operand);
      if (written < 0 || isWritten)
        effects.emplace_back(MemoryEffects::Write::get(), &operand);
    }
}

//===----------------------------------------------------------------------===//
// Solutions
//===----------------------------------------------------------------------===//

LogicalResult OrderOp::verify() {
  SmallVector<int64_t> sites(getSites());
  llvm::sort(sites);
  if (!sites.empty() && sites.front() < 0)
    return emitOpError() << "site " << sites.front() << " is negative";
  if (auto *twice = std::adjacent_find(sites.begin(), sites.end());
      twice != sites.end())
    return emitOpError() << "site " << *twice << " is listed twice";
  return success();
}

LogicalResult CertificateOp::verify() {
  if (getVersion() != 1)
    return emitOpError() << "version " << getVersion()
                         << " is not known; this build knows version 1";
  if (getBy() != "forest" && getBy() != "order" && getBy() != "walk")
    return emitOpError() << "by(\"" << getBy()
                         << "\") is none of forest, order, walk";
  if (getDigest().size() != 64 || !llvm::all_of(getDigest(), [](char c) {
        return llvm::hexDigitValue(c) < 16;
      }))
    return emitOpError("digest must be 64 hexadecimal digits");
  return success();
}

LogicalResult ArenaOp::verify() {
  size_t count = getOffsets().size();
  if (getSizes().size() != count || getFirst().size() != count ||
      getLast().size() != count)
    return emitOpError("needs as many sizes, first and last as offsets");
  if (getAlign() < 1 || (getAlign() & (getAlign() - 1)))
    return emitOpError() << "align " << getAlign() << " is not a power of two";
  auto size = static_cast<int64_t>(getSize());
  if (size < 0 || static_cast<int64_t>(getLowerBound()) > size)
    return emitOpError("lower_bound is above the size");
  for (size_t i = 0; i < count; ++i) {
    if (getOffsets()[i] < 0 || getSizes()[i] < 0 || getOffsets()[i] > size ||
        getSizes()[i] > size - getOffsets()[i])
      return emitOpError() << "buffer " << i << " leaves the arena";
    if (getOffsets()[i] % getAlign())
      return emitOpError() << "buffer " << i << " is not aligned";
    if (getFirst()[i] > getLast()[i])
      return emitOpError() << "buffer " << i << " dies before it is born";
  }
  std::vector<concord::memory::Buffer> buffers(count);
  for (size_t i = 0; i < count; ++i)
    buffers[i] = {getFirst()[i], getLast()[i], getSizes()[i]};
  if (auto pair = concord::memory::findOverlap(buffers, getOffsets().vec()))
    return emitOpError() << "buffers " << pair->first << " and " << pair->second
                         << " are live together and overlap";
  return success();
}

#define GET_OP_CLASSES
#include "comm/CommOps.cpp.inc"
