//===- CommOps.td - Operations of the comm dialect ---------*- tablegen -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_COMM_OPS
#define CONCORD_COMM_OPS

include "comm/CommDialect.td"
include "comm/CommInterfaces.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/DestinationStyleOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Comm_Op<string mnemonic, list<Trait> traits = []>
    : Op<Comm_Dialect, mnemonic, traits>;

def Comm_Data : AnyTypeOf<[AnyRankedTensor, AnyMemRef], "ranked tensor or memref">;

//===----------------------------------------------------------------------===//
// Domains, programs, queries
//===----------------------------------------------------------------------===//

def Comm_DomainOp : Comm_Op<"domain", [Symbol]> {
  let summary = "A communication domain: a partition of world ranks into groups";
  let description = [{
    Every world rank is in at most one group. The order of the ranks in a group
    gives their group ranks. A collective on the domain runs once per group, among
    the members of that group. `priority` orders domains on the wire: an operation
    of a higher one goes first at the next chunk boundary.

    Example, rows of a 2 x 2 mesh:
    ```mlir
    comm.domain @tp groups([[0, 1], [2, 3]]) priority(1)
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, ArrayAttr:$groups,
                       DefaultValuedAttr<I64Attr, "0">:$priority,
                       OptionalAttr<StrAttr>:$sym_visibility);
  let assemblyFormat = [{
    $sym_name `groups` `(` custom<Groups>($groups) `)`
    (`priority` `(` $priority^ `)`)? attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The groups as world ranks.
    ::llvm::SmallVector<::llvm::SmallVector<int64_t>> getGroupRanks();
    /// Size of each group when all are equal, else std::nullopt.
    std::optional<int64_t> getUniformGroupSize();
  }];
}

def Comm_ProgramOp : Comm_Op<"program", [Symbol]> {
  let summary = "Which ranks run a function, and on whose behalf";
  let description = [{
    Without any `comm.program`, every rank runs every public function (SPMD). With
    them, each names an entry function, its world ranks, and its issuer: the module
    of the process that issues its operations (a serving framework, an expert
    placement). One thread per issuer and rank.

    Example:
    ```mlir
    comm.program @stage0 entry(@forward0) ranks([0, 1]) issuer("serving")
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, FlatSymbolRefAttr:$entry,
                       DenseI64ArrayAttr:$ranks,
                       DefaultValuedStrAttr<StrAttr, "">:$issuer);
  let assemblyFormat = [{
    $sym_name `entry` `(` $entry `)` `ranks` `(` $ranks `)`
    (`issuer` `(` $issuer^ `)`)? attr-dict
  }];
  let hasVerifier = 1;
}

def Comm_RankOp : Comm_Op<"rank", [Pure]> {
  let summary = "This rank's group rank in a domain";
  let description = [{
    Position of the executing rank in its group of the domain. It differs between
    ranks, so a value computed from it is not uniform.

    Example: `%r = comm.rank @tp`
  }];
  let arguments = (ins FlatSymbolRefAttr:$domain);
  let results = (outs Index:$result);
  let assemblyFormat = "$domain attr-dict";
  let hasVerifier = 1;
}

def Comm_SizeOp : Comm_Op<"size", [Pure]> {
  let summary = "Number of ranks in this rank's group of a domain";
  let description = [{
    Example: `%n = comm.size @tp`
  }];
  let arguments = (ins FlatSymbolRefAttr:$domain);
  let results = (outs Index:$result);
  let assemblyFormat = "$domain attr-dict";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

// Never Pure: see the dialect's description.
class Comm_IssueOp<string mnemonic, dag attributes, dag data, list<Trait> traits = []>
    : Comm_Op<mnemonic, !listconcat(traits, [
        DeclareOpInterfaceMethods<CollectiveOpInterface, [
          "getCollectiveKind", "getCollectiveDomain", "getCollectiveReduction",
          "getCollectiveRoot", "getCollectiveSplitDim", "getCollectiveConcatDim",
          "getCollectivePairs", "getCollectiveSendSizes",
          "getCollectiveRecvSizes", "getCollectiveInput", "getCollectiveOutput", "isAsync"]>,
        DeclareOpInterfaceMethods<MemoryEffectsOpInterface>])> {
  let arguments = !con((ins FlatSymbolRefAttr:$domain), attributes, data);
  let hasVerifier = 1;
}

// One input, one output, destination style.
class Comm_CollectiveOp<string mnemonic, dag attributes>
    : Comm_IssueOp<mnemonic, attributes, (ins Comm_Data:$input, Comm_Data:$init),
                   [DestinationStyleOpInterface]> {
  let results = (outs Optional<AnyRankedTensor>:$result);
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() { return getInitMutable(); }
  }];
}

