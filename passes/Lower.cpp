//===- Lower.cpp - comm-lower ---------------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From the planned phase to the LLVM dialect. Loops first, by upstream passes;
// then one dialect conversion in which issues and kernels become calls; then
// the entry point, the metadata, and the exits on error, which can only be put
// in once control flow is explicit.
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "comm/Comm.h"
#include "common/Artefact.h"
#include "common/Family.h"
#include "common/NodeBridge.h"
#include "common/PlanBuilder.h"
#include "common/Predicted.h"
#include "concord/artefact.h"
#include "lowering/NarrowFloats.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/IndexToLLVM/IndexToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/Pattern.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Conversion/UBToLLVM/UBToLLVM.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Math/Transforms/Passes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/DialectConversion.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"

#include <cstddef>
#include <set>

namespace concord {
#define GEN_PASS_DEF_COMMLOWER
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

//===----------------------------------------------------------------------===//
// Conversion patterns
//===----------------------------------------------------------------------===//

namespace {

/// Site numbers and kernel indices, decided before the conversion. Kernels are
/// numbered over all programs, sites within each.
struct Numbering {
  llvm::DenseMap<Operation *, int64_t>
      sites; ///< issues, groups, and waits by their start
  llvm::DenseSet<Operation *> grouped; ///< starts that a group launches
  llvm::StringMap<int64_t> kernels;
  llvm::DenseMap<Operation *, BufferShape> inputs, outputs;
};

LLVM::LLVMFuncOp declare(OpBuilder &builder, ModuleOp module, StringRef name,
                         ArrayRef<Type> arguments) {
  if (auto existing = module.lookupSymbol<LLVM::LLVMFuncOp>(name))
    return existing;
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(module.getBody());
  return LLVM::LLVMFuncOp::create(
      builder, module.getLoc(), name,
      LLVM::LLVMFunctionType::get(builder.getI32Type(), arguments));
}

Value constant(OpBuilder &builder, Location loc, int64_t value, unsigned bits) {
  return LLVM::ConstantOp::create(
      builder, loc, builder.getIntegerType(bits),
      builder.getIntegerAttr(builder.getIntegerType(bits), value));
}

/// Loads a field of concord_step_args, which is the first argument of the
/// function around.
Value stepField(OpBuilder &builder, Operation *op, size_t offset, Type type) {
  auto function = op->getParentOfType<FunctionOpInterface>();
  Value args = function.getArgument(0);
  auto pointer = LLVM::LLVMPointerType::get(builder.getContext());
  if (args.getType() != pointer)
    args =
        UnrealizedConversionCastOp::create(builder, op->getLoc(), pointer, args)
            .getResult(0);
  Value field =
      LLVM::GEPOp::create(builder, op->getLoc(), pointer, builder.getI8Type(),
                          args, LLVM::GEPArg(static_cast<int32_t>(offset)));
  return LLVM::LoadOp::create(builder, op->getLoc(), type, field);
}

/// Stack memory of `bytes`, in the function's entry block: a loop must not grow
/// the stack.
Value stackSlot(OpBuilder &builder, Operation *op, Type element,
                int64_t count) {
  OpBuilder::InsertionGuard guard(builder);
  auto function = op->getParentOfType<FunctionOpInterface>();
  builder.setInsertionPointToStart(&function.getFunctionBody().front());
  auto pointer = LLVM::LLVMPointerType::get(builder.getContext());
  Value n = constant(builder, op->getLoc(), count, 64);
  return LLVM::AllocaOp::create(builder, op->getLoc(), pointer, element, n, 8);
}

class CommPattern {
protected:
  CommPattern(const LLVMTypeConverter &converter, const Numbering &numbering)
      : converter(converter), numbering(numbering) {}

  Value pointerOf(OpBuilder &builder, Location loc, Value descriptor,
                  Type type) const {
    return MemRefDescriptor(descriptor)
        .bufferPtr(builder, loc, converter, cast<MemRefType>(type));
  }
  const LLVMTypeConverter &converter;
  const Numbering &numbering;
};

/// The buffers of one or several issues, and the call that hands them over.
class IssueCall : CommPattern {
public:
  IssueCall(const LLVMTypeConverter &converter, const Numbering &numbering)
      : CommPattern(converter, numbering) {}

