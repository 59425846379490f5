//===- main.cpp - One rank of a compiled program --------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `concord-rank JOB.json`: joins the job that the environment names, loads the
// program, runs its steps and writes outputs, statistics and trace. A launcher
// (comm-run) starts it once per rank; alone it is a job of one rank. JobFile.h
// has the formats. Exit code 0, or 1 with one line on standard error.
//
//===----------------------------------------------------------------------===//

#include "JobFile.h"
#include "concord/concord.h"
#include "concord/launch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <string_view>
#include <sys/resource.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <utility>

using namespace concord::tools;
using nlohmann::json;

namespace {

int64_t now() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

/// Call a function of a library that may be loaded before this program and
/// counts calls of the memory functions; nothing happens when there is none.
void callMarker(const char *name) {
  if (void *function = ::dlsym(RTLD_DEFAULT, name))
    reinterpret_cast<void (*)()>(function)();
}

struct StatusError : std::runtime_error {
  StatusError(int32_t status, const std::string &text)
      : std::runtime_error(text), status(status) {}
  int32_t status;
};

/// True for errors that peers learn of by themselves, with better words than an
/// abort would have.
bool peersKnow(int32_t status) {
  switch (status) {
  case CONCORD_ERROR_PEER_DIED:
  case CONCORD_ERROR_PEER_LEFT:
  case CONCORD_ERROR_MISMATCH:
  case CONCORD_ERROR_TIMEOUT:
  case CONCORD_ERROR_BROKEN:
  case CONCORD_ERROR_REVOKED:
  case CONCORD_ERROR_ABORTED:
    return true;
  default:
    return false;
  }
}

void check(int32_t status) {
  if (status != CONCORD_OK)
    throw StatusError(status, std::string(concord_status_name(status)) + ": " +
                                  concord_last_error());
}

/// Steps and issues of one issuer, in memory that is there before the first
/// step. Each issuer has a thread.
class Trace {
public:
  struct Event {
    uint32_t step, site;
    int64_t begin, returned, waited, completed;
  };

  void reserve(uint64_t events, uint32_t sites) {
    list.assign(events, Event{});
    open.assign(sites, ~uint64_t(0));
  }
  void add(uint32_t site, int32_t phase, int64_t time) {
    if (!recording || site >= open.size())
      return;
    if (phase == 0) {
      open[site] = ~uint64_t(0);
      if (used < list.size()) {
        open[site] = used;
        list[used++] = {step, site, time, time, -1, time};
      }
      return;
    }
    if (open[site] == ~uint64_t(0))
      return;
    Event &event = list[open[site]];
    if (phase == 3) {
      event.waited = time;
      return;
    }
    event.completed = time;
    if (phase == 1)
      event.returned = time;
  }
  /// `steps`: number, begin and end of each. Times count from `zero`.
  json written(const std::string &program, int64_t zero,
               const std::vector<std::array<int64_t, 3>> &steps) const {
    json events = json::array(), times = json::array();
    for (uint64_t i = 0; i < used; ++i) {
      const Event &e = list[i];
      events.push_back({e.step, e.site, e.begin - zero, e.returned - zero,
                        e.waited < 0 ? -1 : e.waited - zero,
                        e.completed - zero});
    }
    for (const auto &[number, begin, end] : steps)
      times.push_back({number, begin - zero, end - zero});
    return {{"program", program},
            {"steps", std::move(times)},
            {"events", std::move(events)}};
  }
  /// Durations by site, ns.
  json durations() const {
    json all = json::object();
    for (uint64_t i = 0; i < used; ++i)
      all[std::to_string(list[i].site)].push_back(list[i].completed -
                                                  list[i].begin);
    return all;
  }
  static void callback(void *, uint32_t site, int32_t phase, int64_t time) {
    if (current)
      current->add(site, phase, time);
  }