def Comm_AllReduceOp : Comm_CollectiveOp<"all_reduce",
    (ins Comm_ReductionKind:$reduction)> {
  let summary = "Combine a tensor over all members, result on all";
  let description = [{
    out[i] = reduction over the members' in[i]. Input and output have equal shapes.
    Members are combined in group-rank order, so that all get the same bits.

    Example:
    ```mlir
    %r = comm.all_reduce @tp sum ins(%x : tensor<4x8xf32>)
           outs(%y : tensor<4x8xf32>) -> tensor<4x8xf32>
    ```
  }];
  let assemblyFormat = [{
    $domain $reduction `ins` `(` $input `:` type($input) `)`
    `outs` `(` $init `:` type($init) `)` attr-dict (`->` type($result)^)?
  }];
}

def Comm_AllGatherOp : Comm_CollectiveOp<"all_gather", (ins I64Attr:$dim)> {
  let summary = "Concatenate the members' tensors along a dimension, on all";
  let description = [{
    The output's dimension `dim` is the input's times the group size; member r's
    input is block r.

    Example:
    ```mlir
    %r = comm.all_gather @tp dim(1) ins(%x : tensor<4x8xf32>)
           outs(%y : tensor<4x16xf32>) -> tensor<4x16xf32>
    ```
  }];
  let assemblyFormat = [{
    $domain `dim` `(` $dim `)` `ins` `(` $input `:` type($input) `)`
    `outs` `(` $init `:` type($init) `)` attr-dict (`->` type($result)^)?
  }];
}

def Comm_ReduceScatterOp : Comm_CollectiveOp<"reduce_scatter",
    (ins Comm_ReductionKind:$reduction, I64Attr:$dim)> {
  let summary = "Combine over all members, block r of the result on member r";
  let description = [{
    The input's dimension `dim` is the output's times the group size.

    Example:
    ```mlir
    %r = comm.reduce_scatter @tp sum dim(0) ins(%x : tensor<4x8xf32>)
           outs(%y : tensor<2x8xf32>) -> tensor<2x8xf32>
    ```
  }];
  let assemblyFormat = [{
    $domain $reduction `dim` `(` $dim `)` `ins` `(` $input `:` type($input) `)`
    `outs` `(` $init `:` type($init) `)` attr-dict (`->` type($result)^)?
  }];
}

def Comm_AllToAllOp : Comm_CollectiveOp<"all_to_all",
    (ins I64Attr:$split_dim, I64Attr:$concat_dim,
         OptionalAttr<DenseI64ArrayAttr>:$send_sizes,
         OptionalAttr<DenseI64ArrayAttr>:$recv_sizes)> {
  let summary = "Member r sends block q to member q and gets block r from each";
  let description = [{
    The input is cut along `split_dim` into one block per member; the blocks that
    arrive are concatenated along `concat_dim` in group-rank order. With
    `send_sizes` and `recv_sizes` (extents along the dimensions, one per member;
    both dimensions must then be 0) blocks are uneven.

    Example:
    ```mlir
    %r = comm.all_to_all @ep split(0) concat(1) ins(%x : tensor<4x8xf32>)
           outs(%y : tensor<2x16xf32>) -> tensor<2x16xf32>
    ```
  }];
  let assemblyFormat = [{
    $domain `split` `(` $split_dim `)` `concat` `(` $concat_dim `)`
    (`sizes` `(` $send_sizes^ `to` $recv_sizes `)`)?
    `ins` `(` $input `:` type($input) `)`
    `outs` `(` $init `:` type($init) `)` attr-dict (`->` type($result)^)?
  }];
}

def Comm_BroadcastOp : Comm_CollectiveOp<"broadcast", (ins I64Attr:$root)> {
  let summary = "The root's tensor, on all members";
  let description = [{
    `root` is a group rank. The input of the other members is not read.

    Example:
    ```mlir
    %r = comm.broadcast @tp root(0) ins(%x : tensor<4xf32>)
           outs(%y : tensor<4xf32>) -> tensor<4xf32>
    ```
  }];
  let assemblyFormat = [{
    $domain `root` `(` $root `)` `ins` `(` $input `:` type($input) `)`
    `outs` `(` $init `:` type($init) `)` attr-dict (`->` type($result)^)?
  }];
}