  /// `operands` are the converted ones of `op`.
  void add(ConversionPatternRewriter &rewriter, comm::CollectiveOpInterface op,
           ValueRange operands) {
    bool first = true;
    for (unsigned i = 0; i < op->getNumOperands(); ++i) {
      Value operand = op->getOperand(i);
      BufferShape shape;
      if (!op.getCollectiveKernel().empty())
        shape = denseShape(operand);
      else if (operand == op.getCollectiveInput() &&
               numbering.inputs.count(op) && first)
        shape = numbering.inputs.lookup(op);
      else if (operand == op.getCollectiveOutput())
        shape = numbering.outputs.lookup(op);
      else
        continue;
      first = false;
      Location loc = op->getLoc();
      buffers.push_back(
          {pointerOf(rewriter, loc, operands[i], operand.getType()),
           constant(rewriter, loc, shape.outer, 64),
           constant(rewriter, loc, shape.innerBytes, 64),
           constant(rewriter, loc, shape.strideBytes, 64)});
    }
  }

  void make(ConversionPatternRewriter &rewriter, Operation *op) {
    Location loc = op->getLoc();
    MLIRContext *context = op->getContext();
    auto pointer = LLVM::LLVMPointerType::get(context);
    Type i64 = rewriter.getI64Type(), i32 = rewriter.getI32Type();
    auto bufferType =
        LLVM::LLVMStructType::getLiteral(context, {pointer, i64, i64, i64});
    Value array = stackSlot(rewriter, op, bufferType,
                            std::max<size_t>(1, buffers.size()));
    for (auto [index, fields] : llvm::enumerate(buffers))
      for (auto [f, value] : llvm::enumerate(fields)) {
        Value at = LLVM::GEPOp::create(
            rewriter, loc, pointer, bufferType, array,
            ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(index),
                                   static_cast<int32_t>(f)});
        LLVM::StoreOp::create(rewriter, loc, value, at);
      }
    auto callee = declare(rewriter, op->getParentOfType<ModuleOp>(),
                          "concord_issue", {pointer, i32, pointer, i32});
    Value ctx =
        stepField(rewriter, op, offsetof(concord_step_args, context), pointer);
    LLVM::CallOp::create(
        rewriter, loc, callee,
        ValueRange{ctx, constant(rewriter, loc, numbering.sites.lookup(op), 32),
                   array, constant(rewriter, loc, buffers.size(), 32)});
  }

private:
  SmallVector<std::array<Value, 4>> buffers;
};

struct IssueLowering
    : OpInterfaceConversionPattern<comm::CollectiveOpInterface> {
  IssueLowering(const LLVMTypeConverter &converter, const Numbering &numbering)
      : OpInterfaceConversionPattern(converter, &converter.getContext()),
        converter(converter), numbering(numbering) {}

  LogicalResult
  matchAndRewrite(comm::CollectiveOpInterface op, ArrayRef<Value> operands,
                  ConversionPatternRewriter &rewriter) const override {
    if (!numbering.grouped.contains(op)) {
      IssueCall call(converter, numbering);
      call.add(rewriter, op, operands);
      call.make(rewriter, op);
    }
    if (op->getNumResults()) {
      // The future: its wait knows the site, nothing is carried at run time.
      rewriter.replaceOp(op, constant(rewriter, op->getLoc(), 0, 32));
      return success();
    }
    rewriter.eraseOp(op);
    return success();
  }
  const LLVMTypeConverter &converter;
  const Numbering &numbering;
};

/// One call with the buffers of all members.
struct GroupLowering : ConvertOpToLLVMPattern<comm::GroupOp> {
  GroupLowering(const LLVMTypeConverter &converter, const Numbering &numbering)
      : ConvertOpToLLVMPattern(converter), converter(converter),
        numbering(numbering) {}
  LogicalResult
  matchAndRewrite(comm::GroupOp op, OpAdaptor,
                  ConversionPatternRewriter &rewriter) const override {
    IssueCall call(converter, numbering);
    for (Value future : op.getFutures()) {
      auto start = future.getDefiningOp<comm::StartOp>();
      SmallVector<Value> operands;
      if (!start ||
          failed(rewriter.getRemappedValues(start->getOperands(), operands)))
        return rewriter.notifyMatchFailure(op,
                                           "a member's buffers are unknown");
      call.add(rewriter,
               cast<comm::CollectiveOpInterface>(start.getOperation()),
               operands);
    }
    call.make(rewriter, op);
    rewriter.eraseOp(op);
    return success();
  }
  const LLVMTypeConverter &converter;
  const Numbering &numbering;
};

struct WaitLowering : ConvertOpToLLVMPattern<comm::WaitOp> {
  WaitLowering(const LLVMTypeConverter &converter, const Numbering &numbering)
      : ConvertOpToLLVMPattern(converter), numbering(numbering) {}
  LogicalResult
  matchAndRewrite(comm::WaitOp op, OpAdaptor,
                  ConversionPatternRewriter &rewriter) const override {
    auto pointer = LLVM::LLVMPointerType::get(op->getContext());
    auto callee =
        declare(rewriter, op->getParentOfType<ModuleOp>(), "concord_site_wait",
                {pointer, rewriter.getI32Type()});
    Value ctx =
        stepField(rewriter, op, offsetof(concord_step_args, context), pointer);
    LLVM::CallOp::create(
        rewriter, op.getLoc(), callee,
        ValueRange{ctx, constant(rewriter, op.getLoc(),
                                 numbering.sites.lookup(op), 32)});
    rewriter.eraseOp(op);
    return success();
  }
  const Numbering &numbering;
};

struct KernelLowering : ConvertOpToLLVMPattern<comm::KernelOp>, CommPattern {
  KernelLowering(const LLVMTypeConverter &converter, const Numbering &numbering)
      : ConvertOpToLLVMPattern(converter), CommPattern(converter, numbering) {}
  LogicalResult
  matchAndRewrite(comm::KernelOp op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    auto pointer = LLVM::LLVMPointerType::get(op->getContext());
    SmallVector<Value> present;
    for (auto [value, original] :
         llvm::zip(adaptor.getInputs(), op.getInputs()))
      present.push_back(pointerOf(rewriter, loc, value, original.getType()));
    for (auto [value, original] : llvm::zip(adaptor.getInits(), op.getInits()))
      present.push_back(pointerOf(rewriter, loc, value, original.getType()));
    Value null = LLVM::ZeroOp::create(rewriter, loc, pointer);
    Value workspace = null;
    if (op.getWorkspace())
      workspace = present.pop_back_val();
    SmallVector<Value> pointers;
    if (auto absent = op.getAbsent()) {
      unsigned next = 0;
      for (bool missing : *absent)
        pointers.push_back(missing ? null : present[next++]);
    } else {
      pointers = present;
    }
    Value array = stackSlot(rewriter, op, pointer, pointers.size());
    for (auto [i, value] : llvm::enumerate(pointers)) {
      Value at = LLVM::GEPOp::create(rewriter, loc, pointer, pointer, array,
                                     LLVM::GEPArg(static_cast<int32_t>(i)));
      LLVM::StoreOp::create(rewriter, loc, value, at);
    }
    Value kernels =
        stepField(rewriter, op, offsetof(concord_step_args, kernels), pointer);
    Value slot = LLVM::GEPOp::create(
        rewriter, loc, pointer, pointer, kernels,
        LLVM::GEPArg(static_cast<int32_t>(
            numbering.kernels.lookup(op.getDescription()))));
    Value handle = LLVM::LoadOp::create(rewriter, loc, pointer, slot);
    auto callee = declare(rewriter, op->getParentOfType<ModuleOp>(),
                          "concord_kernel_run", {pointer, pointer, pointer});
    LLVM::CallOp::create(rewriter, loc, callee,
                         ValueRange{handle, array, workspace});
    rewriter.eraseOp(op);
    return success();
  }
};

/// comm.rank and comm.size: a table over world ranks.
template <typename OpTy> struct QueryLowering : ConvertOpToLLVMPattern<OpTy> {
  using ConvertOpToLLVMPattern<OpTy>::ConvertOpToLLVMPattern;
  LogicalResult
  matchAndRewrite(OpTy op, typename OpTy::Adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    auto module = op->template getParentOfType<ModuleOp>();
    comm::DomainOp domain = comm::lookupDomain(op, op.getDomainAttr());
    SmallVector<int64_t> table(comm::getWorld(module), 0);
    for (ArrayRef<int64_t> group : domain.getGroupRanks())
      for (auto [i, rank] : llvm::enumerate(group))
        table[rank] = std::is_same_v<OpTy, comm::RankOp>
                          ? static_cast<int64_t>(i)
                          : static_cast<int64_t>(group.size());
    auto pointer = LLVM::LLVMPointerType::get(op->getContext());
    std::string name = (Twine("concord.") + op->getName().stripDialect() + "." +
                        op.getDomain())
                           .str();
    if (!module.template lookupSymbol<LLVM::GlobalOp>(name)) {
      OpBuilder::InsertionGuard guard(rewriter);
      rewriter.setInsertionPointToStart(module.getBody());
      auto type = LLVM::LLVMArrayType::get(rewriter.getI64Type(), table.size());
      LLVM::GlobalOp::create(rewriter, loc, type, /*isConstant=*/true,
                             LLVM::Linkage::Internal, name,
                             rewriter.getI64TensorAttr(table));
    }
    Value base = LLVM::AddressOfOp::create(rewriter, loc, pointer, name);
    Value rank = stepField(rewriter, op, offsetof(concord_step_args, rank),
                           rewriter.getI32Type());
    Value wide =
        LLVM::SExtOp::create(rewriter, loc, rewriter.getI64Type(), rank);
    Value at =
        LLVM::GEPOp::create(rewriter, loc, pointer, rewriter.getI64Type(), base,
                            ArrayRef<LLVM::GEPArg>{wide});
    rewriter.replaceOp(
        op, LLVM::LoadOp::create(rewriter, loc, rewriter.getI64Type(), at)
                .getOperation());
    return success();
  }
};

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

struct Lower : public concord::impl::CommLowerBase<Lower> {
  using CommLowerBase::CommLowerBase;