  static thread_local Trace *current;
  bool recording = false;
  uint32_t step = 0;

private:
  std::vector<Event> list;
  std::vector<uint64_t> open; ///< per site, its last event
  uint64_t used = 0;
};
thread_local Trace *Trace::current = nullptr;

struct Memory {
  uint64_t rss = 0, pss = 0, peers = 0;
};

/// Resident memory from /proc/self/smaps; mappings of the job's memory file
/// that lie in peers' heaps are told by their place in it.
Memory measureMemory(int rank, int world) {
  Memory memory;
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  // The job's file has control data first and then one heap per rank; every
  // heap is a mapping of its own, in order.
  int heap = -2;
  bool job = false;
  while (std::getline(maps, line)) {
    uint64_t from, to, value;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " ", &from, &to) ==
        2) {
      job = line.find("concord-job") != std::string::npos ||
            line.find("/concord-") != std::string::npos;
      if (job)
        ++heap;
    } else if (std::sscanf(line.c_str(), "Rss: %" SCNu64, &value) == 1) {
      memory.rss += value * 1024;
      if (job && heap >= 0 && heap < world && heap != rank)
        memory.peers += value * 1024;
    } else if (std::sscanf(line.c_str(), "Pss: %" SCNu64, &value) == 1) {
      memory.pss += value * 1024;
    }
  }
  return memory;
}

class Runner {
public:
  explicit Runner(const JobFile &job) : job(job) {}
  ~Runner() {
    lastRound.store(true);
    for (Issuer &issuer : issuers)
      if (issuer.thread.joinable())
        issuer.thread.join();
    concord_program_unload(program);
    concord_context_finalize(context);
  }
  void run();
  int rank() const { return ownRank; }

private:
  /// An input or output: of which issuer's program, and its number.
  struct Place {
    concord_program *program;
    uint32_t index;
  };
  Place find(bool input, const std::string &name);
  concord_entry entry(bool input, Place place);
  void load();
  void findIssuers();
  void startIssuers();
  void finishIssuers();
  void askForSlots(uint64_t step);
  void runIssuer(size_t number, uint64_t steps);
  /// The times of a health check are those of a trace.
  bool traces() const { return !job.traceFile.empty() || job.health; }
  /// The number of a step among the measured ones, -1 where it is not traced.
  int64_t tracedNumber(uint64_t step) const {
    bool traced = traces() && step >= job.warmup &&
                  (job.traceSteps == 0 || step - job.warmup < job.traceSteps);
    return traced ? int64_t(step - job.warmup) : -1;
  }
  void steps();
  std::string statistics();
  std::string traceText();
  void write();
  void give(const std::string &data);
  std::vector<char> take(int32_t rank);
  void unload();
  void gather();

  const JobFile &job;
  concord_context *context = nullptr;
  concord_program *program = nullptr;
  concord_comm *world = nullptr;
  /// The other issuers of this rank, each with a thread.
  struct Issuer {
    std::string name;
    concord_program *program = nullptr;
    bool optionalOnly = false; ///< steps in rounds that use a slot of it
    std::string error;
    int32_t status = CONCORD_OK;
    uint64_t steps = 0;
    std::thread thread;
    Trace trace;
    std::vector<std::array<int64_t, 3>> times; ///< of the recorded steps
  };
  std::deque<Issuer> issuers;
  /// The measured step that is traced now; -1 for none.
  std::atomic<int64_t> tracedStep{-1};
  std::string mainIssuer;
  std::atomic<bool> lastRound{false};
  std::mt19937_64 random{0}; ///< of the steps that use slots
  int32_t ownRank = -1, ranks = 1;
  int64_t loadTime = 0, zero = 0;
  bool grows = false; ///< a state's size may change from step to step
  std::vector<int64_t> begins, ends;
  long minorFaults = 0;
  Trace trace;
};

concord_entry Runner::entry(bool input, Place place) {
  concord_entry value{};
  value.struct_size = sizeof value;
  check(input ? concord_program_input(place.program, place.index, &value)
              : concord_program_output(place.program, place.index, &value));
  return value;
}