def Comm_ReduceOp : Comm_CollectiveOp<"reduce",
    (ins Comm_ReductionKind:$reduction, I64Attr:$root)> {
  let summary = "Combine over all members, result on the root";
  let description = [{
    `root` is a group rank. On the other members the result is `outs` unchanged.

    Example:
    ```mlir
    %r = comm.reduce @tp sum root(1) ins(%x : tensor<4xf32>)
           outs(%y : tensor<4xf32>) -> tensor<4xf32>
    ```
  }];
  let assemblyFormat = [{
    $domain $reduction `root` `(` $root `)` `ins` `(` $input `:` type($input) `)`
    `outs` `(` $init `:` type($init) `)` attr-dict (`->` type($result)^)?
  }];
}

def Comm_GatherOp : Comm_CollectiveOp<"gather", (ins I64Attr:$dim, I64Attr:$root)> {
  let summary = "Concatenate the members' tensors, on the root";
  let description = [{
    As all_gather, but only the root (a group rank) gets the result; on the other
    members the result is `outs` unchanged.

    Example:
    ```mlir
    %r = comm.gather @tp dim(0) root(0) ins(%x : tensor<4xf32>)
           outs(%y : tensor<8xf32>) -> tensor<8xf32>
    ```
  }];
  let assemblyFormat = [{
    $domain `dim` `(` $dim `)` `root` `(` $root `)`
    `ins` `(` $input `:` type($input) `)`
    `outs` `(` $init `:` type($init) `)` attr-dict (`->` type($result)^)?
  }];
}

def Comm_ScatterOp : Comm_CollectiveOp<"scatter", (ins I64Attr:$dim, I64Attr:$root)> {
  let summary = "Block r of the root's tensor, on member r";
  let description = [{
    The input's dimension `dim` is the output's times the group size; only the
    root's input is read.

    Example:
    ```mlir
    %r = comm.scatter @tp dim(0) root(0) ins(%x : tensor<8xf32>)
           outs(%y : tensor<4xf32>) -> tensor<4xf32>
    ```
  }];
  let assemblyFormat = [{
    $domain `dim` `(` $dim `)` `root` `(` $root `)`
    `ins` `(` $input `:` type($input) `)`
    `outs` `(` $init `:` type($init) `)` attr-dict (`->` type($result)^)?
  }];
}

def Comm_PermuteOp : Comm_CollectiveOp<"permute", (ins ArrayAttr:$pairs)> {
  let summary = "Send along a list of (source, target) pairs";
  let description = [{
    Group ranks; each is at most once a source and at most once a target. A member
    that is no target gets zeros.

    Example, a ring of two:
    ```mlir
    %r = comm.permute @pp pairs([[0, 1], [1, 0]]) ins(%x : tensor<4xf32>)
           outs(%y : tensor<4xf32>) -> tensor<4xf32>
    ```
  }];
  let assemblyFormat = [{
    $domain `pairs` `(` custom<Groups>($pairs) `)`
    `ins` `(` $input `:` type($input) `)`
    `outs` `(` $init `:` type($init) `)` attr-dict (`->` type($result)^)?
  }];
}

def Comm_SendOp : Comm_IssueOp<"send", (ins I64Attr:$peer), (ins Comm_Data:$input)> {
  let summary = "Send a tensor to one member";
  let description = [{
    `peer` is a group rank; a member that is its own peer passes by. Transfers of
    one (domain, source, target) match in issue order; there are no tags.

    Example: `comm.send @pp to(1) ins(%x : tensor<4xf32>)`
  }];
  let assemblyFormat = [{
    $domain `to` `(` $peer `)` `ins` `(` $input `:` type($input) `)` attr-dict
  }];
}

def Comm_RecvOp : Comm_IssueOp<"recv", (ins I64Attr:$peer), (ins Comm_Data:$init),
                               [DestinationStyleOpInterface]> {
  let results = (outs Optional<AnyRankedTensor>:$result);
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() { return getInitMutable(); }
  }];
  let summary = "Receive a tensor from one member";
  let description = [{
    `peer` is a group rank; a member that is its own peer passes by, and its result
    is `outs` unchanged.

    Example:
    ```mlir
    %r = comm.recv @pp from(0) outs(%y : tensor<4xf32>) -> tensor<4xf32>
    ```
  }];
  let assemblyFormat = [{
    $domain `from` `(` $peer `)` `outs` `(` $init `:` type($init) `)` attr-dict
    (`->` type($result)^)?
  }];
}

