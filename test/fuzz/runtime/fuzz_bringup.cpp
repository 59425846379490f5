//===- fuzz_bringup.cpp - Fuzz target: what bring-up and loading read -----===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The first byte chooses the reader: greetings at the socket where ranks meet,
// rank tables, device descriptions, lists of visible devices, the head of a
// job's memory file, CONCORD_ALGORITHM on one host and on several,
// CONCORD_LINK, a calibration as the runtime takes it, values of variables,
// variables of launchers, a file of weights.
//
//===----------------------------------------------------------------------===//

#include "../Fuzz.h"
#include "algorithms/Rounds.h"
#include "algorithms/Score.h"
#include "bootstrap/Launcher.h"
#include "bootstrap/Rendezvous.h"
#include "context/Env.h"
#include "diagnosis/Error.h"
#include "heap/Segment.h"
#include "program/Weights.h"
#include "topology/RankTable.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <unistd.h>

using namespace concord;
using namespace concord::rt;

namespace {

constexpr int64_t kSender = 42; ///< pid of who greets

[[noreturn]] void wrong(const char *what) {
  std::fprintf(stderr, "fuzz_bringup: %s\n", what);
  std::abort();
}

bool greet(std::string_view packet) {
  std::vector<int64_t> taken = {1, 0, 7};
  Judgement judgement =
      judgeGreeting(packet.data(), packet.size(), JobKey(), kSender, taken);
  if (judgement.kind != Judgement::Kind::Welcome)
    return false;
  if (packet.size() != sizeof(Greeting) || judgement.greeting.rank != 1)
    wrong("a greeting was let in");
  return true;
}

/// `bytes` over the head of a good file. Its first byte: the file's length.
bool openMemory(std::string_view bytes) {
  std::shared_ptr<Segment> made = Segment::create(2, kHugePage);
  int fd = ::dup(made->fd());
  if (bytes.size() > 1 &&
      ::pwrite(fd, bytes.data() + 1,
               std::min(bytes.size() - 1, sizeof(JobHeader)), 0) < 0)
    wrong("pwrite");
  if (!bytes.empty() && bytes[0] != '=' &&
      ::ftruncate(fd, off_t(uint8_t(bytes[0])) << 20) != 0)
    wrong("ftruncate");
  std::shared_ptr<Segment> opened = Segment::open(fd);
  if (opened->world() < 1 || opened->world() > kMaxRanks)
    wrong("a world of impossible size");
  return true;
}

/// NAME=VALUE lines.
bool readVariables(const std::string &text) {
  std::map<std::string, std::string> variables;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    size_t sign = std::min(line.find('='), line.size());
    std::string value = line.substr(std::min(sign + 1, line.size()));
    // As a process has them.
    value.resize(std::min(value.find('\0'), value.size()));
    variables[line.substr(0, sign)] = value;
  }
  bool fits = false;
  for (const auto &[name, value] : variables)
    if (const concord_variable *variable = findVariable(name.c_str()))
      fits |= checkValue(*variable, value.c_str()).empty();
  auto lookup = [&](const char *name) -> const char * {
    auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  auto found = findLauncher("auto", lookup, [] { return std::string("1@2"); });
  if (found && (found->rank < 0 || found->rank >= found->world ||
                found->world > kMaxRanks))
    wrong("an impossible rank");
  return fits || found;
}

bool openWeights(std::string_view bytes) {
  fuzz::MemoryFile file(bytes);
  Weights weights;
  weights.open(file.path());
  for (int rank : {0, 1})
    if (const Weights::Section *section = weights.find("w", rank)) {
      const auto *data =
          static_cast<const volatile char *>(weights.map(*section, false));
      for (uint64_t i = 0; i < section->bytes; i += 512)
        (void)data[i];
    }
  return true;
}

bool read(char reader, const std::string &text) {
  switch (reader) {
  case '0':
    return greet(text);
  case '1':
    parseRankTable(text, "table");
    return true;
  case '2':
    parseDevices(text, "devices");
    return true;
  case '3':
    parseVisible(text, "V");
    return true;
  case '4':
    return openMemory(text);
  case '5':
    parseScores(text, /*severalHosts=*/false);
    return true;
  case '9':
    parseScores(text, /*severalHosts=*/true);
    return true;
  case 'a':
    parseLink(text);
    return true;
  case '6': {
    fuzz::MemoryFile file(text);
    for (const Score &score : measuredScores(file.path(), "latency"))
      if (score.from >= score.to)
        wrong("an empty range");
    return true;
  }
  case '7':
    return readVariables(text);
  case '8':
    return openWeights(text);
  default:
    return false;
  }
}

} // namespace

