//===- Job.cpp - Collecting the evidence of one job -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Finds out what each file is by its content, reads dumps on several threads,
// and maps logs instead of loading them.
//
//===----------------------------------------------------------------------===//

#include "concord/order/Evidence.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace concord::order::evidence {

namespace fs = std::filesystem;

uint32_t Strings::id(std::string_view text) {
  auto it = ids.find(text);
  if (it != ids.end())
    return it->second;
  it = ids.emplace(std::string(text), uint32_t(list.size())).first;
  list.push_back(&it->first);
  return it->second;
}

uint32_t Job::domainId(const std::string &name,
                       const std::vector<Rank> &members,
                       const std::string &description) {
  auto [it, fresh] =
      domainIds.try_emplace({name, members}, uint32_t(domains.size()));
  if (fresh)
    domains.push_back({name, description, members});
  return it->second;
}

uint32_t Job::sequenceId(uint32_t domain, bool transfer, Rank source,
                         Rank destination) {
  auto [it, fresh] = sequenceIds.try_emplace(
      {domain, transfer, source, destination}, uint32_t(sequences.size()));
  if (fresh)
    sequences.push_back({transfer, domain, source, destination});
  return it->second;
}

std::string Job::sequenceName(uint32_t s) const {
  const Sequence &q = sequences[s];
  const Domain &d = domains[q.domain];
  std::string out = d.name;
  if (!d.description.empty() && d.description != d.name &&
      d.description != "undefined")
    out += "(" + d.description + ")";
  if (q.transfer)
    out += q.source < 0 ? ":?"
                        : ":" + std::to_string(q.source) + "->" +
                              std::to_string(q.destination);
  return out;
}

Rank rankOfPath(const std::string &path) {
  fs::path p(path);
  auto last = [](std::string text) -> Rank {
    size_t end = text.find_last_of("0123456789");
    if (end == std::string::npos)
      return -1;
    size_t begin = end;
    while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9')
      --begin;
    Rank v = -1;
    auto [e, ec] =
        std::from_chars(text.data() + begin, text.data() + end + 1, v);
    return ec == std::errc() ? v : -1;
  };
  std::string name = p.filename().string();
  // Cut what is an extension by its letters: "dump_3.json", but not "dump.3".
  size_t dot = name.find('.');
  while (dot != std::string::npos && dot + 1 < name.size() &&
         name[dot + 1] >= '0' && name[dot + 1] <= '9')
    dot = name.find('.', dot + 1);
  Rank r = last(name.substr(0, dot));
  for (fs::path folder = p.parent_path();
       r < 0 && !folder.empty() && folder != folder.parent_path();
       folder = folder.parent_path()) {
    std::string part = folder.filename().string();
    if (part.find("rank") != std::string::npos ||
        part.find("device") != std::string::npos ||
        part.find("worker") != std::string::npos)
      r = last(part);
  }
  return r;
}

Format detect(std::string_view head, std::string_view path) {
  if (path.size() > 5 && path.substr(path.size() - 5) == ".case")
    return Format::Case;
  if (head.substr(0, 4) == std::string_view("\x7f"
                                            "ELF",
                                            4))
    return Format::Elf;
  if (isIssueLog(head))
    return Format::IssueLog;
  if (!head.empty() && uint8_t(head[0]) == 0x80)
    return Format::FlightRecorderPickle;
  size_t first = head.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && head[first] == '{') {
    auto has = [&](std::string_view s) {
      return head.find(s) != std::string_view::npos;
    };
    if (has("\"server_list\"") || has("\"rank_list\"") ||
        has("\"server_count\"") || has("\"rank_count\""))
      return Format::RankTable;
    if (has("\"entries\"") || has("\"pg_config\"") || has("\"pg_status\"") ||
        has("\"comm_lib_version\""))
      return Format::FlightRecorderJson;
    return Format::Unknown;
  }
  auto has = [&](std::string_view s) {
    return head.find(s) != std::string_view::npos;
  };
  if (has("Entry-Hccl") || has("HCCL(") || has("EI0002") || has("E39999"))
    return Format::HcclLog;
  return looksLikeStack(head) ? Format::Stack : Format::Unknown;
}