def Comm_BarrierOp : Comm_IssueOp<"barrier", (ins), (ins)> {
  let summary = "Completes when every member has started it";
  let description = [{
    Example: `comm.barrier @tp`
  }];
  let assemblyFormat = "$domain attr-dict";
}

def Comm_FusedOp : Comm_Op<"fused", [AttrSizedOperandSegments,
      DestinationStyleOpInterface,
      DeclareOpInterfaceMethods<CollectiveOpInterface, [
        "getCollectiveKind", "getCollectiveDomain", "getCollectiveReduction",
        "getCollectiveRoot", "getCollectiveSplitDim", "getCollectiveConcatDim",
        "getCollectivePairs", "getCollectiveSendSizes",
        "getCollectiveRecvSizes", "getCollectiveInput", "getCollectiveOutput", "isAsync",
        "getCollectiveKernel"]>,
      DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "A collective that is one with the computation around it";
  let description = [{
    Runs the fused kernel of `description` (kernel.h) as the collective `kind`: to
    the order, the plan and the runtime it is an issue like any other. `ins` are
    the kernel's inputs; `outs` are its outputs and, with `workspace`, scratch
    memory. Of all these operands in order, number `shared` is what other members
    read, and those in `written` are what they write; both until the operation
    completes. The shared operand may be an output: partial sums.

    Example, all_reduce + residual + RMSNorm on two ranks:
    ```mlir
    %r:2 = comm.fused all_reduce @tp
        "fused_reduce cols=64 dtype=f32 gamma=1 members=2 norm=rmsnorm residual=1 rows=8"
        ins(%x, %res, %g : tensor<8x64xf32>, tensor<8x64xf32>, tensor<64xf32>)
        outs(%y, %w : tensor<8x64xf32>, tensor<512xi8>)
        {reduction = 1 : i32, shared = 0 : i64, workspace, written = array<i64: 3>}
        -> tensor<8x64xf32>, tensor<512xi8>
    ```
  }];
  let arguments = (ins Comm_CollectiveKind:$kind, FlatSymbolRefAttr:$domain,
                       StrAttr:$description, OptionalAttr<Comm_ReductionKind>:$reduction,
                       I64Attr:$shared, DenseI64ArrayAttr:$written,
                       Variadic<Comm_Data>:$inputs, Variadic<Comm_Data>:$inits,
                       UnitAttr:$workspace);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $kind $domain $description `ins` `(` $inputs `:` type($inputs) `)`
    `outs` `(` $inits `:` type($inits) `)` attr-dict (`->` type($results)^)?
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() { return getInitsMutable(); }
  }];
}

//===----------------------------------------------------------------------===//
// Asynchronous form
//===----------------------------------------------------------------------===//

def Comm_StartOp : Comm_Op<"start", [AttrSizedOperandSegments,
      DeclareOpInterfaceMethods<CollectiveOpInterface, [
        "getCollectiveKind", "getCollectiveDomain", "getCollectiveReduction",
        "getCollectiveRoot", "getCollectiveSplitDim", "getCollectiveConcatDim",
        "getCollectivePairs", "getCollectiveSendSizes",
        "getCollectiveRecvSizes", "getCollectiveInput", "getCollectiveOutput", "isAsync"]>,
      DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "Start a collective and go on";
  let description = [{
    Hands the collective `kind` to the engine. The attributes that the kind needs
    (`reduction`, `dim`, `split_dim`, `concat_dim`, `root`, `peer`, `pairs`,
    `send_sizes`, `recv_sizes`) are those of the synchronous operation, and are
    verified alike. Between a start and its wait nothing may write the input, and
    nothing may read or write `outs`.

    Example:
    ```mlir
    %f = comm.start all_reduce @tp ins(%x : tensor<4xf32>)
           outs(%y : tensor<4xf32>) {reduction = 1 : i32}
    %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>)
           -> tensor<4xf32>
    ```
  }];
  let arguments = (ins Comm_CollectiveKind:$kind, FlatSymbolRefAttr:$domain,
                       OptionalAttr<Comm_ReductionKind>:$reduction,
                       OptionalAttr<I64Attr>:$dim,
                       OptionalAttr<I64Attr>:$split_dim,
                       OptionalAttr<I64Attr>:$concat_dim,
                       OptionalAttr<I64Attr>:$root, OptionalAttr<I64Attr>:$peer,
                       OptionalAttr<ArrayAttr>:$pairs,
                       OptionalAttr<DenseI64ArrayAttr>:$send_sizes,
                       OptionalAttr<DenseI64ArrayAttr>:$recv_sizes,
                       Optional<Comm_Data>:$input, Optional<Comm_Data>:$init);
  let results = (outs Comm_Future:$future);
  let assemblyFormat = [{
    $kind $domain (`ins` `(` $input^ `:` type($input) `)`)?
    (`outs` `(` $init^ `:` type($init) `)`)? attr-dict
  }];
  let hasVerifier = 1;
}

