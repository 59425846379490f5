//===- Family.cpp - One program from its members --------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Members are walked side by side. Whatever is not a number has to be the same
// in all of them; a number that differs has to be a polynomial of the bounded
// dimensions on which more members agree than it has coefficients.
//
//===----------------------------------------------------------------------===//

#include "common/Family.h"

#include "comm/Comm.h"
#include "common/PlanBuilder.h"
#include "concord/artefact.h"
#include "concord/kernel.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <span>

using namespace mlir;

namespace concord {

namespace {

std::string listDims(const FamilyMembers &members) {
  std::string text;
  for (const onnx::BoundedDim &dim : members.dims)
    text += (text.empty() ? "" : ", ") + dim.name;
  return text;
}

/// What is done about a place where members cannot become one.
std::string cure(const FamilyMembers &members) {
  return "; this is not supported yet for a bounded dimension, fix " +
         listDims(members) + " with --dim NAME=N";
}

InFlightDiagnostic refuse(const FamilyMembers &members, Operation *op,
                          const Twine &what) {
  return emitError(op->getLoc()) << "node '" << describeLocation(op->getLoc())
                                 << "': " << what << cure(members);
}

/// Extents by the values that they have in the members.
class Fits {
public:
  explicit Fits(const FamilyMembers &members) : members(members) {}
  const Extent *operator()(const std::vector<int64_t> &values) {
    auto it = known.find(values);
    if (it == known.end())
      it = known.emplace(values, onnx::fitExtent(members.points, values)).first;
    return it->second ? &*it->second : nullptr;
  }

private:
  const FamilyMembers &members;
  std::map<std::vector<int64_t>, std::optional<Extent>> known;
};

//===----------------------------------------------------------------------===//
// Text with numbers: kernel descriptions
//===----------------------------------------------------------------------===//

/// The whole numbers of a description that stand alone, and the text around
/// them.
void splitNumbers(StringRef text, SmallVectorImpl<StringRef> &around,
                  std::vector<int64_t> &numbers) {
  auto opens = [](char c) {
    return c == ' ' || c == '=' || c == '[' || c == ',';
  };
  auto closes = [](char c) { return c == ' ' || c == ']' || c == ','; };
  size_t begin = 0;
  bool quoted = false;
  for (size_t at = 0; at < text.size();) {
    quoted ^= text[at] == '"';
    size_t end = at + (text[at] == '-');
    while (end < text.size() && llvm::isDigit(text[end]))
      ++end;
    int64_t value = 0;
    if (quoted || end == at || at == 0 || !opens(text[at - 1]) ||
        (end < text.size() && !closes(text[end])) ||
        text.slice(at, end).getAsInteger(10, value)) {
      ++at;
      continue;
    }
    around.push_back(text.slice(begin, at));
    numbers.push_back(value);
    begin = at = end;
  }
  around.push_back(text.substr(begin));
}

/// One text for all members, with extents in braces.
std::optional<std::string> mergeText(const std::vector<std::string> &texts,
                                     Fits &fits) {
  if (llvm::all_of(texts, [&](auto &text) { return text == texts[0]; }))
    return texts[0];
  std::vector<SmallVector<StringRef>> around(texts.size());
  std::vector<std::vector<int64_t>> numbers(texts.size());
  for (size_t k = 0; k < texts.size(); ++k) {
    splitNumbers(texts[k], around[k], numbers[k]);
    if (around[k] != around[0])
      return std::nullopt;
  }
  std::string result;
  std::vector<int64_t> values(texts.size());
  for (size_t i = 0; i < around[0].size(); ++i) {
    result += around[0][i];
    if (i == numbers[0].size())
      break;
    for (size_t k = 0; k < texts.size(); ++k)
      values[k] = numbers[k][i];
    const Extent *extent = fits(values);
    if (!extent)
      return std::nullopt;
    result += extent->isConstant() ? std::to_string(values[0])
                                   : "{" + extent->text() + "}";
  }
  return result;
}

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
  const Need &operator()(const std::string &text) {
    auto [it, isNew] = known.try_emplace(text);
    Need &need = it->second;
    if (!isNew)
      return need;
    bool first = true, sized = text.find('{') != std::string::npos;
    for (const auto &point : points) {
      auto line = instantiate(text, point);
      if (!line) // a size that the mesh does not divide; refused when bound
        continue;
      concord_kernel *kernel = nullptr;
      concord_kernel_info info = {};
      info.struct_size = sizeof(info);
      if (concord_kernel_create(line->c_str(), &kernel, &info) != 0) {
        need.error = "its kernel cannot be made at " +
                     onnx::describePoint(members.dims, point) + ": " +
                     concord_kernel_last_error();
        return need;
      }
      concord_kernel_destroy(kernel);
      if (!first && need.packed != info.packed_weight_bytes) {
        need.error = "its kernel packs its parameter in another way at " +
                     onnx::describePoint(members.dims, point);
        return need;
      }
      need.packed = info.packed_weight_bytes;
      need.workspace = std::max(need.workspace, info.workspace_bytes);
      first = false;
      if (!sized)
        break;
    }
    return need;
  }

private:
  std::vector<std::vector<int64_t>> points;
  const FamilyMembers &members;
  std::map<std::string, Need> known;
};

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

template <typename OpTy>
LogicalResult collect(const FamilyMembers &members,
                      std::vector<SmallVector<OpTy>> &lists) {
  lists.resize(members.modules.size());
  for (auto [k, module] : llvm::enumerate(members.modules)) {
    auto &list = lists[k];
    ModuleOp(module).walk([&](OpTy op) { list.push_back(op); });
    if (list.size() == lists[0].size())
      continue;
    size_t at = std::min(list.size(), lists[0].size());
    Operation *op = at < list.size() ? list[at].getOperation()
                    : at < lists[0].size()
                        ? lists[0][at].getOperation()
                        : ModuleOp(members.modules[0]).getOperation();
    return refuse(members, op,
                  "the program does not have the same operations at all sizes");
  }
  return success();
}

} // namespace

