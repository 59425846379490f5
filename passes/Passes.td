//===- Passes.td - Concord's passes ------------------------*- tablegen -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES
#define CONCORD_PASSES

include "mlir/Pass/PassBase.td"

//===----------------------------------------------------------------------===//
// imported -> partitioned
//===----------------------------------------------------------------------===//

def CommPartition : Pass<"comm-partition", "::mlir::ModuleOp"> {
  let summary = "Split the graph over the axes of the mesh";
  let description = [{
    Chooses for every operation how it is split over each axis of `comm.mesh`, so
    that the predicted step time is least and every matrix weight is split, and
    rewrites the module to what one rank computes: local shapes, parameters with
    their `splits`, and the collectives in between. Afterwards the module is in
    phase `partitioned`, has one `comm.domain` per axis, and the entry function's
    arguments and results carry `comm.sharding`.

    Before, with `comm.mesh = [["tp", 2]]`:
    ```mlir
    %h = onnx.node "MatMul"(%x, %w1) {} opset(17) : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    %y = onnx.node "MatMul"(%h, %w2) {} opset(17) : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
    ```
    After:
    ```mlir
    %h = onnx.node "MatMul"(%x, %w1) {} opset(17) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %p = onnx.node "MatMul"(%h, %w2) {} opset(17) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %y = comm.all_reduce @tp sum ins(%p : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
    ```

    The axis `pp` is taken last and makes several programs: operations are cut into
    contiguous stages of least predicted time, each a function of its own with a
    `comm.program`, and values that cross a cut are sent and received. With
    `comm.micro_batches = M` (comm-opt --micro-batches) the batch is cut into equal
    parts, and stage s computes part m
    while stage s + 1 computes part m - 1. Two programs of `comm.mesh = [["pp", 2]]`:
    ```mlir
    comm.program @stage0 entry(@main_stage0) ranks([0])
    func.func @main_stage0(%x: tensor<4x8xf32>) {
      %h = onnx.node "MatMul"(%x, %w1) ...
      %f = comm.start send @pp ins(%h : tensor<4x16xf32>) {peer = 1 : i64}
      comm.wait %f ins(%h : tensor<4x16xf32>)
      return
    }
    comm.program @stage1 entry(@main_stage1) ranks([1])
    func.func @main_stage1() -> tensor<4x8xf32> {
      %h = comm.recv @pp from(0) outs(%e : tensor<4x16xf32>) -> tensor<4x16xf32>
      %y = onnx.node "MatMul"(%h, %w2) ...
      return %y : tensor<4x8xf32>
    }
    ```
  }];
  let options = [
    Option<"replicateInputs", "replicate-inputs", "bool", /*default=*/"false",
           "Give every rank the whole inputs">,
    Option<"replicateOutputs", "replicate-outputs", "bool", /*default=*/"false",
           "Leave the whole outputs on every rank">,
    Option<"experts", "experts", "std::string", /*default=*/"\"send\"",
           "How a mixture of experts is split over the axis ep: send (tokens go "
           "to the owners of their experts and back, all_to_all), reduce (every "
           "owner has all tokens, and partial sums are reduced), or cost (what "
           "is predicted to be faster)">
  ];
  let statistics = [
    Statistic<"numCollectives", "collectives", "Collectives inserted">,
    Statistic<"numSplitWeights", "split-weights", "Parameters that were split">
  ];
  let dependentDialects = ["::concord::comm::CommDialect",
    "::concord::onnxir::OnnxDialect", "::mlir::tensor::TensorDialect",
    "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
    "::mlir::linalg::LinalgDialect"];
}

//===----------------------------------------------------------------------===//
// partitioned -> decomposed
//===----------------------------------------------------------------------===//

