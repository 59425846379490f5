//===- Score.cpp - Which form an operation takes --------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Parsing score strings, and making them of a calibration.
//
//===----------------------------------------------------------------------===//

#include "algorithms/Score.h"
#include "algorithms/Direct.h"
#include "concord/cost/Machine.h"
#include "diagnosis/Error.h"
#include "engine/Op.h"

#include <cstdlib>
#include <iterator>

using namespace concord;
using namespace concord::rt;

static const char *const kForms[][2] = {
#define X(name, text, meaning) {text, meaning},
    CONCORD_FORMS(X)
#undef X
};

const char *concord::rt::formText(Form form) { return kForms[int(form)][0]; }
const char *concord::rt::formMeaning(Form form) { return kForms[int(form)][1]; }

bool concord::rt::formExists(Form form, Kind kind) {
  bool all = kind == Kind::AllReduce, scatters = kind == Kind::ReduceScatter,
       gathers = kind == Kind::AllGather, casts = kind == Kind::Broadcast,
       reduces = kind == Kind::Reduce;
  switch (form) {
  case Form::Pairwise:
  case Form::Ring:
    return all || scatters || gathers || casts || reduces;
  case Form::Recursive:
    return all || gathers;
  case Form::Halving:
    return all || scatters;
  case Form::Tree:
    return casts || reduces;
  default:
    return true;
  }
}

/// "4k", "inf"; false when it is neither.
static bool parseBytes(const std::string &text, uint64_t &value) {
  if (text == "inf") {
    value = ~uint64_t(0);
    return true;
  }
  char *end = nullptr;
  if (text.empty() || text[0] < '0' || text[0] > '9')
    return false;
  value = std::strtoull(text.c_str(), &end, 10);
  unsigned shift = 0;
  switch (*end) {
  case 'k':
  case 'K':
    shift = 10;
    break;
  case 'm':
  case 'M':
    shift = 20;
    break;
  case 'g':
  case 'G':
    shift = 30;
    break;
  }
  if (value >> (63 - shift))
    return false;
  value <<= shift;
  return end[shift != 0] == 0;
}

std::vector<Score> concord::rt::parseScores(const std::string &text,
                                            bool severalHosts) {
  std::vector<Score> scores;
  auto wrong = [&](const std::string &part, const std::string &why) {
    raise(
        CONCORD_ERROR_INVALID_ARGUMENT,
        "CONCORD_ALGORITHM: '%s': %s; it is a list of kind:from-to:form, like "
        "all_reduce:0-4k:flat;4k-inf:direct",
        part.c_str(), why.c_str());
  };
  Kind kind = Kind::Barrier;
  bool named = false;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find(';', at), text.size());
    std::string part = text.substr(at, end - at);
    at = end + 1;
    std::string fields[3];
    int count = 0;
    for (size_t i = 0; count < 3; ++count) {
      size_t colon = std::min(part.find(':', i), part.size());
      fields[count] = part.substr(i, colon - i);
      i = colon + 1;
      if (i > part.size()) {
        ++count;
        break;
      }
    }
    if (count == 3) {
      named = false;
      for (int k = 1; k <= int(Kind::Permute); ++k)
        if (fields[0] == kindName(Kind(k))) {
          kind = Kind(k);
          named = true;
        }
      if (!named)
        wrong(part, "no kind of collective is called '" + fields[0] + "'");
    } else if (count == 2 && named) {
      fields[2] = fields[1];
      fields[1] = fields[0];
    } else {
      wrong(part, "fields are missing");
    }
    Score score{kind, 0, 0, Form::Automatic};
    size_t dash = fields[1].find('-');
    if (dash == std::string::npos ||
        !parseBytes(fields[1].substr(0, dash), score.from) ||
        !parseBytes(fields[1].substr(dash + 1), score.to) ||
        score.from >= score.to)
      wrong(part, "'" + fields[1] + "' is no range of bytes");
    bool known = false;
    std::string all;
    for (int form = 0; form < int(std::size(kForms)); ++form) {
      all += (all.empty() ? "" : ", ") + std::string(kForms[form][0]);
      if (fields[2] == kForms[form][0]) {
        score.form = Form(form);
        known = true;
      }
    }
    if (!known)
      wrong(part, "no form '" + fields[2] + "'; there are " + all);
    if (score.form == Form::Flat && score.to > kFlatMost + 1)
      wrong(part, "the flat form carries up to " + std::to_string(kFlatMost) +
                      " bytes of input");
    if (!formExists(score.form, kind)) {
      std::string has;
      for (int form = 0; form < int(std::size(kForms)); ++form)
        if (betweenHosts(Form(form)) && formExists(Form(form), kind))
          has += (has.empty() ? "" : ", ") + std::string(kForms[form][0]);
      wrong(part, std::string(kindName(kind)) + " has no form '" + fields[2] +
                      "'" +
                      (has.empty() ? "" : "; between hosts it has " + has));
    }
    if (betweenHosts(score.form) && !severalHosts)
      wrong(part, "the form '" + fields[2] +
                      "' is between hosts, and all ranks are on this one");
    scores.push_back(score);
  }
  return scores;
}

std::vector<Score> concord::rt::measuredScores(const std::string &path,
                                               const std::string &objective) {
  cost::Machine machine;
  std::string error;
  if (!cost::readCalibration(path, machine, error))
    raise(CONCORD_ERROR_INVALID_ARGUMENT, "%s", error.c_str());
  std::vector<Score> scores;
  for (const cost::FormCurve &flat : machine.forms) {
    if (flat.form != formText(Form::Flat) || flat.objective != objective)
      continue;
    const cost::FormCurve *direct = nullptr;
    for (const cost::FormCurve &other : machine.forms)
      if (other.form == formText(Form::Direct) &&
          other.objective == objective && other.curve.kind == flat.curve.kind &&
          other.curve.ranks == flat.curve.ranks)
        direct = &other;
    if (!direct)
      continue;
    Kind kind = flat.curve.kind;
    auto ranks = uint64_t(flat.curve.ranks);
    // Curves are over the whole array, scores over one rank's input.
    bool gathers = chunked(kind, false) && !chunked(kind, true);
    constexpr uint64_t kStep = 64;
    for (uint64_t from = 0; from < kFlatMost; from += kStep) {
      uint64_t whole = (from + kStep) * (gathers ? ranks : 1);
      bool flatWins = cost::secondsOf(flat.curve, whole) <=
                      cost::secondsOf(direct->curve, whole);
      Form form = flatWins ? Form::Flat : Form::Direct;
      uint64_t begin = from ? from + 1 : 0, end = from + kStep + 1;
      if (from && scores.back().form == form)
        scores.back().to = end;
      else
        scores.push_back({kind, begin, end, form, int(ranks), true});
    }
  }
  return scores;
}
