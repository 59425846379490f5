//===- Shapes.cpp - Sizes of bounded dimensions for a run -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The runtime checks the same when a shape is bound; here the messages can name
// the file or option that asked for it, before any process is started.
//
//===----------------------------------------------------------------------===//

#include "Shapes.h"

#include "Compile.h"
#include "common/TensorFile.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace concord::tools {

std::vector<std::pair<std::string, int64_t>> runDims(const Options &options) {
  std::vector<std::pair<std::string, int64_t>> dims;
  for (size_t i = 0; i < options.compile.size(); ++i) {
    std::string text = options.compile[i];
    if (text == "--dim" && i + 1 < options.compile.size())
      text = options.compile[++i];
    else if (text.starts_with("--dim="))
      text = text.substr(6);
    else
      throw Error(options.program + " is compiled already, so '" + text +
                  "' cannot be applied; it is not an option of comm-run");
    size_t at = text.rfind('=');
    int64_t size = 0;
    const char *end = text.data() + text.size();
    if (at == std::string::npos || at == 0 || at + 1 == text.size() ||
        std::from_chars(text.data() + at + 1, end, size).ptr != end)
      throw Error(
          "--dim " + text + ": " + options.program +
          " is compiled already; give the size to run at, --dim NAME=N");
    dims.emplace_back(text.substr(0, at), size);
  }
  return dims;
}

namespace {

struct Chosen {
  int64_t size = 0;
  std::string by;
};

class Chooser {
public:
  Chooser(const Options &options, const std::vector<InputSources> &sources,
          ProgramMeta &meta)
      : options(options), sources(sources), meta(meta),
        chosen(meta.dims.size()) {}

  std::string run(std::vector<Entry> &fills);

private:
  void choose(size_t dim, int64_t size, const std::string &by,
              const std::string &place);
  void fromFile(size_t index, const std::filesystem::path &file);
  bool follow(const Entry &entry, const Shape &shape, const std::string &by);
  std::vector<int64_t> sizes() const {
    std::vector<int64_t> result;
    for (const auto &each : chosen)
      result.push_back(each->size);
    return result;
  }
  size_t outputOf(const std::string &name) const {
    for (size_t i = 0; i < meta.outputs.size(); ++i)
      if (meta.outputs[i].name == name)
        return i;
    return meta.outputs.size();
  }

  const Options &options;
  const std::vector<InputSources> &sources;
  ProgramMeta &meta;
  std::vector<std::optional<Chosen>> chosen;
};

} // namespace

void Chooser::choose(size_t dim, int64_t size, const std::string &by,
                     const std::string &place) {
  const BoundedDim &bounded = meta.dims[dim];
  if (size < bounded.min || size > bounded.max)
    throw Error(by + ": " + place + bounded.name + " is " +
                std::to_string(size) + ", but the program was compiled for " +
                bounded.name + "=" + std::to_string(bounded.min) + ".." +
                std::to_string(bounded.max));
  if (chosen[dim] && chosen[dim]->size != size)
    throw Error(by + ": " + place + bounded.name + " is " +
                std::to_string(size) + ", but " +
                std::to_string(chosen[dim]->size) + " by " + chosen[dim]->by);
  if (!chosen[dim])
    chosen[dim] = Chosen{size, by};
}

/// Dimensions that follow from a shape. False when it does not have the rank.
bool Chooser::follow(const Entry &entry, const Shape &shape,
                     const std::string &by) {
  if (shape.size() != entry.shape.size())
    return false;
  for (size_t d = 0; d < entry.extents.size(); ++d) {
    // number * dim / divisor + more, of one dimension
    int64_t more = 0;
    const Extent::Term *term = nullptr;
    bool linear = true;
    for (const Extent::Term &each : entry.extents[d].terms) {
      if (each.dims.empty() && each.divisor == 1)
        more += each.number;
      else if (each.dims.size() == 1 && !term && each.number > 0)
        term = &each;
      else
        linear = false;
    }
    if (!linear || !term)
      continue;
    int64_t scaled = (shape[d] - more) * term->divisor;
    std::string place = "dimension " + std::to_string(d) + ", ";
    if (scaled % term->number != 0)
      throw Error(by + ": " + place + std::to_string(shape[d]) +
                  ", follows from no size of " + meta.dims[term->dims[0]].name);
    choose(term->dims[0], scaled / term->number, by, place);
  }
  return true;
}

void Chooser::fromFile(size_t index, const std::filesystem::path &file) {
  const Entry &entry = meta.inputs[index];
  // A raw file has no shape of its own.
  if (entry.extents.empty() || file.extension() == ".raw")
    return;
  HostTensor tensor = readTensorFile(file);
  // One of another rank is refused when it is read as the input.
  (void)follow(entry, tensor.shape,
               "input '" + entry.name + "' (" + file.string() + ")");
}