  LogicalResult loops(ModuleOp module);
  LogicalResult check(ModuleOp module, func::FuncOp function);
  void hoistWeights(func::FuncOp function,
                    SmallVectorImpl<Attribute> &parameters);
  void number(func::FuncOp function, Numbering &numbering,
              SmallVectorImpl<std::string> &kernels, LoweredProgram &program);
  void makeBody(func::FuncOp function, const std::string &name);
  LogicalResult convert(ModuleOp module, const Numbering &numbering);
  void exitOnError(LLVM::LLVMFuncOp function);
  LLVM::LLVMFuncOp step(ModuleOp module, LLVM::LLVMFuncOp body,
                        const LoweredProgram &program, const Twine &name);
  void entryPoint(ModuleOp module, ArrayRef<LLVM::LLVMFuncOp> steps,
                  const Metadata &metadata);
  void runOnOperation() override;
};

} // namespace

/// Strided copies become loops like everything else: the library call that
/// upstream would make for them allocates.
static void copiesToLinalg(ModuleOp module) {
  SmallVector<memref::CopyOp> copies;
  module.walk([&](memref::CopyOp op) { copies.push_back(op); });
  for (memref::CopyOp op : copies) {
    auto dense = [](Value value) {
      return cast<MemRefType>(value.getType()).getLayout().isIdentity();
    };
    if (dense(op.getSource()) && dense(op.getTarget()))
      continue;
    OpBuilder builder(op);
    linalg::CopyOp::create(builder, op.getLoc(), op.getSource(),
                           op.getTarget());
    op.erase();
  }
}