namespace {

/// A file mapped read-only.
class Mapping {
public:
  ~Mapping() {
    if (data != MAP_FAILED && size)
      munmap(data, size);
  }
  bool open(const std::string &path, uint64_t limit, std::string &error) {
    int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
      error = "cannot be opened";
      return false;
    }
    struct stat st{};
    bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    if (!ok)
      error = "is no regular file";
    else if (uint64_t(st.st_size) > limit) {
      error = "is larger than " + std::to_string(limit >> 20) + " MiB";
      ok = false;
    } else if (st.st_size > 0) {
      size = size_t(st.st_size);
      data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
      if (data == MAP_FAILED) {
        error = "cannot be mapped";
        ok = false;
        size = 0;
      } else
        madvise(data, size, MADV_SEQUENTIAL);
    }
    if (ok)
      plain = plainText(view());
    close(fd);
    return ok;
  }
  /// What there is to read: plain text where the file is another kind of text.
  std::string_view view() const {
    if (plain)
      return *plain;
    return size ? std::string_view(static_cast<const char *>(data), size)
                : std::string_view();
  }

private:
  void *data = MAP_FAILED;
  size_t size = 0;
  std::optional<std::string> plain;
};

/// Move what one file gave into the job; ids are translated.
void merge(Job &into, Job &&part) {
  std::vector<uint32_t> domains, sequences, strings(part.strings.size(), kNone);
  auto text = [&](uint32_t id) {
    if (id == kNone)
      return kNone;
    if (strings[id] == kNone)
      strings[id] = into.strings.id(part.strings[id]);
    return strings[id];
  };
  for (const Domain &d : part.domains)
    domains.push_back(into.domainId(d.name, d.members, d.description));
  for (const Sequence &s : part.sequences)
    sequences.push_back(into.sequenceId(domains[s.domain], s.transfer, s.source,
                                        s.destination));
  for (auto &[rank, evidence] : part.ranks) {
    RankEvidence &own = into.ranks[rank];
    for (Issue &i : evidence.issues) {
      i.sequence = sequences[i.sequence];
      i.signature = text(i.signature);
      i.kind = text(i.kind);
      i.stream = text(i.stream);
      i.thread = text(i.thread);
      i.file = text(i.file);
      i.where = text(i.where);
    }
    if (own.present && evidence.present)
      into.notes.push_back("rank " + std::to_string(rank) + " has two dumps (" +
                           own.files.front() + ", " + evidence.files.front() +
                           "); the first one is used");
    else if (evidence.present) {
      own.issues = std::move(evidence.issues);
      own.present = true;
      own.truncatedStart = evidence.truncatedStart;
      own.truncatedEnd = evidence.truncatedEnd;
    }
    own.files.insert(own.files.end(), evidence.files.begin(),
                     evidence.files.end());
    own.waits.insert(own.waits.end(), evidence.waits.begin(),
                     evidence.waits.end());
  }
  into.haveFlightRecorder = into.haveFlightRecorder || part.haveFlightRecorder;
  into.haveIssueLogs = into.haveIssueLogs || part.haveIssueLogs;
  into.nothingMoves = into.nothingMoves || part.nothingMoves;
  into.haveStacks = into.haveStacks || part.haveStacks;
  into.haveRankTable = into.haveRankTable || part.haveRankTable;
  into.linesUnderstood += part.linesUnderstood;
  into.linesNotUnderstood += part.linesNotUnderstood;
  into.linesOther += part.linesOther;
  for (std::string &s : part.examplesNotUnderstood)
    if (into.examplesNotUnderstood.size() < 8)
      into.examplesNotUnderstood.push_back(std::move(s));
  for (std::string &s : part.notes)
    into.notes.push_back(std::move(s));
  for (Finding &f : part.tableFindings)
    into.tableFindings.push_back(std::move(f));
}