Runner::Place Runner::find(bool input, const std::string &name) {
  std::vector<concord_program *> programs = {program};
  for (const Issuer &issuer : issuers)
    programs.push_back(issuer.program);
  std::string known;
  for (concord_program *each : programs) {
    uint32_t count = 0;
    check(input ? concord_program_num_inputs(each, &count)
                : concord_program_num_outputs(each, &count));
    for (uint32_t i = 0; i < count; ++i) {
      std::string candidate = entry(input, {each, i}).name;
      if (candidate == name)
        return {each, i};
      known += (known.empty() ? "" : ", ") + candidate;
    }
  }
  throw std::runtime_error(job.program + " has no " +
                           (input ? "input" : "output") + " '" + name +
                           "'; it has: " + known);
}

/// The programs of the rank's other issuers, by the artefact's metadata.
void Runner::findIssuers() {
  concord_program_info info{};
  info.struct_size = sizeof info;
  check(concord_program_info_query(program, &info));
  json meta = json::parse(info.meta_json);
  for (const json &each : meta.value("programs", json::array())) {
    const json &ranks = each.at("ranks");
    if (!ranks.empty() &&
        std::find(ranks.begin(), ranks.end(), ownRank) == ranks.end())
      continue;
    std::string name = each.at("name");
    concord_program *found = nullptr;
    check(concord_program_issuer(program, name.c_str(), &found));
    if (found == program) {
      mainIssuer = name;
      continue;
    }
    Issuer &issuer = issuers.emplace_back();
    issuer.name = name;
    issuer.program = found;
    // One that issues in every round does not wait for slots.
    uint64_t round = 0, bits = 0;
    issuer.optionalOnly = concord_slot_wait(context, name.c_str(), 0, &round,
                                            &bits) == CONCORD_ERROR_NOT_READY;
  }
}

/// What a thread of an issuer does, to the end of the last round.
void Runner::runIssuer(size_t number, uint64_t steps) {
  Issuer &self = issuers[number];
  auto failed = [&](int32_t status) {
    if (status == CONCORD_OK)
      return false;
    self.status = status;
    self.error = std::string(concord_status_name(status)) + " in step " +
                 std::to_string(self.steps) + " of '" + self.name +
                 "': " + concord_last_error();
    return true;
  };
  if (failed(concord_issuer_attach(context, self.name.c_str())))
    return;
  Trace::current = &self.trace;
  // Its own count where it steps in every round; else the round that is running
  // on the measured thread.
  auto step = [&](int64_t number) {
    self.trace.recording = number >= 0;
    self.trace.step = uint32_t(number);
    int64_t begin = now();
    int32_t status = concord_program_step(self.program);
    if (self.trace.recording && self.times.size() < self.times.capacity())
      self.times.push_back({number, begin, now()});
    return status;
  };
  if (!self.optionalOnly) {
    for (; self.steps < steps; ++self.steps)
      if (failed(step(tracedNumber(self.steps))))
        return;
  } else {
    for (;;) {
      // Asked before the wait: what the last round uses is known by then.
      bool last = lastRound.load();
      uint64_t round = 0, bits = 0;
      int32_t status = concord_slot_wait(context, self.name.c_str(),
                                         last ? 0 : 0.05, &round, &bits);
      if (status == CONCORD_ERROR_NOT_READY) {
        if (last)
          break;
        continue;
      }
      if (failed(status) || failed(step(tracedStep.load())))
        return;
      ++self.steps;
    }
  }
  failed(concord_issuer_leave(context, self.name.c_str()));
}

void Runner::startIssuers() {
  if (!job.severalIssuers)
    return;
  uint64_t steps = job.warmup + job.repeat;
  check(concord_issuer_attach(context, mainIssuer.c_str()));
  for (size_t i = 0; i < issuers.size(); ++i)
    issuers[i].thread = std::thread([this, i, steps] { runIssuer(i, steps); });
}

