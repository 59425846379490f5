//===- Elementwise.cpp - Elementwise nodes as linalg.generic --------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One linalg.generic per node; broadcasting is in the indexing maps. Half
// precision is computed in f32 and rounded once. What has no vectorisable form
// here (f64 and trigonometric functions, integer division, general powers,
// unsigned integers) is left to the kernels.
//
//===----------------------------------------------------------------------===//

#include "lowering/Lowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/StringMap.h"

#include <cmath>

using namespace mlir;

namespace concord::lowering {
namespace {

/// Builds scalar arithmetic; knows the type it computes in.
class Scalar {
public:
  Scalar(OpBuilder &builder, Location loc, Type type)
      : builder(builder), loc(loc), type(type), real(isa<FloatType>(type)) {}

  Value constant(double value) {
    if (real)
      return arith::ConstantOp::create(builder, loc,
                                       builder.getFloatAttr(type, value));
    return arith::ConstantOp::create(
        builder, loc,
        builder.getIntegerAttr(type, static_cast<int64_t>(value)));
  }
  Value add(Value a, Value b) {
    return binary<arith::AddFOp, arith::AddIOp>(a, b);
  }
  Value sub(Value a, Value b) {
    return binary<arith::SubFOp, arith::SubIOp>(a, b);
  }
  Value mul(Value a, Value b) {
    return binary<arith::MulFOp, arith::MulIOp>(a, b);
  }
  Value div(Value a, Value b) {
    return arith::DivFOp::create(builder, loc, a, b);
  }
  Value compare(arith::CmpFPredicate f, arith::CmpIPredicate i, Value a,
                Value b) {
    if (isa<FloatType>(a.getType()))
      return arith::CmpFOp::create(builder, loc, f, a, b);
    return arith::CmpIOp::create(builder, loc, i, a, b);
  }
  Value select(Value c, Value a, Value b) {
    return arith::SelectOp::create(builder, loc, c, a, b);
  }
  /// NaN from either side comes through, as in numpy.
  Value max(Value a, Value b) {
    Value greater =
        compare(arith::CmpFPredicate::UGT, arith::CmpIPredicate::sgt, a, b);
    Value result = select(greater, a, b);
    return real
               ? select(compare(arith::CmpFPredicate::UNO, {}, b, b), b, result)
               : result;
  }
  Value min(Value a, Value b) {
    Value less =
        compare(arith::CmpFPredicate::ULT, arith::CmpIPredicate::slt, a, b);
    Value result = select(less, a, b);
    return real
               ? select(compare(arith::CmpFPredicate::UNO, {}, b, b), b, result)
               : result;
  }
  /// max against something known not to be NaN.
  Value maxConstant(Value a, double b) {
    Value c = constant(b);
    return select(
        compare(arith::CmpFPredicate::UGT, arith::CmpIPredicate::sgt, a, c), a,
        c);
  }
  Value minConstant(Value a, double b) {
    Value c = constant(b);
    return select(
        compare(arith::CmpFPredicate::ULT, arith::CmpIPredicate::slt, a, c), a,
        c);
  }
  template <typename Op> Value unary(Value a) {
    return Op::create(builder, loc, a);
  }
  Value sigmoid(Value a) {
    Value one = constant(1.0);
    Value negated = arith::NegFOp::create(builder, loc, a);
    return div(one, add(one, unary<math::ExpOp>(negated)));
  }
  Value gelu(Value a, bool tanh) {
    Value half = constant(0.5), one = constant(1.0);
    Value inner;
    if (tanh) {
      Value cube = mul(mul(a, a), a);
      Value poly = add(a, mul(constant(0.044715), cube));
      inner = unary<math::TanhOp>(mul(constant(std::sqrt(2.0 / M_PI)), poly));
    } else {
      inner = unary<math::ErfOp>(mul(a, constant(std::sqrt(0.5))));
    }
    return mul(mul(half, a), add(one, inner));
  }

