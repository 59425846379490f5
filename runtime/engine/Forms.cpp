//===- Forms.cpp - How operations are done, and why -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What concord_comm_last_form and comm-bench --explain say.
//
//===----------------------------------------------------------------------===//

#include "engine/Engine.h"
#include "engine/Operands.h"
#include "engine/Span.h"

using namespace concord;
using namespace concord::rt;

void concord::rt::noteForm(const Op &op) {
  bool inSlots = op.inlined || op.flat;
  op.comm->last = {op.request.kind,
                   inSlots        ? Form::Flat
                   : op.claimed   ? Form::Claimed
                   : op.across    ? Form::SingleCopy
                   : op.anyStaged ? Form::Staged
                                  : Form::Direct,
                   op.payload,
                   op.form,
                   op.measured,
                   op.inlined,
                   op.across || op.anyStaged,
                   op.cold,
                   op.streamed,
                   op.shared,
                   op.exchange,
                   op.comm->context->oversubscribed};
}

std::string concord::rt::formOf(const Comm &comm) {
  const LastForm &last = comm.last;
  std::string text = std::string(kindName(last.kind)) + " of " +
                     std::to_string(last.bytes) + " B: " + formText(last.form) +
                     " (" + formMeaning(last.form) + "), because ";
  if (last.hosts)
    return text + spanReason(comm);
  if (last.asked == last.form)
    return text + "CONCORD_ALGORITHM says so";
  if (last.asked != Form::Automatic)
    text += std::string("CONCORD_ALGORITHM says ") + formText(last.asked) +
            ", which is not possible: ";
  if (last.measured && (last.inlined || last.form == Form::Direct))
    return text + "of flat and direct it costs less by the calibration";
  switch (last.form) {
  case Form::Flat:
    if (last.inlined)
      return text + "up to " + std::to_string(kInlineLimit) + " B, or " +
             std::to_string(kFlatMost) +
             " B where data goes one way, the copy costs less than a second "
             "round of flags";
    return text + "an operand of some member is outside the heap, and up to " +
           std::to_string(kFlatLimit) +
           " B one copy and one round of flags cost less than staging";
  case Form::Claimed:
    text += "all operands are in the heap, and ranks outnumber cores: nobody "
            "has to run once more for its share";
    if (last.streamed)
      text += "; stores go past the caches";
    return text;
  case Form::Staged:
    text += "an operand of some member is outside the heap";
    if (last.asked == Form::SingleCopy)
      text += ", and ranks cannot read each other's memory (process_vm_readv)";
    return text;
  case Form::SingleCopy:
    return text +
           "operands are outside the heap and at least "
           "CONCORD_SINGLE_COPY = " +
           std::to_string(comm.context->singleCopy) + " B per peer";
  default:
    text += "all operands are in the heap";
    if (last.exchange)
      text += "; blocks change places, as all members work in place";
    if (last.shared)
      text += "; every member carries a share, so that each byte is read once";
    if (last.streamed)
      text += "; stores go past the caches, as more than the last-level cache "
              "(" +
              std::to_string(comm.context->cacheBytes) +
              " B) has moved since the output was last written";
    return text;
  }
}