/// A slot is used in the round after it was asked for, on the rank that
/// decides; elsewhere asking is an error, which says no more than that.
void Runner::askForSlots(uint64_t step) {
  bool ask = std::uniform_real_distribution<double>(0, 1)(random) < job.slots;
  if (!ask || step + 1 == job.warmup + job.repeat)
    return;
  for (const Issuer &issuer : issuers)
    if (issuer.optionalOnly)
      (void)concord_slot_request(context, issuer.name.c_str(), 0);
}

void Runner::finishIssuers() {
  lastRound.store(true);
  for (Issuer &issuer : issuers)
    if (issuer.thread.joinable())
      issuer.thread.join();
  for (const Issuer &issuer : issuers)
    if (issuer.status != CONCORD_OK)
      throw StatusError(issuer.status, issuer.error);
}

void Runner::load() {
  concord_context_config config{};
  config.struct_size = sizeof config;
  // Each issuer of a rank has a thread.
  if (job.severalIssuers)
    config.thread_level = CONCORD_THREAD_MULTIPLE;
  check(concord_context_create(&config, &context));
  check(concord_context_rank(context, &ownRank, &ranks));
  check(concord_comm_world(context, &world));
  concord_program_options options{};
  options.struct_size = sizeof options;
  if (traces()) {
    options.trace = Trace::callback;
  }
  int64_t start = now();
  check(concord_program_load(context, job.program.c_str(), &options, &program));
  loadTime = now() - start;
  if (job.severalIssuers)
    findIssuers();
  // First, because it may give a state that grows another buffer.
  for (const auto &[input, output] : job.state) {
    Place in = find(true, input), out = find(false, output);
    if (in.program != out.program)
      throw std::runtime_error("state " + input + "=" + output +
                               ": they belong to two issuers");
    check(concord_program_bind_state(in.program, in.index, out.index));
  }
  for (const TensorFile &input : job.inputs) {
    Place place = find(true, input.name);
    void *data = nullptr;
    check(concord_program_input_data(place.program, place.index, &data));
    // Shapes are the largest ones until they are bound.
    readTensor(input.file, data, entry(true, place).local_bytes,
               !input.shape.empty());
  }
  for (const TensorFile &input : job.inputs)
    if (!input.shape.empty()) {
      Place place = find(true, input.name);
      check(concord_program_bind_shape(place.program, place.index,
                                       input.shape.data(),
                                       uint32_t(input.shape.size())));
    }
  check(concord_program_prepare(program));
  for (const Issuer &issuer : issuers)
    check(concord_program_prepare(issuer.program));
  for (const TensorFile &output : job.outputs)
    find(false, output.name);
  uint32_t dims = 0;
  check(concord_program_num_dims(program, &dims));
  grows = dims && !job.state.empty();
}