def CommImportShard : Pass<"comm-import-shard", "::mlir::ModuleOp"> {
  let summary = "Upstream shard collectives as comm operations";
  let description = [{
    Takes a program after upstream's `shard-partition`: every list of grid axes that
    a collective names becomes a `comm.domain`, and the thirteen communicating
    operations (all_gather, all_reduce, all_slice, all_to_all, broadcast, gather,
    recv, reduce, reduce_scatter, scatter, send, shift, update_halo) become comm
    operations; `all_slice` is local. Grid queries become `comm.rank` and constants.
    Devices are world ranks, row-major over the grid.

    Upstream marks these collectives `Pure`, so run this pass before CSE or LICM may
    drop one on some rank.

    Refused: dynamic grids and shapes, roots known only at run time, `recv` from
    anyone, `bitwise_xor` and `generic`, changes of element type, and shardings
    (`shard.shard`), which are no communication yet.

    Before:
    ```mlir
    shard.grid @g(shape = 2x4)
    %1 = shard.all_reduce %0 on @g grid_axes = [1] : tensor<8xf32> -> tensor<8xf32>
    ```
    After:
    ```mlir
    comm.domain @g_1 groups([[0, 1, 2, 3], [4, 5, 6, 7]])
    %i = tensor.empty() : tensor<8xf32>
    %1 = comm.all_reduce @g_1 sum ins(%0 : tensor<8xf32>)
           outs(%i : tensor<8xf32>) -> tensor<8xf32>
    ```
  }];
  let statistics = [Statistic<"numCollectives", "collectives", "Operations imported">,
                    Statistic<"numDomains", "domains", "Domains made">];
  let dependentDialects = ["::concord::comm::CommDialect",
                           "::mlir::arith::ArithDialect",
                           "::mlir::tensor::TensorDialect"];
}

def CommRecognize : Pass<"comm-recognize", "::mlir::ModuleOp"> {
  let summary = "Recognise composite operations that exporters spell out";
  let description = [{
    Replaces the patterns in which exporters write layer normalisation, RMS
    normalisation and GELU by the one ONNX operator, and folds bias additions
    and activations into the matrix product before them, so that one kernel call
    does the work. Only at the ONNX level; semantics are kept up to rounding.

    Before:
    ```mlir
    %m = onnx.node "MatMul"(%x, %w) {} opset(17) : ...
    %y = onnx.node "Add"(%m, %b) {} opset(17) : ...
    ```
    After:
    ```mlir
    %y = onnx.node "FusedMatMul"(%x, %w, %b) {act = "none"} opset(1) domain("concord") : ...
    ```
  }];
  let statistics = [
    Statistic<"numNorms", "norms", "Normalisations recognised">,
    Statistic<"numActivations", "activations", "Activations recognised">,
    Statistic<"numEpilogues", "epilogues", "Operations folded into matrix products">,
    Statistic<"numAttentions", "attentions", "Attention blocks recognised">
  ];
  let dependentDialects = ["::concord::onnxir::OnnxDialect",
                           "::mlir::arith::ArithDialect"];
}

def CommDecompose : Pass<"comm-decompose", "::mlir::ModuleOp"> {
  let summary = "Lower ONNX nodes to linalg and kernel calls";
  let description = [{
    Every `onnx.node` becomes linalg, tensor and arith operations, or a
    `comm.kernel` call: elementwise operations become `linalg.generic`, data
    movement that needs none becomes reshapes and slices, matrix products,
    convolutions, normalisations and everything else become kernels. Parameters
    that a kernel wants packed are marked so. An operation that nothing can lower
    is an error that names the model's node.

    Matrix products that are linalg already (a named operation or a generic over
    three loops, into zeros) become kernel calls as well.

    Before: `%y = onnx.node "Relu"(%x) {} opset(17) : (tensor<4xf32>) -> tensor<4xf32>`

    After:
    ```mlir
    %y = linalg.generic ... ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {
      ^bb0(%a: f32, %b: f32):
        %m = arith.maximumf %a, %zero : f32
        linalg.yield %m : f32
    } -> tensor<4xf32>
    ```
  }];
  let statistics = [
    Statistic<"numKernels", "kernels", "Kernel calls made">,
    Statistic<"numGenerics", "generics", "linalg operations made">
  ];
  let dependentDialects = ["::concord::comm::CommDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect",
    "::mlir::arith::ArithDialect", "::mlir::math::MathDialect",
    "::mlir::func::FuncDialect"];
}

def CommFuseElementwise : Pass<"comm-fuse-elementwise", "::mlir::func::FuncOp"> {
  let summary = "Fuse chains of elementwise operations";
  let description = [{
    Fuses a `linalg.generic` into its only consumer when both run over the same
    number of points, so that nothing is computed twice.

    Before: two generics, `%1 = exp %0`, `%2 = add %1, %b`. After: one generic that
    computes `add (exp %0), %b`.
  }];
  let dependentDialects = ["::mlir::linalg::LinalgDialect"];
}

//===----------------------------------------------------------------------===//
// decomposed -> ordered
//===----------------------------------------------------------------------===//

