//===- Health.cpp - A health check as an optional slot --------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A health check that somebody runs beside a program is an issuer outside its
// order, which is what hangs jobs. Here it is an issuer of the program, with a
// slot that a round uses when it is asked for, so comm-order gives it a turn
// and comm-verify-order judges it like any other.
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "comm/Comm.h"
#include "common/PlanBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Parser/Parser.h"

namespace concord {
#define GEN_PASS_DEF_COMMHEALTH
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

namespace {

/// What is added, for so many ranks and so many elements of f32. The barrier
/// takes the wait for the turn and for the last rank, so that the times of the
/// other two are their own.
std::string healthText(int64_t world, int64_t elements) {
  std::string ranks;
  for (int64_t r = 0; r < world; ++r)
    ranks += (r ? ", " : "") + std::to_string(r);
  std::string small = "tensor<2xf32>",
              large = "tensor<" + std::to_string(elements) + "xf32>";
  std::string text =
      "module attributes {comm.world = " + std::to_string(world) +
      " : i64} {\n"
      "  comm.domain @health_turn groups([[" +
      ranks +
      "]]) priority(9)\n"
      "  comm.domain @health groups([[" +
      ranks +
      "]])\n"
      "  comm.program @health_program entry(@health_check) ranks([" +
      ranks +
      "]) issuer(\"health\")\n"
      "  func.func @health_decides() {\n"
      "    comm.barrier @health_turn {decides = 0 : i64}\n"
      "    return\n  }\n"
      "  func.func @health_check() {\n"
      "    %one = arith.constant 1.0 : f32\n";
  std::string reductions;
  int number = 0;
  for (const std::string &type : {small, large}) {
    std::string n = std::to_string(number++);
    text += "    %e" + n + " = tensor.empty() : " + type + "\n    %f" + n +
            " = linalg.fill ins(%one : f32) outs(%e" + n + " : " + type +
            ") -> " + type + "\n    %o" + n + " = tensor.empty() : " + type +
            "\n";
    reductions += "    %r" + n + " = comm.all_reduce @health sum ins(%f" + n +
                  " : " + type + ") outs(%o" + n + " : " + type +
                  ") {slot = \"optional:health\"} -> " + type + "\n";
  }
  text +=
      "    comm.barrier @health {slot = \"optional:health\"}\n" + reductions;
  return text + "    return\n  }\n}\n";
}

bool decides(Operation *root) {
  return root
      ->walk([](comm::BarrierOp barrier) {
        return barrier->hasAttr("decides") ? WalkResult::interrupt()
                                           : WalkResult::advance();
      })
      .wasInterrupted();
}

struct Health : public concord::impl::CommHealthBase<Health> {
  using CommHealthBase::CommHealthBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    int64_t world = comm::getWorld(module);
    if (world < 2) {
      module.emitError("comm-health: one rank has nobody to check");
      return signalPassFailure();
    }
    if (elements < 1 || elements > int64_t(1) << 28) {
      module.emitError("comm-health: elements=")
          << elements << " is not between 1 and 268435456";
      return signalPassFailure();
    }
    for (StringRef name :
         {"health", "health_turn", "health_program", "health_check"})
      if (Operation *taken = module.lookupSymbol(name)) {
        taken->emitError("comm-health: the name '@")
            << name << "' is taken by this, so no check can be added";
        return signalPassFailure();
      }
    SmallVector<func::FuncOp> entries = entryFunctions(module);
    if (entries.empty()) {
      module.emitError("comm-health: there is no function to check beside");
      return signalPassFailure();
    }
    OwningOpRef<ModuleOp> parsed = parseSourceString<ModuleOp>(
        healthText(world, elements), module.getContext());
    if (!parsed)
      return signalPassFailure();
    // A program of one issuer has no decision yet: it begins with one.
    if (!decides(module)) {
      name(module, entries, world);
      auto model = parsed->lookupSymbol<func::FuncOp>("health_decides");
      for (func::FuncOp entry : entries) {
        OpBuilder builder(&getContext());
        builder.setInsertionPointToStart(&entry.getBody().front());
        builder.clone(model.getBody().front().front());
      }
    } else {
      parsed->lookupSymbol("health_turn")->erase();
    }
    parsed->lookupSymbol("health_decides")->erase();
    // Domains first, as everywhere.
    Block *body = module.getBody();
    for (Operation &op : llvm::make_early_inc_range(*parsed->getBody())) {
      if (isa<func::FuncOp>(op))
        op.moveBefore(body, body->end());
      else
        op.moveBefore(body, body->begin());
    }
  }

private:
  /// Every program needs an issuer's name beside the new one's.
  void name(ModuleOp module, ArrayRef<func::FuncOp> entries, int64_t world) {
    bool any = false;
    for (auto program : module.getOps<comm::ProgramOp>()) {
      any = true;
      if (program.getIssuer().empty())
        program.setIssuer("main");
    }
    if (any)
      return;
    OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
    SmallVector<int64_t> all = llvm::to_vector(llvm::seq<int64_t>(0, world));
    for (func::FuncOp entry : entries)
      comm::ProgramOp::create(builder, entry.getLoc(),
                              (entry.getSymName() + "_program").str(),
                              entry.getSymName(), all, "main");
  }
};

} // namespace
