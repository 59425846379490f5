// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Small collectives go together; what does not belong together stays apart.
//
// RUN: comm-opt %s --comm-bucket=machine=accelerator | FileCheck %s
// RUN: comm-opt %s --explain --comm-bucket=machine=accelerator -o /dev/null 2>&1 | FileCheck %s --check-prefix=WHY
// RUN: comm-opt %s --explain "--comm-bucket=machine=accelerator mixed=false max-count=2 max-growth=200" -o /dev/null 2>&1 | FileCheck %s --check-prefix=LIMIT

module attributes {comm.world = 4 : i64} {
  comm.domain @tp groups([[0, 1], [2, 3]])
  comm.domain @dp groups([[0, 2], [1, 3]])

  // CHECK-LABEL: func.func @reduce
  // CHECK-SAME: (%[[X:.*]]: tensor<2x2xf32>, %[[Y:.*]]: tensor<3xf32>)
  // CHECK: %[[B:.*]] = tensor.empty() : tensor<7xf32>
  // CHECK: %[[FX:.*]] = tensor.collapse_shape %[[X]]
  // CHECK: %[[B0:.*]] = tensor.insert_slice %[[FX]] into %[[B]][0] [4] [1]
  // CHECK: %[[B1:.*]] = tensor.insert_slice %[[Y]] into %[[B0]][4] [3] [1]
  // CHECK: %[[R:.*]] = comm.all_reduce @tp sum ins(%[[B1]] : tensor<7xf32>)
  // CHECK: %[[P:.*]] = tensor.extract_slice %[[R]][0] [4] [1]
  // CHECK: %[[PX:.*]] = tensor.expand_shape %[[P]]
  // CHECK: %[[PY:.*]] = tensor.extract_slice %[[R]][4] [3] [1]
  // What used the first one's result stands behind the bucket.
  // CHECK: linalg.exp ins(%[[PX]]
  // CHECK: return %{{.*}}, %[[PY]]
  // WHY-DAG: explain: comm-bucket bucket-all_reduce {{.*}} reason=latency domain=@tp members=2 bytes=28 growth_bytes=56 in_place=0 copied_bytes=56 saved_ns=
  func.func @reduce(%x: tensor<2x2xf32>, %y: tensor<3xf32>) -> (tensor<2x2xf32>, tensor<3xf32>) {
    %e = tensor.empty() : tensor<2x2xf32>
    %f = tensor.empty() : tensor<3xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<2x2xf32>) outs(%e : tensor<2x2xf32>) -> tensor<2x2xf32>
    %n = linalg.exp ins(%a : tensor<2x2xf32>) outs(%e : tensor<2x2xf32>) -> tensor<2x2xf32>
    %b = comm.all_reduce @tp sum ins(%y : tensor<3xf32>) outs(%f : tensor<3xf32>) -> tensor<3xf32>
    return %n, %b : tensor<2x2xf32>, tensor<3xf32>
  }

  // A producer writes its part where the bucket lies.
  // CHECK-LABEL: func.func @in_place
  // CHECK: %[[B:.*]] = tensor.empty() : tensor<8xf32>
  // CHECK: %[[S:.*]] = tensor.extract_slice %[[B]][0] [4] [1]
  // CHECK: linalg.exp ins(%{{.*}}) outs(%[[S]]
  // CHECK: %[[T:.*]] = tensor.extract_slice %[[B]][4] [4] [1]
  // CHECK: linalg.log ins(%{{.*}}) outs(%[[T]]
  // CHECK: comm.all_reduce @tp sum ins(%{{.*}} : tensor<8xf32>)
  // WHY-DAG: explain: comm-bucket bucket-all_reduce {{.*}} members=2 bytes=32 growth_bytes=64 in_place=2 copied_bytes=32
  func.func @in_place(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %e = tensor.empty() : tensor<4xf32>
    %n = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %a = comm.all_reduce @tp sum ins(%n : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %m = linalg.log ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %b = comm.all_reduce @tp sum ins(%m : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    return %a, %b : tensor<4xf32>, tensor<4xf32>
  }

  // Blocks of members side by side.
  // CHECK-LABEL: func.func @gather_and_scatter
  // CHECK: comm.all_gather @tp dim(0) ins(%{{.*}} : tensor<1x5xf32>) outs(%{{.*}} : tensor<2x5xf32>)
  // CHECK: comm.reduce_scatter @dp sum dim(0) ins(%{{.*}} : tensor<2x7xf32>) outs(%{{.*}} : tensor<1x7xf32>)
  func.func @gather_and_scatter(%x: tensor<2xf32>, %y: tensor<1x3xf32>, %u: tensor<6xf32>, %v: tensor<4x2xf32>)
      -> (tensor<4xf32>, tensor<2x3xf32>, tensor<3xf32>, tensor<2x2xf32>) {
    %e = tensor.empty() : tensor<4xf32>
    %f = tensor.empty() : tensor<2x3xf32>
    %g = tensor.empty() : tensor<3xf32>
    %h = tensor.empty() : tensor<2x2xf32>
    %a = comm.all_gather @tp dim(0) ins(%x : tensor<2xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %c = comm.reduce_scatter @dp sum dim(0) ins(%u : tensor<6xf32>) outs(%g : tensor<3xf32>) -> tensor<3xf32>
    %b = comm.all_gather @tp dim(0) ins(%y : tensor<1x3xf32>) outs(%f : tensor<2x3xf32>) -> tensor<2x3xf32>
    %d = comm.reduce_scatter @dp sum dim(0) ins(%v : tensor<4x2xf32>) outs(%h : tensor<2x2xf32>) -> tensor<2x2xf32>
    return %a, %b, %c, %d : tensor<4xf32>, tensor<2x3xf32>, tensor<3xf32>, tensor<2x2xf32>
  }

  // Element types mix where data is only moved: as bytes.
  // CHECK-LABEL: func.func @mixed
  // CHECK: comm.all_gather @tp dim(0) ins(%{{.*}} : tensor<1x14xi8>) outs(%{{.*}} : tensor<2x14xi8>)
  // WHY-DAG: explain: comm-bucket bucket-all_gather {{.*}} members=2 bytes=28 {{.*}} as=bytes
  // LIMIT-DAG: explain: comm-bucket keep-all_gather {{.*}} reason=alone domain=@tp bytes=16
  func.func @mixed(%x: tensor<2xf32>, %y: tensor<3xbf16>) -> (tensor<4xf32>, tensor<6xbf16>) {
    %e = tensor.empty() : tensor<4xf32>
    %f = tensor.empty() : tensor<6xbf16>
    %a = comm.all_gather @tp dim(0) ins(%x : tensor<2xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %b = comm.all_gather @tp dim(0) ins(%y : tensor<3xbf16>) outs(%f : tensor<6xbf16>) -> tensor<6xbf16>
    return %a, %b : tensor<4xf32>, tensor<6xbf16>
  }

  // Limits: two members at the most, and 200 bytes.
  // CHECK-LABEL: func.func @limits
  // CHECK: comm.all_reduce @tp sum ins(%{{.*}} : tensor<30xf32>)
  // CHECK-NOT: comm.all_reduce
  // LIMIT-DAG: explain: comm-bucket bucket-all_reduce {{.*}} members=2 bytes=80 growth_bytes=160
  // LIMIT-DAG: explain: comm-bucket keep-all_reduce {{.*}} reason=alone domain=@tp bytes=40
  func.func @limits(%x: tensor<10xf32>, %y: tensor<10xf32>, %z: tensor<10xf32>) -> (tensor<10xf32>, tensor<10xf32>, tensor<10xf32>) {
    %e = tensor.empty() : tensor<10xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<10xf32>) outs(%e : tensor<10xf32>) -> tensor<10xf32>
    %b = comm.all_reduce @tp sum ins(%y : tensor<10xf32>) outs(%e : tensor<10xf32>) -> tensor<10xf32>
    %c = comm.all_reduce @tp sum ins(%z : tensor<10xf32>) outs(%e : tensor<10xf32>) -> tensor<10xf32>
    return %a, %b, %c : tensor<10xf32>, tensor<10xf32>, tensor<10xf32>
  }

  // Started: begun with the last, waited for with the first; what computes between
  // hides nothing that is worth the latency of another operation.
  // CHECK-LABEL: func.func @started
  // CHECK: linalg.exp
  // CHECK: %[[B:.*]] = tensor.insert_slice %{{.*}} into %{{.*}}[4] [3] [1] : tensor<3xf32> into tensor<7xf32>
  // CHECK: %[[E:.*]] = tensor.empty() : tensor<7xf32>
  // CHECK: %[[F:.*]] = comm.start all_reduce @tp ins(%[[B]] : tensor<7xf32>) outs(%[[E]] : tensor<7xf32>) {reduction = 1 : i32}
  // CHECK-NOT: comm.start
  // CHECK: linalg.log
  // CHECK: %[[W:.*]] = comm.wait %[[F]] ins(%[[B]] : tensor<7xf32>) outs(%[[E]] : tensor<7xf32>)
  // CHECK: tensor.extract_slice %[[W]][0] [4] [1]
  // CHECK: tensor.extract_slice %[[W]][4] [3] [1]
  // CHECK-NOT: comm.wait
  // CHECK: return
  // WHY-DAG: explain: comm-bucket bucket-all_reduce {{.*}} reason=latency domain=@tp members=2 bytes=28 growth_bytes=56 in_place=1 copied_bytes=40
  func.func @started(%x: tensor<4xf32>, %y: tensor<3xf32>) -> (tensor<4xf32>, tensor<3xf32>, tensor<4xf32>) {
    %e = tensor.empty() : tensor<4xf32>
    %g = tensor.empty() : tensor<4xf32>
    %f = tensor.empty() : tensor<3xf32>
    %n = linalg.exp ins(%x : tensor<4xf32>) outs(%g : tensor<4xf32>) -> tensor<4xf32>
    %0 = comm.start all_reduce @tp ins(%n : tensor<4xf32>) outs(%e : tensor<4xf32>) {reduction = 1 : i32}
    %1 = comm.start all_reduce @tp ins(%y : tensor<3xf32>) outs(%f : tensor<3xf32>) {reduction = 1 : i32}
    %m = linalg.log ins(%x : tensor<4xf32>) outs(%g : tensor<4xf32>) -> tensor<4xf32>
    %a = comm.wait %0 ins(%n : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %b = comm.wait %1 ins(%y : tensor<3xf32>) outs(%f : tensor<3xf32>) -> tensor<3xf32>
    return %a, %b, %m : tensor<4xf32>, tensor<3xf32>, tensor<4xf32>
  }

  // Each is hidden by what computes behind its start: together they would not be.
  // A started and a synchronous one are not joined either.
  // CHECK-LABEL: func.func @hidden
  // CHECK: comm.start all_reduce @tp ins(%{{.*}} : tensor<4xf32>)
  // CHECK: comm.wait
  // CHECK: comm.start all_reduce @tp ins(%{{.*}} : tensor<4xf32>)
  // CHECK: comm.all_reduce
  // WHY-DAG: explain: comm-bucket keep-all_reduce {{.*}} reason=dependence domain=@tp bytes=16
  func.func @hidden(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
    %e = tensor.empty() : tensor<4xf32>
    %f = tensor.empty() : tensor<4xf32>
    %0 = comm.start all_reduce @tp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {reduction = 1 : i32}
    %a = comm.wait %0 ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %1 = comm.start all_reduce @tp ins(%y : tensor<4xf32>) outs(%f : tensor<4xf32>) {reduction = 1 : i32}
    %c = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %b = comm.wait %1 ins(%y : tensor<4xf32>) outs(%f : tensor<4xf32>) -> tensor<4xf32>
    return %a, %b, %c : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  }

  // Computation between the starts hides the first one: the bucket would lose it.
  // CHECK-LABEL: func.func @overlapped
  // CHECK: comm.start all_reduce @tp ins(%{{.*}} : tensor<4xf32>)
  // CHECK: comm.compute "dot"
  // CHECK: comm.start all_reduce @tp ins(%{{.*}} : tensor<4xf32>)
  // WHY-DAG: explain: comm-bucket keep-all_reduce {{.*}} reason=cost domain=@tp bytes=16 members=2
  func.func @overlapped(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
    %e = tensor.empty() : tensor<4xf32>
    %f = tensor.empty() : tensor<4xf32>
    %0 = comm.start all_reduce @tp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {reduction = 1 : i32}
    %d = comm.compute "dot"(%x) {flops = 400000000000 : i64} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = comm.start all_reduce @tp ins(%y : tensor<4xf32>) outs(%f : tensor<4xf32>) {reduction = 1 : i32}
    %a = comm.wait %0 ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %b = comm.wait %1 ins(%y : tensor<4xf32>) outs(%f : tensor<4xf32>) -> tensor<4xf32>
    return %a, %b, %d : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  }
}
