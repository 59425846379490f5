//===- fuzz_ir.cpp - Fuzz target of IR text, and of the HLO importer ------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A module as text: custom forms of operations, domains, certificates, plans of
// memory. What parses and verifies is printed and parsed again, its order,
// uniformity and workspace are verified, and its plan is built, as comm-opt
// does with a module that somebody gives it. The first byte 'h' or 's': HLO or
// StableHLO text, which is imported first.
//
// Only as a test: MLIR itself is not built with libFuzzer's coverage.
//
//===----------------------------------------------------------------------===//

#include "../Fuzz.h"
#include "Passes.h"
#include "comm/Comm.h"
#include "common/PlanBuilder.h"
#include "concord/plan.h"
#include "concord/stablehlo/Reader.h"
#include "import/HloImport.h"
#include "onnx/Onnx.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdio>
#include <cstdlib>

using namespace mlir;
using namespace concord;

namespace {

const DialectRegistry &registry() {
  static const DialectRegistry &made = [&]() -> DialectRegistry & {
    static DialectRegistry all;
    registerConcordPasses();
    registerAllDialects(all);
    registerAllExtensions(all);
    all.insert<comm::CommDialect, onnxir::OnnxDialect>();
    comm::registerBufferizationModels(all);
    return all;
  }();
  return made;
}

/// A context whose diagnostics are kept, not printed.
struct Quiet {
  Quiet() : context(registry(), MLIRContext::Threading::DISABLED) {
    context.getDiagEngine().registerHandler([&](Diagnostic &diagnostic) {
      last = diagnostic.str();
      return success();
    });
  }
  MLIRContext context;
  std::string last;
};

std::string print(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream os(text);
  module.print(os, OpPrintingFlags().enableDebugInfo(false));
  return text;
}

OwningOpRef<ModuleOp> read(StringRef text, MLIRContext &context) {
  char format = text.empty() ? ' ' : text[0];
  if (format != 'h' && format != 's')
    return parseSourceString<ModuleOp>(text, ParserConfig(&context));
  try {
    stablehlo::Notes notes;
    return importHlo(
        &context,
        format == 'h'
            ? hlo::parse(text.drop_front().str(), "f.hlo")
            : stablehlo::parse(text.drop_front().str(), "f.mlir", notes),
        {});
  } catch (const hlo::Error &error) {
    fuzz::refuse(error.what());
    return {};
  }
}

} // namespace

std::vector<std::string> fuzz::seeds() {
  std::vector<std::string> files;
  for (const char *folder : {"test/lit/comm", "test/lit/passes"})
    append(files, filesUnder(folder, ".mlir", 40000));
  std::vector<std::string> all;
  // Several modules in a file; those that are there to be refused are not for
  // this list.
  for (const std::string &file : files)
    for (size_t at = 0; at < file.size();) {
      size_t end = std::min(file.find("\n// -----", at), file.size());
      std::string one = file.substr(at, end - at);
      at = end + 1;
      Quiet quiet;
      if (one.size() < 6000 && read(one, quiet.context))
        all.push_back(one);
    }
  append(all, filesUnder("test/lit/tools", ".hlo", 20000, "h"));
  return all;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Quiet quiet;
  // The parser wants a zero behind the text.
  std::string text(reinterpret_cast<const char *>(data), size);
  OwningOpRef<ModuleOp> module = read(text, quiet.context);
  if (!module) {
    fuzz::refuse(quiet.last);
    return 0;
  }
  fuzz::accept();
  std::string printed = print(*module);
  OwningOpRef<ModuleOp> again =
      parseSourceString<ModuleOp>(printed, ParserConfig(&quiet.context));
  if (!again || print(*again) != printed) {
    std::fprintf(stderr, "fuzz_ir: what is printed is parsed as %s:\n%s\n",
                 again ? "something else" : quiet.last.c_str(),
                 printed.c_str());
    std::abort();
  }
  for (const char *name :
       {"comm-verify-order", "comm-verify-uniform", "comm-verify-workspace"}) {
    PassManager manager(&quiet.context);
    if (failed(parsePassPipeline(name, manager, llvm::errs())))
      std::abort();
    OwningOpRef<ModuleOp> copy(ModuleOp((*module)->clone()));
    (void)manager.run(*copy);
  }
  for (bool planned : {false, true})
    if (FailureOr<plan::Plan> plan = buildPlan(*module, planned);
        succeeded(plan)) {
      // As comm-opt --emit=plan does. What nothing has verified may be refused.
      plan::Plan back;
      std::string error;
      if (plan::parse(plan::serialize(*plan), back, error))
        (void)plan::toJson(back);
      else if (error.empty())
        std::abort();
    }
  return 0;
}
