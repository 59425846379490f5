#include "Passes.h"
#include "comm/Comm.h"
#include "onnx/Onnx.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
namespace concord {
#define GEN_PASS_DEF_COMMRECOGNIZE
#include "Passes.h.inc"
} // namespace concord
using namespace mlir;
namespace { struct Recognize : concord::impl::CommRecognizeBase<Recognize> { using CommRecognizeBase::CommRecognizeBase; void runOnOperation() override {} }; }