def CommSimplify : Pass<"comm-simplify", "::mlir::ModuleOp"> {
  let summary = "Fewer, smaller and cheaper collectives";
  let description = [{
    Rewrites collectives on tensors, synchronous or started, of decomposed programs
    and of imported foreign graphs alike. A collective is taken away or changed only
    where every member of its group is shown to do the same: they run the same
    program and agree on the conditions and trip counts around it. What only moves
    data, or combines it in the same order, keeps all bits; a rewrite that rounds
    otherwise says `rounding=differs` with `--explain` and is refused by `exact`.

    - all_reduce, of which each member takes its own shard: reduce_scatter.
    - all_gather of reduce_scatter: all_reduce; and all_reduce, narrowed afterwards:
      reduce_scatter, conversion, all_gather, where the cost model says so.
    - own shard of an all_gather, all_gather of the own shard of an equal value;
      one member's block of an all_gather: broadcast; part of an all_gather: the
      all_gather of the part.
    - sum of two all_reduces or reduce_scatters: one, of the sum.
    - dead, duplicate and loop-invariant collectives.
    - all_reduce, broadcast or permute of what is equal on all members already.
    - narrowing conversions before, widening ones behind what only moves data.
    - all_gather of a constant.
    - all_reduce over rows and then columns: one over both, when small; over
      several hosts (a topology as `machine`): scattered within, reduced between, gathered
      within, when large.

    Before:
    ```mlir
    %s = comm.all_reduce @tp sum ins(%x : tensor<8x4xf32>) outs(%e : tensor<8x4xf32>) -> tensor<8x4xf32>
    %r = comm.rank @tp
    %o = arith.muli %r, %c4 : index
    %y = tensor.extract_slice %s[%o, 0] [4, 4] [1, 1] : tensor<8x4xf32> to tensor<4x4xf32>
    ```
    After:
    ```mlir
    %y = comm.reduce_scatter @tp sum dim(0) ins(%x : tensor<8x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
    ```
  }];
  let options = [
    Option<"exact", "exact", "bool", /*default=*/"false",
           "Refuse rewrites that round otherwise">,
    Option<"machine", "machine", "std::string", /*default=*/"",
           "Whose costs: cpu, accelerator, or a calibration or topology file">
  ];
  let statistics = [
    Statistic<"numRewrites", "rewrites", "Rewrites done">,
    Statistic<"numRemoved", "removed", "Collectives taken away or replaced">
  ];
  let dependentDialects = ["::concord::comm::CommDialect",
    "::mlir::tensor::TensorDialect", "::mlir::arith::ArithDialect",
    "::mlir::linalg::LinalgDialect"];
}

def CommHealth : Pass<"comm-health", "::mlir::ModuleOp"> {
  let summary = "A health check as an optional slot of the round";
  let description = [{
    Adds an issuer `health` whose program reduces 8 bytes and `elements` of f32 over
    all ranks, in a slot that a round uses when it is asked for
    (`concord_slot_request`; `comm-run PROGRAM --health`). A module of one issuer
    also gets the round's decision, first in every entry function. From then on the
    check is a part of the program: comm-order gives it a turn, comm-verify-order
    judges it, and nothing is issued outside the order. A barrier before the two
    takes the wait for the turn.

    After, beside what there was:
    ```mlir
    comm.program @health_program entry(@health_check) ranks([0, 1]) issuer("health")
    func.func @health_check() {
      comm.barrier @health {slot = "optional:health"}
      %r = comm.all_reduce @health sum ins(%f : tensor<2xf32>) outs(%o : tensor<2xf32>) {slot = "optional:health"} -> tensor<2xf32>
      …
    ```
  }];
  let options = [
    Option<"elements", "elements", "int64_t", /*default=*/"1048576",
           "Elements of f32 of the larger reduction">,
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect",
                           "::mlir::linalg::LinalgDialect",
                           "::mlir::tensor::TensorDialect"];
}

