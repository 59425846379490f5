//===- Hosts.cpp - A job on several hosts ---------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bring-up between hosts: the module's own start, versions, who is where, and
// what each rank has written into its slot.
//
//===----------------------------------------------------------------------===//

#include "transport/Hosts.h"
#include "diagnosis/Error.h"
#include "diagnosis/Watchdog.h"

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

using namespace concord::rt;

namespace {

struct Library {
  const char *word; ///< of CONCORD_MPI
  const char *name;
  const char *packages;
};
constexpr Library kLibraries[] = {
    {"openmpi", "Open MPI", "openmpi-bin libopenmpi-dev"},
    {"mpich", "MPICH", "mpich libmpich-dev"},
};

constexpr uint64_t kRecordMagic = 0x54534f48434e4f43; // "CONCHOST"

/// First of all, so that records of different versions never meet.
struct Version {
  uint64_t magic = kRecordMagic;
  uint32_t abi = CONCORD_ABI_VERSION, version = kLibraryVersion;
};

struct Record {
  char identity[256] = {};
  char name[64] = {};
  char boot[48] = {};
  MeshAddress address;
};

/// For the slots of other hosts.
struct Mirror {
  int64_t pid = 0;
  RankFacts facts = {};
};

std::string readLine(const char *path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

uint64_t namespaceOf(const char *path) {
  struct stat info;
  return ::stat(path, &info) == 0 ? info.st_ino : 0;
}

std::string libraryFolder() {
  Dl_info info;
  if (!::dladdr(reinterpret_cast<void *>(&concord_version), &info) ||
      !info.dli_fname)
    return ".";
  std::string path = info.dli_fname;
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

const Library &chooseLibrary(const LaunchedRank &launched) {
  static constexpr const char *kWords[] = {"auto", "openmpi", "mpich"};
  std::string word = kWords[envWord("CONCORD_MPI")];
  if (word == "auto")
    word = launched.launcher;
  for (const Library &library : kLibraries)
    if (word == library.word)
      return library;
  raise(CONCORD_ERROR_NOT_SUPPORTED,
        "%s started %d ranks on several hosts; between hosts Concord uses MPI, "
        "and %s",
        launched.launcher.c_str(), launched.world,
        launched.launcher == "slurm"
            ? "srun can start either library: set CONCORD_MPI=openmpi or mpich "
              "(and give srun the --mpi that fits)"
            : "it starts none: start the ranks with mpirun, or with srun and "
              "CONCORD_MPI");
}

const concord_transport *loadModule(const Library &library) {
  std::string file =
      libraryFolder() + "/libconcord_mpi_" + library.word + ".so";
  if (::access(file.c_str(), R_OK) != 0)
    raise(CONCORD_ERROR_NOT_FOUND,
          "the ranks of this job are on several hosts, which takes Concord's "
          "module for %s, and %s is not there: this Concord was built without "
          "%s. apt install %s, then configure and build again",
          library.name, file.c_str(), library.name, library.packages);
  // Open MPI's own components look for its symbols among the global ones.
  void *handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!handle) {
    const char *why = ::dlerror();
    raise(CONCORD_ERROR_NOT_FOUND,
          "Concord's module for %s cannot be loaded: %s. apt install %s",
          library.name, why ? why : "?", library.packages);
  }
  auto entry = reinterpret_cast<concord_transport_entry>(
      ::dlsym(handle, CONCORD_TRANSPORT_SYMBOL));
  const concord_transport *module = entry ? entry() : nullptr;
  if (!module || module->abi != CONCORD_TRANSPORT_ABI ||
      module->struct_size != sizeof(concord_transport))
    raise(CONCORD_ERROR_VERSION_MISMATCH,
          "%s belongs to another version of Concord: build again",
          file.c_str());
  return module;
}

} // namespace

std::string concord::rt::hostName() {
  if (std::string given = envText("CONCORD_HOST_ID"); !given.empty())
    return given;
  char name[64] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string concord::rt::hostIdentity() {
  if (std::string given = envText("CONCORD_HOST_ID"); !given.empty())
    return "given " + given;
  char name[64] = {};
  ::gethostname(name, sizeof name - 1);
  // Memory is handed over on an abstract socket, which lives in the network's
  // namespace, and peers are watched by their pid.
  return std::string(name) + " " + readLine("/proc/sys/kernel/random/boot_id") +
         " " + std::to_string(ownPidNamespace()) + " " +
         std::to_string(namespaceOf("/proc/self/ns/net"));
}

void Hosts::await(concord_transport_request &request, const char *what,
                  int64_t deadline) {
  useconds_t pause = 10;
  for (;;) {
    int32_t result = module->test(&request, nullptr);
    if (result == CONCORD_TRANSPORT_DONE)
      return;
    if (result == CONCORD_TRANSPORT_FAILED)
      raise(CONCORD_ERROR_SYSTEM, "rank %d, %s: %s", rank, what,
            module->error());
    if (nowNanoseconds() > deadline) {
      module->abandon(&request, 0);
      raise(CONCORD_ERROR_TIMEOUT,
            "rank %d, %s: not all ranks have come in time "
            "(CONCORD_CONNECT_TIMEOUT)",
            rank, what);
    }
    ::usleep(pause);
    pause = std::min<useconds_t>(pause * 2, 2000);
  }
}

Hosts::Hosts(const Context &context, const LaunchedRank &launched,
             double seconds)
    : job(launched.job), rank(launched.rank), world(launched.world),
      hostOf(size_t(launched.world)) {
  int64_t deadline = nowNanoseconds() + int64_t(seconds * 1e9);
  const concord_job *within = context.job;
  const char *library = "the process";
  if (within) {
    module = within->transport;
  } else {
    const Library &chosen = chooseLibrary(launched);
    library = chosen.name;
    module = loadModule(chosen);
  }
  char text[512] = "";
  int32_t moduleRank = -1, moduleWorld = 0;
  if (module->open(&moduleRank, &moduleWorld, text, sizeof text) != 0)
    raise(CONCORD_ERROR_SYSTEM, "rank %d: %s could not be started: %s", rank,
          library, text);
  words = text;
  if (moduleWorld != world)
    raise(CONCORD_ERROR_MISMATCH,
          "%s started %d ranks, but %s sees %d: the ranks were started by the "
          "mpirun of another MPI; set CONCORD_MPI to the right one",
          launched.launcher.c_str(), world, words.c_str(), moduleWorld);
  if (moduleRank != rank)
    raise(CONCORD_ERROR_MISMATCH,
          "%s says that this is rank %d, %s that it is rank %d",
          launched.launcher.c_str(), rank, words.c_str(), moduleRank);
  highestTag = module->max_tag();

  auto exchange = [&](const auto &mine, auto &all, const char *what) {
    all.resize(size_t(world));
    concord_transport_request request = 0;
    if (module->exchange(&mine, all.data(), sizeof mine, &request) != 0)
      raise(CONCORD_ERROR_SYSTEM, "rank %d, %s: %s", rank, what,
            module->error());
    await(request, what, deadline);
  };
  std::vector<Version> versions;
  exchange(Version(), versions, "comparing versions");
  for (int r = 0; r < world; ++r) {
    const Version &other = versions[size_t(r)];
    if (other.magic != kRecordMagic || other.abi != CONCORD_ABI_VERSION ||
        other.version != kLibraryVersion)
      raise(CONCORD_ERROR_VERSION_MISMATCH,
            "rank %d has version number %u of Concord, ABI %u; rank %d has %u, "
            "ABI %d",
            r, other.version, other.abi, rank, kLibraryVersion,
            CONCORD_ABI_VERSION);
  }
  net = std::make_unique<Mesh>(rank, world, envText("CONCORD_IFNAME"),
                               context.log);
  Record mine;
  identity = within ? within->host : hostIdentity();
  std::strncpy(mine.identity, identity.c_str(), sizeof mine.identity - 1);
  std::strncpy(mine.name, (within ? identity : hostName()).c_str(),
               sizeof mine.name - 1);
  std::strncpy(mine.boot, readLine("/proc/sys/kernel/random/boot_id").c_str(),
               sizeof mine.boot - 1);
  mine.address = net->address();
  std::vector<Record> records;
  exchange(mine, records, "finding the hosts");
  std::vector<std::string> identities;
  for (int r = 0; r < world; ++r) {
    Record &other = records[size_t(r)];
    other.identity[sizeof other.identity - 1] = 0;
    other.name[sizeof other.name - 1] = 0;
    auto found =
        std::find(identities.begin(), identities.end(), other.identity);
    hostOf[size_t(r)] = int(found - identities.begin());
    if (found == identities.end()) {
      identities.push_back(other.identity);
      // Containers of one machine may bear the same name.
      std::string name = other.name;
      auto same = std::count(names.begin(), names.end(), name);
      names.push_back(same ? name + "#" + std::to_string(same + 1) : name);
    }
    addresses.push_back(other.address);
    everywhere |= uint64_t(1) << r;
    onMachine += std::memcmp(other.boot, mine.boot, sizeof mine.boot) == 0;
  }
  for (int r = 0; r < world; ++r)
    if (hostOf[size_t(r)] == hostOf[size_t(rank)]) {
      local.push_back(r);
      here |= uint64_t(1) << r;
    }
}

Hosts::~Hosts() {
  net.reset();
  if (module)
    module->close(orderly);
}

std::string Hosts::meetingName() const { return job + "\nhost\n" + identity; }

void Hosts::mirror(Context &context, double seconds) {
  int64_t deadline = nowNanoseconds() + int64_t(seconds * 1e9);
  Segment &segment = *context.segment;
  auto look = [&] { segment.throwIfAborted(" during bring-up"); };
  const RankSlot &slot = segment.slot(rank);
  Mirror mine;
  mine.pid = slot.pid.load();
  mine.facts = slot;
  std::vector<Mirror> all(static_cast<size_t>(world));
  concord_transport_request request = 0;
  if (module->exchange(&mine, all.data(), sizeof mine, &request) != 0)
    raise(CONCORD_ERROR_SYSTEM, "rank %d, telling the ranks' devices: %s", rank,
          module->error());
  await(request, "telling the ranks' devices", deadline);
  if (rank == local.front())
    for (int r = 0; r < world; ++r) {
      if (isLocal(r))
        continue;
      const Mirror &other = all[size_t(r)];
      RankSlot &copy = segment.slot(r);
      copy.pid.store(other.pid);
      static_cast<RankFacts &>(copy) = other.facts;
      copy.pidNamespace = slot.pidNamespace; // checked within a host only
      copy.state.store(CONCORD_RANK_RUNNING, std::memory_order_release);
    }
  net->connect(remoteMask(), addresses, deadline,
               envSeconds("CONCORD_HOST_TIMEOUT"), look);
}

/// The flags of a communicator in this host's memory; null when no rank here
/// has made it yet.
static CommHeader *findComm(const Segment &segment, uint64_t key) {
  CommEntry *table = segment.comms();
  for (unsigned i = 0; i < kMaxComms; ++i)
    if (std::atomic_ref(table[i].key).load(std::memory_order_acquire) == key &&
        table[i].holds(sizeof(CommHeader)))
      return reinterpret_cast<CommHeader *>(segment.commArea() +
                                            table[i].offset);
  return nullptr;
}

void Hosts::note(Context &context, const Notice &notice) {
  Segment &segment = *context.segment;
  switch (notice.kind) {
  case Notice::Kind::Tag: {
    std::lock_guard lock(mutex);
    heard[notice.key].tags.emplace_back(notice.rank, notice.value);
    return;
  }
  case Notice::Kind::Broken:
  case Notice::Kind::Revoked: {
    std::lock_guard lock(mutex);
    uint64_t cause = BrokenWord{notice.status, int(notice.value), notice.died,
                                uint16_t(notice.sequence)}
                         .pack();
    if (CommHeader *comm = findComm(segment, notice.key)) {
      uint64_t none = 0;
      if (notice.kind == Notice::Kind::Revoked)
        comm->revoked.store(1, std::memory_order_release);
      else
        comm->broken.compare_exchange_strong(none, cause);
    } else if (notice.kind == Notice::Kind::Revoked) {
      heard[notice.key].revoked = true;
    } else {
      heard[notice.key].broken = cause;
    }
    break;
  }
  case Notice::Kind::Aborted: {
    char reason[sizeof notice.text + 1] = {};
    std::memcpy(reason, notice.text, sizeof notice.text);
    segment.recordAbort(notice.rank, reason);
    return;
  }
  case Notice::Kind::Issuer:
    if (notice.value < kMaxIssuers)
      segment.slot(notice.rank)
          .issuers[notice.value]
          .store(uint32_t(notice.status), std::memory_order_release);
    return;
  case Notice::Kind::Goodbye: {
    goodbyes[size_t(notice.rank)].store(nowNanoseconds(),
                                        std::memory_order_release);
    RankSlot &slot = segment.slot(notice.rank);
    if (slot.state.load() != CONCORD_RANK_ABORTED)
      slot.state.store(CONCORD_RANK_FINALIZED, std::memory_order_release);
    break;
  }
  default:
    return;
  }
  segment.announce();
}

uint32_t Hosts::peerTag(uint64_t key, int peer) {
  std::lock_guard lock(mutex);
  auto found = heard.find(key);
  if (found != heard.end())
    for (auto [who, tag] : found->second.tags)
      if (who == peer)
        return tag;
  return 0;
}

void Hosts::carryOver(uint64_t key, CommHeader &header) {
  std::lock_guard lock(mutex);
  auto found = heard.find(key);
  if (found == heard.end())
    return;
  uint64_t none = 0;
  if (found->second.broken)
    header.broken.compare_exchange_strong(none, found->second.broken);
  if (found->second.revoked)
    header.revoked.store(1, std::memory_order_release);
}

void Hosts::forget(uint64_t key) {
  std::lock_guard lock(mutex);
  heard.erase(key);
}
