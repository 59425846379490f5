//===- CommDialect.td - The comm dialect, its types and attributes --------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_COMM_DIALECT
#define CONCORD_COMM_DIALECT

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/DialectBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"

def Comm_Dialect : Dialect {
  let name = "comm";
  let summary = "Collective communication over several domains";
  let description = [{
    Represents collectives, the communication domains that they run on, the
    order in which every rank issues them, and the memory that they use, in the
    graph of a model.

    - A *domain* partitions world ranks into groups; a collective runs once in
      each group. Rank, group rank, device and domain are different things.
    - Collectives are in destination style: they take `outs` and bufferise.
    - They are never `Pure`: a collective that one rank drops, merges or hoists
      and another does not is a hang. They touch an issue resource.
    - A collective is synchronous, or is split into `comm.start`, which yields a
      `!comm.future`, and `comm.wait`, which reads the start's operands once more
      so that nothing may overwrite a buffer in flight.
    - The order (`comm.order`), the proof (`comm.certificate`) and the memory plan
      (`comm.arena`) are operations, printed, parsed and verified like any other.
  }];
  let cppNamespace = "::concord::comm";
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
  let extraClassDeclaration = [{
    /// The data of parameters that operations of this context refer to.
    WeightStore &getWeightStore() { return *weightStore; }

  private:
    std::shared_ptr<WeightStore> weightStore;
  }];
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

def Comm_Future : TypeDef<Comm_Dialect, "Future"> {
  let mnemonic = "future";
  let summary = "A collective in flight";
  let description = [{
    Yielded by `comm.start`, taken by exactly one `comm.wait`. Not a tensor: the
    result exists only after the wait.
  }];
}

//===----------------------------------------------------------------------===//
// Enumerations
//===----------------------------------------------------------------------===//

def Comm_ReductionKind : I32EnumAttr<"ReductionKind", "How elements are combined", [
    I32EnumAttrCase<"none", 0>, I32EnumAttrCase<"sum", 1>,
    I32EnumAttrCase<"prod", 2>, I32EnumAttrCase<"min", 3>,
    I32EnumAttrCase<"max", 4>, I32EnumAttrCase<"avg", 5>,
    I32EnumAttrCase<"and_", 6, "and">, I32EnumAttrCase<"or_", 7, "or">]> {
  let cppNamespace = "::concord::comm";
}

// The numbers are those of concord::plan::Kind.
def Comm_CollectiveKind : I32EnumAttr<"CollectiveKind", "Kind of a communication operation", [
    I32EnumAttrCase<"all_reduce", 1>, I32EnumAttrCase<"all_gather", 2>,
    I32EnumAttrCase<"reduce_scatter", 3>, I32EnumAttrCase<"all_to_all", 4>,
    I32EnumAttrCase<"broadcast", 5>, I32EnumAttrCase<"reduce", 6>,
    I32EnumAttrCase<"gather", 7>, I32EnumAttrCase<"scatter", 8>,
    I32EnumAttrCase<"permute", 9>, I32EnumAttrCase<"send", 10>,
    I32EnumAttrCase<"recv", 11>, I32EnumAttrCase<"barrier", 12>,
    I32EnumAttrCase<"group", 13>]> {
  let cppNamespace = "::concord::comm";
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

def Comm_Split : AttrDef<Comm_Dialect, "Split"> {
  let mnemonic = "split";
  let summary = "One dimension split over the groups of a domain";
  let description = [{
    Dimension `dim` of size n is viewed as [`outer`, n / `outer`], and the second
    part is split evenly over the ranks of each group of `domain`; a rank holds
    the part of its group rank. `outer` = 1 is the plain contiguous split.

    Example: `#comm.split<dim = 1, outer = 1, domain = @tp>`
  }];
  let parameters = (ins "int64_t":$dim, "int64_t":$outer,
                        "::mlir::FlatSymbolRefAttr":$domain);
  let assemblyFormat = "`<` struct(params) `>`";
}

#endif // CONCORD_COMM_DIALECT
