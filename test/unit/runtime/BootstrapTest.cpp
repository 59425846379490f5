//===- BootstrapTest.cpp - Launchers, meeting, tables, devices ------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What happens before all ranks have joined: who the environment says a rank
// is, strangers at the socket where ranks meet, rank tables that are a little
// wrong, devices that do not agree.
//
//===----------------------------------------------------------------------===//

#include "bootstrap/Launcher.h"
#include "bootstrap/Rendezvous.h"
#include "context/Env.h"
#include "diagnosis/Error.h"
#include "heap/Segment.h"
#include "topology/RankTable.h"

#include <atomic>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

using namespace concord::rt;

namespace {

/// Status and words of what is thrown; OK when nothing is.
std::pair<int32_t, std::string> thrown(const std::function<void()> &body) {
  try {
    body();
  } catch (const Error &error) {
    return {error.status, error.text};
  }
  return {CONCORD_OK, ""};
}

void expectThrown(int32_t status, const std::string &words,
                  const std::function<void()> &body) {
  auto [got, text] = thrown(body);
  EXPECT_EQ(got, status) << text;
  EXPECT_NE(text.find(words), std::string::npos)
      << "got: " << text << "\nwanted: " << words;
}

using Variables = std::map<std::string, std::string>;

std::optional<LaunchedRank> find(const std::string &wanted,
                                 const Variables &variables) {
  return findLauncher(
      wanted,
      [&](const char *name) -> const char * {
        auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      [] { return std::string("starter"); });
}

const Variables kTorchrun = {{"RANK", "1"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "host"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RUN_ID", "none"}};

Variables with(Variables variables, const Variables &more) {
  for (const auto &[name, value] : more)
    variables[name] = value;
  return variables;
}

struct Socket {
  int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  explicit Socket(const JobKey &key) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::string name =
        "concord/" + std::to_string(::geteuid()) + "/" + key.hex();
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    EXPECT_EQ(
        ::connect(fd, reinterpret_cast<sockaddr *>(&address),
                  socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
        0)
        << std::strerror(errno);
  }
  ~Socket() { ::close(fd); }
  void send(const void *data, size_t bytes) const {
    EXPECT_EQ(::send(fd, data, bytes, MSG_NOSIGNAL), ssize_t(bytes));
  }
  /// The answer's status; -1 when the connection was closed without one.
  int32_t answer(std::string *text = nullptr) const {
    Answer got;
    if (::recv(fd, &got, sizeof got, 0) != sizeof got)
      return -1;
    if (text)
      *text = got.text;
    return got.status;
  }
};

struct LeaderTest : ::testing::Test {
  void SetUp() override {
    ASSERT_EQ(concord_unique_id_create(&id), CONCORD_OK);
    key = JobKey::of(id);
    segment = Segment::create(3, 1 << 21);
  }
  Greeting greeting(int rank) const {
    Greeting value;
    value.abi = CONCORD_ABI_VERSION;
    value.version = kLibraryVersion;
    value.world = 3;
    value.rank = rank;
    value.pid = ::getpid();
    std::memcpy(value.key, key.bytes, sizeof value.key);
    return value;
  }
  concord_unique_id id;
  JobKey key;
  std::shared_ptr<Segment> segment;
  Log log;
};

const char kTable[] = R"({"version":"1.0","status":"completed",
  "server_count":"1","server_list":[{"server_id":"10.0.0.1","device":[
  {"device_id":"4","device_ip":"192.168.1.8","rank_id":"0"},
  {"device_id":"5","device_ip":"192.168.1.9","rank_id":"1"}]}]})";

const char kTable2[] = R"({"version":"2.0","rank_count":2,"rank_list":[
  {"rank_id":1,"device_id":3,"local_id":1,"level_list":[{"net_layer":0,
   "net_instance_id":"rack0","net_type":"TOPO_FILE_DESC","net_attr":"",
   "rank_addr_list":[{"addr_type":"EID","addr":"000000000000002000100000dfdf1234",
   "ports":["0/0"],"plane_id":"p0"}]}]},
  {"rank_id":0,"device_id":2,"local_id":0,"level_list":[{"net_layer":0,
   "net_instance_id":"rack0","net_type":"CLOS","rank_addr_list":[
   {"addr_type":"IPV4","addr":"10.0.0.2","ports":["0/1","1/0"]}]}]}]})";

std::string replaced(std::string text, const std::string &from,
                     const std::string &to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

} // namespace

