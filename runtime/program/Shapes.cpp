//===- Shapes.cpp - Sizes of what is bound --------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A program with bounded dimensions runs at the sizes of the shapes that are
// bound. Everything that follows from them - kernels, the table of sizes that
// generated code reads, shapes of the other inputs and outputs - is made here,
// between steps; buffers lie where they fit at the largest sizes and stay.
//
//===----------------------------------------------------------------------===//

#include "diagnosis/Error.h"
#include "program/Program.h"

#include <algorithm>

using namespace concord;
using namespace concord::rt;

/// Choices of sizes whose kernels are kept.
static constexpr size_t kKeptSizes = 16;

static std::string shapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}

/// The dimension that an extent follows alone, as number * d / divisor + more.
static bool linear(const Extent &extent, uint32_t &dim, Extent::Term &term,
                   int64_t &more) {
  bool found = false;
  more = 0;
  for (const Extent::Term &each : extent.terms) {
    if (each.dims.empty() && each.divisor == 1) {
      more += each.number;
    } else if (each.dims.size() == 1 && !found && each.number > 0) {
      found = true;
      dim = each.dims[0];
      term = each;
    } else {
      return false;
    }
  }
  return found;
}

int32_t concord::rt::bindShape(concord_program &program, uint32_t index,
                               std::span<const int64_t> shape,
                               const char *what) {
  const EntryInfo &entry = program.inputs[index];
  auto wrong = [&](const std::string &why) {
    return fail(CONCORD_ERROR_INVALID_ARGUMENT, "%s '%s': %s", what,
                entry.name.c_str(), why.c_str());
  };
  const size_t rank = entry.globalShape.size();
  if (shape.size() != rank)
    return wrong("shape " + shapeText(shape) + " has " +
                 std::to_string(shape.size()) + " dimensions, not " +
                 std::to_string(rank));
  if (entry.globalExtents.empty()) {
    if (!std::equal(shape.begin(), shape.end(), entry.globalShape.begin()))
      return wrong("has shape " + shapeText(shape) +
                   ", but the program was "
                   "compiled for " +
                   shapeText(entry.globalShape));
    return CONCORD_OK;
  }
  std::vector<int64_t> wanted = program.wantedSizes;
  for (size_t d = 0; d < rank; ++d) {
    const Extent &extent = entry.globalExtents[d];
    const std::string place = "dimension " + std::to_string(d);
    if (extent.isConstant()) {
      if (shape[d] != entry.globalShape[d])
        return wrong(place + " is " + std::to_string(shape[d]) +
                     ", but the program was compiled for " +
                     std::to_string(entry.globalShape[d]));
      continue;
    }
    uint32_t dim = 0;
    Extent::Term term;
    int64_t more = 0;
    if (!linear(extent, dim, term, more))
      continue; // compared once the dimensions are known
    const BoundedDim &bounded = program.dims[dim];
    __int128 scaled = __int128(shape[d] - more) * term.divisor;
    int64_t value = scaled % term.number == 0
                        ? int64_t(std::clamp<__int128>(scaled / term.number,
                                                       INT64_MIN, INT64_MAX))
                        : -1;
    bool whole = scaled % term.number == 0;
    std::string said = extent.lone()
                           ? bounded.name
                           : extent.text() + " with d" + std::to_string(dim) +
                                 " = " + bounded.name;
    if (!whole || value < bounded.min || value > bounded.max)
      return wrong(place + " (" + said + ") is " + std::to_string(shape[d]) +
                   ", but the program was compiled for " + bounded.name + "=" +
                   std::to_string(bounded.min) + ".." +
                   std::to_string(bounded.max));
    wanted[dim] = value;
  }
  program.wantedSizes = std::move(wanted);
  program.boundShapes[index].assign(shape.begin(), shape.end());
  return CONCORD_OK;
}

/// Sizes of an input or output for the dimensions' sizes. Throws Error.
static void resize(const concord_program &program, EntryInfo &entry,
                   const char *what) {
  auto evaluate = [&](const std::vector<Extent> &extents,
                      std::vector<int64_t> &shape, bool local) {
    for (size_t d = 0; d < extents.size(); ++d) {
      auto value = extents[d].at(program.wantedSizes);
      if (!value || *value < 0) {
        std::string sizes;
        for (size_t i = 0; i < program.dims.size(); ++i)
          sizes += (i ? ", " : "") + program.dims[i].name + "=" +
                   std::to_string(program.wantedSizes[i]);
        raise(CONCORD_ERROR_INVALID_ARGUMENT,
              "%s '%s': dimension %zu cannot be made for %s%s", what,
              entry.name.c_str(), d, sizes.c_str(),
              local ? "; the ranks that split it must get equal parts" : "");
      }
      shape[d] = *value;
    }
  };
  evaluate(entry.globalExtents, entry.globalShape, false);
  evaluate(entry.localExtents, entry.localShape, true);
  uint64_t bytes = dtypeSize(entry.dtype);
  for (int64_t extent : entry.localShape)
    if (__builtin_mul_overflow(bytes, uint64_t(extent), &bytes))
      bytes = UINT64_MAX;
  if (bytes > entry.maxBytes)
    raise(CONCORD_ERROR_CORRUPT,
          "%s: %s '%s' of shape %s is larger than the program's maximum",
          program.path.c_str(), what, entry.name.c_str(),
          shapeText(entry.localShape).c_str());
  entry.bytes = bytes;
}

void concord::rt::dropKernels(SizedKernels &set) {
  for (auto *list : {&set.kernels, &set.fused})
    for (concord_kernel *kernel : *list)
      if (kernel)
        concord_kernel_destroy(kernel);
}

