//===- Program.h - A loaded artefact ----------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The object behind concord_program: code, plan, weights, kernels, buffers, and
// one ready-made operation per site.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_PROGRAM_PROGRAM_H
#define CONCORD_RUNTIME_PROGRAM_PROGRAM_H

#include "concord/extent.h"
#include "context/Context.h"
#include "engine/Fused.h"
#include "program/Weights.h"

#include <deque>

namespace concord::rt {

/// An input or output as the metadata describes it.
struct EntryInfo {
  std::string name;
  DType dtype = DType::Invalid;
  std::vector<int64_t> globalShape, localShape;
  std::string sharding;
  int64_t arenaOffset = -1;
  uint64_t bytes = 0; ///< of the local tensor
  /// Where a dimension is bounded: shapes and bytes are what is bound now, and
  /// these say how they follow; `maxBytes` is what a buffer must hold.
  std::vector<Extent> globalExtents, localExtents;
  uint64_t maxBytes = 0;
};

/// A bounded dimension (`--dim seq=1..512`).
struct BoundedDim {
  std::string name;
  int64_t min = 0, max = 0;
};

/// Kernels for one choice of sizes.
struct SizedKernels {
  std::vector<int64_t> dims;
  std::vector<concord_kernel *>
      kernels; ///< those that depend on sizes, else null
  /// Of each site; null where it is not fused, or with one for all sizes.
  std::vector<concord_kernel *> fused;
};

/// One site of the plan, ready to be issued.
struct Site {
  const plan::Issue *issue = nullptr;
  Comm *comm = nullptr; ///< null for a group
  Op op;
  bool takesPart = true;
  std::unique_ptr<Fused> fused;     ///< when it is one with a kernel
  concord_kernel *kernel = nullptr; ///< its own: one for all sizes
  std::vector<uint64_t> sendBytes, receiveBytes;
  uint64_t decision = 0; ///< of a round, where code gives no buffer
};

} // namespace concord::rt

struct concord_program {
  concord_context *context = nullptr;
  std::string path;
  void *library = nullptr;
  const concord_program_desc *desc = nullptr;
  std::string name, digest, metaText, planJson;
  concord::plan::Plan plan;
  const concord::plan::Program *planned = nullptr; ///< what this rank runs
  uint32_t planIndex = 0;                          ///< its number
  bool gated = false; ///< its issues wait for their turns
  /// Of a rank with several issuers: the other ones' programs.
  std::vector<std::unique_ptr<concord_program>> others;
  int32_t (*step)(const concord_step_args *) = nullptr; ///< its code
  uint64_t arenaBytes = 0;
  char *arena = nullptr;
  concord::rt::Weights weights;
  std::vector<const void *> parameters;
  std::vector<concord_kernel *> kernels; ///< in use now
  /// Bounded dimensions: their sizes now and after the next prepare, what
  /// follows from them, and the kernels of sizes used before.
  std::vector<concord::rt::BoundedDim> dims;
  std::vector<int64_t> dimSizes, wantedSizes;
  std::vector<concord::Extent> sizeExtents;
  std::vector<int64_t> sizes;
  std::vector<std::string> kernelLines;
  std::vector<std::pair<uint64_t, uint64_t>> kernelNeeds; ///< workspace, packed
  std::vector<concord_kernel *>
      fixedKernels; ///< null where a size is in the line
  std::deque<concord::rt::SizedKernels> sizedKernels; ///< last used first
  std::vector<std::vector<int64_t>> boundShapes; ///< per input, until prepare
  bool stateMoved = false; ///< a step has made outputs the inputs of the next
  std::vector<concord::rt::EntryInfo> inputs, outputs;
  std::vector<void *> inputData, outputData; ///< bound now
  std::vector<void *> ownInputs, ownOutputs; ///< made by the program
  std::vector<void *> lastOutputs;           ///< written by the last step
  std::vector<std::pair<uint32_t, uint32_t>> state; ///< input, output
  std::vector<void *> heapBlocks;
  std::deque<concord::rt::Site> sites; ///< never moves
  std::vector<concord_comm *> comms;
  std::vector<std::pair<uint32_t, concord::rt::Op *>> events;
  concord_step_args args{};
  void (*trace)(void *, uint32_t, int32_t, int64_t) = nullptr;
  void *traceUser = nullptr;
};

namespace concord::rt {

/// Load; collective over the world. Throws Error.
concord_program *loadProgram(Context &context, const char *path,
                             const concord_program_options &options);
/// Release everything of a program, the other issuers' with it.
void dropProgram(concord_program *program);

/// The sizes of what is bound from now on (Shapes.cpp). `what` opens messages.
int32_t bindShape(concord_program &program, uint32_t index,
                  std::span<const int64_t> shape, const char *what);
/// Make kernels and sizes for the shapes that are bound. Allocates; nothing
/// happens when no size has changed. Throws Error.
void prepareProgram(concord_program &program);
/// Kernels of `line`, checked against what was planned for. Throws Error.
concord_kernel *makeKernel(concord_program &program, size_t number,
                           const std::string &line);
void dropKernels(SizedKernels &set);
/// The program's own buffer for a state: large enough for both of its ends.
void growStateBuffers(concord_program &program, uint32_t input,
                      uint32_t output);
/// Reserve heap memory and make its pages present. Throws Error.
char *reserveMemory(concord_program &program, uint64_t bytes, uint64_t align,
                    const char *what);

/// Generated code's calls, on the program being run (Issue.cpp).
int32_t issueSite(Context &context, uint32_t site,
                  const concord_buffer *buffers, uint32_t numBuffers);
int32_t waitSite(Context &context, uint32_t site);

/// Make the pages of this library's, the C library's and the program's code and
/// data, and of some stack, present: a path that is first taken in a
/// late step, such as waiting for long, must not fault there.
void prefaultCode(const std::string &program);

/// Make sites and communicators from the plan (Issue.cpp). Those that are fused
/// with a kernel of bounded sizes get it from fuseSite.
void prepareSites(concord_program &program);
/// The kernel of a fused site of `text`, and the site with it; both check it
/// against the plan. Throw Error.
concord_kernel *makeFusedKernel(concord_program &program, const Site &site,
                                const std::string &text);
void fuseSite(concord_program &program, Site &site,
              const concord_kernel *kernel);
/// Whether the kernel of a fused site depends on bounded dimensions.
bool isSized(const concord_program &program, const Site &site);

} // namespace concord::rt

#endif // CONCORD_RUNTIME_PROGRAM_PROGRAM_H
