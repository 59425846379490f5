//===- Choices.cpp - One decision for all sizes ---------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "common/Choices.h"

#include "common/Family.h"
#include "partition/Solutions.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Diagnostics.h"

using namespace mlir;

namespace concord {

Choices::Choices(ModuleOp module, StringRef pass)
    : module(module), pass(pass.str()) {
  // A container of members has the bounds, too, but no point.
  if (!module->hasAttr(kDims) || !module->hasAttr(partition::kPoint))
    return;
  role = module->hasAttr(kFollows) ? Role::Follower : Role::First;
  if (role == Role::First)
    return;
  auto list = module->getAttrOfType<ArrayAttr>(kChoices);
  auto entry =
      list && !list.empty() ? dyn_cast<ArrayAttr>(list[0]) : ArrayAttr();
  auto name = entry && entry.size() == 2 ? dyn_cast<StringAttr>(entry[0])
                                         : StringAttr();
  auto values =
      name ? dyn_cast<DenseI64ArrayAttr>(entry[1]) : DenseI64ArrayAttr();
  bad = !values || name.getValue() != pass;
  if (bad)
    return;
  numbers = values.asArrayRef().vec();
  module->setAttr(kChoices, ArrayAttr::get(module.getContext(),
                                           list.getValue().drop_front()));
}

int64_t Choices::operator()(int64_t mine) {
  if (role == Role::Alone)
    return mine;
  if (role == Role::First) {
    numbers.push_back(mine);
    return mine;
  }
  if (next < numbers.size())
    return numbers[next++];
  bad = true;
  return mine;
}

LogicalResult Choices::finish() {
  if (role == Role::First) {
    Builder builder(module.getContext());
    SmallVector<Attribute> list;
    if (auto before = module->getAttrOfType<ArrayAttr>(kChoices))
      llvm::append_range(list, before);
    list.push_back(builder.getArrayAttr(
        {builder.getStringAttr(pass), builder.getDenseI64ArrayAttr(numbers)}));
    module->setAttr(kChoices, builder.getArrayAttr(list));
  }
  if (role != Role::Follower || (!bad && next == numbers.size()))
    return success();
  return module.emitError()
         << pass
         << ": another size of a bounded dimension cannot be compiled in the "
            "same way; "
         << (pass == "comm-outline"
                 ? ""
                 : "compile with --comm-pipeline=\"opt=0\", or ")
         << "fix the dimension with --dim NAME=N";
}

} // namespace concord