/// The kernels of the wanted sizes, from those kept or made.
static void chooseKernels(concord_program &program) {
  auto &kept = program.sizedKernels;
  auto it = std::find_if(kept.begin(), kept.end(), [&](const SizedKernels &s) {
    return s.dims == program.wantedSizes;
  });
  if (it != kept.end()) {
    std::rotate(kept.begin(), it, it + 1);
  } else {
    SizedKernels set{program.wantedSizes, {}, {}};
    auto lineOf = [&](const char *what, size_t i, const std::string &text) {
      auto line = instantiate(text, program.wantedSizes);
      if (!line)
        raise(CONCORD_ERROR_INVALID_ARGUMENT,
              "%s: %s %zu (%s) cannot be made for these sizes",
              program.path.c_str(), what, i, text.c_str());
      return *line;
    };
    try {
      for (size_t i = 0; i < program.kernelLines.size(); ++i) {
        concord_kernel *kernel = nullptr;
        if (!program.fixedKernels[i]) {
          kernel = makeKernel(program, i,
                              lineOf("kernel", i, program.kernelLines[i]));
        }
        set.kernels.push_back(kernel);
      }
      for (size_t i = 0; i < program.sites.size(); ++i) {
        const Site &site = program.sites[i];
        set.fused.push_back(
            isSized(program, site)
                ? makeFusedKernel(program, site,
                                  lineOf("site", i, site.issue->fused))
                : nullptr);
      }
    } catch (...) {
      dropKernels(set);
      throw;
    }
    kept.push_front(std::move(set));
    if (kept.size() > kKeptSizes) {
      dropKernels(kept.back());
      kept.pop_back();
    }
  }
  for (size_t i = 0; i < program.kernels.size(); ++i)
    program.kernels[i] = program.fixedKernels[i] ? program.fixedKernels[i]
                                                 : kept.front().kernels[i];
  for (size_t i = 0; i < program.sites.size(); ++i)
    if (concord_kernel *kernel = kept.front().fused[i])
      fuseSite(program, program.sites[i], kernel);
}

/// The states' inputs take the shapes that their outputs had in the last step,
/// but for those whose shape was bound since. Throws Error.
static void followStates(concord_program &program) {
  for (auto [input, output] : program.state)
    if (program.boundShapes[input].empty() &&
        !program.inputs[input].globalExtents.empty())
      if (int32_t status = bindShape(
              program, input, program.outputs[output].globalShape, "state"))
        throw Error(status, lastError());
}

void concord::rt::prepareProgram(concord_program &program) {
  if (program.stateMoved) {
    followStates(program);
    program.stateMoved = false;
  }
  auto &bound = program.boundShapes;
  if (program.dims.empty() ||
      (program.wantedSizes == program.dimSizes &&
       std::all_of(bound.begin(), bound.end(),
                   [](const auto &shape) { return shape.empty(); })))
    return;
  std::vector<EntryInfo> inputs = program.inputs, outputs = program.outputs;
  try {
    for (size_t i = 0; i < inputs.size(); ++i) {
      resize(program, inputs[i], "input");
      // Two inputs may ask for different sizes of one dimension.
      if (!bound[i].empty() && bound[i] != inputs[i].globalShape)
        raise(CONCORD_ERROR_INVALID_ARGUMENT,
              "input '%s' has shape %s, but the shapes of the other inputs ask "
              "for %s",
              inputs[i].name.c_str(), shapeText(bound[i]).c_str(),
              shapeText(inputs[i].globalShape).c_str());
      bound[i].clear();
    }
    for (EntryInfo &entry : outputs)
      resize(program, entry, "output");
    std::vector<int64_t> sizes;
    for (const Extent &extent : program.sizeExtents) {
      auto value = extent.at(program.wantedSizes);
      if (!value)
        raise(CONCORD_ERROR_INVALID_ARGUMENT,
              "%s: a size (%s) is no whole number for the shapes that are "
              "bound; the ranks that split it must get equal parts",
              program.path.c_str(), extent.text().c_str());
      sizes.push_back(*value);
    }
    chooseKernels(program);
    std::copy(sizes.begin(), sizes.end(), program.sizes.begin());
  } catch (...) {
    program.wantedSizes = program.dimSizes;
    for (auto &shape : bound)
      shape.clear();
    throw;
  }
  // Strings stay where they are: callers may hold them.
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::copy(inputs[i].globalShape.begin(), inputs[i].globalShape.end(),
              program.inputs[i].globalShape.begin());
    std::copy(inputs[i].localShape.begin(), inputs[i].localShape.end(),
              program.inputs[i].localShape.begin());
    program.inputs[i].bytes = inputs[i].bytes;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::copy(outputs[i].globalShape.begin(), outputs[i].globalShape.end(),
              program.outputs[i].globalShape.begin());
    std::copy(outputs[i].localShape.begin(), outputs[i].localShape.end(),
              program.outputs[i].localShape.begin());
    program.outputs[i].bytes = outputs[i].bytes;
  }
  program.dimSizes = program.wantedSizes;
}

void concord::rt::growStateBuffers(concord_program &program, uint32_t input,
                                   uint32_t output) {
  EntryInfo &in = program.inputs[input], &out = program.outputs[output];
  const uint64_t most = std::max(in.maxBytes, out.maxBytes);
  auto grow = [&](EntryInfo &entry, void *&own, void *&bound, void **last) {
    if (entry.maxBytes >= most || entry.arenaOffset >= 0)
      return;
    void *larger = reserveMemory(program, most, 64, "a state");
    if (bound == own)
      bound = larger;
    if (last && *last == own)
      *last = larger;
    own = larger;
  };
  grow(in, program.ownInputs[input], program.inputData[input], nullptr);
  grow(out, program.ownOutputs[output], program.outputData[output],
       &program.lastOutputs[output]);
}