def CommBucket : Pass<"comm-bucket", "::mlir::ModuleOp"> {
  let summary = "Several small collectives as one";
  let description = [{
    Joins collectives of one block that have the same kind, domain, reduction and
    element type, and do not depend on each other, into one over a bucket: one
    buffer that holds the parts side by side. Those that were started are joined
    with each other: the bucket starts with the last and is waited for with the
    first, and the overlap that this takes from the members counts as cost. What only moves data
    (all_gather, broadcast, permute) may mix element types, as bytes. The bucket
    stands where its last member stood; what uses an earlier member's result moves
    behind it, and anything that communicates and depends on a member closes the
    bucket, so no dependence ever runs in a circle. All bits stay the same.

    A member is taken only while latency is a noticeable part of its time, a bucket
    is formed only when the cost model predicts a gain with the copies counted, and
    its buffers stay below `max-growth`. A part whose producer can write into the
    bucket needs no copy on the way in.

    Before:
    ```mlir
    %a = comm.all_reduce @dp sum ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %b = comm.all_reduce @dp sum ins(%y : tensor<2xf32>) outs(%f : tensor<2xf32>) -> tensor<2xf32>
    ```
    After:
    ```mlir
    %0 = tensor.insert_slice %x into %bucket[0] [4] [1] : tensor<4xf32> into tensor<6xf32>
    %1 = tensor.insert_slice %y into %0[4] [2] [1] : tensor<2xf32> into tensor<6xf32>
    %r = comm.all_reduce @dp sum ins(%1 : tensor<6xf32>) outs(%g : tensor<6xf32>) -> tensor<6xf32>
    %a = tensor.extract_slice %r[0] [4] [1] : tensor<6xf32> to tensor<4xf32>
    %b = tensor.extract_slice %r[4] [2] [1] : tensor<6xf32> to tensor<2xf32>
    ```
  }];
  let options = [
    Option<"maxBytes", "max-bytes", "int64_t", /*default=*/"0",
           "Largest bucket in bytes; 0: by the cost model">,
    Option<"maxCount", "max-count", "int64_t", /*default=*/"512",
           "Most members of a bucket">,
    Option<"maxGrowth", "max-growth", "int64_t", /*default=*/"268435456",
           "Bytes that the buffers of one bucket may add">,
    Option<"mixed", "mixed", "bool", /*default=*/"true",
           "Mix element types where data is only moved">,
    Option<"machine", "machine", "std::string", /*default=*/"",
           "Whose costs: cpu, accelerator, or a calibration or topology file">
  ];
  let statistics = [
    Statistic<"numBuckets", "buckets", "Buckets made">,
    Statistic<"numMembers", "members", "Collectives that went into buckets">
  ];
  let dependentDialects = ["::concord::comm::CommDialect",
    "::mlir::tensor::TensorDialect", "::mlir::arith::ArithDialect",
    "::mlir::linalg::LinalgDialect"];
}

def CommFuse : Pass<"comm-fuse", "::mlir::ModuleOp"> {
  let summary = "Make one operation of a collective and the computation around it";
  let description = [{
    Fuses an all_reduce or reduce_scatter with the matrix product before it and
    with bias, residual and normalisation after it, and an all_gather of rows with
    the product that it feeds, into one `comm.fused`. Reshapes in between and the
    order of operands do not matter. A reduce_scatter, elementwise operations on the
    own share (the step of an optimiser whose states are divided) and the all_gather of
    their result become one as well, of kind all_reduce. Every member finishes a share of the rows (for
    a product of few rows, of the columns) from the others' partial results where
    they lie, or, where that moves fewer bytes, all rows (`every`).

    A fusion is taken when the cost model (docs/cost-model.md) predicts a gain; `--explain` prints the
    prediction, or why a collective was kept. Sums in f32 and f64 are in the order of
    the separate operations; 16-bit types are rounded fewer times.

    Before:
    ```mlir
    %r = comm.all_reduce @tp sum ins(%x : tensor<64x128xf32>) outs(%e : tensor<64x128xf32>) -> tensor<64x128xf32>
    %s = linalg.generic ... ins(%r, %residual ...) { ... arith.addf ... }
    %y = comm.kernel "rmsnorm cols=128 dtype=f32 gamma=1 rows=64" ins(%s, %g : ...) ...
    ```
    After:
    ```mlir
    %y:2 = comm.fused all_reduce @tp "fused_reduce cols=128 ... norm=rmsnorm residual=1 rows=64"
             ins(%x, %residual, %g : ...) outs(%e0, %w : ...) ...
    ```
  }];
  let options = [
    Option<"force", "force", "bool", /*default=*/"false",
           "Fuse whatever matches, without looking at the predicted gain">,
    Option<"exact", "exact", "bool", /*default=*/"false",
           "Refuse fusions that round otherwise than the separate operations in f32">,
    Option<"minGainPercent", "min-gain-percent", "double", /*default=*/"10",
           "Least predicted gain, in percent of the unfused time without the product">,
    Option<"machineName", "machine", "std::string", /*default=*/"\"\"",
           "Built-in machine, calibration or topology that costs are taken from">
  ];
  let statistics = [
    Statistic<"numFused", "fused", "Collectives fused">,
    Statistic<"numRefused", "kept", "Collectives kept">
  ];
  let dependentDialects = ["::concord::comm::CommDialect",
                           "::mlir::tensor::TensorDialect"];
}

