//===- FamilyCode.cpp - One code from that of the members -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The lowered members become one module: numbers that differ in code and data
// are loaded from the table of sizes, texts get extents.
//
//===----------------------------------------------------------------------===//

#include "common/FamilyNumbers.h"
#include "common/PlanBuilder.h"
#include "concord/artefact.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/ADT/APSInt.h"
#include "llvm/Support/JSON.h"

#include <cstddef>
#include <span>

using namespace mlir;

namespace concord {

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
  void callNests();
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
  /// Functions of comm-outline that got the table as their last argument.
  SmallVector<LLVM::LLVMFuncOp> sizedNests;
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
  if (function.getName().starts_with(kNestName)) {
    // Its callers hand the table over (callNests). Nobody writes to it in a
    // step.
    LLVM::LLVMFunctionType type = function.getFunctionType();
    SmallVector<Type> types(type.getParams());
    SmallVector<Attribute> attrs(types.size(), builder.getDictionaryAttr({}));
    if (ArrayAttr given = function.getArgAttrsAttr())
      attrs.assign(given.begin(), given.end());
    types.push_back(pointer);
    NamedAttribute apart(builder.getStringAttr("llvm.noalias"),
                         builder.getUnitAttr());
    attrs.push_back(builder.getDictionaryAttr(apart));
    function.setFunctionType(
        LLVM::LLVMFunctionType::get(type.getReturnType(), types));
    function.setArgAttrsAttr(builder.getArrayAttr(attrs));
    sizedNests.push_back(function);
    return table = function.getBody().front().addArgument(pointer,
                                                          function.getLoc());
  }
  Location loc = function.getLoc();
  Value at = LLVM::GEPOp::create(
      builder, loc, pointer, builder.getI8Type(), function.getArgument(0),
      LLVM::GEPArg(static_cast<int32_t>(offsetof(concord_step_args, sizes))));
  table = LLVM::LoadOp::create(builder, loc, pointer, at);
  return table;
}

/// Hands the table to the functions that want it.
void Merger::callNests() {
  llvm::StringMap<LLVM::LLVMFuncOp> sized;
  for (LLVM::LLVMFuncOp function : sizedNests)
    sized[function.getName()] = function;
  SmallVector<LLVM::CallOp> calls;
  mine.walk([&](LLVM::CallOp call) {
    if (call.getCallee() && sized.count(*call.getCallee()))
      calls.push_back(call);
  });
  for (LLVM::CallOp call : calls) {
    SmallVector<Value> operands(call.getArgOperands());
    operands.push_back(sizesOf(call));
    builder.setInsertionPoint(call);
    LLVM::CallOp::create(builder, call.getLoc(),
                         sized.lookup(*call.getCallee()), operands);
    call.erase();
  }
}

Value Merger::load(Operation *op, const Extent &extent, unsigned bits) {
  Value table = sizesOf(op);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(op);
  // Constants may stand before the table's load in the entry block.
  if (Operation *loaded = table.getDefiningOp();
      loaded && op->getBlock() == loaded->getBlock() &&
      op->isBeforeInBlock(loaded))
    builder.setInsertionPointAfter(loaded);
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

/// The integer that `value` is, in 64 bits, or a floating-point number is
/// exactly.
static bool wholeNumber(Attribute value, int64_t &number) {
  if (auto integer = dyn_cast<IntegerAttr>(value)) {
    if (!integer.getType().isIntOrIndex() ||
        integer.getValue().getSignificantBits() > 64)
      return false;
    number = integer.getValue().getSExtValue();
    return true;
  }
  auto real = dyn_cast<FloatAttr>(value);
  if (!real)
    return false;
  APSInt integer(64, /*isUnsigned=*/false);
  bool exact = false;
  real.getValue().convertToInteger(integer, APFloat::rmTowardZero, &exact);
  number = integer.getSExtValue();
  return exact;
}

/// `op`, or somebody who uses it where the model's node is not known of it:
/// equal constants of several nodes are one.
static Operation *namedUser(Operation *op) {
  if (describeLocation(op->getLoc()) == "unknown")
    for (Operation *user : op->getUsers())
      if (describeLocation(user->getLoc()) != "unknown")
        return user;
  return op;
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
    bool whole = true; // a size, perhaps as a floating-point number
    for (size_t k = 0; k < count; ++k)
      whole &=
          wholeNumber(cast<LLVM::ConstantOp>(ops[k]).getValue(), values[k]);
    const Extent *extent = whole ? fits(values) : nullptr;
    Type type = op->getResult(0).getType();
    if (!extent || !(type.isInteger() || isa<FloatType>(type)))
      return refuse(members, namedUser(op),
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
      Type type = op->getResult(0).getType();
      Value value = load(
          op, extent, isa<FloatType>(type) ? 64 : type.getIntOrFloatBitWidth());
      if (isa<FloatType>(type)) {
        OpBuilder::InsertionGuard guard(builder);
        builder.setInsertionPointAfterValue(value);
        value = LLVM::SIToFPOp::create(builder, op->getLoc(), type, value);
      }
      constant.getResult().replaceAllUsesWith(value);
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
    if (Operation *loaded = table.getDefiningOp();
        loaded && op->getBlock() == loaded->getBlock() &&
        op->isBeforeInBlock(loaded))
      builder.setInsertionPointAfter(loaded);
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
  if (failed(functions()) || failed(globals()))
    return failure();
  callNests();
  return success(succeeded(metadata()) && succeeded(packing()));
}

LogicalResult mergeLowered(const FamilyMembers &members) {
  return Merger(members).run();
}

} // namespace concord