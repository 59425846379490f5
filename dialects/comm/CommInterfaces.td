//===- CommInterfaces.td - Interfaces of the comm dialect --*- tablegen -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_COMM_INTERFACES
#define CONCORD_COMM_INTERFACES

include "mlir/IR/OpBase.td"

def CollectiveOpInterface : OpInterface<"CollectiveOpInterface"> {
  let description = [{
    What every analysis and pass asks of a communication operation, so that none
    of them switches on operation names. Implemented by each collective and by
    `comm.start`, which answers for the collective that it starts.
  }];
  let cppNamespace = "::concord::comm";
  let methods = [
    InterfaceMethod<"The kind of the operation, as in the plan table.",
      "::concord::comm::CollectiveKind", "getCollectiveKind">,
    InterfaceMethod<"The communication domain that the operation runs on.",
      "::mlir::FlatSymbolRefAttr", "getCollectiveDomain">,
    InterfaceMethod<"The reduction, or ReductionKind::none.",
      "::concord::comm::ReductionKind", "getCollectiveReduction">,
    InterfaceMethod<"Group rank of the root (or the peer of send and recv), or -1.",
      "int64_t", "getCollectiveRoot">,
    InterfaceMethod<[{
      The dimension along which the input is cut (reduce_scatter, all_to_all,
      scatter), or -1.}],
      "int64_t", "getCollectiveSplitDim">,
    InterfaceMethod<[{
      The dimension along which the output is assembled (all_gather,
      all_to_all, gather), or -1.}],
      "int64_t", "getCollectiveConcatDim">,
    InterfaceMethod<"(source, target) group ranks of a permute.",
      "::llvm::SmallVector<std::pair<int64_t, int64_t>>", "getCollectivePairs">,
    InterfaceMethod<"Extents of the blocks an uneven all_to_all sends, or empty.",
      "::llvm::ArrayRef<int64_t>", "getCollectiveSendSizes">,
    InterfaceMethod<"Extents of the blocks it receives, or empty.",
      "::llvm::ArrayRef<int64_t>", "getCollectiveRecvSizes">,
    InterfaceMethod<"The data that is read; null for recv and barrier.",
      "::mlir::Value", "getCollectiveInput">,
    InterfaceMethod<"The data that is written; null for send and barrier.",
      "::mlir::Value", "getCollectiveOutput">,
    InterfaceMethod<"Whether the operation only starts and a comm.wait ends it.",
      "bool", "isAsync">,
    InterfaceMethod<[{
      Description of the kernel that the operation is one with, whose operands
      its operands are; empty for plain communication.}],
      "::llvm::StringRef", "getCollectiveKernel", (ins), [{}], [{ return {}; }]>,
    InterfaceMethod<"The stream (lane) within its program; 0 unless assigned.",
      "int64_t", "getLane", (ins), [{}], [{
        if (auto attr = $_op->template getAttrOfType<::mlir::IntegerAttr>("lane"))
          return attr.getInt();
        return 0;
      }]>
  ];
}

#endif // CONCORD_COMM_INTERFACES