def CommChunk : Pass<"comm-chunk", "::mlir::ModuleOp"> {
  let summary = "Split large collectives into pieces";
  let description = [{
    Cuts a collective whose whole array has more than `bytes` bytes into pieces of
    about that size, along the outermost dimension that it neither cuts nor
    assembles, and puts the results together. Between pieces others can use the
    link, each piece can be waited for when it is needed, and fewer bytes are in
    flight. Not cut, with the reason in `--explain`: started collectives, uneven
    all_to_all, dynamic shapes, and what has no such dimension.

    (`comm-decompose` is the lowering of ONNX operations; it cuts no collectives.)

    Before, with `bytes=64`:
    ```mlir
    %r = comm.all_reduce @dp sum ins(%x : tensor<8x4xf32>) outs(%y : tensor<8x4xf32>) -> tensor<8x4xf32>
    ```
    After:
    ```mlir
    %x0 = tensor.extract_slice %x[0, 0] [4, 4] [1, 1] : tensor<8x4xf32> to tensor<4x4xf32>
    %r0 = comm.all_reduce @dp sum ins(%x0 : tensor<4x4xf32>) outs(%y0 : tensor<4x4xf32>) -> tensor<4x4xf32>
    %x1 = tensor.extract_slice %x[4, 0] [4, 4] [1, 1] : tensor<8x4xf32> to tensor<4x4xf32>
    %r1 = comm.all_reduce @dp sum ins(%x1 : tensor<4x4xf32>) outs(%y1 : tensor<4x4xf32>) -> tensor<4x4xf32>
    %p = tensor.insert_slice %r0 into %y[0, 0] [4, 4] [1, 1] : tensor<4x4xf32> into tensor<8x4xf32>
    %r = tensor.insert_slice %r1 into %p[4, 0] [4, 4] [1, 1] : tensor<4x4xf32> into tensor<8x4xf32>
    ```
  }];
  let options = [Option<"bytes", "bytes", "int64_t", /*default=*/"4194304",
                        "Bytes of the whole array that a piece has at most, about">];
  let statistics = [Statistic<"numChunks", "chunks", "Pieces made">];
  let dependentDialects = ["::concord::comm::CommDialect",
    "::mlir::tensor::TensorDialect"];
}

