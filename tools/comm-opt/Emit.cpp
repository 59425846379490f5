//===- Emit.cpp - From a lowered module to files --------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// LLVM's optimiser and code generator in process, lld as a program.
//
//===----------------------------------------------------------------------===//

#include "Emit.h"

#include "common/Artefact.h"
#include "concord/kernel.h"
#include "concord/order/Certificate.h"
#include "concord/plan.h"

#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/SmallVectorMemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"

#include <cerrno>
#include <cstring>
#include <unistd.h>

using namespace mlir;

namespace concord {

static std::unique_ptr<llvm::TargetMachine> makeTarget(std::string &error) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  llvm::Triple triple(llvm::sys::getDefaultTargetTriple());
  const llvm::Target *target =
      llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  // The class that the kernels were chosen for, so that one name says what the
  // artefact needs.
  std::string cpu = concord_kernel_target();
  if (cpu == "aarch64")
    cpu = "generic";
  // Not its conversions to bfloat16: they make denormals zero.
  if (cpu == "x86-64-v4-bf16")
    cpu = "x86-64-v4";
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Fast;
  return std::unique_ptr<llvm::TargetMachine>(target->createTargetMachine(
      triple, cpu, "", options, llvm::Reloc::PIC_, std::nullopt,
      llvm::CodeGenOptLevel::Default));
}

std::string emitObject(ModuleOp module, std::string &error) {
  registerBuiltinDialectTranslation(*module.getContext());
  registerLLVMDialectTranslation(*module.getContext());
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> ir =
      translateModuleToLLVMIR(module, context, "concord");
  if (!ir) {
    error = "internal: the lowered module does not translate to LLVM IR";
    return "";
  }
  std::unique_ptr<llvm::TargetMachine> target = makeTarget(error);
  if (!target)
    return "";
  ir->setDataLayout(target->createDataLayout());
  ir->setTargetTriple(target->getTargetTriple());
  for (llvm::Function &function : *ir)
    if (!function.isDeclaration()) {
      function.addFnAttr("target-cpu", target->getTargetCPU());
      function.addFnAttr("prefer-vector-width", "512");
      function.addFnAttr(llvm::Attribute::NoUnwind);
    }

  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager callGraph;
  llvm::ModuleAnalysisManager modules;
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = true;
  tuning.SLPVectorization = false;
  llvm::PassBuilder builder(target.get(), tuning);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(callGraph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, callGraph, modules);
  builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2)
      .run(*ir, modules);

  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream os(bytes);
  llvm::legacy::PassManager codegen;
  if (target->addPassesToEmitFile(codegen, os, nullptr,
                                  llvm::CodeGenFileType::ObjectFile)) {
    error = "this LLVM cannot emit object files for the host";
    return "";
  }
  codegen.run(*ir);
  return std::string(bytes.begin(), bytes.end());
}

std::string writeFile(const std::string &path, llvm::StringRef data) {
  if (path == "-") {
    llvm::outs() << data;
    llvm::outs().flush();
    if (llvm::outs().has_error()) {
      std::string error =
          "cannot write to standard output: " + llvm::outs().error().message();
      llvm::outs().clear_error();
      return error;
    }
    return "";
  }
  // A device such as /dev/null cannot be renamed over.
  if (llvm::sys::fs::exists(path) && !llvm::sys::fs::is_regular_file(path)) {
    std::error_code code;
    llvm::raw_fd_ostream os(path, code);
    if (code)
      return "cannot write '" + path + "': " + code.message();
    os << data;
    os.close();
    if (os.has_error()) {
      std::string error =
          "cannot write '" + path + "': " + os.error().message();
      os.clear_error();
      return error;
    }
    return "";
  }
  auto temporary = llvm::sys::fs::TempFile::create(path + ".tmp-%%%%%%", 0644);
  if (!temporary)
    return "cannot write '" + path +
           "': " + llvm::toString(temporary.takeError());
  llvm::raw_fd_ostream os(temporary->FD, /*shouldClose=*/false);
  os << data;
  os.flush();
  if (os.has_error()) {
    std::string error = "cannot write '" + path + "': " + os.error().message();
    os.clear_error();
    llvm::consumeError(temporary->discard());
    return error;
  }
  if (llvm::Error failed = temporary->keep(path))
    return "cannot write '" + path + "': " + llvm::toString(std::move(failed));
  return "";
}

