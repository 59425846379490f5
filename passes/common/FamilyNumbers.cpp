//===- FamilyNumbers.cpp - What members differ in -------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "common/FamilyNumbers.h"

#include "common/PlanBuilder.h"
#include "concord/kernel.h"

#include "llvm/ADT/StringExtras.h"

#include <algorithm>

using namespace mlir;

namespace concord {

static std::string listDims(const FamilyMembers &members) {
  std::string text;
  for (const onnx::BoundedDim &dim : members.dims)
    text += (text.empty() ? "" : ", ") + dim.name;
  return text;
}

/// What is done about a place where members cannot become one.
static std::string cure(const FamilyMembers &members) {
  return "; this is not supported yet for a bounded dimension, fix " +
         listDims(members) + " with --dim NAME=N";
}

InFlightDiagnostic refuse(const FamilyMembers &members, Operation *op,
                          const Twine &what) {
  return emitError(op->getLoc()) << "node '" << describeLocation(op->getLoc())
                                 << "': " << what << cure(members);
}

const Extent *Fits::operator()(const std::vector<int64_t> &values) {
  auto it = known.find(values);
  if (it == known.end())
    it = known.emplace(values, onnx::fitExtent(members.points, values)).first;
  return it->second ? &*it->second : nullptr;
}

//===----------------------------------------------------------------------===//
// Text with numbers: kernel descriptions
//===----------------------------------------------------------------------===//

/// The whole numbers of a description that stand alone, those of a quoted one
/// in it too, and the text around them.
static void splitNumbers(StringRef text, SmallVectorImpl<StringRef> &around,
                         std::vector<int64_t> &numbers) {
  auto opens = [](char c) {
    return c == ' ' || c == '=' || c == '[' || c == ',';
  };
  auto closes = [](char c) {
    return c == ' ' || c == ']' || c == ',' || c == '"';
  };
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + (text[at] == '-');
    while (end < text.size() && llvm::isDigit(text[end]))
      ++end;
    int64_t value = 0;
    if (end == at || at == 0 || !opens(text[at - 1]) ||
        (end < text.size() && !closes(text[end])) ||
        text.slice(at, end).getAsInteger(10, value)) {
      ++at;
      continue;
    }
    around.push_back(text.slice(begin, at));
    numbers.push_back(value);
    begin = at = end;
  }
  around.push_back(text.substr(begin));
}

std::optional<std::string> mergeText(const std::vector<std::string> &texts,
                                     Fits &fits) {
  if (llvm::all_of(texts, [&](auto &text) { return text == texts[0]; }))
    return texts[0];
  std::vector<SmallVector<StringRef>> around(texts.size());
  std::vector<std::vector<int64_t>> numbers(texts.size());
  for (size_t k = 0; k < texts.size(); ++k) {
    splitNumbers(texts[k], around[k], numbers[k]);
    if (around[k] != around[0])
      return std::nullopt;
  }
  std::string result;
  std::vector<int64_t> values(texts.size());
  for (size_t i = 0; i < around[0].size(); ++i) {
    result += around[0][i];
    if (i == numbers[0].size())
      break;
    for (size_t k = 0; k < texts.size(); ++k)
      values[k] = numbers[k][i];
    const Extent *extent = fits(values);
    if (!extent)
      return std::nullopt;
    result += extent->isConstant() ? std::to_string(values[0])
                                   : "{" + extent->text() + "}";
  }
  return result;
}

const Need &Needs::operator()(const std::string &text) {
  auto [it, isNew] = known.try_emplace(text);
  Need &need = it->second;
  if (!isNew)
    return need;
  bool first = true, sized = text.find('{') != std::string::npos;
  for (const auto &point : points) {
    auto line = instantiate(text, point);
    if (!line) // a size that the mesh does not divide; refused when bound
      continue;
    concord_kernel *kernel = nullptr;
    concord_kernel_info info = {};
    info.struct_size = sizeof(info);
    if (concord_kernel_create(line->c_str(), &kernel, &info) != 0) {
      need.error = "its kernel cannot be made at " +
                   onnx::describePoint(members.dims, point) + ": " +
                   concord_kernel_last_error();
      return need;
    }
    concord_kernel_destroy(kernel);
    if (!first && need.packed != info.packed_weight_bytes) {
      need.error = "its kernel packs its parameter in another way at " +
                   onnx::describePoint(members.dims, point);
      return need;
    }
    need.packed = info.packed_weight_bytes;
    need.workspace = std::max(need.workspace, info.workspace_bytes);
    first = false;
    if (!sized)
      break;
  }
  return need;
}

} // namespace concord