TEST(Launcher, EnvironmentsAreUnderstood) {
  auto torch = find("auto", kTorchrun);
  ASSERT_TRUE(torch);
  EXPECT_EQ(torch->launcher, "torchrun");
  EXPECT_EQ(torch->rank, 1);
  EXPECT_EQ(torch->world, 4);
  EXPECT_EQ(torch->localRank, 1);
  EXPECT_FALSE(torch->severalHosts);
  EXPECT_TRUE(
      find("auto", with(kTorchrun, {{"LOCAL_WORLD_SIZE", "2"}}))->severalHosts);
  // A restart is another job.
  EXPECT_NE(torch->job,
            find("auto", with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}}))
                ->job);

  Variables open = {{"OMPI_COMM_WORLD_RANK", "2"},
                    {"OMPI_COMM_WORLD_SIZE", "3"},
                    {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                    {"PMIX_NAMESPACE", "904658945"}};
  EXPECT_EQ(find("auto", open)->launcher, "openmpi");
  EXPECT_EQ(find("auto", open)->rank, 2);

  Variables mpich = {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}};
  EXPECT_EQ(find("auto", mpich)->launcher, "mpich");
  EXPECT_NE(find("auto", mpich)->job.find("starter"), std::string::npos);

  Variables slurm = {
      {"SLURM_PROCID", "1"},         {"SLURM_STEP_NUM_TASKS", "2"},
      {"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_LOCALID", "1"},
      {"SLURM_JOB_ID", "77"},        {"SLURM_STEP_ID", "0"}};
  EXPECT_EQ(find("auto", slurm)->launcher, "slurm");
  EXPECT_EQ(find("auto", slurm)->localRank, 1);
  EXPECT_FALSE(find("auto", slurm)->severalHosts);
  EXPECT_TRUE(
      find("auto", with(slurm, {{"SLURM_STEP_NUM_NODES", "2"}}))->severalHosts);
  // The script of a batch job is no rank.
  EXPECT_FALSE(find(
      "auto",
      {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "77"}}));
  EXPECT_FALSE(find("auto", {}));
  // Of several, the one that is asked for.
  EXPECT_EQ(find("mpich", with(kTorchrun, mpich))->launcher, "mpich");
}

TEST(Launcher, ContradictionsAreNamed) {
  auto fails = [&](int32_t status, const char *words, const Variables &more,
                   const char *wanted = "auto") {
    expectThrown(status, words, [&] { find(wanted, with(kTorchrun, more)); });
  };
  fails(CONCORD_ERROR_INVALID_ARGUMENT, "RANK=one is not a whole number",
        {{"RANK", "one"}});
  fails(CONCORD_ERROR_INVALID_ARGUMENT,
        "RANK=4 is outside a world of "
        "WORLD_SIZE=4",
        {{"RANK", "4"}});
  fails(CONCORD_ERROR_INVALID_ARGUMENT, "a job has 1 to 64 ranks",
        {{"WORLD_SIZE", "65"}, {"LOCAL_WORLD_SIZE", "65"}});
  fails(CONCORD_ERROR_INVALID_ARGUMENT,
        "CONCORD_LAUNCHER=openmpi, but OMPI_COMM_WORLD_RANK is not set", {},
        "openmpi");
}

TEST(Launcher, TheStartingProcessIsFound) {
  std::string starter = startingProcess();
  EXPECT_NE(starter.find('@'), std::string::npos);
  EXPECT_GT(std::atol(starter.c_str()), 0);
}

