//===- Report.cpp - --report ----------------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The data of the page; report.html draws it. Times are whole nanoseconds, and
// spans short lists, so that 2,000 collectives and 50,000 computations stay
// below a few megabytes.
//
//===----------------------------------------------------------------------===//

#include "Report.h"

#include "common/Communicated.h"
#include "common/PlanBuilder.h"

#include "llvm/Support/JSON.h"

#include <cmath>
#include <map>

using namespace mlir;
namespace json = llvm::json;

namespace concord {

static constexpr char kPage[] =
#include "report_html.inc"
    ;

Explanation parseExplanation(StringRef line) {
  Explanation result;
  line.consume_front("explain: ");
  auto [pass, rest] = line.split(' ');
  auto [action, after] = rest.split(' ');
  auto [location, tail] = after.split(" reason=");
  auto [reason, keys] = tail.split(' ');
  result.pass = pass.str();
  result.action = action.str();
  result.location = location.str();
  result.reason = reason.str();
  result.keys = keys.rtrim().str();
  return result;
}

static int64_t nanoseconds(double seconds) {
  return static_cast<int64_t>(std::llround(seconds * 1e9));
}

/// Names in a model need not be UTF-8; JSON has to be.
static std::string text(StringRef value) {
  return json::isUTF8(value) ? value.str() : json::fixUTF8(value);
}

static json::Array span(int kind, int64_t begin, int64_t end, int64_t index,
                        bool critical) {
  return json::Array{kind, begin, end, index, critical ? 1 : 0};
}

namespace {

/// Rows of one rank, or of a class of them.
struct Rows {
  json::Array host;
  std::map<int64_t, json::Array> lanes;