LogicalResult Lower::loops(ModuleOp module) {
  copiesToLinalg(module);
  if (failed(narrowFloatsThroughF32(module)))
    return failure();
  OpPassManager manager("builtin.module");
  OpPassManager &functions = manager.nest<func::FuncOp>();
  functions.addPass(createConvertLinalgToLoopsPass());
  manager.addPass(memref::createFoldMemRefAliasOpsPass());
  manager.addPass(memref::createExpandStridedMetadataPass());
  manager.addPass(createLowerAffinePass());
  // bfloat16 has no instructions in every CPU class, and no library to call.
  arith::ArithEmulateUnsupportedFloatsOptions emulate;
  SmallVector<std::string> narrow = {"bf16"};
  emulate.sourceTypeStrs = narrow;
  emulate.targetTypeStr = "f32";
  manager.addPass(arith::createArithEmulateUnsupportedFloats(emulate));
  arith::ArithExpandOpsPassOptions expand;
  expand.includeBf16 = true;
  manager.addPass(arith::createArithExpandOpsPass(expand));
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  manager.addPass(createCommOutline());
  manager.addPass(createSCFToControlFlowPass());
  manager.addPass(createCanonicalizerPass());
  if (failed(runPipeline(manager, module)))
    return failure();
  RewritePatternSet patterns(&getContext());
  populateMathPolynomialApproximationPatterns(patterns);
  return applyPatternsGreedily(module, std::move(patterns));
}

/// Parameters become arguments of the function, one per distinct section.
void Lower::hoistWeights(func::FuncOp function,
                         SmallVectorImpl<Attribute> &parameters) {
  llvm::MapVector<Attribute, SmallVector<comm::WeightOp>> distinct;
  function.walk([&](comm::WeightOp op) {
    Attribute key = OpBuilder(op).getArrayAttr(
        {op->getAttrDictionary(), TypeAttr::get(op.getType())});
    distinct[key].push_back(op);
  });
  for (auto &[key, ops] : distinct) {
    unsigned index = function.getNumArguments();
    comm::WeightOp op = ops.front();
    (void)function.insertArgument(index, op.getType(), {}, op.getLoc());
    parameters.push_back(describeParameter(op));
    for (comm::WeightOp user : ops) {
      user.replaceAllUsesWith(function.getArgument(index));
      user.erase();
    }
  }
}