def CommOverlap : Pass<"comm-overlap", "::mlir::ModuleOp"> {
  let summary = "Start collectives early, wait for them late";
  let description = [{
    Schedules every block that communicates: a collective that computation can hide
    becomes `comm.start` and `comm.wait`, independent computations move in between,
    and what is ready long before it is needed (the gather of a weight) starts as
    late as still hides it. Predicted times are the cost model's
    (docs/cost-model.md): links carry one collective of a lane after the other, the
    host computes one operation after the other.

    - **Memory is a hard limit**: no schedule holds more bytes at once than
      `memory`, or without it `growth` times what the given order holds. Arguments
      and results of the function are not counted, everything in flight is. Values are
      what is counted here, and buffers are fewer or more: `memory` stays on the module
      (`comm.memory_limit`), and comm-plan-workspace refuses an arena over it. Where the
      given order itself holds more, nothing is added to it. With `memory`, what stands in
      loops and branches is started only where it holds no more than it did.
    - **Shared memory**: where the ranks' own cores move the bytes, nothing is hidden
      and nothing is started (`reason=cores-move-the-bytes`).
    - **Loops** of known trip count: a collective that needs only the counter is made
      one iteration ahead, one whose result only leaves the iteration one late; the
      first or last iteration stands outside then. The second copy that this
      takes counts: where it is over the limit the loops stay (`keep-loops`). So does
      a loop with a transfer, a barrier or an effect in it, and every loop where
      several programs meet.
    - **Starts cost**: a collective that hides less than two issues take stays whole
      (`reason=start-costs-more`).
    - **Priorities**: a collective of a lower priority stays behind a higher one that
      comes before it could end, and is cut into pieces where it would hold the link
      for long; each priority gets a lane of its own where the order can still be
      proven.
    - **The order**: all ranks of a program get the same one; between several
      programs, and across transfers, barriers, opaque calls and whatever has effects,
      issues keep their order. `comm-order` numbers it, `comm-verify-order` proves it.

    The given order is kept where nothing better was found. Near-linear in the number
    of operations.

    Before:
    ```mlir
    %g = comm.all_gather @dp dim(0) ins(%w : tensor<4x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
    %a = comm.compute "attention"(%x) {flops = 2000000000 : i64} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %y = comm.compute "dot"(%a, %g) {flops = 2000000000 : i64} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    ```
    After:
    ```mlir
    %f = comm.start all_gather @dp ins(%w : tensor<4x8xf32>) outs(%e : tensor<8x8xf32>) {dim = 0 : i64}
    %a = comm.compute "attention"(%x) {flops = 2000000000 : i64} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %g = comm.wait %f ins(%w : tensor<4x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
    %y = comm.compute "dot"(%a, %g) {flops = 2000000000 : i64} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    ```
  }];
  let options = [
    Option<"machine", "machine", "std::string", /*default=*/"",
           "Figures of the cost model: cpu, accelerator, or a calibration or topology file">,
    Option<"memory", "memory", "int64_t", /*default=*/"-1",
           "Bytes that the arena may have; negative: growth decides">,
    Option<"growth", "growth", "double", /*default=*/"1.1",
           "Without memory: times what the given order holds">,
    Option<"chunk", "chunk", "bool", /*default=*/"true",
           "Cut collectives of low priority, or those of chunk-bytes">,
    Option<"chunkBytes", "chunk-bytes", "int64_t", /*default=*/"0",
           "Cut every collective above this many bytes; 0: only for priorities">,
    Option<"pipeline", "pipeline", "bool", /*default=*/"true",
           "Move collectives across the iterations of loops">,
    Option<"lanes", "lanes", "bool", /*default=*/"true",
           "Give each priority a lane where the order can still be proven">,
    Option<"keepIssueOrder", "keep-issue-order", "bool", /*default=*/"false",
           "Issue collectives in the order given">
  ];
  let statistics = [
    Statistic<"numStarts", "starts", "Collectives started">,
    Statistic<"numChunks", "chunks", "Pieces made of large collectives">,
    Statistic<"numPipelined", "pipelined", "Collectives moved across iterations">
  ];
  let dependentDialects = ["::concord::comm::CommDialect",
    "::mlir::tensor::TensorDialect", "::mlir::arith::ArithDialect",
    "::mlir::scf::SCFDialect"];
}

def CommOrder : Pass<"comm-order", "::mlir::ModuleOp"> {
  let summary = "Give every communication operation its place in one order";
  let description = [{
    Numbers the issues of every program (`site`), in one order that all ranks agree
    on and that is consistent with data dependences, and emits `comm.order` and
    `comm.certificate`.

    Order is needed only inside the cyclic blocks of the rank-group graph; where
    that is a forest there is none. The issues of a block share a lane, which
    carries the order to the device; a domain in no block has a lane of its own.
    Among the orders that dependences allow, the one of least predicted time is
    taken (then the one that lets domains of higher priority end earlier), and the
    operations are put in it: in a graph of `comm.compute`, that is; a compiled
    program computes in its own order anyway, and one that came from HLO keeps the
    order of its text. Programs of different ranks that
    disagree are put in an order that all can follow. If there is none, the cycle
    of dependences is an error.

    `edges` of `comm.order` are the pairs of sites that whoever schedules the
    operations anew has to keep: neighbours in a block that no data dependence
    orders, without those that the walk test finds needless (up to 256 issues, one
    after another). `path_ns` and `unordered_path_ns` are the predicted critical
    path with and without the order, `domain_path_ns` the same for the longest path
    through each domain's operations.

    Before: `%r = comm.all_reduce @tp sum ins(...) outs(...) -> ...`

    After:
    ```mlir
    %r = comm.all_reduce @tp sum ins(...) outs(...) {site = 0 : i64} -> ...
    comm.order @main [0]
    comm.certificate version(1) by("forest") digest("...") assumes(["gate=check"])
    ```
  }];
  let statistics = [Statistic<"numSites", "sites", "Issues ordered">];
  let dependentDialects = ["::concord::comm::CommDialect"];
}