/// A dump that was cut off before its list of groups names them only. Where one
/// group of that name in the other ranks' dumps has this rank, it is that one.
void adoptMembers(Job &job) {
  for (auto &[rank, evidence] : job.ranks)
    for (Issue &i : evidence.issues) {
      const Sequence q = job.sequences[i.sequence];
      if (q.transfer || !job.domains[q.domain].members.empty())
        continue;
      uint32_t found = kNone;
      size_t count = 0;
      for (uint32_t d = 0; d < job.domains.size(); ++d) {
        const std::vector<Rank> &members = job.domains[d].members;
        if (job.domains[d].name == job.domains[q.domain].name &&
            std::find(members.begin(), members.end(), rank) != members.end()) {
          found = d;
          ++count;
        }
      }
      if (count == 1)
        i.sequence = job.sequenceId(found, false);
    }
}

} // namespace

/// What has packed a file that begins so; null for none.
static const char *packer(std::string_view text) {
  using namespace std::string_view_literals;
  static constexpr struct {
    std::string_view magic;
    const char *name;
  } kPackers[] = {{"\x1f\x8b"sv, "gzip"},
                  {"\x28\xb5\x2f\xfd"sv, "zstd"},
                  {"\xfd\x37zXZ\0"sv, "xz"},
                  {"BZh"sv, "bzip2"},
                  {"PK\3\4"sv, "zip"}};
  for (const auto &[magic, name] : kPackers)
    if (text.starts_with(magic))
      return name;
  return nullptr;
}

