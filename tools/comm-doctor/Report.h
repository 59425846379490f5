//===- Report.h - Findings for people, programs, and Graphviz ---*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The three outputs of comm-doctor: text (the chain, one edge a line; then
// cause and cure), JSON, and DOT. Foreign text is escaped in all of them.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_DOCTOR_REPORT_H
#define CONCORD_TOOLS_DOCTOR_REPORT_H

#include "concord/order/Judge.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace concord::doctor {

using order::findingText;
using order::kindName;
using order::printable;

nlohmann::json toJson(const order::Finding &finding);
nlohmann::json toJson(const order::Judgement &judgement);

/// One digraph of all chains.
std::string toDot(const std::vector<order::Finding> &findings);

} // namespace concord::doctor

#endif // CONCORD_TOOLS_DOCTOR_REPORT_H
