//===- Register.cpp - ONNX operators as kernels
//-----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Puts the table of operators behind the kernel interface: parse, build, and
// around every run convert the operands that the operator wants in another
// type than the caller has.
//
//===----------------------------------------------------------------------===//

#include "Plan.h"

#include <new>

using namespace concord;
using namespace concord::kernels;
using namespace concord::kernels::onnx;

namespace {

const OpTable &table() {
  static const OpTable ops = [] {
    OpTable result;
    addElementwise(result);
    addReduce(result);
    addShape(result);
    addIndexing(result);
    addSelect(result);
    addMatMul(result);
    addEinsum(result);
    addCast(result);
    addConv(result);
    addPool(result);
    addNorm(result);
    addAttention(result);
    addQuant(result);
    addSignal(result);
    addImage(result);
    addResize(result);
    addLoss(result);
    return result;
  }();
  return ops;
}

void convertIn(const Plan::Conversion &c, const void *src, char *dst) {
  switch (c.compute) {
  case DType::F32:
    return loadAs(c.dtype, src, c.count, reinterpret_cast<float *>(dst));
  case DType::F64:
    return loadAs(c.dtype, src, c.count, reinterpret_cast<double *>(dst));
  case DType::I64:
    return loadAs(c.dtype, src, c.count, reinterpret_cast<int64_t *>(dst));
  case DType::U64:
    return loadAs(c.dtype, src, c.count, reinterpret_cast<uint64_t *>(dst));
  default:
    return loadAs(c.dtype, src, c.count, reinterpret_cast<uint8_t *>(dst));
  }
}

void convertOut(const Plan::Conversion &c, const char *src, void *dst) {
  switch (c.compute) {
  case DType::F32:
    return storeAs(reinterpret_cast<const float *>(src), c.count, c.dtype, dst);
  case DType::F64:
    return storeAs(reinterpret_cast<const double *>(src), c.count, c.dtype,
                   dst);
  case DType::I64:
    return storeAs(reinterpret_cast<const int64_t *>(src), c.count, c.dtype,
                   dst);
  case DType::U64:
    return storeAs(reinterpret_cast<const uint64_t *>(src), c.count, c.dtype,
                   dst);
  default:
    return storeAs(reinterpret_cast<const uint8_t *>(src), c.count, c.dtype,
                   dst);
  }
}

class OnnxKernel final : public Kernel {
public:
  OnnxKernel(std::string_view text) : node(NodeInfo::parse(text)) {
    auto it = table().find(node.name);
    if (it == table().end())
      throw UnsupportedError("there is no ONNX kernel called '" + node.name +
                             "'");
    Plan plan(node);
    try {
      body = it->second(plan);
    } catch (const KernelError &error) {
      throw KernelError(error.code, "onnx." + node.name + ": " + error.what());
    }
    before = std::move(plan.before);
    after = std::move(plan.after);
    numInputs = static_cast<uint32_t>(node.in.size());
    numOutputs = static_cast<uint32_t>(node.out.size());
    workspaceBytes = plan.workspaceBytes();
  }

  int32_t run(void *const *pointers, void *workspace) const override {
    char *base = static_cast<char *>(workspace);
    try {
      for (const Plan::Conversion &c : before)
        convertIn(c, pointers[c.operand], base + c.offset);
      body(Run(pointers, base, numInputs));
      for (const Plan::Conversion &c : after)
        convertOut(c, base + c.offset, pointers[numInputs + c.operand]);
      return kOk;
    } catch (const KernelError &error) {
      return setLastError(error.code, "onnx.%s: %s", node.name.c_str(),
                          error.what());
    } catch (const std::exception &error) {
      return setLastError(kInvalidArgument, "onnx.%s: %s", node.name.c_str(),
                          error.what());
    }
  }

private:
  NodeInfo node;
  Body body;
  std::vector<Plan::Conversion> before, after;
};

std::unique_ptr<Kernel> makeOnnx(const Description &description) {
  return std::make_unique<OnnxKernel>(description.text());
}

} // namespace

void concord::kernels::registerOnnxKernels(Registry &registry) {
  // The registry keeps views: the names live in a table of their own.
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const auto &[name, builder] : table())
      result.push_back("onnx." + std::string(name));
    return result;
  }();
  for (const std::string &name : names)
    registry.add(name, makeOnnx);
}