/// lld under the name that Debian gives it, or any.
static std::string findLinker() {
  for (const char *name : {"ld.lld-22", "ld.lld"})
    if (auto found = llvm::sys::findProgramByName(name))
      return *found;
  if (auto found =
          llvm::sys::findProgramByName("ld.lld", {"/usr/lib/llvm-22/bin"}))
    return *found;
  return "";
}

/// Judges the plan table that the linked artefact holds, as comm-doctor does:
/// what was proven of the module has to hold of what is loaded.
static std::string judgePlan(llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer)
    return "cannot read what was linked: " + buffer.getError().message();
  auto object =
      llvm::object::ObjectFile::createObjectFile((*buffer)->getMemBufferRef());
  if (!object)
    return "cannot read what was linked: " + llvm::toString(object.takeError());
  for (const llvm::object::SectionRef &section : (*object)->sections()) {
    auto name = section.getName();
    if (!name) {
      llvm::consumeError(name.takeError());
      continue;
    }
    if (*name != ".concord.plan")
      continue;
    auto contents = section.getContents();
    if (!contents)
      return llvm::toString(contents.takeError());
    plan::Plan plan;
    std::string error;
    if (!plan::parse({reinterpret_cast<const std::byte *>(contents->data()),
                      contents->size()},
                     plan, error))
      return "internal: the artefact's plan table: " + error;
    order::Certificate certificate = order::verifyPlan(plan);
    if (certificate.valid)
      return "";
    return "the plan of the lowered program is not proven free of deadlock" +
           (certificate.faults.empty() ? std::string()
                                       : ": " + certificate.faults[0].title);
  }
  return "internal: the artefact has no plan table";
}

std::string emitSharedObject(ModuleOp module, const std::string &path) {
  if (llvm::sys::path::extension(path) != ".so")
    return "an artefact's name ends in .so, not '" + path + "'";
  std::string error;
  std::string linker = findLinker();
  if (linker.empty())
    return "cannot find ld.lld-22; install the package lld-22";
  llvm::SmallString<256> objectPath, linked;
  int fd;
  if (auto code =
          llvm::sys::fs::createUniqueFile(path + ".tmp-%%%%%%", fd, linked))
    return "cannot write '" + path + "': " + code.message();
  ::close(fd);
  llvm::FileRemover removeLinked(linked);
  // Parameters first: an artefact whose parameters are missing must not be
  // seen.
  llvm::SmallString<256> weights(path);
  llvm::sys::path::replace_extension(weights, "weights");
  error = writeParameters(module, std::string(weights));
  if (!error.empty())
    return error;
  std::string object = emitObject(module, error);
  if (object.empty())
    return error;

  if (auto code =
          llvm::sys::fs::createTemporaryFile("concord", "o", objectPath))
    return "cannot create a temporary file: " + code.message();
  llvm::FileRemover removeObject(objectPath);
  error = writeFile(std::string(objectPath), object);
  if (!error.empty())
    return error;
  llvm::StringRef arguments[] = {
      linker,     "-shared",     "--hash-style=gnu",
      "-z",       "now",         "--gc-sections",
      "-z",       "noexecstack", "--undefined=concord_program",
      objectPath, "-o",          linked};
  std::string message;
  int status = llvm::sys::ExecuteAndWait(linker, arguments, std::nullopt, {}, 0,
                                         0, &message);
  if (status != 0)
    return "ld.lld failed with status " + std::to_string(status) +
           (message.empty() ? "" : ": " + message);
  error = judgePlan(linked);
  if (!error.empty())
    return error;
  llvm::sys::fs::setPermissions(linked,
                                static_cast<llvm::sys::fs::perms>(0755));
  if (auto code = llvm::sys::fs::rename(linked, path))
    return "cannot write '" + path + "': " + code.message();
  return "";
}

} // namespace concord
