//===- NodeBridge.cpp - Between onnx.node and the operator registry -------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Converts types, attributes and constants between MLIR and the MLIR-free
// structures of frontends/onnx.
//
//===----------------------------------------------------------------------===//

#include "common/NodeBridge.h"

#include "comm/Comm.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinAttributes.h"

#include <cstring>

using namespace mlir;

namespace concord {

Type toMlirType(MLIRContext *context, DType type) {
  Builder builder(context);
  switch (type) {
  case DType::F32:
    return builder.getF32Type();
  case DType::F64:
    return builder.getF64Type();
  case DType::F16:
    return builder.getF16Type();
  case DType::BF16:
    return builder.getBF16Type();
  case DType::I8:
    return builder.getIntegerType(8);
  case DType::I16:
    return builder.getIntegerType(16);
  case DType::I32:
    return builder.getIntegerType(32);
  case DType::I64:
    return builder.getIntegerType(64);
  case DType::U8:
    return builder.getIntegerType(8, /*isSigned=*/false);
  case DType::U16:
    return builder.getIntegerType(16, false);
  case DType::U32:
    return builder.getIntegerType(32, false);
  case DType::U64:
    return builder.getIntegerType(64, false);
  case DType::BOOL:
    return builder.getI1Type();
  case DType::F8E4M3:
    return Float8E4M3FNType::get(context);
  case DType::F8E5M2:
    return Float8E5M2Type::get(context);
  case DType::Invalid:
    break;
  }
  return {};
}

DType fromMlirType(Type type) {
  if (type.isF32())
    return DType::F32;
  if (type.isF64())
    return DType::F64;
  if (type.isF16())
    return DType::F16;
  if (type.isBF16())
    return DType::BF16;
  if (isa<Float8E4M3FNType>(type))
    return DType::F8E4M3;
  if (isa<Float8E5M2Type>(type))
    return DType::F8E5M2;
  auto integer = dyn_cast<IntegerType>(type);
  if (!integer)
    return DType::Invalid;
  switch (integer.getWidth()) {
  case 1:
    return DType::BOOL;
  case 8:
    return integer.isUnsigned() ? DType::U8 : DType::I8;
  case 16:
    return integer.isUnsigned() ? DType::U16 : DType::I16;
  case 32:
    return integer.isUnsigned() ? DType::U32 : DType::I32;
  case 64:
    return integer.isUnsigned() ? DType::U64 : DType::I64;
  default:
    return DType::Invalid;
  }
}

RankedTensorType toMlirType(MLIRContext *context,
                            const onnx::TensorType &type) {
  Type element = toMlirType(context, type.dtype);
  return element ? RankedTensorType::get(type.shape, element)
                 : RankedTensorType();
}

onnx::TensorType fromMlirTensor(Type type) {
  auto shaped = cast<ShapedType>(type);
  return {fromMlirType(shaped.getElementType()),
          onnx::Shape(shaped.getShape().begin(), shaped.getShape().end())};
}

/// Bytes of a dense attribute in row-major order, bool as one byte each.
static onnx::Tensor tensorFromDense(DenseElementsAttr attr) {
  onnx::Tensor tensor = onnx::Tensor::allocate(fromMlirTensor(attr.getType()));
  std::span<std::byte> out = tensor.mutableBytes();
  size_t count = tensor.type.numElements();
  size_t size = dtypeSize(tensor.type.dtype);
  if (tensor.type.dtype == DType::BOOL) {
    size_t i = 0;
    for (bool bit : attr.getValues<bool>())
      out[i++] = std::byte(bit);
    return tensor;
  }
  ArrayRef<char> raw = attr.getRawData();
  if (attr.isSplat()) {
    for (size_t i = 0; i < count; ++i)
      std::memcpy(out.data() + i * size, raw.data(), size);
  } else {
    std::memcpy(out.data(), raw.data(), count * size);
  }
  return tensor;
}

std::optional<onnx::Tensor> constantData(Value value, bool weights) {
  if (auto constant = value.getDefiningOp<arith::ConstantOp>()) {
    if (auto dense = dyn_cast<DenseElementsAttr>(constant.getValue()))
      return tensorFromDense(dense);
    return std::nullopt;
  }
  auto weight = value.getDefiningOp<comm::WeightOp>();
  if (!weight || !weights || weight.getPack() ||
      (weight.getSplits() && !weight.getSplits()->empty()))
    return std::nullopt;
  auto *dialect = value.getContext()->getLoadedDialect<comm::CommDialect>();
  std::string error;
  auto section = dialect->getWeightStore().lookup(
      weight.getFile().str(), weight.getSection().str(), error);
  if (!section)
    return std::nullopt;
  onnx::Tensor tensor;
  tensor.type = fromMlirTensor(value.getType());
  if (section->bytes.size() != tensor.type.numBytes())
    return std::nullopt;
  tensor.bytes = section->bytes;
  tensor.owner = section->owner;
  return tensor;
}

static onnx::Attribute fromMlirAttribute(Attribute attr) {
  if (auto integer = dyn_cast<IntegerAttr>(attr))
    return integer.getInt();
  if (auto real = dyn_cast<FloatAttr>(attr))
    return real.getValueAsDouble();
  if (auto string = dyn_cast<StringAttr>(attr))
    return string.str();
  if (auto dense = dyn_cast<DenseElementsAttr>(attr))
    return tensorFromDense(dense);
  if (auto ints = dyn_cast<DenseI64ArrayAttr>(attr))
    return std::vector<int64_t>(ints.asArrayRef());
  if (auto reals = dyn_cast<DenseF64ArrayAttr>(attr))
    return std::vector<double>(reals.asArrayRef());
  std::vector<std::string> strings;
  if (auto array = dyn_cast<ArrayAttr>(attr))
    for (Attribute element : array)
      if (auto string = dyn_cast<StringAttr>(element))
        strings.push_back(string.str());
  return strings;
}

static DenseElementsAttr denseFromTensor(MLIRContext *context,
                                         const onnx::Tensor &tensor) {
  RankedTensorType type = toMlirType(context, tensor.type);
  if (tensor.type.dtype == DType::BOOL) {
    SmallVector<bool> bits;
    for (std::byte byte : tensor.bytes)
      bits.push_back(byte != std::byte(0));
    return DenseElementsAttr::get(type, bits);
  }
  return DenseElementsAttr::getFromRawBuffer(
      type, ArrayRef<char>(reinterpret_cast<const char *>(tensor.bytes.data()),
                           tensor.bytes.size()));
}

DictionaryAttr toMlirAttributes(OpBuilder &builder, const onnx::Node &node) {
  NamedAttrList list;
  for (auto &[name, value] : node.attributes) {
    Attribute attr;
    if (auto *integer = std::get_if<int64_t>(&value))
      attr = builder.getI64IntegerAttr(*integer);
    else if (auto *real = std::get_if<double>(&value))
      attr = builder.getF64FloatAttr(*real);
    else if (auto *string = std::get_if<std::string>(&value))
      attr = builder.getStringAttr(*string);
    else if (auto *ints = std::get_if<std::vector<int64_t>>(&value))
      attr = builder.getDenseI64ArrayAttr(*ints);
    else if (auto *reals = std::get_if<std::vector<double>>(&value))
      attr = builder.getDenseF64ArrayAttr(*reals);
    else if (auto *strings = std::get_if<std::vector<std::string>>(&value))
      attr = builder.getStrArrayAttr(SmallVector<StringRef>(
          llvm::map_range(*strings, [](auto &s) { return StringRef(s); })));
    else if (auto *tensor = std::get_if<onnx::Tensor>(&value))
      attr = denseFromTensor(builder.getContext(), *tensor);
    if (attr)
      list.set(name, attr);
  }
  return list.getDictionary(builder.getContext());
}

StringRef nodeName(Location loc) {
  if (auto name = dyn_cast<NameLoc>(loc))
    return name.getName();
  if (auto fused = dyn_cast<FusedLoc>(loc))
    for (Location inner : fused.getLocations())
      if (StringRef name = nodeName(inner); !name.empty())
        return name;
  return "";
}

void bindNode(onnxir::NodeOp op, BoundNode &bound) {
  onnx::Node &node = bound.node;
  node.name = nodeName(op.getLoc()).str();
  node.domain = op.getDomain() ? op.getDomain()->str() : "";
  node.opType = op.getOp().str();
  node.opset = op.getOpset();
  for (NamedAttribute attr : op.getAttrs())
    node.attributes.emplace(attr.getName().str(),
                            fromMlirAttribute(attr.getValue()));
  onnx::NodeView &view = bound.view;
  view.node = &node;
  int64_t count = op.getOperands().size();
  int64_t positions = count ? op.operandPosition(count - 1) + 1 : 0;
  view.inputs.resize(positions);
  view.constants.assign(positions, nullptr);
  node.inputs.assign(positions, onnx::kNoValue);
  for (int64_t i = 0; i < count; ++i) {
    int64_t position = op.operandPosition(i);
    Value value = op.getOperands()[i];
    node.inputs[position] = static_cast<onnx::ValueId>(i);
    view.inputs[position] = fromMlirTensor(value.getType());
    if (auto data = constantData(value, /*weights=*/true)) {
      bound.constants.push_back(std::move(*data));
      view.constants[position] = &bound.constants.back();
    }
  }
  int64_t results = op.getNumResults();
  int64_t outputs = results ? op.resultPosition(results - 1) + 1 : 0;
  view.outputs.resize(outputs);
  node.outputs.assign(outputs, onnx::kNoValue);
  for (int64_t i = 0; i < results; ++i) {
    view.outputs[op.resultPosition(i)] =
        fromMlirTensor(op.getResult(i).getType());
    node.outputs[op.resultPosition(i)] = static_cast<onnx::ValueId>(i);
  }
  bound.def = onnx::findOp(node.domain, node.opType);
}

} // namespace concord
