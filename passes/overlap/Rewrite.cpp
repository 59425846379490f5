//===- Rewrite.cpp - Split, start and wait --------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "overlap/Rewrite.h"

#include "common/Explain.h"
#include "common/Family.h"
#include "common/PlanBuilder.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace concord {

comm::StartOp startCollective(comm::CollectiveOpInterface op) {
  OpBuilder builder(op);
  Value input = op.getCollectiveInput();
  Value init;
  if (auto destination =
          dyn_cast<DestinationStyleOpInterface>(op.getOperation()))
    init = destination.getDpsInits().front();
  // Between start and wait nobody else may touch the outs.
  if (init)
    if (auto empty = init.getDefiningOp<tensor::EmptyOp>();
        empty && !init.hasOneUse())
      init = builder.clone(*empty)->getResult(0);
  OperationState state(op->getLoc(), comm::StartOp::getOperationName());
  comm::StartOp::Properties properties;
  for (StringRef name : {"reduction", "dim", "split_dim", "concat_dim", "root",
                         "peer", "pairs", "send_sizes", "recv_sizes"})
    if (Attribute attr = op->getAttr(name))
      state.addAttribute(name, attr);
  state.addAttribute("kind", comm::CollectiveKindAttr::get(
                                 op.getContext(), op.getCollectiveKind()));
  state.addAttribute("domain", op.getCollectiveDomain());
  state.addAttribute("operandSegmentSizes", builder.getDenseI32ArrayAttr(
                                                {input ? 1 : 0, init ? 1 : 0}));
  for (NamedAttribute attr : op->getDiscardableAttrs())
    state.addAttribute(attr.getName(), attr.getValue());
  if (input)
    state.addOperands(input);
  if (init)
    state.addOperands(init);
  state.addTypes(comm::FutureType::get(op.getContext()));
  return cast<comm::StartOp>(builder.create(state));
}

void waitForCollective(comm::CollectiveOpInterface op, comm::StartOp start,
                       Operation *before) {
  OpBuilder builder(before);
  SmallVector<Type> types(op->getResultTypes());
  auto wait =
      comm::WaitOp::create(builder, op->getLoc(), types, start.getFuture(),
                           start.getInput(), start.getInit());
  op->replaceAllUsesWith(wait->getResults());
  op->erase();
}

/// The outermost dimension that `op` leaves alone, with an extent of two or
/// more; -1 when there is none.
static int64_t splittableDim(comm::CollectiveOpInterface op) {
  auto type = cast<ShapedType>(op.getCollectiveInput().getType());
  for (int64_t dim = 0; dim < type.getRank(); ++dim)
    if (dim != op.getCollectiveSplitDim() &&
        dim != op.getCollectiveConcatDim() && type.getDimSize(dim) > 1)
      return dim;
  return -1;
}

