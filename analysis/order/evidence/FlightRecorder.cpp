//===- FlightRecorder.cpp - PyTorch Flight Recorder dumps -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One file per rank, JSON or pickle, format 2.x. A domain is keyed by name and
// members, because a name may come again with other members after a split.
// Entries of all domains are merged by record_id, which counts over the
// process.
//
//===----------------------------------------------------------------------===//

#include "Value.h"
#include "concord/order/Evidence.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>

namespace concord::order::evidence {

namespace {

using Node = Document::Node;

/// "[0, 1]" or a list of numbers.
bool rankList(const Document &doc, const Node *n, std::vector<Rank> &out) {
  if (!n)
    return false;
  if (n->type == Document::Type::List) {
    for (const Node *c = doc.first(n); c; c = doc.next(c)) {
      int64_t v = Document::integer(c, -1);
      if (v < 0 || v > INT32_MAX)
        return false;
      out.push_back(Rank(v));
    }
    return true;
  }
  if (n->type != Document::Type::String)
    return false;
  std::string_view t = n->text;
  size_t i = 0;
  while (i < t.size()) {
    if (t[i] < '0' || t[i] > '9') {
      ++i;
      continue;
    }
    int32_t v = 0;
    auto [end, ec] = std::from_chars(t.data() + i, t.data() + t.size(), v);
    if (ec != std::errc())
      return false;
    out.push_back(v);
    i = size_t(end - t.data());
  }
  return true;
}

/// Total number of elements of the first (or of all) tensors of a size list.
bool elements(const Document &doc, const Node *sizes, uint64_t &total) {
  if (!sizes || sizes->type != Document::Type::List)
    return false;
  total = 0;
  for (const Node *tensor = doc.first(sizes); tensor;
       tensor = doc.next(tensor)) {
    if (tensor->type == Document::Type::List) {
      uint64_t n = 1;
      for (const Node *d = doc.first(tensor); d; d = doc.next(d)) {
        int64_t v = Document::integer(d, -1);
        if (v < 0)
          return false;
        n *= uint64_t(v);
      }
      total += n;
    } else {
      int64_t v = Document::integer(tensor, -1); // one flat shape
      if (v < 0)
        return false;
      total = total == 0 && tensor == doc.first(sizes) ? uint64_t(v)
                                                       : total * uint64_t(v);
    }
  }
  return true;
}

} // namespace

std::string_view canonicalKind(std::string_view name) {
  auto has = [&](std::string_view s) {
    return name.find(s) != std::string_view::npos;
  };
  if (has("barrier"))
    return "barrier";
  if (has("reduce_scatter") || has("REDUCE_SCATTER"))
    return "reduce_scatter";
  if (has("all_reduce") || has("allreduce") || has("ALLREDUCE"))
    return "all_reduce";
  if (has("all_gather") || has("allgather") || has("ALLGATHER"))
    return "all_gather";
  if (has("all_to_all") || has("alltoall") || has("ALLTOALL"))
    return "all_to_all";
  if (has("broadcast") || has("BROADCAST"))
    return "broadcast";
  if (has("scatter") || has("SCATTER"))
    return "scatter";
  if (has("gather") || has("GATHER"))
    return "gather";
  if (has("reduce") || has("REDUCE"))
    return "reduce";
  return name;
}

namespace {
/// "train.py:74 in step": the innermost frame that is not of a library.
std::string place(const Document &doc, const Node *frames) {
  for (const Node *f = doc.first(frames); f; f = doc.next(f)) {
    std::string_view file = Document::string(doc.member(f, "filename"));
    bool library = file.empty();
    for (std::string_view part :
         {"site-packages/", "dist-packages/", "lib/python3", "torch/",
          "<frozen", ".cpp", ".so"})
      library = library || file.find(part) != std::string_view::npos;
    if (!library)
      return std::string(
                 file.substr(file.size() > 160 ? file.size() - 160 : 0)) +
             ":" + std::to_string(Document::integer(doc.member(f, "line"), 0)) +
             " in " +
             std::string(Document::string(doc.member(f, "name")).substr(0, 80));
  }
  return {};
}
} // namespace

bool readFlightRecorder(std::string_view bytes, const std::string &path,
                        Rank rank, Job &job, std::string &error) {
  Document doc;
  doc.tolerant = true;
  bool pickle = !bytes.empty() && uint8_t(bytes[0]) == 0x80;
  if (!(pickle ? doc.parsePickle(bytes, error)
               : doc.parseJson(bytes, {"stack", "traceback"}, error)))
    return false;
  const Node *root = doc.at(doc.root);
  const Node *entries = doc.member(root, "entries");
  if (!entries || entries->type != Document::Type::List) {
    error = "no list of entries";
    return false;
  }
  if (doc.cut && entries->count <= 1) {
    error = "ends before its second entry";
    return false;
  }
  if (rank < 0)
    rank = Rank(Document::integer(doc.member(root, "rank"), -1));
  if (rank < 0) {
    error = "the file name does not tell the rank";
    return false;
  }
  // Of a cut file the last entry may lack what matters.
  std::set<const Node *> unfinished;
  if (doc.cut) {
    for (uint32_t id : doc.unfinished)
      unfinished.insert(doc.at(id));
    job.notes.push_back(path + ": ends too early; its " +
                        std::to_string(entries->count) +
                        " entries before that were read");
  }
  std::string version(Document::string(doc.member(root, "version")));
  if (!version.empty() && version.rfind("2.", 0) != 0)
    job.notes.push_back(path + ": format version " + version + ", read as 2.x");

  // name -> members, for this rank.
  std::map<std::string, uint32_t, std::less<>> domains;
  const Node *config = doc.member(root, "pg_config");
  for (const Node *g = doc.first(config); g; g = doc.next(g)) {
    std::vector<Rank> members;
    rankList(doc, doc.member(g, "ranks"), members);
    std::string name(Document::string(doc.member(g, "name")));
    if (name.empty())
      name = std::string(g->key);
    domains[name] = job.domainId(
        name, members, std::string(Document::string(doc.member(g, "desc"))));
  }

  RankEvidence &own = job.ranks[rank];
  own.present = true;
  own.truncatedEnd = doc.cut;
  own.files.push_back(path);
  job.haveFlightRecorder = true;
  uint32_t file = job.strings.id(path);
  std::string signature;
  uint64_t smallest = std::numeric_limits<uint64_t>::max();
  bool unordered = false;
  uint64_t last = 0;
  std::map<std::pair<uint32_t, int64_t>, uint64_t>
      groupOrder; // (domain, p2p seq) -> order
  own.issues.reserve(own.issues.size() + entries->count);
  for (const Node *e = doc.first(entries); e; e = doc.next(e)) {
    if (unfinished.count(e))
      continue;
    if (e->type != Document::Type::Dict) {
      ++job.linesNotUnderstood;
      continue;
    }
    // One pass over the members: entries have two dozen, and there are many.
    const Node *recordId = nullptr, *group = nullptr, *name = nullptr,
               *p2p = nullptr, *collSeq = nullptr, *p2pSeq = nullptr,
               *state = nullptr, *retired = nullptr, *inSizes = nullptr,
               *outSizes = nullptr, *dtypes = nullptr, *thread = nullptr,
               *inSplits = nullptr, *outSplits = nullptr, *frames = nullptr;
    for (const Node *m = doc.first(e); m; m = doc.next(m)) {
      std::string_view k = m->key;
      if (k == "frames")
        frames = m;
      else if (k == "record_id")
        recordId = m;
      else if (k == "process_group")
        group = m;
      else if (k == "profiling_name")
        name = m;
      else if (k == "is_p2p")
        p2p = m;
      else if (k == "collective_seq_id")
        collSeq = m;
      else if (k == "p2p_seq_id")
        p2pSeq = m;
      else if (k == "state")
        state = m;
      else if (k == "retired")
        retired = m;
      else if (k == "input_sizes")
        inSizes = m;
      else if (k == "output_sizes")
        outSizes = m;
      else if (k == "input_dtypes")
        dtypes = m;
      else if (k == "thread_id")
        thread = m;
      else if (k == "input_split_sizes" || k == "input_splits")
        inSplits = m;
      else if (k == "output_split_sizes" || k == "output_splits")
        outSplits = m;
    }
    std::string_view groupName = Document::string(
        group && group->type == Document::Type::List ? doc.first(group)
                                                     : group);
    std::string_view full = Document::string(name);
    if (full.empty() || (groupName.empty() && !group)) {
      ++job.linesNotUnderstood;
      if (job.examplesNotUnderstood.size() < 8)
        job.examplesNotUnderstood.push_back(path +
                                            ": an entry without name or group");
      continue;
    }
    ++job.linesUnderstood;
    size_t colon = full.find(':');
    std::string_view verb =
        colon == std::string_view::npos ? full : full.substr(colon + 1);
    auto known = domains.find(groupName);
    if (known == domains.end()) {
      // Gloo's pg_config is empty: the entry has the description, and who the
      // members are is told by who uses it.
      const Node *desc =
          group && group->type == Document::Type::List && doc.first(group)
              ? doc.next(doc.first(group))
              : nullptr;
      known = domains
                  .emplace(std::string(groupName),
                           job.domainId(std::string(groupName), {},
                                        std::string(Document::string(desc))))
                  .first;
    }
    uint32_t domain = known->second;
    Issue issue;
    issue.file = file;
    uint64_t record =
        uint64_t(Document::integer(recordId, int64_t(own.issues.size())));
    issue.line = uint32_t(std::min<uint64_t>(record, kNone));
    issue.order = record * 2;
    smallest = std::min(smallest, record);
    unordered = unordered || record < last;
    last = record;
    std::string_view s = Document::string(state);
    issue.state = s == "completed" ? State::Completed
                  : s == "started" ? State::Started
                                   : State::Scheduled;
    // NCCL's watchdog retires what has completed or timed out. Other back ends
    // (Gloo) retire every operation at its end and never set a state.
    bool ended = retired && retired->integer && issue.state != State::Completed;
    std::string_view backend = full.substr(0, colon);
    if (ended && issue.state == State::Scheduled && backend != "nccl" &&
        backend != "xccl" && backend != "hccl" && backend != "rccl") {
      issue.state = State::Completed;
      ended = false;
    }
    issue.timedOut = ended;
    // Of what has completed nobody asks.
    if (frames && issue.state != State::Completed)
      if (std::string text = place(doc, frames); !text.empty())
        issue.where = job.strings.id(text);
    if (thread)
      issue.thread = job.strings.id(thread->type == Document::Type::String
                                        ? std::string(thread->text)
                                        : std::to_string(thread->integer));
    bool isP2p = (p2p && p2p->integer) || verb.rfind("send", 0) == 0 ||
                 verb.rfind("recv", 0) == 0;
    signature.clear();
    if (isP2p) {
      // "send 0->1", "recv 1<-0": group ranks.
      bool send = verb.rfind("send", 0) == 0;
      Rank a = -1, b = -1;
      size_t digits = verb.find_first_of("0123456789");
      if (digits != std::string_view::npos) {
        auto [end, ec] =
            std::from_chars(verb.data() + digits, verb.data() + verb.size(), a);
        size_t more =
            verb.find_first_of("0123456789", size_t(end - verb.data()));
        if (more != std::string_view::npos)
          std::from_chars(verb.data() + more, verb.data() + verb.size(), b);
      }
      if (verb.rfind("coalesced", 0) == 0)
        continue; // the bracket of a group; its members are entries of their
                  // own
      const std::vector<Rank> &members = job.domains[domain].members;
      auto global = [&](Rank r) {
        return r >= 0 && size_t(r) < members.size() ? members[size_t(r)]
                                                    : Rank(-1);
      };
      Rank source = send ? global(a) : global(b),
           destination = send ? global(b) : global(a);
      issue.sequence = job.sequenceId(domain, true, source, destination);
      issue.kind = job.strings.id(send ? "send" : "recv");
      uint64_t n = 0;
      signature = "transfer";
      if (elements(doc,
                   send ? inSizes
                        : (outSizes && outSizes->count ? outSizes : inSizes),
                   n))
        signature += "(n=" + std::to_string(n) + ")";
      // Members of one launch share their place in the order.
      int64_t seq = Document::integer(p2pSeq, -1);
      if (seq >= 0) {
        auto [it, fresh] = groupOrder.try_emplace({domain, seq}, issue.order);
        issue.order = it->second;
      }
    } else {
      std::string_view kind = canonicalKind(verb);
      issue.sequence = job.sequenceId(domain, false);
      issue.index = Document::integer(collSeq, -1);
      issue.kind = job.strings.id(kind);
      signature = kind;
      // Compare per kind only what takes part alike on all members.
      uint64_t n = 0;
      bool sized = kind == "all_reduce" || kind == "all_gather" ||
                   kind == "reduce_scatter" || kind == "broadcast" ||
                   kind == "reduce";
      std::string_view dtype = Document::string(
          dtypes && dtypes->type == Document::Type::List ? doc.first(dtypes)
                                                         : dtypes);
      if (kind != "barrier" && kind != "coalesced") {
        signature += "(";
        if (sized && elements(doc, inSizes, n))
          signature += "n=" + std::to_string(n);
        if (!dtype.empty())
          signature +=
              (signature.back() == '(' ? "" : ",") + std::string(dtype);
        signature += ")";
      }
      (void)inSplits;
      (void)outSplits;
    }
    issue.signature = job.strings.id(signature);
    own.issues.push_back(issue);
  }
  if (unordered)
    std::sort(own.issues.begin(), own.issues.end(),
              [](const Issue &a, const Issue &b) {
                return a.order != b.order ? a.order < b.order : a.line < b.line;
              });
  own.truncatedStart =
      own.truncatedStart ||
      (smallest != std::numeric_limits<uint64_t>::max() && smallest > 0);
  return true;
}

} // namespace concord::order::evidence
