//===- OnnxOps.td - ONNX nodes as they were read -----------*- tablegen -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ONNX_OPS
#define CONCORD_ONNX_OPS

include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Onnx_Dialect : Dialect {
  let name = "onnx";
  let summary = "ONNX nodes, until they are partitioned and decomposed";
  let description = [{
    One operation carries any ONNX node. What the node means (shape inference,
    sharding rule, lowering) is in one registry, concord/onnx/OpRegistry.h, not in
    one operation class per operator: the passes that run at this level treat
    all operators alike.
  }];
  let cppNamespace = "::concord::onnxir";
}

def Onnx_NodeOp : Op<Onnx_Dialect, "node", [Pure]> {
  let summary = "An ONNX node";
  let description = [{
    Optional operands and results that are absent are left out;
    `operand_positions` and `result_positions` give the ONNX position of each one
    that is there, and are omitted when nothing is absent. The location is the
    model's own node name. Nodes have no side effects: collectives among ONNX
    operators are imported as `comm` operations instead.

    Example:
    ```mlir
    %1 = onnx.node "Gather"(%table, %ids) {axis = 0 : i64} opset(17)
         : (tensor<256x64xf32>, tensor<1x8xi64>) -> tensor<1x8x64xf32>
    ```
  }];
  let arguments = (ins StrAttr:$op, Variadic<AnyRankedTensor>:$operands,
                       DictionaryAttr:$attrs, I64Attr:$opset,
                       OptionalAttr<StrAttr>:$domain,
                       OptionalAttr<DenseI32ArrayAttr>:$operand_positions,
                       OptionalAttr<DenseI32ArrayAttr>:$result_positions,
                       OptionalAttr<I32Attr>:$num_operands,
                       OptionalAttr<ArrayAttr>:$shardings);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $op `(` $operands `)` $attrs `opset` `(` $opset `)`
    (`domain` `(` $domain^ `)`)? attr-dict `:` functional-type($operands, $results)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// ONNX position of operand `i`.
    int64_t operandPosition(int64_t i) {
      auto positions = getOperandPositions();
      return positions ? (*positions)[i] : i;
    }
    int64_t resultPosition(int64_t i) {
      auto positions = getResultPositions();
      return positions ? (*positions)[i] : i;
    }
  }];
}

#endif // CONCORD_ONNX_OPS