std::string Chooser::run(std::vector<Entry> &fills) {
  // Those of a model were for the compiler.
  std::vector<std::pair<std::string, int64_t>> given;
  if (classify(options.program).kind == Source::Kind::Artefact)
    given = runDims(options);
  for (const auto &[name, size] : given) {
    size_t dim = 0;
    std::string names;
    while (dim < meta.dims.size() && meta.dims[dim].name != name)
      names += (names.empty() ? "" : ", ") + meta.dims[dim++].name;
    if (dim == meta.dims.size())
      throw Error(
          "--dim " + name +
          ": the program has no bounded dimension of this name; it has " +
          (names.empty() ? "none" : names));
    choose(dim, size, "--dim " + name, "");
  }
  for (size_t i = 0; i < sources.size(); ++i)
    for (const InputSource &source : sources[i])
      if (source.kind == InputSource::Kind::File)
        fromFile(i, source.file);
  auto isState = [&](const Entry &entry) {
    return std::any_of(options.states.begin(), options.states.end(),
                       [&](const auto &s) { return s.first == entry.name; });
  };
  std::vector<bool> ofState(meta.dims.size());
  for (const Entry &entry : meta.inputs)
    if (isState(entry)) {
      const Entry &output = meta.outputs[outputOf(
          std::find_if(options.states.begin(), options.states.end(),
                       [&](const auto &s) { return s.first == entry.name; })
              ->second)];
      // What a state grows along begins empty; what it shares with others
      // (the batch) does not.
      for (size_t d = 0; d < entry.extents.size(); ++d)
        if (d < output.extents.size() &&
            entry.extents[d].text() != output.extents[d].text())
          for (const Extent::Term &term : entry.extents[d].terms)
            for (uint32_t dim : term.dims)
              ofState[dim] = true;
    }
  for (size_t d = 0; d < meta.dims.size(); ++d)
    if (!chosen[d])
      chosen[d] = Chosen{ofState[d] ? meta.dims[d].min : meta.dims[d].max,
                         ofState[d] ? "an empty state" : "its maximum"};
  std::string line;
  for (size_t d = 0; d < meta.dims.size(); ++d)
    line += (d ? ", " : "") + meta.dims[d].name + "=" +
            std::to_string(chosen[d]->size) + " (" + chosen[d]->by + ")";

  std::vector<int64_t> first = sizes();
  for (Entry &entry : meta.inputs)
    meta.resize(entry, first);
  for (Entry &entry : meta.outputs)
    meta.resize(entry, first);
  fills = meta.inputs;
  // A step makes its state's output the next one's input.
  const int64_t steps = options.warmup + options.repeat;
  ProgramMeta now = meta;
  for (int64_t step = 1; step < steps; ++step) {
    std::vector<int64_t> before = sizes();
    for (auto &each : chosen)
      each.reset();
    for (const auto &[input, output] : options.states)
      for (const Entry &entry : meta.inputs) {
        if (entry.name != input || entry.extents.empty())
          continue;
        const std::string by = "--state " + input + "=" + output +
                               ": for step " + std::to_string(step + 1) +
                               " of " + std::to_string(steps);
        (void)follow(entry, now.outputs[outputOf(output)].shape, by);
      }
    for (size_t d = 0; d < chosen.size(); ++d)
      if (!chosen[d])
        chosen[d] = Chosen{before[d], "before"};
    if (sizes() == before)
      break;
    std::vector<int64_t> after = sizes();
    for (size_t i = 0; i < now.inputs.size(); ++i) {
      meta.resize(now.inputs[i], after);
      if (now.inputs[i].shape == meta.inputs[i].shape)
        continue;
      for (const InputSource &source : sources[i])
        if (source.kind == InputSource::Kind::File && !isState(meta.inputs[i]))
          throw Error("input '" + meta.inputs[i].name +
                      "' grows with a state from step to step, and " +
                      source.file.string() +
                      " holds it for the first step only; give it as " +
                      meta.inputs[i].name + "=fill:V, or run one step");
      meta.resize(fills[i], after);
    }
    for (Entry &entry : now.outputs)
      meta.resize(entry, after);
  }
  for (size_t i = 0; i < meta.inputs.size(); ++i)
    if (isState(meta.inputs[i]))
      fills[i] = meta.inputs[i];
  meta.outputs = now.outputs;
  return line;
}

std::string chooseSizes(const Options &options,
                        const std::vector<InputSources> &sources,
                        ProgramMeta &meta, std::vector<Entry> &fills) {
  fills = meta.inputs;
  if (meta.dims.empty())
    return "";
  return Chooser(options, sources, meta).run(fills);
}

} // namespace concord::tools
