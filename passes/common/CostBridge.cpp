//===- CostBridge.cpp - Predicted times of MLIR operations ----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "common/CostBridge.h"

#include "common/NodeBridge.h"
#include "common/PlanBuilder.h"
#include "common/Predicted.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;

namespace concord {

double typeBytes(Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  if (!shaped || !shaped.hasStaticShape() ||
      !shaped.getElementType().isIntOrFloat())
    return 0;
  return static_cast<double>(shaped.getNumElements()) *
         static_cast<double>(elementBytes(shaped.getElementType()));
}

double wholeBytes(comm::CollectiveOpInterface op, int64_t groupSize) {
  Value input = op.getCollectiveInput(), output = op.getCollectiveOutput();
  double in = input ? typeBytes(input.getType()) : 0;
  double out = output ? typeBytes(output.getType()) : 0;
  switch (op.getCollectiveKind()) {
  case comm::CollectiveKind::gather:
    return in * static_cast<double>(groupSize);
  case comm::CollectiveKind::scatter:
    return out * static_cast<double>(groupSize);
  default:
    return std::max(in, out);
  }
}

FailureOr<CostModel> CostModel::create(ModuleOp module, StringRef machine) {
  // Opaque computation runs elsewhere; what this project compiles runs here.
  bool opaque = false;
  module.walk([&](comm::ComputeOp) {
    opaque = true;
    return WalkResult::interrupt();
  });
  CostModel model;
  std::string error;
  // A calibration is of the CPUs here, and says nothing about such devices.
  std::string what = machine.empty() && opaque ? "accelerator" : machine.str();
  if (!cost::loadMachine(what, "cpu", model.figures, error)) {
    module.emitError() << "cost model: " << error;
    return failure();
  }
  for (auto domain : module.getOps<comm::DomainOp>()) {
    std::vector<std::vector<int32_t>> groups;
    for (ArrayRef<int64_t> group : domain.getGroupRanks())
      groups.emplace_back(group.begin(), group.end());
    model.placements[domain.getSymName()] = cost::place(model.figures, groups);
  }
  return model;
}

int64_t CostModel::groupSize(StringRef domain) const {
  auto found = placements.find(domain);
  return found == placements.end() ? 1 : found->second.ranks;
}

bool CostModel::movesByCore(StringRef domain) const {
  auto found = placements.find(domain);
  if (found == placements.end())
    return false;
  int top = found->second.top();
  return top >= 0 && figures.levels[top].coreShare >= 1;
}

cost::CollectiveCost CostModel::collective(comm::CollectiveKind kind,
                                           double bytes, StringRef domain,
                                           cost::Algorithm algorithm) const {
  auto found = placements.find(domain);
  return cost::collective(
      figures, static_cast<plan::Kind>(kind), bytes,
      found == placements.end() ? cost::Placement() : found->second, algorithm);
}

cost::CollectiveCost
CostModel::collective(comm::CollectiveOpInterface op) const {
  StringRef domain = op.getCollectiveDomain().getValue();
  return collective(op.getCollectiveKind(), wholeBytes(op, groupSize(domain)),
                    domain);
}

/// The number after ` key=` in a kernel's description, or `fallback`.
static double keyOf(StringRef description, StringRef key, double fallback) {
  size_t at = 0;
  while ((at = description.find(key, at)) != StringRef::npos) {
    StringRef rest = description.drop_front(at + key.size());
    if (at && description[at - 1] == ' ' && rest.consume_front("=")) {
      double value = 1;
      // A list multiplies.
      bool list = rest.consume_front("[");
      do {
        unsigned long long number;
        if (rest.consumeInteger(10, number))
          return list ? value : fallback;
        value = list ? value * static_cast<double>(number)
                     : static_cast<double>(number);
      } while (list && rest.consume_front(","));
      return value;
    }
    at += key.size();
  }
  return fallback;
}

static DType typeOf(Operation *op) {
  for (Value value : op->getOperands())
    if (auto shaped = dyn_cast<ShapedType>(value.getType()))
      if (isa<FloatType>(shaped.getElementType()))
        return fromMlirType(shaped.getElementType());
  return DType::F32;
}

double CostModel::fusedProduct(comm::FusedOp op) const {
  if (auto predicted = op->getAttrOfType<DenseF64ArrayAttr>(kPredictedFusion);
      predicted && predicted.size() == 3)
    return std::max(0.0, predicted[2] * 1e-6 - collective(op).seconds);
  StringRef text = op.getDescription();
  const double groups = keyOf(text, "groups", 1);
  const DType type = typeOf(op);
  double sum = 0;
  // product="...", and in a dispatch product1="..." and so on.
  for (StringRef rest = text.split("product").second; !rest.empty();
       rest = rest.split("product").second) {
    StringRef product = rest.split('"').second.split('"').first;
    double m = keyOf(product, "m", 1), n = keyOf(product, "n", 1),
           k = keyOf(product, "k", 1);
    double bytes =
        (m * k + k * n + m * n) * static_cast<double>(dtypeSize(type));
    sum += cost::compute(figures, groups * 2 * m * n * k, groups * bytes, type);
  }
  return sum;
}

static double kernelFlops(comm::KernelOp op, double bytes) {
  StringRef text = op.getDescription();
  StringRef name = text.split(' ').first;
  auto number = [&](StringRef key, double fallback = 1) {
    return keyOf(text, key, fallback);
  };
  if (name == "gemm")
    return 2 * number("m") * number("n") * number("k") * number("batch");
  if (name == "attention")
    return 2 * number("b") * number("h") * number("sq") * number("sk") *
           (number("d") + number("dv", number("d")));
  if (name == "conv" && op.getInputs().size() > 1) {
    // Every output point takes one filter's worth of products; a filter is what
    // is left of the weights without the output channels.
    auto out = dyn_cast<ShapedType>(op.getInits().front().getType());
    if (out && out.hasStaticShape() && out.getRank() > 1)
      return 2 * static_cast<double>(out.getNumElements()) *
             typeBytes(op.getInputs()[1].getType()) /
             static_cast<double>(elementBytes(out.getElementType())) /
             static_cast<double>(out.getDimSize(1));
  }
  // Rows, elementwise and data movement: some arithmetic for every element.
  return bytes;
}

double CostModel::compute(Operation *op) const {
  if (isa<comm::CollectiveOpInterface, comm::WaitOp, comm::GroupOp>(op))
    return 0;
  if (auto opaque = dyn_cast<comm::ComputeOp>(op)) {
    double bytes = static_cast<double>(opaque.getBytesRead().value_or(0)) +
                   static_cast<double>(opaque.getBytesWritten().value_or(0));
    double flops = static_cast<double>(opaque.getFlops().value_or(0));
    if (bytes <= 0 && flops <= 0)
      return 0;
    return cost::compute(figures, flops, bytes, typeOf(op));
  }
  if (op->getNumRegions() && !isa<linalg::LinalgOp>(op)) {
    auto regionSeconds = [&](Region &region) {
      double sum = 0;
      for (Block &block : region)
        for (Operation &inner : block)
          sum += compute(&inner);
      return sum;
    };
    double sum = 0, longest = 0;
    for (Region &region : op->getRegions()) {
      double seconds = regionSeconds(region);
      sum += seconds;
      longest = std::max(longest, seconds);
    }
    if (auto loop = dyn_cast<scf::ForOp>(op)) {
      auto trips = loop.getStaticTripCount();
      return sum * (trips ? static_cast<double>(trips->getZExtValue()) : 1);
    }
    return isa<scf::IfOp, scf::IndexSwitchOp>(op) ? longest : sum;
  }
  double bytes = 0;
  for (Value value : op->getOperands())
    bytes += typeBytes(value.getType());
  if (auto kernel = dyn_cast<comm::KernelOp>(op)) {
    // Says itself how long it takes.
    if (kernel.getDescription().starts_with("busy "))
      return keyOf(kernel.getDescription(), "ns", 0) * 1e-9;
    return cost::compute(figures, kernelFlops(kernel, bytes), bytes,
                         typeOf(op));
  }
  if (auto generic = dyn_cast<linalg::LinalgOp>(op)) {
    double points = 1;
    for (int64_t extent : generic.getStaticLoopRanges())
      points *= ShapedType::isDynamic(extent) ? 1 : static_cast<double>(extent);
    double work = 0;
    if (auto *body = generic.getBlock())
      work = static_cast<double>(body->getOperations().size()) - 1;
    return cost::compute(figures, points * work, bytes, typeOf(op));
  }
  // Views, constants, allocations, and scalars cost nothing that is worth
  // predicting; anything else that makes tensors copies them.
  StringRef dialect = op->getName().getDialectNamespace();
  if (isa<ViewLikeOpInterface>(op) || dialect == "arith" ||
      dialect == "bufferization" || isa<comm::WeightOp>(op))
    return 0;
  StringRef name = op->getName().stripDialect();
  if (dialect == "tensor" && name != "insert_slice" && name != "pad" &&
      name != "concat" && name != "pack" && name != "unpack")
    return 0;
  if (dialect == "onnx" || dialect == "tensor" || dialect == "memref") {
    for (Value value : op->getResults())
      bytes += typeBytes(value.getType());
    return bytes > 0 ? cost::compute(figures, bytes / 4, bytes, typeOf(op)) : 0;
  }
  return 0;
}

} // namespace concord