LogicalResult shareBufferSizes(const FamilyMembers &members) {
  std::vector<SmallVector<memref::AllocOp>> allocs;
  std::vector<SmallVector<comm::KernelOp>> kernels;
  if (failed(collect(members, kernels)) || failed(collect(members, allocs)))
    return failure();
  Fits fits(members);
  Needs needs(members);
  const size_t count = members.modules.size();
  llvm::DenseMap<Operation *, std::string> descriptions; // of member 0
  std::vector<std::string> texts(count);
  for (auto [i, kernel] : llvm::enumerate(kernels[0])) {
    for (size_t k = 0; k < count; ++k)
      texts[k] = kernels[k][i].getDescription().str();
    auto merged = mergeText(texts, fits);
    if (!merged)
      return refuse(members, kernel,
                    "its kernel depends on the sizes in a way that is no "
                    "polynomial of them (" +
                        texts[0] + ", " + texts[1] + ")");
    if (const Need &need = needs(*merged); !need.error.empty())
      return refuse(members, kernel, need.error);
    descriptions[kernel] = *merged;
  }
  std::vector<int64_t> values(count);
  for (auto [i, alloc] : llvm::enumerate(allocs[0])) {
    int64_t bytes = 0;
    bool data = alloc->use_empty();
    for (OpOperand &use : alloc->getUses()) {
      auto kernel = dyn_cast<comm::KernelOp>(use.getOwner());
      if (kernel && kernel.getWorkspace() && !kernel.getInits().empty() &&
          use.get() == kernel.getInits().back() &&
          use.getOperandNumber() + 1 == kernel->getNumOperands())
        bytes = std::max<int64_t>(bytes, needs(descriptions[kernel]).workspace);
      else
        data = true;
    }
    for (size_t k = 0; k < count; ++k) {
      MemRefType type = allocs[k][i].getType();
      if (!type.hasStaticShape())
        return allocs[k][i].emitOpError("has no static shape");
      values[k] = type.getNumElements() * elementBytes(type.getElementType());
    }
    if (data) {
      const Extent *extent = fits(values);
      auto bounds =
          extent ? onnx::boundsOf(*extent, members.dims) : std::nullopt;
      if (!bounds)
        return refuse(members, alloc,
                      "a buffer's size is no polynomial of the bounded "
                      "dimensions");
      bytes = std::max(bytes, bounds->second);
    }
    Builder builder(alloc.getContext());
    for (size_t k = 0; k < count; ++k) {
      allocs[k][i]->setAttr(kMaxBytes, builder.getI64IntegerAttr(bytes));
      if (!data)
        allocs[k][i].getResult().setType(MemRefType::get(
            {std::max<int64_t>(1, bytes)}, builder.getI8Type()));
    }
  }
  for (ModuleOp module : members.modules)
    module->removeAttr(kSizesPending);
  return success();
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

FailureOr<plan::Plan> mergePlans(const FamilyMembers &members,
                                 std::vector<plan::Plan> plans) {
  Fits fits(members);
  plan::Plan result = plans[0];
  Operation *top = members.modules[0];
  std::vector<int64_t> values(plans.size());
  std::string where;
  auto merge = [&](auto &into, auto get) {
    for (size_t k = 0; k < plans.size(); ++k)
      values[k] = static_cast<int64_t>(get(plans[k]));
    const Extent *extent = fits(values);
    auto bounds = extent ? onnx::boundsOf(*extent, members.dims) : std::nullopt;
    if (!bounds || bounds->second < 0)
      return false;
    into = static_cast<uint64_t>(bounds->second);
    return true;
  };
  bool good = true;
  for (const plan::Plan &plan : plans)
    good &= plan.programs.size() == result.programs.size();
  for (size_t p = 0; good && p < result.programs.size(); ++p) {
    for (const plan::Plan &plan : plans)
      good &=
          plan.programs[p].issues.size() == result.programs[p].issues.size();
    for (size_t i = 0; good && i < result.programs[p].issues.size(); ++i) {
      plan::Issue &issue = result.programs[p].issues[i];
      where = issue.location;
      for (const plan::Plan &plan : plans) {
        const plan::Issue &other = plan.programs[p].issues[i];
        good &= other.kind == issue.kind && other.domain == issue.domain &&
                other.dtype == issue.dtype && other.root == issue.root &&
                other.fused == issue.fused && other.pairs == issue.pairs &&
                other.sendCounts == issue.sendCounts &&
                other.recvCounts == issue.recvCounts &&
                other.buffers.size() == issue.buffers.size();
      }
      if (!good)
        break;
      auto at = [&](const plan::Plan &plan) -> const plan::Issue & {
        return plan.programs[p].issues[i];
      };
      good &= merge(issue.count, [&](auto &plan) { return at(plan).count; });
      for (size_t b = 0; b < issue.buffers.size(); ++b) {
        plan::Buffer &buffer = issue.buffers[b];
        good &= merge(buffer.outer,
                      [&](auto &plan) { return at(plan).buffers[b].outer; });
        good &= merge(buffer.innerBytes, [&](auto &plan) {
          return at(plan).buffers[b].innerBytes;
        });
        good &= merge(buffer.strideBytes, [&](auto &plan) {
          return at(plan).buffers[b].strideBytes;
        });
        good &= merge(buffer.offset,
                      [&](auto &plan) { return at(plan).buffers[b].offset; });
      }
    }
  }
  if (!good) {
    (void)refuse(members, top,
                 "the operation '" + where +
                     "' of the plan does not follow the sizes");
    return failure();
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

namespace {

class Merger {
public:
  explicit Merger(const FamilyMembers &members)
      : members(members), fits(members), needs(members),
        count(members.modules.size()),
        context(ModuleOp(members.modules[0]).getContext()), builder(context),
        mine(members.modules[0]) {}
  LogicalResult run();

private:
  LogicalResult functions();
  LogicalResult function(ArrayRef<LLVM::LLVMFuncOp> functions);
  LogicalResult operation(ArrayRef<Operation *> ops);
  LogicalResult globals();
  LogicalResult metadata();
  LogicalResult packing();
  const Extent *differing(ArrayRef<int64_t> values);
  Value sizesOf(Operation *op);
  Value load(Operation *op, const Extent &extent, unsigned bits);
  int64_t indexOf(const Extent &extent);
  std::string text(LLVM::GlobalOp global);
  void setText(StringRef name, StringRef data);
  std::optional<std::vector<LLVM::GlobalOp>> globalsNamed(StringRef name);
  LogicalResult entries(ArrayRef<llvm::json::Object *> roots, StringRef key);

  const FamilyMembers &members;
  Fits fits;
  Needs needs;
  size_t count;
  MLIRContext *context;
  OpBuilder builder;
  ModuleOp mine;
  std::vector<std::string> sizes; ///< the table
  std::map<std::string, int64_t> sizeIndex;
  std::map<std::string, int64_t> globalBase; ///< data that are sizes
  llvm::DenseMap<Operation *, Value> tables; ///< by function
  SmallVector<std::pair<Operation *, Extent>> constants;
};

} // namespace

int64_t Merger::indexOf(const Extent &extent) {
  std::string key = extent.text();
  auto [it, isNew] =
      sizeIndex.try_emplace(key, static_cast<int64_t>(sizes.size()));
  if (isNew)
    sizes.push_back(std::move(key));
  return it->second;
}

/// The table of sizes, loaded once at the start of the function around `op`.
Value Merger::sizesOf(Operation *op) {
  auto function = op->getParentOfType<LLVM::LLVMFuncOp>();
  Value &table = tables[function];
  if (table)
    return table;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&function.getBody().front());
  auto pointer = LLVM::LLVMPointerType::get(context);
  Location loc = function.getLoc();
  Value at = LLVM::GEPOp::create(
      builder, loc, pointer, builder.getI8Type(), function.getArgument(0),
      LLVM::GEPArg(static_cast<int32_t>(offsetof(concord_step_args, sizes))));
  table = LLVM::LoadOp::create(builder, loc, pointer, at);
  return table;
}

Value Merger::load(Operation *op, const Extent &extent, unsigned bits) {
  Value table = sizesOf(op);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(op);
  // Constants may stand before the table's load in the entry block.
  if (op->getBlock() == table.getDefiningOp()->getBlock() &&
      op->isBeforeInBlock(table.getDefiningOp()))
    builder.setInsertionPointAfter(table.getDefiningOp());
  auto pointer = LLVM::LLVMPointerType::get(context);
  Value at = LLVM::GEPOp::create(
      builder, op->getLoc(), pointer, builder.getI64Type(), table,
      LLVM::GEPArg(static_cast<int32_t>(indexOf(extent))));
  auto loaded =
      LLVM::LoadOp::create(builder, op->getLoc(), builder.getI64Type(), at);
  loaded.setInvariant(true);
  if (bits == 64)
    return loaded;
  return LLVM::TruncOp::create(builder, op->getLoc(),
                               builder.getIntegerType(bits), loaded);
}

LogicalResult Merger::operation(ArrayRef<Operation *> ops) {
  Operation *op = ops[0];
  auto same = [&](auto get) {
    return llvm::all_of(ops,
                        [&](Operation *each) { return get(each) == get(op); });
  };
  if (!same([](Operation *o) { return o->getName(); }) ||
      !same([](Operation *o) { return o->getNumRegions(); }) ||
      !llvm::all_of(ops, [&](Operation *each) {
        return each->getResultTypes() == op->getResultTypes();
      }))
    return refuse(members, op,
                  "the program does not have the same operations at all sizes "
                  "(" +
                      op->getName().getStringRef() + ")");
  if (same([](Operation *o) { return o->getAttrDictionary(); }))
    return success();
  std::vector<int64_t> values(count);
  if (auto constant = dyn_cast<LLVM::ConstantOp>(op)) {
    bool integers = true;
    for (size_t k = 0; k < count; ++k) {
      auto attr =
          dyn_cast<IntegerAttr>(cast<LLVM::ConstantOp>(ops[k]).getValue());
      integers &= attr && attr.getType().isIntOrIndex() &&
                  attr.getValue().getSignificantBits() <= 64;
      if (integers)
        values[k] = attr.getValue().getSExtValue();
    }
    const Extent *extent = integers ? fits(values) : nullptr;
    if (!extent || !op->getResult(0).getType().isInteger())
      return refuse(members, op,
                    "a value that is computed with depends on the sizes");
    constants.push_back({op, *extent});
    return success();
  }
  if (auto gep = dyn_cast<LLVM::GEPOp>(op)) {
    SmallVector<LLVM::GEPArg> indices;
    bool good = true;
    for (auto [i, index] : llvm::enumerate(gep.getIndices())) {
      if (auto value = dyn_cast<Value>(index)) {
        indices.push_back(value);
        continue;
      }
      for (size_t k = 0; k < count; ++k) {
        auto other = cast<LLVM::GEPOp>(ops[k]);
        auto attr = other.getIndices().size() == gep.getIndices().size()
                        ? dyn_cast<IntegerAttr>(other.getIndices()[i])
                        : IntegerAttr();
        good &= bool(attr);
        values[k] = attr ? attr.getInt() : 0;
      }
      const Extent *extent = good ? fits(values) : nullptr;
      if (!extent) {
        good = false;
        break;
      }
      if (extent->isConstant())
        indices.push_back(LLVM::GEPArg(static_cast<int32_t>(values[0])));
      else
        indices.push_back(load(op, *extent, 64));
    }
    if (good) {
      builder.setInsertionPoint(op);
      auto made = LLVM::GEPOp::create(builder, op->getLoc(), gep.getType(),
                                      gep.getElemType(), gep.getBase(), indices,
                                      gep.getNoWrapFlags());
      gep.replaceAllUsesWith(made.getResult());
      // Erased with the constants, after all walks.
      constants.push_back({op, Extent()});
      return success();
    }
  }
  return refuse(members, op,
                "the program depends on the sizes in a way that is no "
                "polynomial of them (" +
                    op->getName().getStringRef() + ")");
}

LogicalResult Merger::function(ArrayRef<LLVM::LLVMFuncOp> functions) {
  std::vector<SmallVector<Operation *>> lists(count);
  std::vector<llvm::DenseMap<Value, unsigned>> numbers(count);
  std::vector<llvm::DenseMap<Block *, unsigned>> blocks(count);
  for (size_t k = 0; k < count; ++k) {
    LLVM::LLVMFuncOp function = functions[k];
    for (Block &block : function.getBody()) {
      blocks[k].try_emplace(&block, blocks[k].size());
      for (Value argument : block.getArguments())
        numbers[k].try_emplace(argument, numbers[k].size());
      for (Operation &op : block) {
        lists[k].push_back(&op);
        for (Value result : op.getResults())
          numbers[k].try_emplace(result, numbers[k].size());
      }
    }
  }
  // Structure first, before anything is changed.
  for (size_t i = 0; i < lists[0].size(); ++i) {
    Operation *op = lists[0][i];
    for (size_t k = 1; k < count; ++k) {
      Operation *other = i < lists[k].size() ? lists[k][i] : nullptr;
      bool good = other && other->getName() == op->getName() &&
                  other->getNumOperands() == op->getNumOperands() &&
                  other->getNumSuccessors() == op->getNumSuccessors();
      for (unsigned n = 0; good && n < op->getNumOperands(); ++n)
        good &= numbers[k].lookup(other->getOperand(n)) ==
                numbers[0].lookup(op->getOperand(n));
      for (unsigned n = 0; good && n < op->getNumSuccessors(); ++n)
        good &= blocks[k].lookup(other->getSuccessor(n)) ==
                blocks[0].lookup(op->getSuccessor(n));
      if (!good)
        return refuse(
            members, op,
            "the program does not have the same operations at all "
            "sizes (" +
                op->getName().getStringRef() + " at " +
                onnx::describePoint(members.dims, members.points[0]) + ", " +
                (other ? other->getName().getStringRef()
                       : StringRef("nothing")) +
                " at " + onnx::describePoint(members.dims, members.points[k]) +
                ")");
    }
  }
  SmallVector<Operation *> ops(count);
  for (size_t i = 0; i < lists[0].size(); ++i) {
    for (size_t k = 0; k < count; ++k)
      ops[k] = lists[k][i];
    if (failed(operation(ops)))
      return failure();
  }
  return success();
}

LogicalResult Merger::functions() {
  std::vector<SmallVector<LLVM::LLVMFuncOp>> lists;
  if (failed(collect(members, lists)))
    return failure();
  SmallVector<LLVM::LLVMFuncOp> group(count);
  for (size_t i = 0; i < lists[0].size(); ++i) {
    for (size_t k = 0; k < count; ++k) {
      group[k] = lists[k][i];
      if (group[k].getName() != group[0].getName())
        return refuse(members, group[0], "members differ in their functions");
    }
    if (failed(function(group)))
      return failure();
  }
  for (auto &[op, extent] : constants) {
    if (auto constant = dyn_cast<LLVM::ConstantOp>(op)) {
      unsigned bits = op->getResult(0).getType().getIntOrFloatBitWidth();
      constant.getResult().replaceAllUsesWith(load(op, extent, bits));
    }
  }
  for (auto &entry : constants)
    entry.first->erase();
  return success();
}

/// 64-bit integers: a list, or one (a global of rank 0 is the bare number).
static bool holdsSizes(Attribute value) {
  if (auto dense = dyn_cast_or_null<DenseIntElementsAttr>(value))
    return dense.getElementType().isInteger(64);
  auto integer = dyn_cast_or_null<IntegerAttr>(value);
  return integer && integer.getType().isInteger(64);
}

static int64_t sizeAt(Attribute value, int64_t index) {
  if (auto integer = dyn_cast<IntegerAttr>(value))
    return integer.getInt();
  auto dense = cast<DenseIntElementsAttr>(value);
  return dense.isSplat() ? dense.getSplatValue<APInt>().getSExtValue()
                         : dense.getValues<APInt>()[index].getSExtValue();
}

/// Constant data: equal, or 64-bit integers that are sizes, which the code then
/// finds in the table.
LogicalResult Merger::globals() {
  std::vector<SmallVector<LLVM::GlobalOp>> lists;
  if (failed(collect(members, lists)))
    return failure();
  std::vector<int64_t> values(count);
  for (size_t i = 0; i < lists[0].size(); ++i) {
    LLVM::GlobalOp global = lists[0][i];
    if (global.getName().starts_with("concord.meta") ||
        global.getName().starts_with("concord.kernels") ||
        global.getName().starts_with("concord.plan") ||
        global.getName() == CONCORD_PROGRAM_SYMBOL)
      continue;
    bool same = true, sized = true;
    for (size_t k = 0; k < count; ++k) {
      LLVM::GlobalOp other = lists[k][i];
      if (other.getName() != global.getName())
        return refuse(members, global, "members differ in their constants");
      same &= other.getValueOrNull() == global.getValueOrNull() &&
              other.getGlobalType() == global.getGlobalType();
      sized &= holdsSizes(other.getValueOrNull()) &&
               other.getGlobalType() == global.getGlobalType();
    }
    if (same)
      continue;
    if (!sized)
      return refuse(members, global,
                    "constant data depend on the sizes of the dimensions");
    int64_t base = static_cast<int64_t>(sizes.size());
    auto first = dyn_cast<DenseIntElementsAttr>(*global.getValue());
    for (int64_t e = 0; e < (first ? first.getNumElements() : 1); ++e) {
      for (size_t k = 0; k < count; ++k)
        values[k] = sizeAt(*lists[k][i].getValue(), e);
      const Extent *extent = fits(values);
      if (!extent)
        return refuse(members, global,
                      "constant data are no polynomial of the dimensions");
      sizes.push_back(extent->text());
    }
    globalBase[global.getName().str()] = base;
  }
  SmallVector<LLVM::AddressOfOp> uses;
  mine.walk([&](LLVM::AddressOfOp op) {
    if (globalBase.count(op.getGlobalName().str()))
      uses.push_back(op);
  });
  for (LLVM::AddressOfOp op : uses) {
    Value table = sizesOf(op);
    builder.setInsertionPoint(op);
    if (op->getBlock() == table.getDefiningOp()->getBlock() &&
        op->isBeforeInBlock(table.getDefiningOp()))
      builder.setInsertionPointAfter(table.getDefiningOp());
    Value at = LLVM::GEPOp::create(builder, op.getLoc(), op.getType(),
                                   builder.getI64Type(), table,
                                   LLVM::GEPArg(static_cast<int32_t>(
                                       globalBase[op.getGlobalName().str()])));
    op.replaceAllUsesWith(at);
    op.erase();
  }
  for (auto &entry : globalBase)
    mine.lookupSymbol(entry.first)->erase();
  return success();
}

std::string Merger::text(LLVM::GlobalOp global) {
  auto value = cast<StringAttr>(*global.getValue());
  return value.getValue().str();
}

void Merger::setText(StringRef name, StringRef data) {
  auto global = mine.lookupSymbol<LLVM::GlobalOp>(name);
  global.setValueAttr(builder.getStringAttr(data));
  global.setGlobalType(
      LLVM::LLVMArrayType::get(builder.getI8Type(), data.size()));
}

/// Shapes of inputs or outputs: the maximum, the bounds, and the extents.
LogicalResult Merger::entries(ArrayRef<llvm::json::Object *> roots,
                              StringRef key) {
  std::vector<int64_t> values(count);
  llvm::json::Array *list = roots[0]->getArray(key);
  for (size_t i = 0; i < list->size(); ++i) {
    llvm::json::Object &entry = *(*list)[i].getAsObject();
    auto merge = [&](StringRef field, StringRef extentsField, bool bounds) {
      llvm::json::Array most, texts, dims;
      bool sized = false;
      size_t rank = entry.getArray(field)->size();
      for (size_t d = 0; d < rank; ++d) {
        for (size_t k = 0; k < count; ++k)
          values[k] = *(*(*roots[k]->getArray(key))[i].getAsObject()->getArray(
              field))[d]
                           .getAsInteger();
        const Extent *extent = fits(values);
        auto range =
            extent ? onnx::boundsOf(*extent, members.dims) : std::nullopt;
        if (!range || range->first < 0)
          return false;
        sized |= !extent->isConstant();
        most.push_back(range->second);
        texts.push_back(extent->text());
        dims.push_back(llvm::json::Array{std::to_string(range->first),
                                         std::to_string(range->second)});
      }
      if (!sized)
        return true;
      entry[field] = std::move(most);
      entry[extentsField] = std::move(texts);
      if (bounds)
        entry["dims"] = std::move(dims);
      return true;
    };
    if (!merge("shape", "extents", true) ||
        !merge("local_shape", "local_extents", false))
      return refuse(members, mine,
                    "the shape of '" +
                        entry.getString("name").value_or("?").str() +
                        "' is no polynomial of the bounded dimensions, or "
                        "becomes negative within their bounds");
  }
  return success();
}

LogicalResult Merger::metadata() {
  std::vector<llvm::json::Value> values;
  std::vector<llvm::json::Object *> roots;
  std::vector<plan::Plan> plans;
  std::vector<SmallVector<StringRef>> lines(count);
  std::vector<std::string> kernelTexts(count);
  for (size_t k = 0; k < count; ++k) {
    ModuleOp module = members.modules[k];
    auto global = [&](StringRef name) {
      return text(module.lookupSymbol<LLVM::GlobalOp>(name));
    };
    std::string json = global("concord.meta");
    auto parsed = llvm::json::parse(StringRef(json.c_str()));
    if (!parsed) {
      llvm::consumeError(parsed.takeError());
      return mine.emitError("internal: a member's metadata are no JSON");
    }
    values.push_back(std::move(*parsed));
    std::string bytes = global("concord.plan"), error;
    plans.emplace_back();
    if (!plan::parse(std::as_bytes(std::span(bytes.data(), bytes.size())),
                     plans.back(), error))
      return mine.emitError("internal: a member's plan: ") << error;
    kernelTexts[k] = global("concord.kernels");
    StringRef(kernelTexts[k].c_str()).split(lines[k], '\n', -1, false);
  }
  for (llvm::json::Value &value : values)
    roots.push_back(value.getAsObject());
  FailureOr<plan::Plan> plan = mergePlans(members, std::move(plans));
  if (failed(plan))
    return failure();
  std::vector<std::byte> bytes = plan::serialize(*plan);
  setText(
      "concord.plan",
      StringRef(reinterpret_cast<const char *>(bytes.data()), bytes.size()));
  // The length of the plan stands in the description of the program.
  auto program = mine.lookupSymbol<LLVM::GlobalOp>(CONCORD_PROGRAM_SYMBOL);
  // It is the first number of its kind there.
  bool found = false;
  for (Operation &op : *program.getInitializerBlock())
    if (auto constant = dyn_cast<LLVM::ConstantOp>(op);
        constant && op.getResult(0).getType().isInteger(64) && !found) {
      constant.setValueAttr(builder.getI64IntegerAttr(bytes.size()));
      found = true;
    }
  if (!found)
    return mine.emitError("internal: the program's description has another "
                          "form");

  std::string kernels;
  llvm::json::Array needed;
  std::vector<std::string> texts(count);
  for (size_t i = 0; i < lines[0].size(); ++i) {
    for (size_t k = 0; k < count; ++k) {
      if (lines[k].size() != lines[0].size())
        return refuse(members, mine, "members differ in their kernels");
      texts[k] = lines[k][i].str();
    }
    auto merged = mergeText(texts, fits);
    if (!merged)
      return refuse(members, mine,
                    "a kernel depends on the sizes in a way that is no "
                    "polynomial of them: " +
                        texts[0]);
    const Need &need = needs(*merged);
    if (!need.error.empty())
      return refuse(members, mine, need.error);
    kernels += *merged + "\n";
    needed.push_back(llvm::json::Array{need.workspace, need.packed});
  }
  setText("concord.kernels", kernels + std::string(1, '\0'));

  llvm::json::Object &root = *roots[0];
  if (failed(entries(roots, "inputs")) || failed(entries(roots, "outputs")))
    return failure();
  root["kernel_sizes"] = std::move(needed);
  root["digest"] = plan::toHex(plan::digest(*plan));
  llvm::json::Array dims, table;
  for (const onnx::BoundedDim &dim : members.dims)
    dims.push_back(llvm::json::Object{
        {"name", dim.name}, {"min", dim.min}, {"max", dim.max}});
  for (const std::string &size : sizes)
    table.push_back(size);
  root["dims"] = std::move(dims);
  root["sizes"] = std::move(table);
  std::string json;
  llvm::raw_string_ostream os(json);
  os << values[0];
  setText("concord.meta", json + std::string(1, '\0'));
  return success();
}

/// A parameter is packed once for all sizes: remember what else it has to be
/// packed like.
LogicalResult Merger::packing() {
  auto list = mine->getAttrOfType<ArrayAttr>("comm.parameters");
  if (!list)
    return success();
  std::vector<int64_t> low, high;
  for (const onnx::BoundedDim &dim : members.dims) {
    low.push_back(dim.min);
    high.push_back(dim.max);
  }
  SmallVector<Attribute> result;
  std::vector<std::string> texts(count);
  for (size_t i = 0; i < list.size(); ++i) {
    auto parameter = cast<DictionaryAttr>(list[i]);
    result.push_back(parameter);
    auto pack = parameter.getAs<StringAttr>("pack");
    if (!pack)
      continue;
    for (size_t k = 0; k < count; ++k) {
      ModuleOp module = members.modules[k];
      auto other = module->getAttrOfType<ArrayAttr>("comm.parameters");
      auto text = other && other.size() == list.size()
                      ? cast<DictionaryAttr>(other[i]).getAs<StringAttr>("pack")
                      : StringAttr();
      if (!text)
        return refuse(members, mine, "members differ in their parameters");
      texts[k] = text.getValue().str();
    }
    auto merged = mergeText(texts, fits);
    if (!merged)
      return refuse(members, mine,
                    "a parameter is packed differently at each size: " +
                        texts[0]);
    SmallVector<Attribute> also;
    for (const auto &point : {low, high})
      if (auto text = instantiate(*merged, point))
        also.push_back(builder.getStringAttr(*text));
    NamedAttrList attrs(parameter);
    attrs.set("pack_like", builder.getArrayAttr(also));
    result.back() = attrs.getDictionary(context);
  }
  mine->setAttr("comm.parameters", builder.getArrayAttr(result));
  return success();
}

LogicalResult Merger::run() {
  if (failed(functions()) || failed(globals()) || failed(metadata()) ||
      failed(packing()))
    return failure();
  return success();
}

LogicalResult mergeLowered(const FamilyMembers &members) {
  return Merger(members).run();
}

} // namespace concord