/// An argument without elements has no strides that the bare-pointer convention
/// accepts: it becomes a byte, seen as the empty buffer.
static void emptyArguments(func::FuncOp function) {
  Block &body = function.getBody().front();
  OpBuilder builder = OpBuilder::atBlockBegin(&body);
  for (BlockArgument argument : body.getArguments()) {
    auto type = dyn_cast<MemRefType>(argument.getType());
    if (!type || type.getNumElements() != 0)
      continue;
    argument.setType(MemRefType::get({1}, builder.getI8Type()));
    Value zero = arith::ConstantIndexOp::create(builder, function.getLoc(), 0);
    auto view = memref::ViewOp::create(builder, function.getLoc(), type,
                                       argument, zero, ValueRange());
    argument.replaceAllUsesExcept(view, view);
  }
  function.setType(builder.getFunctionType(body.getArgumentTypes(),
                                           function.getResultTypes()));
}

/// Constants of bfloat16 as the bits that `bfloatType` makes of the type.
static void bfloatConstantsAsBits(ModuleOp module) {
  module.walk([](arith::ConstantOp op) {
    auto value = dyn_cast<FloatAttr>(op.getValue());
    if (!value || !op.getType().isBF16())
      return;
    OpBuilder builder(op);
    Value bits = arith::ConstantOp::create(
        builder, op.getLoc(),
        builder.getIntegerAttr(builder.getI16Type(),
                               value.getValue().bitcastToAPInt()));
    op.replaceAllUsesWith(
        arith::BitcastOp::create(builder, op.getLoc(), op.getType(), bits)
            .getResult());
    op.erase();
  });
  llvm::StringMap<MemRefType> globals;
  for (auto global : module.getOps<memref::GlobalOp>()) {
    MemRefType type = global.getType();
    auto value =
        dyn_cast_or_null<DenseElementsAttr>(global.getInitialValueAttr());
    if (!type.getElementType().isBF16() || !value)
      continue;
    auto bits = MemRefType::Builder(type).setElementType(
        IntegerType::get(module.getContext(), 16));
    global.setType(bits);
    global.setInitialValueAttr(
        value.bitcast(MemRefType(bits).getElementType()));
    globals[global.getSymName()] = bits;
  }
  module.walk([&](memref::GetGlobalOp op) {
    auto found = globals.find(op.getName());
    if (found == globals.end())
      return;
    OpBuilder builder(op->getContext());
    builder.setInsertionPointAfter(op);
    MemRefType type = op.getType();
    op.getResult().setType(found->second);
    auto cast = UnrealizedConversionCastOp::create(builder, op.getLoc(), type,
                                                   op.getResult());
    op.getResult().replaceAllUsesExcept(cast.getResult(0), cast);
  });
}

LogicalResult Lower::convert(ModuleOp module, const Numbering &numbering) {
  MLIRContext *context = &getContext();
  bfloatConstantsAsBits(module);
  LowerToLLVMOptions options(context);
  options.useBarePtrCallConv = true;
  LLVMTypeConverter converter(context, options);
  converter.addConversion(
      [&](comm::FutureType) -> Type { return IntegerType::get(context, 32); });
  // All arithmetic on bfloat16 is on its bits by now. A value of the type
  // itself that lives on in a register is widened by the code generator where
  // the CPU class has no instructions for it, and narrowed by a call of a
  // library.
  converter.addConversion(
      [&](BFloat16Type) -> Type { return IntegerType::get(context, 16); });
  RewritePatternSet patterns(context);
  arith::populateArithToLLVMConversionPatterns(converter, patterns);
  cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
  populateMathToLLVMConversionPatterns(converter, patterns);
  index::populateIndexToLLVMConversionPatterns(converter, patterns);
  ub::populateUBToLLVMConversionPatterns(converter, patterns);
  populateFinalizeMemRefToLLVMConversionPatterns(converter, patterns);
  populateFuncToLLVMConversionPatterns(converter, patterns);
  patterns.add<IssueLowering, GroupLowering, WaitLowering, KernelLowering>(
      converter, numbering);
  patterns.add<QueryLowering<comm::RankOp>, QueryLowering<comm::SizeOp>>(
      converter);
  LLVMConversionTarget target(*context);
  target.addLegalOp<ModuleOp>();
  // Definitions at module level are needed until the patterns have read them.
  target.addLegalOp<comm::DomainOp, comm::OrderOp, comm::CertificateOp,
                    comm::ArenaOp, comm::ProgramOp>();
  target.addLegalOp<UnrealizedConversionCastOp>();
  if (failed(applyFullConversion(module, target, std::move(patterns))))
    return failure();
  SmallVector<UnrealizedConversionCastOp> casts;
  module.walk([&](UnrealizedConversionCastOp op) { casts.push_back(op); });
  reconcileUnrealizedCasts(casts);
  return success();
}