void Runner::steps() {
  begins.assign(job.repeat, 0);
  ends.assign(job.repeat, 0);
  if (traces()) {
    uint64_t traced =
        job.traceSteps ? std::min(job.traceSteps, job.repeat) : job.repeat;
    // Loops issue a site several times a step; a bound keeps memory bounded.
    auto reserve = [&](concord_program *of, Trace &where) {
      concord_program_info info{};
      info.struct_size = sizeof info;
      check(concord_program_info_query(of, &info));
      where.reserve(
          std::min<uint64_t>(traced * info.num_sites * 4 + 64, 1 << 20),
          info.num_sites);
    };
    reserve(program, trace);
    for (Issuer &issuer : issuers) {
      reserve(issuer.program, issuer.trace);
      issuer.times.reserve(traced);
    }
  }
  Trace::current = &trace;
  uint64_t total = job.warmup + job.repeat;
  rusage before{}, after{};
  // Under hold only what is planned is issued; loading was a meeting as well.
  if (!job.severalIssuers)
    check(concord_barrier(world, nullptr));
  if (job.gathers)
    zero = now();
  startIssuers();
  for (uint64_t i = 0; i < total; ++i) {
    askForSlots(i);
    if (i == 1) {
      ::getrusage(RUSAGE_SELF, &before);
      callMarker("concord_memcount_begin");
    }
    uint64_t measured = i - job.warmup; // huge during warm-up
    tracedStep.store(tracedNumber(i));
    trace.recording = tracedStep.load() >= 0;
    trace.step = uint32_t(measured);
    if (grows) {
      // What a new size needs is made between steps, not within one.
      if (i > 0) // counting has begun
        callMarker("concord_memcount_pause");
      check(concord_program_prepare(program));
      if (i > 0) // counting has begun
        callMarker("concord_memcount_resume");
    }
    int64_t begin = now();
    int32_t status = concord_program_step(program);
    int64_t end = now();
    if (status != CONCORD_OK) {
      // Generated code may hand a kernel's status on without any words.
      std::string words = concord_last_error();
      // The other issuers hear of it through the gate.
      lastRound.store(true);
      for (Issuer &issuer : issuers)
        if (issuer.thread.joinable())
          issuer.thread.join();
      throw StatusError(
          status,
          std::string(concord_status_name(status)) + " in step " +
              std::to_string(i) + ": " +
              (words == "no error" ? concord_status_text(status, 0) : words));
    }
    if (i >= job.warmup) {
      begins[measured] = begin;
      ends[measured] = end;
    }
  }
  if (job.severalIssuers) {
    // The one that decides the rounds leaves last.
    finishIssuers();
    check(concord_issuer_leave(context, mainIssuer.c_str()));
  }
  if (total > 1) {
    callMarker("concord_memcount_end");
    ::getrusage(RUSAGE_SELF, &after);
    minorFaults = after.ru_minflt - before.ru_minflt;
  }
}

