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
#include "common/NodeBridge.h"
#include "common/PlanBuilder.h"
#include "concord/artefact.h"

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
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "mlir/Transforms/Passes.h"

#include <cstddef>

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

/// Site numbers and kernel indices, decided before the conversion.
struct Numbering {
  llvm::DenseMap<Operation *, int64_t>
      sites; ///< issues, and waits by their start
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

struct IssueLowering
    : OpInterfaceConversionPattern<comm::CollectiveOpInterface>,
      CommPattern {
  IssueLowering(const LLVMTypeConverter &converter, const Numbering &numbering)
      : OpInterfaceConversionPattern(converter, &converter.getContext()),
        CommPattern(converter, numbering) {}

  LogicalResult
  matchAndRewrite(comm::CollectiveOpInterface op, ArrayRef<Value> operands,
                  ConversionPatternRewriter &rewriter) const override {
    Location loc = op->getLoc();
    MLIRContext *context = op->getContext();
    auto pointer = LLVM::LLVMPointerType::get(context);
    Type i64 = rewriter.getI64Type(), i32 = rewriter.getI32Type();
    auto bufferType =
        LLVM::LLVMStructType::getLiteral(context, {pointer, i64, i64, i64});
    SmallVector<std::pair<unsigned, BufferShape>> buffers;
    for (unsigned i = 0; i < op->getNumOperands(); ++i) {
      Value operand = op->getOperand(i);
      if (!op.getCollectiveKernel().empty())
        buffers.push_back({i, denseShape(operand)});
      else if (operand == op.getCollectiveInput() &&
               numbering.inputs.count(op) && (buffers.empty()))
        buffers.push_back({i, numbering.inputs.lookup(op)});
      else if (operand == op.getCollectiveOutput())
        buffers.push_back({i, numbering.outputs.lookup(op)});
    }
    Value array = stackSlot(rewriter, op, bufferType,
                            std::max<size_t>(1, buffers.size()));
    for (auto [index, entry] : llvm::enumerate(buffers)) {
      auto &[operand, shape] = entry;
      Value fields[] = {pointerOf(rewriter, loc, operands[operand],
                                  op->getOperand(operand).getType()),
                        constant(rewriter, loc, shape.outer, 64),
                        constant(rewriter, loc, shape.innerBytes, 64),
                        constant(rewriter, loc, shape.strideBytes, 64)};
      for (auto [f, value] : llvm::enumerate(fields)) {
        Value at = LLVM::GEPOp::create(
            rewriter, loc, pointer, bufferType, array,
            ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(index),
                                   static_cast<int32_t>(f)});
        LLVM::StoreOp::create(rewriter, loc, value, at);
      }
    }
    auto callee = declare(rewriter, op->getParentOfType<ModuleOp>(),
                          "concord_issue", {pointer, i32, pointer, i32});
    Value ctx =
        stepField(rewriter, op, offsetof(concord_step_args, context), pointer);
    LLVM::CallOp::create(
        rewriter, loc, callee,
        ValueRange{ctx, constant(rewriter, loc, numbering.sites.lookup(op), 32),
                   array, constant(rewriter, loc, buffers.size(), 32)});
    if (op->getNumResults()) {
      // The future: its wait knows the site, nothing is carried at run time.
      rewriter.replaceOp(op, constant(rewriter, loc, 0, 32));
      return success();
    }
    rewriter.eraseOp(op);
    return success();
  }
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
  void hoistWeights(func::FuncOp function,
                    SmallVectorImpl<Attribute> &parameters);
  LogicalResult convert(ModuleOp module, const Numbering &numbering);
  void exitOnError(LLVM::LLVMFuncOp function);
  void entryPoint(ModuleOp module, LLVM::LLVMFuncOp body,
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

/// Integers become bfloat16 by way of f32, which LLVM has instructions for: the
/// direct conversion (canonicalization makes it) would be a library call.
template <typename OpTy> static void integersThroughF32(ModuleOp module) {
  SmallVector<OpTy> ops;
  module.walk([&](OpTy op) {
    if (op.getType().isBF16())
      ops.push_back(op);
  });
  for (OpTy op : ops) {
    OpBuilder builder(op);
    Value wide =
        OpTy::create(builder, op.getLoc(), builder.getF32Type(), op.getIn());
    Value narrow =
        arith::TruncFOp::create(builder, op.getLoc(), op.getType(), wide);
    op.replaceAllUsesWith(narrow);
    op.erase();
  }
}

LogicalResult Lower::loops(ModuleOp module) {
  copiesToLinalg(module);
  integersThroughF32<arith::SIToFPOp>(module);
  integersThroughF32<arith::UIToFPOp>(module);
  OpPassManager manager("builtin.module");
  OpPassManager &functions = manager.nest<func::FuncOp>();
  functions.addPass(createConvertLinalgToLoopsPass());
  manager.addPass(memref::createFoldMemRefAliasOpsPass());
  manager.addPass(memref::createExpandStridedMetadataPass());
  manager.addPass(createLowerAffinePass());
  // bfloat16 has no instructions in every CPU class, and no library to call.
  arith::ArithExpandOpsPassOptions expand;
  expand.includeBf16 = true;
  manager.addPass(arith::createArithExpandOpsPass(expand));
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
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

LogicalResult Lower::convert(ModuleOp module, const Numbering &numbering) {
  MLIRContext *context = &getContext();
  LowerToLLVMOptions options(context);
  options.useBarePtrCallConv = true;
  LLVMTypeConverter converter(context, options);
  converter.addConversion(
      [&](comm::FutureType) -> Type { return IntegerType::get(context, 32); });
  RewritePatternSet patterns(context);
  arith::populateArithToLLVMConversionPatterns(converter, patterns);
  cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
  populateMathToLLVMConversionPatterns(converter, patterns);
  index::populateIndexToLLVMConversionPatterns(converter, patterns);
  ub::populateUBToLLVMConversionPatterns(converter, patterns);
  populateFinalizeMemRefToLLVMConversionPatterns(converter, patterns);
  populateFuncToLLVMConversionPatterns(converter, patterns);
  patterns.add<IssueLowering, WaitLowering, KernelLowering>(converter,
                                                            numbering);
  patterns.add<QueryLowering<comm::RankOp>, QueryLowering<comm::SizeOp>>(
      converter);
  LLVMConversionTarget target(*context);
  target.addLegalOp<ModuleOp>();
  // Definitions at module level are needed until the patterns have read them.
  target.addLegalOp<comm::DomainOp, comm::OrderOp, comm::CertificateOp,
                    comm::ArenaOp, comm::ProgramOp>();
  return applyFullConversion(module, target, std::move(patterns));
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

/// `concord_step` unpacks its arguments and calls the body; `concord_program`
/// describes the artefact.
void Lower::entryPoint(ModuleOp module, LLVM::LLVMFuncOp body,
                       const Metadata &metadata) {
  OpBuilder builder(&getContext());
  Location loc = module.getLoc();
  auto pointer = LLVM::LLVMPointerType::get(&getContext());
  Type i32 = builder.getI32Type(), i64 = builder.getI64Type();
  builder.setInsertionPointToEnd(module.getBody());
  auto step = LLVM::LLVMFuncOp::create(
      builder, loc, "concord_step", LLVM::LLVMFunctionType::get(i32, {pointer}),
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
  unpack(offsetof(concord_step_args, inputs), metadata.numInputs);
  unpack(offsetof(concord_step_args, outputs), metadata.numOutputs);
  unpack(offsetof(concord_step_args, parameters), metadata.numParameters);
  auto call = LLVM::CallOp::create(builder, loc, body, operands);
  LLVM::ReturnOp::create(builder, loc, call.getResult());

  builder.setInsertionPointToEnd(module.getBody());
  std::string json = metadata.json + std::string(1, '\0');
  std::string kernels = metadata.kernels + std::string(1, '\0');
  StringRef plan(reinterpret_cast<const char *>(metadata.plan.data()),
                 metadata.plan.size());
  bytesGlobal(builder, loc, "concord.meta", ".concord.meta", json);
  bytesGlobal(builder, loc, "concord.kernels", ".concord.kernels", kernels);
  bytesGlobal(builder, loc, "concord.plan", ".concord.plan", plan);
  auto type = LLVM::LLVMStructType::getLiteral(
      &getContext(), {i32, i32, pointer, pointer, i64, pointer, pointer});
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
      LLVM::AddressOfOp::create(builder, loc, pointer, "concord_step")};
  Value desc = LLVM::UndefOp::create(builder, loc, type);
  for (auto [i, value] : llvm::enumerate(fields))
    desc = LLVM::InsertValueOp::create(builder, loc, desc, value, i);
  LLVM::ReturnOp::create(builder, loc, desc);
}

void Lower::runOnOperation() {
  ModuleOp module = getOperation();
  SmallVector<func::FuncOp> entries = entryFunctions(module);
  if (entries.size() != 1) {
    module.emitError() << "has " << entries.size()
                       << " programs; code is generated for one program that "
                          "every rank runs";
    return signalPassFailure();
  }
  func::FuncOp function = entries.front();
  for (Type type : function.getArgumentTypes())
    if (auto memref = dyn_cast<MemRefType>(type);
        !memref || !memref.hasStaticShape()) {
      function.emitError() << "takes " << type
                           << "; inputs and outputs have a static shape";
      return signalPassFailure();
    }
  WalkResult grouped = function.walk([](comm::GroupOp op) {
    op.emitOpError("is verified but not lowered yet; without it the started "
                   "transfers run one by one");
    return WalkResult::interrupt();
  });
  if (grouped.wasInterrupted())
    return signalPassFailure();
  if (!function.getNumArguments() || !function.getArgAttr(0, "comm.arena")) {
    function.emitError("has no planned arena; run comm-plan-workspace first");
    return signalPassFailure();
  }
  FailureOr<plan::Plan> plan = buildPlan(module, /*buffers=*/true);
  if (failed(plan))
    return signalPassFailure();

  SmallVector<Attribute> parameters;
  hoistWeights(function, parameters);
  Numbering numbering;
  SmallVector<std::string> kernels;
  for (auto [site, op] : llvm::enumerate(issuesOf(function))) {
    numbering.sites[op] = site;
    if (op.getCollectiveInput())
      numbering.inputs[op] = bufferShape(op, true);
    if (op.getCollectiveOutput())
      numbering.outputs[op] = bufferShape(op, false);
  }
  function.walk([&](Operation *op) {
    if (auto wait = dyn_cast<comm::WaitOp>(op))
      numbering.sites[op] = numbering.sites.lookup(wait.getStart());
    if (auto kernel = dyn_cast<comm::KernelOp>(op))
      if (numbering.kernels.try_emplace(kernel.getDescription(), kernels.size())
              .second)
        kernels.push_back(kernel.getDescription().str());
  });
  Metadata metadata =
      describeArtefact(module, function, *plan, kernels, parameters);

  if (failed(loops(module)))
    return signalPassFailure();
  emptyArguments(function);
  // The patterns find the issues by operation; the loops above did not touch
  // them. The step's arguments come first from here on.
  auto pointer = LLVM::LLVMPointerType::get(&getContext());
  (void)function.insertArgument(0, pointer, {}, function.getLoc());
  function.setName("concord_body");
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
  if (failed(convert(module, numbering)))
    return signalPassFailure();
  for (Operation &op : llvm::make_early_inc_range(*module.getBody()))
    if (isa<comm::DomainOp, comm::OrderOp, comm::CertificateOp, comm::ArenaOp,
            comm::ProgramOp>(op))
      op.erase();
  auto body = module.lookupSymbol<LLVM::LLVMFuncOp>("concord_body");
  body.setLinkage(LLVM::Linkage::Internal);
  exitOnError(body);
  entryPoint(module, body, metadata);
  module->setAttr("comm.parameters", ArrayAttr::get(&getContext(), parameters));
  setPhase(module, Phase::Lowered);
}