/// `if (status != 0) return status;` after every call that has a status.
void Lower::exitOnError(LLVM::LLVMFuncOp function) {
  SmallVector<LLVM::CallOp> calls;
  function.walk([&](LLVM::CallOp call) {
    auto callee = call.getCallee();
    if (callee &&
        (*callee == "concord_issue" || *callee == "concord_site_wait" ||
         *callee == "concord_kernel_run"))
      calls.push_back(call);
  });
  OpBuilder builder(function.getContext());
  Region &region = function.getBody();
  Block *exit = new Block();
  region.push_back(exit);
  Location loc = function.getLoc();
  Value status = exit->addArgument(builder.getI32Type(), loc);
  builder.setInsertionPointToEnd(exit);
  LLVM::ReturnOp::create(builder, loc, status);
  for (LLVM::CallOp call : calls) {
    Block *rest = call->getBlock()->splitBlock(call->getNextNode());
    builder.setInsertionPointToEnd(call->getBlock());
    Value zero = constant(builder, call.getLoc(), 0, 32);
    Value bad =
        LLVM::ICmpOp::create(builder, call.getLoc(), LLVM::ICmpPredicate::ne,
                             call.getResult(), zero);
    LLVM::CondBrOp::create(builder, call.getLoc(), bad, exit,
                           ValueRange{call.getResult()}, rest, ValueRange{});
  }
}

static LLVM::GlobalOp bytesGlobal(OpBuilder &builder, Location loc,
                                  StringRef name, StringRef section,
                                  StringRef data) {
  auto type = LLVM::LLVMArrayType::get(builder.getI8Type(), data.size());
  auto global = LLVM::GlobalOp::create(
      builder, loc, type, /*isConstant=*/true, LLVM::Linkage::Internal, name,
      builder.getStringAttr(data), /*alignment=*/8);
  global.setSection(section);
  return global;
}

/// Unpacks the arguments of a step and calls the body.
LLVM::LLVMFuncOp Lower::step(ModuleOp module, LLVM::LLVMFuncOp body,
                             const LoweredProgram &program, const Twine &name) {
  OpBuilder builder(&getContext());
  Location loc = module.getLoc();
  auto pointer = LLVM::LLVMPointerType::get(&getContext());
  Type i32 = builder.getI32Type();
  builder.setInsertionPointToEnd(module.getBody());
  auto step = LLVM::LLVMFuncOp::create(
      builder, loc, name.str(), LLVM::LLVMFunctionType::get(i32, {pointer}),
      LLVM::Linkage::Internal);
  Block *entry = step.addEntryBlock(builder);
  builder.setInsertionPointToEnd(entry);
  Value args = entry->getArgument(0);
  auto field = [&](size_t offset) {
    Value at =
        LLVM::GEPOp::create(builder, loc, pointer, builder.getI8Type(), args,
                            LLVM::GEPArg(static_cast<int32_t>(offset)));
    return LLVM::LoadOp::create(builder, loc, pointer, at);
  };
  SmallVector<Value> operands = {args,
                                 field(offsetof(concord_step_args, arena))};
  auto unpack = [&](size_t offset, size_t count) {
    Value array = field(offset);
    for (size_t i = 0; i < count; ++i) {
      Value at = LLVM::GEPOp::create(builder, loc, pointer, pointer, array,
                                     LLVM::GEPArg(static_cast<int32_t>(i)));
      operands.push_back(LLVM::LoadOp::create(builder, loc, pointer, at));
    }
  };
  unpack(offsetof(concord_step_args, inputs), program.numInputs);
  unpack(offsetof(concord_step_args, outputs), program.numOutputs);
  unpack(offsetof(concord_step_args, parameters), program.parameters.size());
  auto call = LLVM::CallOp::create(builder, loc, body, operands);
  LLVM::ReturnOp::create(builder, loc, call.getResult());
  return step;
}