std::string Runner::statistics() {
  concord_program_info info{};
  info.struct_size = sizeof info;
  check(concord_program_info_query(program, &info));
  Memory memory = measureMemory(ownRank, ranks);
  std::vector<concord_rank_entry> table(size_t(ranks), concord_rank_entry{});
  for (concord_rank_entry &each : table)
    each.struct_size = sizeof each;
  check(concord_context_rank_table(context, table.data(), uint32_t(ranks)));
  json stats = {{"rank", ownRank},
                {"world", ranks},
                {"host", table[size_t(ownRank)].host},
                {"program", info.name},
                {"digest", info.digest},
                {"pid", ::getpid()},
                {"load_ns", loadTime},
                {"minor_faults", minorFaults},
                {"arena_bytes", info.arena_bytes},
                {"weight_bytes", info.weight_bytes},
                {"rss_bytes", memory.rss},
                {"pss_bytes", memory.pss},
                {"heap_peers_rss_bytes", memory.peers}};
  json &times = stats["step_ns"] = json::array();
  for (size_t i = 0; i < begins.size(); ++i)
    times.push_back(ends[i] - begins[i]);
  if (job.severalIssuers) {
    json &others = stats["issuers"] = json::object();
    others[mainIssuer] = job.warmup + job.repeat;
    for (const Issuer &issuer : issuers) {
      others[issuer.name] = issuer.steps;
      if (job.health && issuer.name == "health_program")
        stats["health_ns"] = issuer.trace.durations();
    }
  }
  return stats.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string Runner::traceText() {
  json root = {{"rank", ownRank}, {"world", ranks}};
  json &list = root["issuers"] = json::array();
  auto nameOf = [](concord_program *of) {
    concord_program_info info{};
    info.struct_size = sizeof info;
    check(concord_program_info_query(of, &info));
    return std::string(info.name);
  };
  std::vector<std::array<int64_t, 3>> times;
  for (size_t i = 0; i < begins.size(); ++i)
    times.push_back({int64_t(i), begins[i], ends[i]});
  list.push_back(trace.written(nameOf(program), zero, times));
  for (const Issuer &issuer : issuers)
    list.push_back(
        issuer.trace.written(nameOf(issuer.program), zero, issuer.times));
  return root.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

void Runner::write() {
  if (job.gathers && ownRank != 0)
    return gather();
  auto writeText = [](const std::string &file, const std::string &text) {
    writeWhole(file, text.data(), text.size());
  };
  for (const TensorFile &output : job.outputs) {
    Place place = find(false, output.name);
    void *data = nullptr;
    check(concord_program_output_data(place.program, place.index, &data));
    writeWhole(output.file, data, entry(false, place).local_bytes);
  }
  if (!job.statsFile.empty())
    writeText(job.statsFile, statistics());
  if (!job.traceFile.empty())
    writeText(job.traceFile, traceText());
  if (job.gathers)
    gather();
}

void Runner::give(const std::string &data) {
  uint64_t bytes = data.size();
  check(concord_send(world, &bytes, 1, CONCORD_DTYPE_U64, 0, nullptr));
  if (bytes)
    check(
        concord_send(world, data.data(), bytes, CONCORD_DTYPE_U8, 0, nullptr));
}

std::vector<char> Runner::take(int32_t rank) {
  uint64_t bytes = 0;
  check(concord_recv(world, &bytes, 1, CONCORD_DTYPE_U64, rank, nullptr));
  std::vector<char> data(bytes);
  if (bytes)
    check(concord_recv(world, data.data(), bytes, CONCORD_DTYPE_U8, rank,
                       nullptr));
  return data;
}

/// Under hold only what the program has planned is issued; its results are
/// taken, so it can go.
void Runner::unload() {
  issuers.clear();
  check(concord_program_unload(std::exchange(program, nullptr)));
}

/// To rank 0, in the order in which it has the files: outputs, statistics,
/// trace.
void Runner::gather() {
  if (ownRank != 0) {
    std::vector<std::string> results;
    for (const TensorFile &output : job.outputs) {
      Place place = find(false, output.name);
      void *data = nullptr;
      check(concord_program_output_data(place.program, place.index, &data));
      results.emplace_back(static_cast<const char *>(data),
                           entry(false, place).local_bytes);
    }
    if (!job.statsFile.empty())
      results.push_back(statistics());
    if (!job.traceFile.empty())
      results.push_back(traceText());
    unload();
    for (const std::string &each : results)
      give(each);
    return;
  }
  unload();
  for (int32_t rank = 1; rank < ranks && size_t(rank) < job.ranks.size();
       ++rank) {
    auto receive = [&](const std::string &file) {
      std::vector<char> data = take(rank);
      writeWhole(file, data.data(), data.size());
    };
    const RankFiles &files = job.ranks[size_t(rank)];
    for (const TensorFile &output : files.outputs)
      receive(output.file);
    if (!files.statsFile.empty())
      receive(files.statsFile);
    if (!files.traceFile.empty())
      receive(files.traceFile);
  }
}

void Runner::run() {
  try {
    load();
    steps();
    write();
  } catch (const StatusError &error) {
    if (context && !peersKnow(error.status))
      concord_context_abort(context, error.what());
    throw;
  } catch (const std::exception &error) {
    if (context)
      concord_context_abort(context, error.what());
    throw;
  }
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 2 || argv[1][0] == '-') {
    std::fprintf(stderr,
                 "usage: concord-rank JOB.json\n"
                 "One rank of a compiled program; comm-run starts it.\n");
    return argc == 2 && std::strcmp(argv[1], "--help") == 0 ? 0 : 2;
  }
  int rank = -1;
  try {
    JobFile job = readJobFile(argv[1]);
    Runner runner(job);
    try {
      runner.run();
    } catch (...) {
      rank = runner.rank();
      throw;
    }
  } catch (const std::exception &error) {
    if (rank >= 0)
      std::fprintf(stderr, "concord-rank: rank %d: %s\n", rank, error.what());
    else
      std::fprintf(stderr, "concord-rank: %s\n", error.what());
    std::string_view text = error.what();
    bool consequence = text.find("CONCORD_ERROR_ABORTED") != text.npos ||
                       text.find("CONCORD_ERROR_PEER_DIED") != text.npos;
    return consequence ? CONCORD_EXIT_CONSEQUENCE : 1;
  }
  return 0;
}