std::vector<std::string> fuzz::seeds() {
  Greeting greeting;
  greeting.abi = CONCORD_ABI_VERSION;
  greeting.version = kLibraryVersion;
  greeting.world = 3;
  greeting.rank = 1;
  greeting.pid = kSender;
  // Section w begins on a page: 8 + 200 + 3888.
  std::string weights =
      R"({"__metadata__":{"w#*":"00"},"w#*":{"dtype":"F32","shape":[4],)"
      R"("data_offsets":[3888,3904]},"__pad#0":{"dtype":"U8",)"
      R"("shape":[3888],"data_offsets":[0,3888]}})";
  weights.resize(200, ' ');
  weights =
      std::string("\xc8\0\0\0\0\0\0\0", 8) + weights + std::string(3904, 'w');
  return {
      "0" + std::string(reinterpret_cast<char *>(&greeting), sizeof greeting),
      R"(1{"version":"1.0","server_count":"1","status":"completed",)"
      R"("server_list":[{"server_id":"a","device":[)"
      R"({"device_id":"0","device_ip":"1.2.3.4","rank_id":"0"},)"
      R"({"device_id":"1","device_ip":"1.2.3.5","rank_id":"1"}]}]})",
      R"(1{"version":"2.0","rank_count":1,"rank_list":[{"rank_id":0,)"
      R"("device_id":3,"local_id":0,"level_list":[{"net_layer":0,)"
      R"("net_instance_id":"rack0","net_type":"CLOS","rank_addr_list":[)"
      R"({"addr_type":"IPV4","addr":"10.0.0.1","ports":["0/0"],)"
      R"("plane_id":"a"}]}]}]})",
      R"(2{"devices":[{"physical_id":0,"kind":"cpu","plane":0,"alignment":64,)"
      R"("bandwidth":1e10},{"physical_id":3}]})",
      "30,1,4-7",
      "4=",
      "5all_reduce:0-4k:flat;4k-inf:direct;all_gather:1m-2g:staged",
      R"(6{"concord_calibration":1,"forms":[{"form":"flat",)"
      R"("objective":"latency","kind":"all_reduce","ranks":2,"segments":)"
      R"([{"alpha_us":1,"beta_ns_per_byte":1}]},{"form":"direct",)"
      R"("objective":"latency","kind":"all_reduce","ranks":2,"segments":)"
      R"([{"up_to_bytes":512,"alpha_us":2,"beta_ns_per_byte":0.1},)"
      R"({"alpha_us":3,"beta_ns_per_byte":0.1}]}]})",
      "7CONCORD_HEAP_BYTES=16G\nCONCORD_TIMEOUT=1.5\nCONCORD_LOG=info\n"
      "CONCORD_RANK=3\nRANK=1\nWORLD_SIZE=4\nLOCAL_RANK=1\n"
      "MASTER_PORT=29500\n",
      "7OMPI_COMM_WORLD_RANK=0\nOMPI_COMM_WORLD_SIZE=2\n"
      "OMPI_COMM_WORLD_LOCAL_SIZE=1\nPMIX_NAMESPACE=a\n",
      "7SLURM_PROCID=1\nSLURM_STEP_NUM_TASKS=2\nSLURM_STEP_ID=0\n"
      "SLURM_STEP_NUM_NODES=2\nSLURM_LOCALID=0\n",
      "7PMI_RANK=1\nPMI_SIZE=2\nMPI_LOCALNRANKS=2\n",
      "9all_reduce:0-64k:recursive;64k-inf:ring",
      "a30us,10gbit",
      "8" + weights};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  try {
    if (read(char(data[0]),
             std::string(reinterpret_cast<const char *>(data + 1), size - 1)))
      fuzz::accept();
  } catch (const Error &error) {
    fuzz::refuse(error.what());
  }
  return 0;
}