  OpBuilder &builder;
  Location loc;
  Type type;
  bool real;

private:
  template <typename F, typename I> Value binary(Value a, Value b) {
    if (real)
      return F::create(builder, loc, a, b);
    return I::create(builder, loc, a, b);
  }
};

using Args = ArrayRef<Value>;
using Body = std::function<Value(Scalar &, Args, const BoundNode &)>;

enum Domain : unsigned { kFloat = 1, kInt = 2, kBool = 4 };

struct Entry {
  unsigned domains;
  bool transcendental; ///< has a vector form in f32 only
  Body body;
};

} // namespace

static const llvm::StringMap<Entry> &table() {
  using P = arith::CmpFPredicate;
  using Q = arith::CmpIPredicate;
  auto cmp = [](P p, Q q) {
    return [p, q](Scalar &s, Args a, const BoundNode &) {
      return s.compare(p, q, a[0], a[1]);
    };
  };
  auto fold = [](Value (Scalar::*f)(Value, Value)) {
    return [f](Scalar &s, Args a, const BoundNode &) {
      Value result = a[0];
      for (Value next : a.drop_front())
        result = (s.*f)(result, next);
      return result;
    };
  };
  static const llvm::StringMap<Entry> entries = {
      {"Add", {kFloat | kInt, false, fold(&Scalar::add)}},
      {"Sub", {kFloat | kInt, false, fold(&Scalar::sub)}},
      {"Mul", {kFloat | kInt, false, fold(&Scalar::mul)}},
      {"Div", {kFloat, false, fold(&Scalar::div)}},
      {"Sum", {kFloat | kInt, false, fold(&Scalar::add)}},
      {"Max", {kFloat | kInt, false, fold(&Scalar::max)}},
      {"Min", {kFloat | kInt, false, fold(&Scalar::min)}},
      {"Equal", {kFloat | kInt | kBool, false, cmp(P::OEQ, Q::eq)}},
      {"Less", {kFloat | kInt, false, cmp(P::OLT, Q::slt)}},
      {"LessOrEqual", {kFloat | kInt, false, cmp(P::OLE, Q::sle)}},
      {"Greater", {kFloat | kInt, false, cmp(P::OGT, Q::sgt)}},
      {"GreaterOrEqual", {kFloat | kInt, false, cmp(P::OGE, Q::sge)}},
      {"And",
       {kBool, false,
        [](Scalar &s, Args a, const BoundNode &) -> Value {
          return arith::AndIOp::create(s.builder, s.loc, a[0], a[1]);
        }}},
      {"Or",
       {kBool, false,
        [](Scalar &s, Args a, const BoundNode &) -> Value {
          return arith::OrIOp::create(s.builder, s.loc, a[0], a[1]);
        }}},
      {"Xor",
       {kBool, false,
        [](Scalar &s, Args a, const BoundNode &) -> Value {
          return arith::XOrIOp::create(s.builder, s.loc, a[0], a[1]);
        }}},
      {"Not",
       {kBool, false,
        [](Scalar &s, Args a, const BoundNode &) -> Value {
          Value one = arith::ConstantOp::create(s.builder, s.loc,
                                                s.builder.getBoolAttr(true));
          return arith::XOrIOp::create(s.builder, s.loc, a[0], one);
        }}},
      {"Relu",
       {kFloat | kInt, false,
        [](Scalar &s, Args a, const BoundNode &) {
          return s.maxConstant(a[0], 0.0);
        }}},
      {"LeakyRelu",
       {kFloat, false,
        [](Scalar &s, Args a, const BoundNode &n) {
          Value scaled =
              s.mul(a[0], s.constant(n.node.floatAttr("alpha", 0.01)));
          return s.select(
              s.compare(arith::CmpFPredicate::OLT, {}, a[0], s.constant(0.0)),
              scaled, a[0]);
        }}},
      {"Neg",
       {kFloat | kInt, false,
        [](Scalar &s, Args a, const BoundNode &) -> Value {
          if (s.real)
            return arith::NegFOp::create(s.builder, s.loc, a[0]);
          return s.sub(s.constant(0), a[0]);
        }}},
      {"Abs",
       {kFloat, false,
        [](Scalar &s, Args a, const BoundNode &) {
          return s.unary<math::AbsFOp>(a[0]);
        }}},
      {"Sqrt",
       {kFloat, false,
        [](Scalar &s, Args a, const BoundNode &) {
          return s.unary<math::SqrtOp>(a[0]);
        }}},
      {"Reciprocal",
       {kFloat, false,
        [](Scalar &s, Args a, const BoundNode &) {
          return s.div(s.constant(1.0), a[0]);
        }}},
      {"Floor",
       {kFloat, false,
        [](Scalar &s, Args a, const BoundNode &) {
          return s.unary<math::FloorOp>(a[0]);
        }}},
      {"Ceil",
       {kFloat, false,
        [](Scalar &s, Args a, const BoundNode &) {
          return s.unary<math::CeilOp>(a[0]);
        }}},
      {"Exp",
       {kFloat, true,
        [](Scalar &s, Args a, const BoundNode &) {
          return s.unary<math::ExpOp>(a[0]);
        }}},
      {"Log",
       {kFloat, true,
        [](Scalar &s, Args a, const BoundNode &) {
          // The polynomial reads the exponent field, which denormals do not
          // have: they are scaled by 2^23 first.
          Value tiny = s.compare(arith::CmpFPredicate::OLT, {}, a[0],
                                 s.constant(1.17549435e-38));
          Value scaled = s.mul(a[0], s.constant(8388608.0));
          Value log = s.unary<math::LogOp>(s.select(tiny, scaled, a[0]));
          return s.select(tiny, s.sub(log, s.constant(23.0 * M_LN2)), log);
        }}},
      {"Tanh",
       {kFloat, true,
        [](Scalar &s, Args a, const BoundNode &) {
          return s.unary<math::TanhOp>(a[0]);
        }}},
      {"Erf",
       {kFloat, true,
        [](Scalar &s, Args a, const BoundNode &) {
          return s.unary<math::ErfOp>(a[0]);
        }}},
      {"Sigmoid",
       {kFloat, true,
        [](Scalar &s, Args a, const BoundNode &) { return s.sigmoid(a[0]); }}},
      {"Swish",
       {kFloat, true,
        [](Scalar &s, Args a, const BoundNode &n) {
          Value scaled =
              s.mul(a[0], s.constant(n.node.floatAttr("alpha", 1.0)));
          return s.mul(a[0], s.sigmoid(scaled));
        }}},
      {"Gelu",
       {kFloat, true,
        [](Scalar &s, Args a, const BoundNode &n) {
          return s.gelu(a[0],
                        n.node.stringAttr("approximate", "none") == "tanh");
        }}},
  };
  return entries;
}

static bool inDomain(DType type, unsigned domains) {
  switch (type) {
  case DType::F32:
  case DType::F16:
  case DType::BF16:
  case DType::F64:
    return domains & kFloat;
  case DType::I32:
  case DType::I64:
  case DType::I16:
  case DType::I8:
    return domains & kInt;
  case DType::BOOL:
    return domains & kBool;
  default:
    return false;
  }
}

static bool isSigned(DType type) {
  return type == DType::I8 || type == DType::I16 || type == DType::I32 ||
         type == DType::I64;
}

/// Map from the result's index space to `type`'s, extents of 1 held at 0.
static AffineMap broadcastMap(MLIRContext *context, ShapedType type,
                              int64_t rank) {
  SmallVector<AffineExpr> exprs;
  for (int64_t i = 0; i < type.getRank(); ++i)
    exprs.push_back(type.getDimSize(i) == 1
                        ? getAffineConstantExpr(0, context)
                        : getAffineDimExpr(rank - type.getRank() + i, context));
  return AffineMap::get(rank, 0, exprs, context);
}

static Value
makeGeneric(Context &context, RankedTensorType resultType,
            ArrayRef<Value> operands,
            function_ref<Value(OpBuilder &, Location, ValueRange)> body) {
  OpBuilder &builder = context.rewriter;
  MLIRContext *ctx = builder.getContext();
  int64_t rank = resultType.getRank();
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  // A scalar constant is a constant in the body, not an operand that is loaded.
  SmallVector<TypedAttr> splats(operands.size());
  for (auto [i, operand] : llvm::enumerate(operands)) {
    DenseElementsAttr dense;
    if (matchPattern(operand, m_Constant(&dense)) && dense.isSplat() &&
        !isa<IntegerType>(dense.getElementType())) {
      splats[i] = dense.getSplatValue<TypedAttr>();
      continue;
    }
    inputs.push_back(operand);
    maps.push_back(
        broadcastMap(ctx, cast<ShapedType>(operand.getType()), rank));
  }
  Value init = context.empty(resultType);
  maps.push_back(AffineMap::getMultiDimIdentityMap(rank, ctx));
  SmallVector<utils::IteratorType> iterators(rank,
                                             utils::IteratorType::parallel);
  auto generic = linalg::GenericOp::create(
      builder, context.loc(), resultType, inputs, init, maps, iterators,
      [&](OpBuilder &inner, Location loc, ValueRange args) {
        SmallVector<Value> all;
        unsigned next = 0;
        for (TypedAttr splat : splats)
          all.push_back(
              splat ? Value(arith::ConstantOp::create(inner, loc, splat))
                    : Value(args[next++]));
        linalg::YieldOp::create(inner, loc, body(inner, loc, all));
      });
  return generic.getResult(0);
}

/// Widens half precision; everything else is computed as it is.
static Value widen(OpBuilder &builder, Location loc, Value value) {
  if (value.getType().isF16() || value.getType().isBF16())
    return arith::ExtFOp::create(builder, loc, builder.getF32Type(), value);
  return value;
}

static Value narrow(OpBuilder &builder, Location loc, Value value, Type type) {
  if (value.getType() == type)
    return value;
  return arith::TruncFOp::create(builder, loc, type, value);
}

static Value convert(OpBuilder &b, Location loc, Value v, Type to) {
  Type from = v.getType();
  if (from == to)
    return v;
  auto fromFloat = dyn_cast<FloatType>(from), toFloat = dyn_cast<FloatType>(to);
  if (to.isInteger(1)) {
    if (fromFloat)
      return arith::CmpFOp::create(
          b, loc, arith::CmpFPredicate::UNE, v,
          arith::ConstantOp::create(b, loc, b.getFloatAttr(from, 0.0)));
    return arith::CmpIOp::create(
        b, loc, arith::CmpIPredicate::ne, v,
        arith::ConstantOp::create(b, loc, b.getIntegerAttr(from, 0)));
  }
  if (fromFloat && toFloat) {
    if (fromFloat.getWidth() < toFloat.getWidth())
      return arith::ExtFOp::create(b, loc, to, v);
    if (fromFloat.getWidth() > toFloat.getWidth())
      return arith::TruncFOp::create(b, loc, to, v);
    return arith::TruncFOp::create(
        b, loc, to, arith::ExtFOp::create(b, loc, b.getF32Type(), v));
  }
  if (fromFloat)
    return arith::FPToSIOp::create(b, loc, to, v);
  if (toFloat) {
    if (from.isInteger(1))
      return arith::UIToFPOp::create(b, loc, to, v);
    return arith::SIToFPOp::create(b, loc, to, v);
  }
  unsigned fromWidth = from.getIntOrFloatBitWidth(),
           toWidth = to.getIntOrFloatBitWidth();
  if (fromWidth > toWidth)
    return arith::TruncIOp::create(b, loc, to, v);
  if (from.isInteger(1))
    return arith::ExtUIOp::create(b, loc, to, v);
  return arith::ExtSIOp::create(b, loc, to, v);
}

static bool castable(DType type) {
  return type == DType::F32 || type == DType::F64 || type == DType::F16 ||
         type == DType::BF16 || type == DType::BOOL || isSigned(type);
}

/// x^2, x^3, x^0.5 and the like are worth more than a general power.
static Results lowerPow(Context &context) {
  const onnx::Tensor *exponent = context.bound.view.constants.size() > 1
                                     ? context.bound.view.constants[1]
                                     : nullptr;
  if (context.dtype() != DType::F32 || !exponent ||
      exponent->type.numElements() != 1)
    return SmallVector<Value>();
  double power = exponent->floatAt(0);
  if (power != 2.0 && power != 3.0 && power != 0.5 && power != 1.0)
    return SmallVector<Value>();
  if (context.resultType().getNumElements() !=
      cast<ShapedType>(context.operand(0).getType()).getNumElements())
    return SmallVector<Value>();
  return SmallVector<Value>{makeGeneric(
      context, context.resultType(), {context.operand(0)},
      [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
        Value x = args[0];
        if (power == 0.5)
          return math::SqrtOp::create(b, loc, x);
        if (power == 1.0)
          return x;
        Value square = arith::MulFOp::create(b, loc, x, x);
        return power == 2.0 ? square
                            : Value(arith::MulFOp::create(b, loc, square, x));
      })};
}

static Results lowerWhere(Context &context) {
  DType type = context.dtype(1);
  if (!castable(type))
    return SmallVector<Value>();
  return SmallVector<Value>{makeGeneric(
      context, context.resultType(),
      {context.operand(0), context.operand(1), context.operand(2)},
      [](OpBuilder &b, Location loc, ValueRange args) -> Value {
        return arith::SelectOp::create(b, loc, args[0], args[1], args[2]);
      })};
}

static Results lowerCast(Context &context) {
  RankedTensorType type = context.resultType();
  DType from = context.dtype(), to = fromMlirType(type.getElementType());
  // Out-of-range floats have no defined integer in LLVM; the kernel defines
  // one.
  bool floatToInt = isSigned(to) && !isSigned(from) && from != DType::BOOL;
  // From f64 in one rounding: LLVM would call a library.
  bool narrows = from == DType::F64 && (to == DType::F16 || to == DType::BF16);
  if (!castable(from) || !castable(to) || floatToInt || narrows)
    return SmallVector<Value>();
  return SmallVector<Value>{
      makeGeneric(context, type, {context.operand(0)},
                  [&](OpBuilder &b, Location loc, ValueRange args) {
                    return convert(b, loc, args[0], type.getElementType());
                  })};
}

Results lowerElementwise(Context &context) {
  if (!context.bound.node.domain.empty() &&
      context.bound.node.domain != "ai.onnx")
    return SmallVector<Value>();
  if (context.op.getNumResults() != 1 ||
      context.resultType().getNumElements() == 0)
    return SmallVector<Value>();
  if (context.name() == "Where")
    return lowerWhere(context);
  if (context.name() == "Cast" || context.name() == "CastLike")
    return lowerCast(context);
  if (context.name() == "Pow")
    return lowerPow(context);
  auto it = table().find(context.name());
  if (it == table().end())
    return SmallVector<Value>();
  const Entry &entry = it->second;
  DType type = context.dtype();
  if (!inDomain(type, entry.domains) ||
      (entry.transcendental && type == DType::F64))
    return SmallVector<Value>();
  // Old opsets broadcast by an `axis` attribute; the kernels know about it.
  if (context.bound.node.attribute("axis") ||
      context.bound.node.attribute("broadcast"))
    return SmallVector<Value>();
  RankedTensorType resultType = context.resultType();
  Value result = makeGeneric(
      context, resultType, SmallVector<Value>(context.op.getOperands()),
      [&](OpBuilder &b, Location loc, ValueRange args) {
        SmallVector<Value> wide;
        for (Value arg : args)
          wide.push_back(widen(b, loc, arg));
        Scalar scalar(b, loc, wide[0].getType());
        Value value = entry.body(scalar, wide, context.bound);
        if (isa<FloatType>(resultType.getElementType()))
          value = narrow(b, loc, value, resultType.getElementType());
        return value;
      });
  return SmallVector<Value>{result};
}

} // namespace concord::lowering