def Comm_WaitOp : Comm_Op<"wait", [AttrSizedOperandSegments,
      DestinationStyleOpInterface, DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "Wait for a started collective and take its result";
  let description = [{
    Takes the start's future and the very operands of the start. Reading the input
    again here is what keeps bufferisation from reusing a buffer in flight.
  }];
  let arguments = (ins Comm_Future:$future, Optional<Comm_Data>:$input,
                       Optional<Comm_Data>:$init);
  let results = (outs Optional<AnyRankedTensor>:$result);
  let assemblyFormat = [{
    $future (`ins` `(` $input^ `:` type($input) `)`)?
    (`outs` `(` $init^ `:` type($init) `)`)? attr-dict (`->` type($result)^)?
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() { return getInitMutable(); }
    /// The start of this wait, or null when the future is a block argument.
    StartOp getStart();
  }];
}

def Comm_GroupOp : Comm_Op<"group",
      [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "Launch several started transfers as one";
  let description = [{
    The sends and recvs whose futures are listed form one grouped launch: they make
    progress together and complete together. Their starts must be the issues right
    before, in the order listed; each is then waited for as usual.

    Example: `comm.group %f0, %f1 : !comm.future, !comm.future`
  }];
  let arguments = (ins Variadic<Comm_Future>:$futures);
  let assemblyFormat = "$futures attr-dict `:` type($futures)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Compute, parameters
//===----------------------------------------------------------------------===//

def Comm_WeightOp : Comm_Op<"weight", [Pure]> {
  let summary = "A parameter, by file and section";
  let description = [{
    Refers to a section of a parameter file; the data is never in the IR. The
    stored tensor has shape `global` when `splits` are given, and this rank's part
    is the result. With `pack`, the part is laid out for the kernel of that
    description, and the result is opaque bytes.

    Example:
    ```mlir
    %w = comm.weight "encoder.w" from "model.weights"
           {global = array<i64: 64, 128>,
            splits = [#comm.split<dim = 1, outer = 1, domain = @tp>]}
           : tensor<64x64xf32>
    ```
  }];
  let arguments = (ins StrAttr:$section, StrAttr:$file,
                       OptionalAttr<DenseI64ArrayAttr>:$global,
                       OptionalAttr<TypedArrayAttrBase<Comm_Split, "splits">>:$splits,
                       OptionalAttr<StrAttr>:$pack,
                       OptionalAttr<TypeAttr>:$part);
  let results = (outs Comm_Data:$result);
  let assemblyFormat = "$section `from` $file attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Comm_KernelOp : Comm_Op<"kernel", [AttrSizedOperandSegments,
      DestinationStyleOpInterface, DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "A call of a kernel through the kernel ABI";
  let description = [{
    `description` is the text of concord_kernel_create. `absent` has one entry per
    pointer of the kernel (inputs, then outputs) and marks optional ones that are
    not given: they are passed as NULL and have no operand. With
    `workspace`, the last of `outs` is scratch memory of the size that create asked
    for.

    Example:
    ```mlir
    %r = comm.kernel "softmax cols=128 dtype=f32 rows=12"
           ins(%x : tensor<12x128xf32>) outs(%y : tensor<12x128xf32>)
           -> tensor<12x128xf32>
    ```
  }];
  let arguments = (ins StrAttr:$description, Variadic<Comm_Data>:$inputs,
                       Variadic<Comm_Data>:$inits,
                       OptionalAttr<DenseBoolArrayAttr>:$absent,
                       UnitAttr:$workspace);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    $description (`ins` `(` $inputs^ `:` type($inputs) `)`)?
    `outs` `(` $inits `:` type($inits) `)` attr-dict (`->` type($results)^)?
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() { return getInitsMutable(); }
  }];
}