def CommVerifyOrder : Pass<"comm-verify-order", "::mlir::ModuleOp"> {
  let summary = "Prove that the issues cannot deadlock";
  let description = [{
    Builds the plan of the module from its issues alone (never from `comm.order`)
    and judges it by the conditions of the certificate. A failure is an error that
    prints the wait chain, one edge a note, at source locations.
  }];
  let dependentDialects = ["::concord::comm::CommDialect"];
}

def CommVerifyUniform : Pass<"comm-verify-uniform", "::mlir::ModuleOp"> {
  let summary = "Prove that all members of a group reach a collective, or none";
  let description = [{
    A collective under a condition or in a loop must be reached equally often by
    all members of its group. The condition, or the trip count, is uniform when it is
    computed from constants, from whole arguments of the entry function, or from the
    result of an all_reduce, all_gather or broadcast over those members. Otherwise
    the error names where the value comes from.

    Refused:
    ```mlir
    %r = comm.rank @tp
    %first = arith.cmpi eq, %r, %c0 : index
    scf.if %first { comm.barrier @tp }
    ```
  }];
  let dependentDialects = ["::concord::comm::CommDialect"];
}

//===----------------------------------------------------------------------===//
// ordered -> planned
//===----------------------------------------------------------------------===//

def CommBufferize : Pass<"comm-bufferize", "::mlir::ModuleOp"> {
  let summary = "One-shot bufferization with results as arguments";
  let description = [{
    Turns the results of public functions into destination arguments and runs
    one-shot bufferization across function boundaries. Buffers that collectives and
    kernels take are made dense. Where tensors are used in straight lines (no branches,
    loops or calls) its analysis is not needed: what nothing uses later is written over.

    Before: `func.func @main(%x: tensor<4xf32>) -> tensor<4xf32>`

    After: `func.func @main(%x: memref<4xf32>, %y: memref<4xf32>)`
  }];
  let dependentDialects = ["::concord::comm::CommDialect",
    "::mlir::bufferization::BufferizationDialect", "::mlir::memref::MemRefDialect",
    "::mlir::linalg::LinalgDialect"];
}

def CommPlanWorkspace : Pass<"comm-plan-workspace", "::mlir::ModuleOp"> {
  let summary = "Place every buffer in one arena";
  let description = [{
    Every static `memref.alloc` of the entry function becomes a view of one arena
    argument, at an offset that no buffer live at the same time shares, and
    `comm.arena` records the plan with its lower bound. Lifetimes follow views and
    reach from the first to the last use in the order of the function, an
    asynchronous operation using its operands until its wait. A buffer that is used
    in a loop and made outside of it lives as long as the loop; the arms of a branch
    may share bytes. A module that is still in tensors is bufferised first; opaque
    compute gets the buffers that it writes, and the workspace that it declares
    (`workspace_bytes`), as operands. What a loop hands on in a new buffer is copied
    to one that stays.

    The size of the arena, its lower bound (the largest sum of sizes live at one
    time), and the reason for a gap between the two are printed with `--explain`. An
    arena over `memory`, or over the limit that comm-overlap left on the module, is an
    error that names the largest buffers live at its peak; with `--comm-pipeline` less is
    overlapped before that.

    Before: `%b = memref.alloc() : memref<4xf32>`

    After: `%b = memref.view %arena[%c0][] : memref<64xi8> to memref<4xf32>`

    Ranks of one program have every buffer at one offset. Where members of a collective
    run several programs (instances of the domain are matched as comm-verify-order does),
    each of its buffers is placed at one offset in all their arenas, beside what is live
    with it in any of them, as long as no arena is over what it is alone and over 1.05
    times its largest live set. `symmetric` says of each buffer of such an issue, inputs
    before outputs, whether it is so; where it is not, the plan table has the offset of
    each program, and `--explain` the reason (`per-rank`). Sends and receives play
    different parts and are left apart. Where the order cannot be proven nothing is
    matched.

    Before, `@grow` in a program of rank 0 and `@shrink` in one of rank 1:
    ```mlir
    func.func @grow(%x: memref<64xf32>) {
      %t = memref.alloc() : memref<64xf32>
      comm.kernel "k" ins(%x : memref<64xf32>) outs(%t : memref<64xf32>)
      %a = memref.alloc() : memref<16xf32>
      comm.kernel "k" ins(%t : memref<64xf32>) outs(%a : memref<16xf32>)
      comm.all_reduce @all sum ins(%a : memref<16xf32>) outs(%a : memref<16xf32>)
      ...
    func.func @shrink(%y: memref<16xf32>) {
      %b = memref.alloc() : memref<16xf32>
      comm.kernel "k" ins(%y : memref<16xf32>) outs(%b : memref<16xf32>)
      comm.all_reduce @all sum ins(%b : memref<16xf32>) outs(%b : memref<16xf32>)
      ...
    ```
    After, both are at byte 0, although `%t` is the larger one in `@grow`:
    ```mlir
      %a = memref.view %arena[%c0][] : memref<320xi8> to memref<16xf32>
      comm.all_reduce @all sum ins(%a : memref<16xf32>) outs(%a : memref<16xf32>) {symmetric = array<i1: true, true>}
      ...
      %b = memref.view %arena[%c0][] : memref<64xi8> to memref<16xf32>
      comm.all_reduce @all sum ins(%b : memref<16xf32>) outs(%b : memref<16xf32>) {symmetric = array<i1: true, true>}
    ```
  }];
  let options = [
    Option<"align", "align", "int64_t", /*default=*/"64",
           "Alignment of every buffer in bytes">,
    Option<"memory", "memory", "int64_t", /*default=*/"-1",
           "Bytes that an arena may have; negative: what the module says, if it does">
  ];
  let statistics = [Statistic<"arenaBytes", "arena-bytes", "Size of the arena">,
    Statistic<"numSymmetric", "symmetric",
              "Buffers of collectives of several programs at one offset in all">,
    Statistic<"numPerRank", "per-rank",
              "Buffers of collectives of several programs at offsets of their own">];
  let dependentDialects = ["::concord::comm::CommDialect",
    "::mlir::memref::MemRefDialect", "::mlir::arith::ArithDialect",
    "::mlir::bufferization::BufferizationDialect", "::mlir::linalg::LinalgDialect"];
}