/// `concord_program` describes the artefact; `concord.steps` has the entry of
/// each program, in the plan's order.
void Lower::entryPoint(ModuleOp module, ArrayRef<LLVM::LLVMFuncOp> steps,
                       const Metadata &metadata) {
  OpBuilder builder(&getContext());
  Location loc = module.getLoc();
  auto pointer = LLVM::LLVMPointerType::get(&getContext());
  Type i32 = builder.getI32Type(), i64 = builder.getI64Type();
  builder.setInsertionPointToEnd(module.getBody());
  std::string json = metadata.json + std::string(1, '\0');
  std::string kernels = metadata.kernels + std::string(1, '\0');
  StringRef plan(reinterpret_cast<const char *>(metadata.plan.data()),
                 metadata.plan.size());
  bytesGlobal(builder, loc, "concord.meta", ".concord.meta", json);
  bytesGlobal(builder, loc, "concord.kernels", ".concord.kernels", kernels);
  bytesGlobal(builder, loc, "concord.plan", ".concord.plan", plan);
  auto tableType = LLVM::LLVMArrayType::get(pointer, steps.size());
  auto table =
      LLVM::GlobalOp::create(builder, loc, tableType,
                             /*isConstant=*/false, LLVM::Linkage::Internal,
                             "concord.steps", Attribute());
  {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(
        builder.createBlock(&table.getInitializerRegion()));
    Value list = LLVM::UndefOp::create(builder, loc, tableType);
    for (auto [i, entry] : llvm::enumerate(steps))
      list = LLVM::InsertValueOp::create(
          builder, loc, list,
          LLVM::AddressOfOp::create(builder, loc, pointer,
                                    LLVM::LLVMFuncOp(entry).getSymName()),
          i);
    LLVM::ReturnOp::create(builder, loc, list);
  }
  auto type = LLVM::LLVMStructType::getLiteral(
      &getContext(),
      {i32, i32, pointer, pointer, i64, pointer, pointer, i64, pointer});
  auto program = LLVM::GlobalOp::create(
      builder, loc, type, /*isConstant=*/false, LLVM::Linkage::External,
      CONCORD_PROGRAM_SYMBOL, Attribute());
  Block *init = builder.createBlock(&program.getInitializerRegion());
  builder.setInsertionPointToEnd(init);
  Value fields[] = {
      constant(builder, loc, sizeof(concord_program_desc), 32),
      constant(builder, loc, CONCORD_ARTEFACT_ABI_VERSION, 32),
      LLVM::AddressOfOp::create(builder, loc, pointer, "concord.meta"),
      LLVM::AddressOfOp::create(builder, loc, pointer, "concord.plan"),
      constant(builder, loc, metadata.plan.size(), 64),
      LLVM::AddressOfOp::create(builder, loc, pointer, "concord.kernels"),
      LLVM::AddressOfOp::create(builder, loc, pointer,
                                LLVM::LLVMFuncOp(steps.front()).getSymName()),
      constant(builder, loc, steps.size(), 64),
      LLVM::AddressOfOp::create(builder, loc, pointer, "concord.steps")};
  Value desc = LLVM::UndefOp::create(builder, loc, type);
  for (auto [i, value] : llvm::enumerate(fields))
    desc = LLVM::InsertValueOp::create(builder, loc, desc, value, i);
  LLVM::ReturnOp::create(builder, loc, desc);
}

LogicalResult Lower::check(ModuleOp module, func::FuncOp function) {
  for (Type type : function.getArgumentTypes())
    if (auto memref = dyn_cast<MemRefType>(type);
        !memref || !memref.hasStaticShape())
      return function.emitError()
             << "takes " << type << "; inputs and outputs have a static shape";
  if (module->hasAttr(kSizesPending))
    return function.emitError(
        "is of a program with bounded dimensions, whose members are lowered "
        "together: use --comm-pipeline=\"to=lowered\", --emit=so or "
        "--emit=obj");
  if (!function.getNumArguments() || !function.getArgAttr(0, "comm.arena"))
    return function.emitError(
        "has no planned arena; run comm-plan-workspace first");
  return success();
}

/// Numbers sites as the plan does: groups behind all issues.
void Lower::number(func::FuncOp function, Numbering &numbering,
                   SmallVectorImpl<std::string> &kernels,
                   LoweredProgram &program) {
  int64_t next = 0;
  for (comm::CollectiveOpInterface op : issuesOf(function)) {
    numbering.sites[op] = next++;
    if (op.getCollectiveInput())
      numbering.inputs[op] = bufferShape(op, true);
    if (op.getCollectiveOutput())
      numbering.outputs[op] = bufferShape(op, false);
  }
  function.walk<WalkOrder::PreOrder>([&](comm::GroupOp group) {
    for (Value future : group.getFutures()) {
      numbering.grouped.insert(future.getDefiningOp());
      numbering.sites[future.getDefiningOp()] = next;
    }
    numbering.sites[group] = next++;
  });
  function.walk([&](Operation *op) {
    if (auto wait = dyn_cast<comm::WaitOp>(op))
      numbering.sites[op] = numbering.sites.lookup(wait.getStart());
    auto kernel = dyn_cast<comm::KernelOp>(op);
    if (!kernel)
      return;
    auto [entry, isNew] = numbering.kernels.try_emplace(
        kernel.getDescription(), static_cast<int64_t>(kernels.size()));
    if (isNew)
      kernels.push_back(kernel.getDescription().str());
    if (!llvm::is_contained(program.kernels, entry->second))
      program.kernels.push_back(entry->second);
  });
}