def Comm_ComputeOp : Comm_Op<"compute", [
      DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "Opaque computation with its cost";
  let description = [{
    Stands for an operation of a foreign graph that is scheduled but not compiled.
    `touches` says which domains it may communicate on: absent means none, a list
    names them, and `touches_all` (custom calls and operations that nobody knows)
    means that nothing may be reordered around it. `key` leads back to the foreign
    instruction.

    Example:
    ```mlir
    %r = comm.compute "dot"(%a, %b) {flops = 4096 : i64, key = "%dot.3"}
           : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    ```
  }];
  let arguments = (ins StrAttr:$name, Variadic<AnyType>:$operands,
                       OptionalAttr<I64Attr>:$flops,
                       OptionalAttr<I64Attr>:$bytes_read,
                       OptionalAttr<I64Attr>:$bytes_written,
                       OptionalAttr<I64Attr>:$workspace_bytes,
                       OptionalAttr<TypedArrayAttrBase<FlatSymbolRefAttr, "domains">>:$touches,
                       UnitAttr:$touches_all, OptionalAttr<StrAttr>:$key);
  let results = (outs Variadic<AnyType>:$results);
  let assemblyFormat = [{
    $name `(` $operands `)` attr-dict `:` functional-type($operands, $results)
  }];
}

//===----------------------------------------------------------------------===//
// Solutions: order, certificate, memory
//===----------------------------------------------------------------------===//

def Comm_OrderOp : Comm_Op<"order"> {
  let summary = "The agreed order of issues of a program";
  let description = [{
    `sites` lists the `site` numbers of `program` in issue order. It is a solution
    that comm-verify-order does not trust: the verifier reads the issues.

    Example: `comm.order @main [0, 1, 2]`
  }];
  let arguments = (ins FlatSymbolRefAttr:$program, DenseI64ArrayAttr:$sites);
  let assemblyFormat = "$program $sites attr-dict";
  let hasVerifier = 1;
}

def Comm_CertificateOp : Comm_Op<"certificate"> {
  let summary = "Why the order cannot deadlock";
  let description = [{
    `by` is `forest` (the rank-group graph has no cycle: no order is needed),
    `order` (conditions C1 to C5) or `walk`. `digest` is the SHA-256 of the ordered
    issues; `assumptions` are what must hold of devices and issuers.

    Example:
    ```mlir
    comm.certificate version(1) by("order") digest("9f86...") assumes(["gate=check"])
    ```
  }];
  let arguments = (ins I64Attr:$version, StrAttr:$by, StrAttr:$digest,
                       StrArrayAttr:$assumptions);
  let assemblyFormat = [{
    `version` `(` $version `)` `by` `(` $by `)` `digest` `(` $digest `)`
    `assumes` `(` $assumptions `)` attr-dict
  }];
  let hasVerifier = 1;
}

def Comm_ArenaOp : Comm_Op<"arena"> {
  let summary = "The planned memory of a program";
  let description = [{
    One block of `size` bytes per rank, at the same offsets on every rank. Buffer i
    lies at `offsets[i]`, has `sizes[i]` bytes, and is live from event `first[i]` to
    event `last[i]` of the program's straight-line order. `lower_bound` is the
    largest sum of sizes live at one time.

    Example:
    ```mlir
    comm.arena @main size(4096) align(64) lower_bound(4096) offsets([0, 2048])
      sizes([2048, 2048]) first([0, 1]) last([2, 3])
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$program, I64Attr:$size, I64Attr:$align,
                       I64Attr:$lower_bound, DenseI64ArrayAttr:$offsets,
                       DenseI64ArrayAttr:$sizes, DenseI64ArrayAttr:$first,
                       DenseI64ArrayAttr:$last);
  let assemblyFormat = [{
    $program `size` `(` $size `)` `align` `(` $align `)`
    `lower_bound` `(` $lower_bound `)` `offsets` `(` $offsets `)`
    `sizes` `(` $sizes `)` `first` `(` $first `)` `last` `(` $last `)` attr-dict
  }];
  let hasVerifier = 1;
}

#endif // CONCORD_COMM_OPS