TEST_F(LeaderTest, StrangersAreTurnedAwayAndTheRanksStillMeet) {
  Leader leader(key, 3, segment->fd(), log);
  Socket silent(key), noise(key), huge(key), shortOne(key), otherJob(key);
  noise.send("GET / HTTP/1.0\r\n\r\n", 18);
  std::string big(60'000, 'x');
  huge.send(big.data(), big.size());
  Greeting value = greeting(1);
  shortOne.send(&value, 20);
  value.key[3] ^= 1;
  otherJob.send(&value, sizeof value);
  leader.serve(1);
  leader.serve(1);
  for (const Socket *stranger : {&noise, &huge, &shortOne, &otherJob})
    EXPECT_EQ(stranger->answer(), -1);
  // More connections than are kept: the silent ones make room.
  std::vector<std::unique_ptr<Socket>> crowd;
  for (int i = 0; i < 200; ++i) {
    crowd.push_back(std::make_unique<Socket>(key));
    if (i % 50 == 49)
      leader.serve(0);
  }
  std::atomic<int> memory = -1;
  std::thread rank([&] { memory = joinLeader(key, 1, 3, 20); });
  for (int i = 0; i < 1000 && memory < 0; ++i)
    leader.serve(10);
  rank.join();
  ASSERT_GE(memory, 0);
  EXPECT_EQ(Segment::open(memory)->world(), 3);
}

TEST_F(LeaderTest, ARankThatDoesNotFitIsAnswered) {
  auto answered = [&](const Greeting &value, int32_t status, const char *words,
                      bool fatal) {
    Leader leader(key, 3, segment->fd(), log);
    Socket guest(key);
    guest.send(&value, sizeof value);
    auto [code, text] = thrown([&] {
      leader.serve(1);
      leader.serve(1);
    });
    EXPECT_EQ(code, fatal ? status : CONCORD_OK) << text;
    std::string reason;
    EXPECT_EQ(guest.answer(&reason), status);
    EXPECT_NE(reason.find(words), std::string::npos) << reason;
  };
  Greeting value = greeting(1);
  value.abi = 99;
  answered(value, CONCORD_ERROR_VERSION_MISMATCH, "ABI version 99", true);
  value = greeting(1);
  value.version = 7;
  answered(value, CONCORD_ERROR_VERSION_MISMATCH, "version number 7", true);
  value = greeting(1);
  value.world = 4;
  answered(value, CONCORD_ERROR_WRONG_WORLD, "wants a job of 4", true);
  value = greeting(3);
  answered(value, CONCORD_ERROR_INVALID_ARGUMENT, "outside a world", false);
  value = greeting(0);
  answered(value, CONCORD_ERROR_RANK_TAKEN, "rank 0 is already taken", false);
  value = greeting(1);
  value.pid = 1;
  answered(value, CONCORD_ERROR_NOT_SUPPORTED, "pid namespaces", true);
}

TEST_F(LeaderTest, ASecondProcessOfOneRankIsRefused) {
  Leader leader(key, 3, segment->fd(), log);
  Greeting value = greeting(2);
  Socket first(key), second(key);
  first.send(&value, sizeof value);
  leader.serve(1);
  EXPECT_EQ(first.answer(), CONCORD_OK);
  second.send(&value, sizeof value);
  leader.serve(1);
  std::string reason;
  EXPECT_EQ(second.answer(&reason), CONCORD_ERROR_RANK_TAKEN);
  EXPECT_NE(reason.find("rank 2 is already taken by process"),
            std::string::npos);
  // And a second leader.
  expectThrown(CONCORD_ERROR_RANK_TAKEN, "rank 0 is already taken by process",
               [&] { Leader again(key, 3, segment->fd(), log); });
}

TEST_F(LeaderTest, AStaleIdEndsAtTheDeadline) {
  expectThrown(CONCORD_ERROR_TIMEOUT, "a stale id",
               [&] { joinLeader(key, 1, 2, 0.05); });
}

TEST_F(LeaderTest, AGarbageIdIsRefused) {
  concord_unique_id other = id;
  other.bytes[0] = 'x';
  expectThrown(CONCORD_ERROR_INVALID_ARGUMENT, "unique id",
               [&] { JobKey::of(other); });
  other = id;
  other.bytes[100] = 1;
  expectThrown(CONCORD_ERROR_INVALID_ARGUMENT, "unique id",
               [&] { JobKey::of(other); });
}

TEST_F(LeaderTest, AnythingMayBeSentAsAGreeting) {
  std::mt19937 generator(1);
  std::vector<int64_t> taken = {1, 0, 0};
  unsigned welcome = 0;
  for (int i = 0; i < 20'000; ++i) {
    Greeting value = greeting(int(generator() % 5) - 1);
    auto *bytes = reinterpret_cast<unsigned char *>(&value);
    for (unsigned n = generator() % 4; n; --n)
      bytes[generator() % sizeof value] =
          static_cast<unsigned char>(generator());
    size_t length = generator() % 3 ? sizeof value : generator() % 200;
    std::vector<unsigned char> packet(bytes,
                                      bytes + std::min(length, sizeof value));
    packet.resize(length);
    Judgement judgement =
        judgeGreeting(packet.data(), length, key, ::getpid(), taken);
    if (judgement.kind != Judgement::Kind::Welcome)
      continue;
    ++welcome;
    EXPECT_EQ(length, sizeof value);
    EXPECT_TRUE(judgement.greeting.rank == 1 || judgement.greeting.rank == 2);
  }
  EXPECT_GT(welcome, 100u);
}

TEST(RankTables, AllVersionsAreRead) {
  RankTable table = parseRankTable(kTable, "table");
  ASSERT_EQ(table.ranks.size(), 2u);
  EXPECT_EQ(table.ranks[1].device, 5);
  EXPECT_EQ(table.ranks[1].host, "10.0.0.1");
  table = parseRankTable(kTable2, "table");
  ASSERT_EQ(table.ranks.size(), 2u);
  EXPECT_EQ(table.ranks[0].device, 2); // sorted by rank
  std::string pods =
      replaced(replaced(kTable, "\"1.0\"", "\"1.2\""), "\"rank_id\":\"0\"",
               "\"super_device_id\":\"0\",\"rank_id\":\"0\"");
  pods = replaced(pods, "\"rank_id\":\"1\"",
                  "\"super_device_id\":\"1\",\"rank_id\":\"1\"");
  pods = replaced(pods, "\"server_count\"",
                  "\"super_pod_list\":[{\"super_pod_id\":\"0\",\"server_list\":"
                  "[{\"server_id\":\"10.0.0.1\"}]}],\"server_count\"");
  EXPECT_EQ(parseRankTable(pods, "table").version, "1.2");
  expectThrown(CONCORD_ERROR_CORRUPT, "which is not there", [&] {
    parseRankTable(replaced(pods, "[{\"server_id\":\"10.0.0.1\"}]",
                            "[{\"server_id\":\"10.0.0.9\"}]"),
                   "table");
  });
  expectThrown(CONCORD_ERROR_CORRUPT, "has no 'super_device_id'", [&] {
    parseRankTable(replaced(pods, "\"super_device_id\":\"1\",", ""), "table");
  });
}

TEST(RankTables, EveryFieldIsChecked) {
  auto wrong = [](const char *table, const char *from, const char *to,
                  const char *words) {
    expectThrown(CONCORD_ERROR_CORRUPT, words,
                 [&] { parseRankTable(replaced(table, from, to), "t.json"); });
  };
  wrong(kTable, "\"1.0\"", "\"3.0\"", "t.json: version is '3.0'; known are");
  wrong(kTable, "completed", "initializing", "status is 'initializing'");
  wrong(kTable, "\"server_count\":\"1\"", "\"server_count\":\"2\"",
        "server_count is 2, but there are 1 servers");
  wrong(kTable, "\"device_id\":\"5\"", "\"device_id\":\"4\"",
        "gives rank 1 device 4 of host 10.0.0.1, which rank 0 has");
  wrong(kTable, "\"rank_id\":\"1\"", "\"rank_id\":\"0\"",
        "server_list[0].device[1] has rank 0, which "
        "server_list[0].device[0] has already");
  wrong(kTable, "\"rank_id\":\"1\"", "\"rank_id\":\"2\"",
        "has rank 2 in a table of 2 ranks");
  wrong(kTable, "\"rank_id\":\"1\"", "\"rank_id\":1", "rank_id is not a text");
  wrong(kTable, "\"rank_id\":\"1\"", "\"rank_id\":\"-1\"",
        "not a whole number in quotes");
  wrong(kTable, "192.168.1.9", "192.168.1.900", "not an IP address");
  wrong(kTable, "\"device\":", "\"devices\":", "has no 'device'");
  wrong(kTable, "{\"version\"", "[{\"version\"", "is not JSON");
  wrong(kTable2, "\"rank_count\":2", "\"rank_count\":3", "there are 2 ranks");
  wrong(kTable2, "\"net_layer\":0", "\"net_layer\":8", "net_layer is 8");
  wrong(kTable2, "CLOS", "MESH", "not TOPO_FILE_DESC or CLOS");
  wrong(kTable2, "\"1/0\"", "\"1-0\"", "not DIE/PORT");
  wrong(kTable2, "IPV4", "MAC", "not EID, IPV4 or IPV6");
  wrong(kTable2, "\"device_id\":3", "\"device_id\":\"3\"",
        "is not a whole number");
  expectThrown(CONCORD_ERROR_CORRUPT, "nested too deeply",
               [] { parseRankTable(std::string(100'000, '['), "t.json"); });
  expectThrown(CONCORD_ERROR_CORRUPT, "groups of servers",
               [] { parseRankTable("{\"server_group_list\":[]}", "t.json"); });
}

TEST(RankTables, AnyBytesEndInATableOrAnError) {
  std::mt19937 generator(7);
  for (int i = 0; i < 3000; ++i) {
    std::string text = generator() % 2 ? kTable : kTable2;
    for (unsigned n = 1 + generator() % 3; n; --n) {
      size_t at = generator() % text.size();
      if (generator() % 2)
        text[at] = "{}[]\",:09-x"[generator() % 11];
      else
        text.erase(at, generator() % 20);
      if (text.empty())
        break;
    }
    auto [status, words] =
        thrown([&] { EXPECT_FALSE(parseRankTable(text, "t").ranks.empty()); });
    EXPECT_TRUE(status == CONCORD_OK || status == CONCORD_ERROR_CORRUPT)
        << words;
  }
}

TEST(Devices, VisibleListsAreRead) {
  EXPECT_EQ(parseVisible("4,5", "V"), (std::vector<int>{4, 5}));
  EXPECT_EQ(parseVisible("0-2,7", "V"), (std::vector<int>{0, 1, 2, 7}));
  EXPECT_TRUE(parseVisible("", "V").empty());
  for (const char *bad : {"a", "1,,2", "3-1", "1,1", "-1", "1-", "999999"})
    expectThrown(CONCORD_ERROR_INVALID_ARGUMENT,
                 "V=", [&] { parseVisible(bad, "V"); });
}

TEST(Devices, RankVisibleAndPhysicalMustAgree) {
  RankTable table = parseRankTable(kTable, "t");
  EXPECT_EQ(chooseDevice(1, 1, {4, 5}, {}, &table).device.physical, 5);
  EXPECT_EQ(chooseDevice(1, 1, {5}, {}, &table).visible, 0);
  EXPECT_EQ(chooseDevice(1, 1, {}, {}, &table).device.physical, 5);
  EXPECT_EQ(chooseDevice(1, 1, {}, {}, nullptr).device.physical, -1);
  // The mistake of report 2: visible devices set, ranks by physical number.
  expectThrown(CONCORD_ERROR_DEVICE_MAPPING,
               "rank 1: the rank table gives it physical device 5, but its "
               "visible device 1 is physical device 4",
               [&] { chooseDevice(1, 1, {5, 4}, {}, &table); });
  expectThrown(CONCORD_ERROR_DEVICE_MAPPING, "shows 2 devices",
               [&] { chooseDevice(2, 2, {4, 5}, {}, nullptr); });
  std::vector<Device> devices = parseDevices(
      R"({"devices":[{"physical_id":4,"kind":"npu","plane":1,"alignment":512,
          "bandwidth":1e11},{"physical_id":6}]})",
      "d");
  EXPECT_EQ(chooseDevice(0, 0, {4, 5}, devices, nullptr).device.alignment,
            512u);
  expectThrown(CONCORD_ERROR_DEVICE_MAPPING,
               "rank 1 uses physical device 5, which is not described",
               [&] { chooseDevice(1, 1, {4, 5}, devices, nullptr); });
  for (const char *bad :
       {R"({"devices":[]})", R"({"devices":[{"physical_id":0,"alignment":3}]})",
        R"({"devices":[{"physical_id":0},{"physical_id":0}]})",
        R"({"devices":[{"physical_id":0,"bandwidth":-1}]})"})
    expectThrown(CONCORD_ERROR_CORRUPT, "d: ", [&] { parseDevices(bad, "d"); });
}

TEST(Environment, ValuesAreCheckedAgainstTheList) {
  size_t count;
  const concord_variable *variables = concord_variables(&count);
  for (size_t i = 0; i < count; ++i) {
    const concord_variable &variable = variables[i];
    if (*variable.standard && *variable.standard != '(')
      EXPECT_EQ(checkValue(variable, variable.standard), "") << variable.name;
    EXPECT_GE(std::strlen(variable.text), 10u) << variable.name;
    for (size_t j = 0; j < i; ++j)
      EXPECT_STRNE(variable.name, variables[j].name);
  }
  const concord_variable &heap = *findVariable("CONCORD_HEAP_BYTES");
  for (const char *good : {"0", "256M", "16g", "1T", "4096"})
    EXPECT_EQ(checkValue(heap, good), "") << good;
  for (const char *bad : {"12Q", "-1", "2T", "", "1MM", "99999999999999999999"})
    EXPECT_NE(checkValue(heap, bad), "") << bad;
}