Job readEvidence(const std::vector<std::string> &paths,
                 const ReadOptions &options, std::vector<ReadError> &errors) {
  std::vector<std::string> files;
  std::vector<bool> named; // given on the command line, not found in a folder
  for (const std::string &path : paths) {
    std::error_code ec;
    if (!fs::is_directory(path, ec)) {
      files.push_back(path);
      named.push_back(true);
      continue;
    }
    fs::recursive_directory_iterator it(
        path, fs::directory_options::skip_permission_denied, ec),
        end;
    if (ec) {
      errors.push_back({path, "cannot be listed"});
      continue;
    }
    std::vector<std::string> found;
    for (; it != end; it.increment(ec)) {
      if (ec)
        break;
      if (it->is_regular_file(ec) && !it->is_symlink(ec))
        found.push_back(it->path().string());
      if (found.size() > 1000000)
        break;
    }
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
    named.resize(files.size(), false);
  }
  Job job;
  std::vector<std::shared_ptr<Mapping>> maps(files.size()), kept;
  std::vector<std::pair<std::string, std::string_view>> logs, outputs;
  struct Task {
    size_t file;
    Format format;
  };
  std::vector<Task> tasks;
  size_t leftOut = 0;
  std::string firstLeftOut;
  for (size_t i = 0; i < files.size(); ++i) {
    auto map = std::make_shared<Mapping>();
    std::string error;
    if (!map->open(files[i], options.maxFileBytes, error)) {
      errors.push_back({files[i], error});
      continue;
    }
    std::string_view text = map->view();
    Format format = detect(text.substr(0, 65536), files[i]);
    // Logs may begin with pages of something else.
    if (format == Format::Unknown && !text.empty() && text[0] != '{' &&
        text.find("Entry-Hccl") != std::string_view::npos)
      format = Format::HcclLog;
    // A job's output ends with the stack.
    if (format == Format::Unknown && text.size() > 65536 && text[0] != '{' &&
        looksLikeStack(text.substr(text.size() - 65536)))
      format = Format::Stack;
    if (format == Format::Unknown && !text.empty() && text[0] == '{')
      format = Format::FlightRecorderJson; // keys may come in any order
    ++job.filesRead;
    job.bytesRead += text.size();
    // A job's output may hold both, mixed.
    if ((format == Format::Unknown || format == Format::Stack) &&
        (looksLikeNcclLog(text) || looksLikeLauncherOutput(text))) {
      outputs.emplace_back(files[i], text);
      kept.push_back(map);
      if (format == Format::Unknown)
        format = Format::NcclLog;
    }
    switch (format) {
    case Format::NcclLog:
      break;
    case Format::HcclLog:
      logs.emplace_back(files[i], text);
      maps[i] = std::move(map);
      break;
    case Format::FlightRecorderJson:
    case Format::FlightRecorderPickle:
    case Format::RankTable:
    case Format::IssueLog:
    case Format::Stack:
      tasks.push_back({i, format});
      maps[i] = std::move(map);
      break;
    default:
      // A rotated log, most likely: without it the verdict may be another.
      if (const char *how = packer(text))
        errors.push_back({files[i], std::string("is packed (") + how +
                                        "): unpack it, then give it again"});
      else if (named[i])
        errors.push_back(
            {files[i], text.empty()
                           ? "is empty"
                           : "is no evidence that comm-doctor knows: "
                             "Flight Recorder dumps, logs of HCCL or NCCL, "
                             "Concord's issue logs, stacks, tracebacks, "
                             "rank tables"});
      else if (leftOut++ == 0)
        firstLeftOut = files[i];
    }
  }
  if (leftOut)
    job.notes.push_back(
        firstLeftOut +
        (leftOut > 1 ? " and " + std::to_string(leftOut - 1) + " more files"
                     : "") +
        ": not evidence, left out");
  std::vector<Job> parts(tasks.size());
  std::vector<std::string> taskErrors(tasks.size());
  std::atomic<size_t> next{0}, merged{0};
  std::mutex mutex;
  std::vector<bool> ready(tasks.size(), false);
  auto work = [&] {
    for (size_t t; (t = next.fetch_add(1)) < tasks.size();) {
      const std::string &path = files[tasks[t].file];
      std::string_view text = maps[tasks[t].file]->view();
      Rank rank = rankOfPath(path);
      try {
        switch (tasks[t].format) {
        case Format::RankTable:
          readRankTable(text, path, parts[t], taskErrors[t]);
          break;
        case Format::IssueLog:
          readIssueLog(text, path, parts[t], taskErrors[t]);
          break;
        case Format::Stack:
          readStack(text, path, rank, parts[t]);
          break;
        default:
          readFlightRecorder(text, path, rank, parts[t], taskErrors[t]);
        }
      } catch (const std::exception &e) {
        taskErrors[t] = e.what();
      }
      maps[tasks[t].file].reset(); // the text is not needed any more
      // Merge in file order, so that the result does not depend on timing; the
      // parts in memory are few.
      std::lock_guard<std::mutex> lock(mutex);
      ready[t] = true;
      while (merged < tasks.size() && ready[merged]) {
        size_t m = merged++;
        if (taskErrors[m].empty())
          merge(job, std::move(parts[m]));
        parts[m] = Job();
      }
    }
  };
  unsigned threads = options.threads
                         ? options.threads
                         : std::max(1u, std::thread::hardware_concurrency());
  threads =
      unsigned(std::min<size_t>(threads, std::max<size_t>(1, tasks.size())));
  std::vector<std::thread> pool;
  for (unsigned k = 1; k < threads; ++k)
    pool.emplace_back(work);
  work();
  for (std::thread &t : pool)
    t.join();
  for (size_t t = 0; t < tasks.size(); ++t)
    if (!taskErrors[t].empty())
      errors.push_back({files[tasks[t].file], taskErrors[t]});
  adoptMembers(job);
  if (!logs.empty())
    readHcclLogs(logs, job);
  for (const auto &[path, text] : outputs)
    readLauncherOutput(text, path, job);
  if (!outputs.empty())
    readNcclLogs(outputs, job);
  return job;
}

} // namespace concord::order::evidence
