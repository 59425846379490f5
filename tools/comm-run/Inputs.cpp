//===- Inputs.cpp - Where each input of a program comes from --------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Names in models may hold `=` and `@`, so they are matched against what the
// program has instead of being cut at the first of those.
//
//===----------------------------------------------------------------------===//

#include "Inputs.h"

#include "common/Files.h"
#include "common/TensorFile.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace fs = std::filesystem;

namespace concord::tools {

namespace {

size_t indexOf(const std::vector<Entry> &entries, std::string_view name) {
  for (size_t i = 0; i < entries.size(); ++i)
    if (entries[i].name == name)
      return i;
  return entries.size();
}

bool parseInteger(std::string_view text, int64_t &value) {
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

InputSource parseSource(const std::string &value, const Entry &entry,
                        const std::string &option) {
  InputSource source;
  if (value.starts_with("fill:")) {
    source.kind = InputSource::Kind::Fill;
    char *end = nullptr;
    std::string number = value.substr(5);
    source.value = std::strtod(number.c_str(), &end);
    if (number.empty() || *end)
      throw Error("--input " + option + ": '" + number + "' is not a number");
    return source;
  }
  if (value.starts_with("range:")) {
    source.kind = InputSource::Kind::Range;
    std::string_view range = std::string_view(value).substr(6);
    size_t dots = range.find("..");
    if (dots == std::string_view::npos ||
        !parseInteger(range.substr(0, dots), source.low) ||
        !parseInteger(range.substr(dots + 2), source.high) ||
        source.low >= source.high)
      throw Error("--input " + option +
                  ": write NAME=range:LOW..HIGH with "
                  "integers, LOW below HIGH");
    if (isFloat(entry.dtype))
      throw Error("--input " + option + ": '" + entry.name + "' is " +
                  std::string(dtypeName(entry.dtype)) +
                  "; range: draws integers");
    return source;
  }
  source.kind = InputSource::Kind::File;
  source.file = value;
  return source;
}

std::string typeOf(const Entry &entry) {
  return std::string(dtypeName(entry.dtype)) + " " + shapeToString(entry.shape);
}

} // namespace

std::string listNames(const std::vector<Entry> &entries) {
  std::string text;
  for (size_t i = 0; i < entries.size() && i < 20; ++i)
    text += (i ? ", '" : "'") + entries[i].name + "'";
  if (entries.size() > 20)
    text += ", and " + std::to_string(entries.size() - 20) + " more";
  return text.empty() ? "none" : text;
}

std::string InputSource::describe() const {
  switch (kind) {
  case Kind::Drawn:
    return "drawn";
  case Kind::Zero:
    return "zeros";
  case Kind::File:
    return file.string();
  case Kind::Fill: {
    char text[40];
    std::snprintf(text, sizeof(text), "fill:%g", value);
    return text;
  }
  case Kind::Range:
    return "range:" + std::to_string(low) + ".." + std::to_string(high);
  }
  return "";
}

fs::path findTensorFile(const fs::path &dir, const std::string &name,
                        const char *prefix, size_t index) {
  std::string numbered = std::string(prefix) + "_" + std::to_string(index);
  std::error_code error;
  for (const std::string &stem : {fileSafe(name), numbered})
    for (const char *extension : {".npy", ".pb"})
      if (fs::path path = dir / (stem + extension); fs::exists(path, error))
        return path;
  return {};
}

std::vector<InputSources> resolveInputs(const Options &options,
                                        const ProgramMeta &meta) {
  std::vector<InputSources> sources(meta.inputs.size());
  std::vector<std::vector<bool>> given(meta.inputs.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    bool perRank = meta.inputs[i].kind == Entry::Kind::PerRank;
    size_t count = perRank ? static_cast<size_t>(meta.world) : 1;
    sources[i].resize(count);
    given[i].resize(count);
  }

  for (const std::string &option : options.inputs) {
    size_t index = meta.inputs.size();
    int64_t rank = -1;
    std::string value;
    for (size_t at = option.find('=');
         at != std::string::npos && index == meta.inputs.size();
         at = option.find('=', at + 1)) {
      std::string name = option.substr(0, at);
      value = option.substr(at + 1);
      rank = -1;
      index = indexOf(meta.inputs, name);
      size_t sign = name.rfind('@');
      if (index == meta.inputs.size() && sign != std::string::npos &&
          parseInteger(std::string_view(name).substr(sign + 1), rank))
        index = indexOf(meta.inputs, std::string_view(name).substr(0, sign));
    }
    if (index == meta.inputs.size())
      throw Error("--input " + option +
                  ": the program has no such input; its "
                  "inputs are " +
                  listNames(meta.inputs));
    const Entry &entry = meta.inputs[index];
    if (rank >= 0 && entry.kind != Entry::Kind::PerRank)
      throw Error("--input " + option + ": '" + entry.name +
                  "' is one tensor for all ranks; give it without @" +
                  std::to_string(rank));
    if (rank >= meta.world || rank < -1)
      throw Error("--input " + option + ": there are " +
                  std::to_string(meta.world) + " ranks, 0 to " +
                  std::to_string(meta.world - 1));
    InputSource source = parseSource(value, entry, option);
    size_t from = rank < 0 ? 0 : static_cast<size_t>(rank);
    size_t to = rank < 0 ? sources[index].size() : from + 1;
    for (size_t i = from; i < to; ++i) {
      if (given[index][i])
        throw Error("--input " + option + ": '" + entry.name +
                    "' is given twice");
      given[index][i] = true;
      sources[index][i] = source;
    }
  }

  if (!options.inputDir.empty()) {
    bool any = meta.inputs.empty();
    for (size_t index = 0; index < sources.size(); ++index) {
      const Entry &entry = meta.inputs[index];
      for (size_t i = 0; i < sources[index].size(); ++i) {
        fs::path file;
        if (entry.kind == Entry::Kind::PerRank)
          file = findTensorFile(options.inputDir,
                                entry.name + "@" + std::to_string(i), "input",
                                index);
        if (file.empty())
          file = findTensorFile(options.inputDir, entry.name, "input", index);
        any |= !file.empty();
        if (file.empty() || given[index][i])
          continue;
        given[index][i] = true;
        sources[index][i].kind = InputSource::Kind::File;
        sources[index][i].file = file;
      }
    }
    if (!any)
      throw Error("--input-dir " + options.inputDir +
                  ": has a file for none of the inputs " +
                  listNames(meta.inputs));
  }

  std::vector<bool> isState(meta.inputs.size()), taken(meta.outputs.size());
  for (const auto &[input, output] : options.states) {
    std::string option = "--state " + input + "=" + output + ": ";
    size_t in = indexOf(meta.inputs, input);
    size_t out = indexOf(meta.outputs, output);
    if (in == meta.inputs.size())
      throw Error(option + "the program has no input '" + input +
                  "'; its inputs are " + listNames(meta.inputs));
    if (out == meta.outputs.size())
      throw Error(option + "the program has no output '" + output +
                  "'; its outputs are " + listNames(meta.outputs));
    const Entry &a = meta.inputs[in], &b = meta.outputs[out];
    // With bounded dimensions a state may grow; chooseSizes follows it.
    bool grows = !a.extents.empty() || !b.extents.empty();
    if (a.dtype != b.dtype ||
        (grows ? a.shape.size() != b.shape.size() : a.shape != b.shape))
      throw Error(option + "the input is " + typeOf(a) + ", the output " +
                  typeOf(b) + "; a state keeps its type");
    if (a.ranks != b.ranks)
      throw Error(option + "the two are on different pipeline stages; a state "
                           "stays on its ranks");
    bool sameSplits = std::equal(
        a.splits.begin(), a.splits.end(), b.splits.begin(), b.splits.end(),
        [](const Split &x, const Split &y) {
          return x.dim == y.dim && x.axis == y.axis && x.outer == y.outer;
        });
    if (a.kind != b.kind || !sameSplits)
      throw Error(option + "input and output are split differently over the "
                           "ranks");
    if (isState[in] || taken[out])
      throw Error(option + "it is part of another --state already");
    isState[in] = taken[out] = true;
    for (size_t i = 0; i < sources[in].size(); ++i)
      if (!given[in][i])
        sources[in][i].kind = InputSource::Kind::Zero;
  }
  return sources;
}

HostTensor makeInput(const Entry &entry, const InputSource &source,
                     uint64_t seed, int64_t rank) {
  bool perRank = entry.kind == Entry::Kind::PerRank;
  const Shape &shape = perRank ? entry.localShape : entry.shape;
  std::string what = "input '" + entry.name + "'";
  switch (source.kind) {
  case InputSource::Kind::File:
    return readTensorFile(source.file, entry.dtype, shape, what);
  case InputSource::Kind::Fill:
  case InputSource::Kind::Zero: {
    HostTensor tensor{entry.dtype, shape, {}};
    tensor.bytes.resize(numBytes(entry.dtype, shape).value_or(0));
    if (source.kind == InputSource::Kind::Fill)
      for (uint64_t i = 0, count = tensor.numElements(); i < count; ++i)
        setElement(entry.dtype, tensor.bytes, i, source.value);
    return tensor;
  }
  case InputSource::Kind::Drawn:
  case InputSource::Kind::Range:
    break;
  }
  uint64_t stream = nameSeed(entry.name) ^ (seed * 0x9e3779b97f4a7c15);
  if (perRank)
    stream += static_cast<uint64_t>(rank + 1) * 0xd1342543de82ef95;
  return drawTensor(entry.dtype, shape, stream, source.low, source.high);
}

} // namespace concord::tools