def CommVerifyWorkspace : Pass<"comm-verify-workspace", "::mlir::ModuleOp"> {
  let summary = "Prove that nothing allocates or overlaps during a step";
  let description = [{
    Between the first and the last issue nothing allocates, frees, loads lazily or
    synchronises: no operation with such an effect or with unknown ones, and no
    opaque compute that declares workspace and is given none. No two views of the
    arena that are live together overlap, what peers read of an operation in flight
    counted until its wait. No arena is over `comm.memory_limit`. A buffer that is
    `symmetric` on an issue of several programs lies at one offset in all of them; one that
    is not has a place that the plan table can state. It reads the views and
    their uses, never `comm.arena`.
  }];
  let dependentDialects = ["::concord::comm::CommDialect"];
}

//===----------------------------------------------------------------------===//
// planned -> lowered
//===----------------------------------------------------------------------===//

def CommOutline : Pass<"comm-outline", "::mlir::ModuleOp"> {
  let summary = "Move loop nests into functions that equal nests share";
  let description = [{
    Every outermost `scf.for` that yields nothing and only computes becomes a call
    of a private function; nests that differ only in the places of their buffers
    become calls of one. Time of LLVM's loop passes grows with the square of the
    loops of a function, and with layers that repeat few nests differ. comm-lower
    runs it.

    Buffers and what is known only at run time become arguments, constants move
    into the function. Buffers that are shown to be disjoint carry `llvm.noalias`;
    those that overlap are handed over as one, with their distance in the function.

    Before: `scf.for ... { memref.load %a[%i]; memref.store %v, %b[%i] }`

    After: `func.call @concord_nest(%a, %b)`
  }];
  let statistics = [Statistic<"numNests", "nests", "Loop nests moved">,
                    Statistic<"numFunctions", "functions", "Functions made">];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::func::FuncDialect",
    "::mlir::memref::MemRefDialect", "::mlir::arith::ArithDialect"];
}

def CommLower : Pass<"comm-lower", "::mlir::ModuleOp"> {
  let summary = "Lower to LLVM, with issues through the plan table";
  let description = [{
    Issues become calls of `concord_issue(context, site, buffers, n)` and kernels
    calls of `concord_kernel_run`; an error code returned by either leaves the step
    at once. What a site is stands in the plan table, which becomes the constant
    `.concord.plan`, beside `.concord.meta` and `.concord.kernels`.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::cf::ControlFlowDialect",
    "::mlir::scf::SCFDialect", "::mlir::memref::MemRefDialect",
    "::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::vector::VectorDialect"];
}

#endif // CONCORD_PASSES