/// The form that a step calls: its arguments first, a status as the result.
void Lower::makeBody(func::FuncOp function, const std::string &name) {
  emptyArguments(function);
  // The patterns find the issues by operation; the loops did not touch them.
  auto pointer = LLVM::LLVMPointerType::get(&getContext());
  (void)function.insertArgument(0, pointer, {}, function.getLoc());
  function.setName(name);
  function.setPrivate();
  for (unsigned i = 1; i < function.getNumArguments(); ++i) {
    function.setArgAttrs(i, ArrayRef<NamedAttribute>());
    function.setArgAttr(i, "llvm.noalias", UnitAttr::get(&getContext()));
  }
  function.setType(FunctionType::get(&getContext(), function.getArgumentTypes(),
                                     {IntegerType::get(&getContext(), 32)}));
  function.walk([&](func::ReturnOp op) {
    OpBuilder builder(op);
    Value zero = arith::ConstantOp::create(builder, op.getLoc(),
                                           builder.getI32IntegerAttr(0));
    op->setOperands({zero});
  });
}

void Lower::runOnOperation() {
  ModuleOp module = getOperation();
  SmallVector<func::FuncOp> entries = entryFunctions(module);
  // Without comm.program every rank runs every public function.
  bool several = !module.getOps<comm::ProgramOp>().empty();
  if (entries.empty() || (entries.size() != 1 && !several)) {
    module.emitError() << "has " << entries.size()
                       << " programs; code is generated for one program that "
                          "every rank runs, or for one comm.program per set of "
                          "ranks and issuer";
    return signalPassFailure();
  }
  llvm::SmallPtrSet<Operation *, 8> distinct;
  for (func::FuncOp function : entries) {
    if (!distinct.insert(function).second) {
      function.emitError("is the entry of two programs; give each a function "
                         "of its own");
      return signalPassFailure();
    }
    if (failed(check(module, function)))
      return signalPassFailure();
  }
  FailureOr<plan::Plan> plan = buildPlan(module, /*buffers=*/true);
  if (failed(plan))
    return signalPassFailure();

  FailureOr<llvm::json::Object> predicted = predictStep(module);
  if (failed(predicted))
    return signalPassFailure();

  Numbering numbering;
  SmallVector<std::string> kernels;
  SmallVector<Attribute> parameters;
  std::vector<LoweredProgram> programs(entries.size());
  for (auto [function, program] : llvm::zip(entries, programs)) {
    program.function = function;
    SmallVector<Attribute> own;
    hoistWeights(function, own);
    // A parameter that two programs use is stored once.
    for (Attribute parameter : own) {
      auto at = llvm::find(parameters, parameter);
      program.parameters.push_back(at - parameters.begin());
      if (at == parameters.end())
        parameters.push_back(parameter);
    }
    number(function, numbering, kernels, program);
  }
  if (plan->programs.size() > 1)
    for (auto [number, parameter] : llvm::enumerate(parameters)) {
      std::set<int64_t> ranks;
      for (auto [program, planned] : llvm::zip(programs, plan->programs))
        if (llvm::is_contained(program.parameters, int64_t(number)))
          ranks.insert(planned.ranks.begin(), planned.ranks.end());
      NamedAttrList attrs(cast<DictionaryAttr>(parameter));
      attrs.set("ranks", Builder(&getContext())
                             .getDenseI64ArrayAttr(SmallVector<int64_t>(
                                 ranks.begin(), ranks.end())));
      parameter = attrs.getDictionary(&getContext());
    }
  Metadata metadata = describeArtefact(module, programs, *plan, kernels,
                                       parameters, std::move(*predicted));

  if (failed(loops(module)))
    return signalPassFailure();
  auto suffix = [&](size_t i) {
    return entries.size() == 1 ? std::string() : "." + std::to_string(i);
  };
  for (auto [i, function] : llvm::enumerate(entries))
    makeBody(function, "concord_body" + suffix(i));
  if (failed(convert(module, numbering)))
    return signalPassFailure();
  for (Operation &op : llvm::make_early_inc_range(*module.getBody()))
    if (isa<comm::DomainOp, comm::OrderOp, comm::CertificateOp, comm::ArenaOp,
            comm::ProgramOp>(op))
      op.erase();
  SmallVector<LLVM::LLVMFuncOp> steps;
  for (auto [i, program] : llvm::enumerate(programs)) {
    auto body =
        module.lookupSymbol<LLVM::LLVMFuncOp>("concord_body" + suffix(i));
    body.setLinkage(LLVM::Linkage::Internal);
    exitOnError(body);
    steps.push_back(step(module, body, program, "concord_step" + suffix(i)));
  }
  entryPoint(module, steps, metadata);
  module->setAttr("comm.parameters", ArrayAttr::get(&getContext(), parameters));
  setPhase(module, Phase::Lowered);
}