unsigned splitCollective(comm::CollectiveOpInterface op, int64_t pieces,
                         StringRef &why) {
  Value input = op.getCollectiveInput();
  if (op.isAsync() || !input || op->getNumResults() != 1 ||
      !op.getCollectiveKernel().empty() ||
      !isa<RankedTensorType>(input.getType())) {
    why = "not-a-collective-on-tensors";
    return 0;
  }
  auto inputType = cast<RankedTensorType>(input.getType());
  auto outputType = cast<RankedTensorType>(op->getResult(0).getType());
  if (!inputType.hasStaticShape() || !outputType.hasStaticShape()) {
    why = "dynamic-shape";
    return 0;
  }
  if (!op.getCollectiveSendSizes().empty()) {
    why = "uneven-blocks";
    return 0;
  }
  // Members other than the root keep their outs, which is one value.
  auto destination = cast<DestinationStyleOpInterface>(op.getOperation());
  Value outs = destination.getDpsInits().front();
  int64_t dim = splittableDim(op);
  if (dim < 0) {
    why = "no-free-dimension";
    return 0;
  }
  int64_t extent = inputType.getDimSize(dim);
  pieces = std::min(pieces, extent);
  if (pieces < 2) {
    why = "small";
    return 0;
  }
  int64_t step = llvm::divideCeil(extent, pieces);
  OpBuilder builder(op);
  auto slice = [&](RankedTensorType type, int64_t first, int64_t size,
                   SmallVectorImpl<OpFoldResult> &offsets,
                   SmallVectorImpl<OpFoldResult> &sizes,
                   SmallVectorImpl<OpFoldResult> &strides) {
    for (int64_t i = 0; i < type.getRank(); ++i) {
      offsets.push_back(builder.getIndexAttr(i == dim ? first : 0));
      sizes.push_back(
          builder.getIndexAttr(i == dim ? size : type.getDimSize(i)));
      strides.push_back(builder.getIndexAttr(1));
    }
  };
  Value whole = outs;
  unsigned made = 0;
  SmallVector<Value> parts;
  SmallVector<int64_t> firsts;
  bool empty = outs.getDefiningOp<tensor::EmptyOp>() != nullptr;
  for (int64_t first = 0; first < extent; first += step, ++made) {
    int64_t size = std::min(step, extent - first);
    SmallVector<OpFoldResult> offsets, sizes, strides;
    slice(inputType, first, size, offsets, sizes, strides);
    Value part = tensor::ExtractSliceOp::create(builder, op->getLoc(), input,
                                                offsets, sizes, strides);
    SmallVector<int64_t> shape(outputType.getShape());
    shape[dim] = size;
    Value init;
    if (empty) {
      init = tensor::EmptyOp::create(builder, op->getLoc(), shape,
                                     outputType.getElementType());
    } else {
      SmallVector<OpFoldResult> o, s, t;
      slice(outputType, first, size, o, s, t);
      init =
          tensor::ExtractSliceOp::create(builder, op->getLoc(), outs, o, s, t);
    }
    IRMapping mapping;
    mapping.map(input, part);
    mapping.map(outs, init);
    Operation *copy = builder.clone(*op, mapping);
    copy->getResult(0).setType(cast<RankedTensorType>(init.getType()));
    parts.push_back(copy->getResult(0));
    firsts.push_back(first);
  }
  for (auto [part, first] : llvm::zip(parts, firsts)) {
    SmallVector<OpFoldResult> offsets, sizes, strides;
    auto type = cast<RankedTensorType>(part.getType());
    slice(outputType, first, type.getDimSize(dim), offsets, sizes, strides);
    whole = tensor::InsertSliceOp::create(builder, op->getLoc(), part, whole,
                                          offsets, sizes, strides);
  }
  op->getResult(0).replaceAllUsesWith(whole);
  op->erase();
  return made;
}

unsigned splitLargeCollectives(ModuleOp module, const CostModel &cost,
                               int64_t bytes, StringRef pass) {
  // What a higher priority would wait for: pieces take about as long as twenty
  // latencies, so that splitting costs at most a twentieth.
  constexpr double kLatencies = 20;
  constexpr int64_t kMostPieces = 16;
  // Pieces that are right for one size are not for another.
  if (module->hasAttr(kDims)) {
    explain(module, module.getLoc(), pass, "keep-whole", "bounded-sizes");
    return 0;
  }
  llvm::StringMap<int64_t> priorities;
  for (auto domain : module.getOps<comm::DomainOp>())
    priorities[domain.getSymName()] =
        static_cast<int64_t>(domain.getPriority());
  SmallVector<comm::CollectiveOpInterface> list;
  int64_t highest = INT64_MIN;
  module.walk([&](comm::CollectiveOpInterface op) {
    list.push_back(op);
    highest = std::max(highest,
                       priorities.lookup(op.getCollectiveDomain().getValue()));
  });
  // What one program has started stays whole, and so does what another one
  // meets it with.
  if (llvm::range_size(module.getOps<comm::ProgramOp>()) > 1 &&
      llvm::any_of(list, [](auto op) { return op.isAsync(); })) {
    explain(module, module.getLoc(), pass, "keep-whole",
            "started-in-several-programs");
    return 0;
  }
  unsigned made = 0;
  for (comm::CollectiveOpInterface op : list) {
    if (op.isAsync() || !op.getCollectiveInput() || !op->getNumResults())
      continue;
    StringRef domain = op.getCollectiveDomain().getValue();
    double whole = wholeBytes(op, cost.groupSize(domain));
    int64_t pieces = 1;
    if (bytes > 0) {
      pieces = static_cast<int64_t>(whole / static_cast<double>(bytes) + 0.999);
    } else if (priorities.lookup(domain) < highest &&
               !cost.movesByCore(domain)) {
      cost::CollectiveCost predicted = cost.collective(op);
      double piece = kLatencies * std::max(predicted.latency, 1e-7);
      pieces = std::min(kMostPieces,
                        static_cast<int64_t>(predicted.seconds / piece));
    }
    if (pieces < 2)
      continue;
    Location loc = op->getLoc();
    StringRef why;
    unsigned count = splitCollective(op, pieces, why);
    explain(module, loc, pass, count ? "chunk" : "keep-whole",
            !count ? why
                   : StringRef(bytes > 0 ? "chunk-bytes" : "low-priority"),
            "bytes=" + Twine(static_cast<int64_t>(whole)) +
                " pieces=" + Twine(std::max(1u, count)));
    made += count;
  }
  return made;
}

} // namespace concord