  json::Array takeLanes() {
    json::Array result;
    for (auto &[lane, spans] : lanes)
      result.push_back(
          json::Object{{"lane", lane}, {"spans", std::move(spans)}});
    return result;
  }
};

} // namespace

static json::Array predictedClasses(const Prediction &prediction) {
  const simulate::Result &result = prediction.result;
  std::vector<std::vector<const simulate::Span *>> byClass(
      result.classes.size());
  for (const simulate::Span &one : result.spans)
    byClass[one.rankClass].push_back(&one);
  json::Array classes;
  for (auto [index, one] : llvm::enumerate(result.classes)) {
    auto &spans = byClass[index];
    llvm::stable_sort(spans, [](const auto *a, const auto *b) {
      return a->end != b->end ? a->end < b->end : a->begin < b->begin;
    });
    Rows rows;
    std::map<int64_t, int64_t> laneEnd;
    for (const simulate::Span *entry : spans) {
      using Kind = simulate::Span::Kind;
      int64_t begin = nanoseconds(entry->begin), end = nanoseconds(entry->end);
      int kind = static_cast<int>(entry->kind);
      if (entry->kind == Kind::Compute || entry->kind == Kind::Wait) {
        rows.host.push_back(
            span(kind, begin, end, entry->index, entry->critical));
        continue;
      }
      // What queues behind another is drawn behind it.
      int64_t &free = laneEnd[entry->lane];
      if (entry->kind == Kind::Queue)
        begin = std::max(begin, free);
      free = std::max(free, end);
      if (end > begin || entry->kind == Kind::Transfer)
        rows.lanes[entry->lane].push_back(
            span(kind, begin, end, entry->index, entry->critical));
    }
    // Ranks as ranges.
    json::Array ranges;
    for (size_t i = 0; i < one.ranks.size();) {
      size_t j = i;
      while (j + 1 < one.ranks.size() && one.ranks[j + 1] == one.ranks[j] + 1)
        ++j;
      ranges.push_back(json::Array{one.ranks[i], one.ranks[j]});
      i = j + 1;
    }
    classes.push_back(
        json::Object{{"program", static_cast<int64_t>(one.program)},
                     {"ranks", std::move(ranges)},
                     {"host", std::move(rows.host)},
                     {"lanes", rows.takeLanes()}});
  }
  return classes;
}

/// The last step of a trace.
static json::Value measuredRanks(const Prediction &prediction, StringRef trace,
                                 std::string &error) {
  auto parsed = json::parse(trace);
  if (!parsed) {
    error = "--report-trace: not JSON: " + llvm::toString(parsed.takeError());
    return nullptr;
  }
  json::Object *root = parsed->getAsObject();
  json::Array *events = root ? root->getArray("traceEvents") : nullptr;
  if (!events) {
    error = "--report-trace: has no \"traceEvents\"; it takes a file of "
            "comm-run --trace";
    return nullptr;
  }
  struct Slice {
    int64_t rank, lane, site;
    double begin, end;
    simulate::Span::Kind kind;
  };
  std::vector<Slice> slices;
  std::map<int64_t, std::pair<double, double>> steps; // begin, end over ranks
  for (const json::Value &value : *events) {
    const json::Object *event = value.getAsObject();
    if (!event || event->getString("ph").value_or("") != "X")
      continue;
    StringRef category = event->getString("cat").value_or("");
    auto rank = event->getInteger("pid");
    auto begin = event->getNumber("ts"), length = event->getNumber("dur");
    if (!rank || !begin || !length) {
      error = "--report-trace: a slice lacks pid, ts or dur";
      return nullptr;
    }
    double end = *begin + *length;
    if (category == "step") {
      int64_t step = 0;
      (void)event->getString("name")
          .value_or("")
          .rsplit(' ')
          .second.getAsInteger(10, step);
      auto [at, fresh] = steps.try_emplace(step, *begin, end);
      at->second.first = std::min(at->second.first, *begin);
      at->second.second = std::max(at->second.second, end);
    } else if (category == "compute" || category == "collective" ||
               category == "wait") {
      const json::Object *arguments = event->getObject("args");
      slices.push_back(
          {*rank, event->getInteger("tid").value_or(1) - 1,
           arguments ? arguments->getInteger("site").value_or(-1) : -1, *begin,
           end,
           category == "compute" ? simulate::Span::Kind::Compute
           : category == "wait"  ? simulate::Span::Kind::Wait
                                 : simulate::Span::Kind::Transfer});
    }
  }
  if (steps.empty()) {
    error = "--report-trace: holds no step";
    return nullptr;
  }
  auto [step, bounds] = *steps.rbegin();
  std::map<int64_t, Rows> ranks;
  llvm::stable_sort(
      slices, [](const Slice &a, const Slice &b) { return a.end < b.end; });
  std::map<int64_t, int64_t> programOf;
  for (auto [index, program] : llvm::enumerate(prediction.job.programs))
    for (int32_t rank : program.ranks)
      programOf[rank] = static_cast<int64_t>(index);
  for (const Slice &slice : slices) {
    if (slice.begin < bounds.first - 1e-3 || slice.end > bounds.second + 1e-3)
      continue;
    if (!programOf.count(slice.rank)) {
      error = "--report-trace: rank " + std::to_string(slice.rank) +
              " is not one of this program";
      return nullptr;
    }
    const simulate::Program &program =
        prediction.job.programs[programOf[slice.rank]];
    bool computes = slice.kind == simulate::Span::Kind::Compute;
    if (!computes && (slice.site < 0 || static_cast<size_t>(slice.site) >=
                                            program.issues.size())) {
      error = "--report-trace: site " + std::to_string(slice.site) +
              " is not one of this program; the trace is of another one";
      return nullptr;
    }
    auto at = [&](double micros) {
      return static_cast<int64_t>(std::llround((micros - bounds.first) * 1e3));
    };
    Rows &rows = ranks[slice.rank];
    json::Array row = span(static_cast<int>(slice.kind), at(slice.begin),
                           at(slice.end), slice.site, false);
    if (slice.kind == simulate::Span::Kind::Transfer)
      rows.lanes[slice.lane].push_back(std::move(row));
    else
      rows.host.push_back(std::move(row));
  }
  json::Array list;
  for (auto &[rank, rows] : ranks)
    list.push_back(json::Object{{"rank", rank},
                                {"program", programOf[rank]},
                                {"host", std::move(rows.host)},
                                {"lanes", rows.takeLanes()}});
  return json::Object{{"step", step},
                      {"seconds", (bounds.second - bounds.first) * 1e-6},
                      {"ranks", std::move(list)}};
}

/// Buffers of collectives of several programs, and where each has them.
static json::Array communicatedOf(ModuleOp module) {
  json::Array list;
  bool proven = true;
  FailureOr<std::vector<SharedIssue>> shared = sharedIssues(module, proven);
  if (failed(shared) || !proven)
    return list;
  SmallVector<StringRef> names;
  for (auto program : module.getOps<comm::ProgramOp>())
    names.push_back(program.getSymName());
  for (const SharedIssue &issue : *shared) {
    comm::CollectiveOpInterface first = issue.parts.front().op;
    auto said = first->getAttrOfType<DenseBoolArrayAttr>(kSymmetric);
    for (size_t i = 0; said && i < static_cast<size_t>(said.size()); ++i) {
      json::Array offsets;
      for (const SharedIssue::Part &part : issue.parts) {
        SmallVector<Value> buffers = issueBuffers(part.op);
        std::optional<int64_t> offset;
        if (i < buffers.size())
          offset = arenaOffset(buffers[i]);
        offsets.push_back(
            json::Array{names[part.program], offset.value_or(-1)});
      }
      list.push_back(
          json::Object{{"where", describeLocation(first->getLoc())},
                       {"domain", first.getCollectiveDomain().getValue()},
                       {"buffer", static_cast<int64_t>(i)},
                       {"symmetric", said[static_cast<int64_t>(i)]},
                       {"offsets", std::move(offsets)}});
    }
  }
  return list;
}

static json::Object memoryOf(ModuleOp module) {
  for (auto arena : module.getOps<comm::ArenaOp>()) {
    json::Array buffers;
    int64_t events = 0;
    for (size_t i = 0; i < arena.getOffsets().size(); ++i) {
      buffers.push_back(json::Array{arena.getOffsets()[i], arena.getSizes()[i],
                                    arena.getFirst()[i], arena.getLast()[i]});
      events = std::max(events, arena.getLast()[i] + 1);
    }
    return json::Object{
        {"planned", true},
        {"size", static_cast<int64_t>(arena.getSize())},
        {"lowerBound", static_cast<int64_t>(arena.getLowerBound())},
        {"events", events},
        {"buffers", std::move(buffers)},
        {"communicated", communicatedOf(module)}};
  }
  // Tensors from where they are made to their last use.
  std::map<int64_t, double> change;
  int64_t events = 0;
  for (func::FuncOp function : entryFunctions(module)) {
    if (function.isExternal())
      continue;
    Block &block = function.getBody().front();
    llvm::DenseMap<Operation *, int64_t> positions;
    for (Operation &op : block)
      positions[&op] = events++;
    for (Operation &op : block)
      for (Value result : op.getResults()) {
        double bytes = typeBytes(result.getType());
        if (bytes <= 0 || isa<comm::WeightOp>(op))
          continue;
        int64_t last = positions[&op];
        for (Operation *user : result.getUsers())
          if (Operation *top = block.findAncestorOpInBlock(*user))
            last = std::max(last, positions[top]);
        change[positions[&op]] += bytes;
        change[last + 1] -= bytes;
      }
  }
  // The most of each of 2,000 parts of the program.
  constexpr int64_t kPoints = 2000;
  json::Array live;
  double now = 0, peak = 0, most = 0;
  int64_t part = -1;
  auto flush = [&]() {
    if (part >= 0)
      live.push_back(json::Array{part * std::max<int64_t>(1, events / kPoints),
                                 static_cast<int64_t>(most)});
  };
  for (auto [at, bytes] : change) {
    int64_t next = at / std::max<int64_t>(1, events / kPoints);
    if (next != part) {
      flush();
      part = next;
      most = now;
    }
    now += bytes;
    most = std::max(most, now);
    peak = std::max(peak, now);
  }
  flush();
  return json::Object{{"planned", false},
                      {"peak", static_cast<int64_t>(peak)},
                      {"events", events},
                      {"live", std::move(live)}};
}

std::string makeReport(ModuleOp module, const Prediction &prediction,
                       ArrayRef<Explanation> explanations, StringRef trace,
                       std::string &error) {
  const simulate::Job &job = prediction.job;
  const simulate::Result &result = prediction.result;
  json::Object data;
  auto name = module->getAttrOfType<StringAttr>("comm.name");
  data["name"] = text(name ? name.getValue() : "program");
  data["world"] = job.world;
  data["machine"] =
      text(prediction.machine.name + " (" + prediction.machine.source + ")");
  data["validated"] = text(simulate::validatedRange(prediction.machine));
  data["timedWait"] = result.timedWait;
  data["seconds"] = result.seconds;
  data["criticalCompute"] = result.criticalCompute;
  data["criticalComm"] = result.criticalComm;
  double compute = 0;
  for (const simulate::RankClass &one : result.classes)
    if (one.seconds >= result.seconds)
      compute = one.compute;
  data["compute"] = compute;
  json::Array notes;
  for (const std::string &note : job.notes)
    notes.push_back(text(note));
  data["notes"] = std::move(notes);
  data["certificate"] = nullptr;
  for (auto certificate : module.getOps<comm::CertificateOp>())
    data["certificate"] = text(certificate.getBy());
  json::Array domains;
  for (auto [domain, load] : llvm::zip(job.domains, result.domains)) {
    size_t ranks = 0;
    for (const auto &group : domain.groups)
      ranks = std::max(ranks, group.size());
    domains.push_back(
        json::Object{{"name", text(domain.name)},
                     {"priority", domain.priority},
                     {"groups", static_cast<int64_t>(domain.groups.size())},
                     {"ranks", static_cast<int64_t>(ranks)},
                     {"issues", static_cast<int64_t>(load.issues)},
                     {"busy", load.busy},
                     {"exposed", load.exposed},
                     {"queue", load.exposedQueue}});
  }
  data["domains"] = std::move(domains);
  json::Array links;
  for (const simulate::LinkLoad &load : result.links)
    links.push_back(json::Object{{"level", text(load.level)},
                                 {"blocks", load.blocks},
                                 {"capacity", load.capacity},
                                 {"busiest", load.busiest},
                                 {"mean", load.mean},
                                 {"utilisation", load.utilisation}});
  data["links"] = std::move(links);
  json::Array programs;
  for (const simulate::Program &program : job.programs) {
    json::Array issues, names;
    for (const simulate::Issue &issue : program.issues) {
      auto [kind, location] = StringRef(issue.name).split(' ');
      issues.push_back(json::Object{{"kind", kind},
                                    {"domain", issue.domain},
                                    {"bytes", issue.bytes},
                                    {"lane", issue.lane},
                                    {"synchronous", issue.synchronous},
                                    {"location", text(location)}});
    }
    for (const std::string &one : program.names)
      names.push_back(text(one));
    programs.push_back(json::Object{{"name", text(program.name)},
                                    {"issues", std::move(issues)},
                                    {"names", std::move(names)}});
  }
  data["programs"] = std::move(programs);
  data["classes"] = predictedClasses(prediction);
  data["measured"] = trace.empty() ? json::Value(nullptr)
                                   : measuredRanks(prediction, trace, error);
  if (!error.empty())
    return "";
  data["memory"] = memoryOf(module);
  json::Array decisions;
  for (const Explanation &one : explanations)
    decisions.push_back(json::Object{{"pass", text(one.pass)},
                                     {"action", text(one.action)},
                                     {"location", text(one.location)},
                                     {"reason", text(one.reason)},
                                     {"keys", text(one.keys)}});
  data["decisions"] = std::move(decisions);
  std::vector<const simulate::Span *> critical;
  for (const simulate::Span &one : result.spans)
    if (one.critical)
      critical.push_back(&one);
  llvm::stable_sort(critical, [](const auto *a, const auto *b) {
    return a->begin < b->begin;
  });
  json::Array path;
  for (const simulate::Span *one : critical) {
    const simulate::RankClass &owner = result.classes[one->rankClass];
    const simulate::Program &program = job.programs[owner.program];
    path.push_back(
        json::Object{{"what", text(one->kind == simulate::Span::Kind::Compute
                                       ? program.names[one->index]
                                       : program.issues[one->index].name)},
                     {"rank", owner.ranks.front()},
                     {"begin", nanoseconds(one->begin)},
                     {"end", nanoseconds(one->end)}});
  }
  data["path"] = std::move(path);

  std::string serialized;
  llvm::raw_string_ostream os(serialized);
  os << json::Value(std::move(data));
  // Inside a script element nothing may look like markup.
  std::string escaped;
  escaped.reserve(serialized.size());
  for (char c : serialized) {
    if (c == '<')
      escaped += "\\u003c";
    else
      escaped += c;
  }
  auto [before, after] = StringRef(kPage).split("%DATA%");
  return (before + escaped + after).str();
}

} // namespace concord
