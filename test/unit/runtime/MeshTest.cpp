//===- MeshTest.cpp - Connections between the ranks of hosts --------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ranks as threads over the loopback device, and strangers who disturb them.
//
//===----------------------------------------------------------------------===//

#include "transport/Mesh.h"
#include "context/Env.h"
#include "diagnosis/Error.h"

#include <arpa/inet.h>
#include <csignal>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace concord::rt;

namespace {

int64_t inSeconds(double seconds) {
  return nowNanoseconds() + int64_t(seconds * 1e9);
}
void nothing() {}

struct Team {
  explicit Team(int n) {
    for (int r = 0; r < n; ++r) {
      ranks.push_back(std::make_unique<Mesh>(r, n, "lo", log));
      addresses.push_back(ranks.back()->address());
    }
  }
  /// Every rank with every other; what each threw, or "".
  std::vector<std::string> connect(double seconds) {
    std::vector<std::string> words(ranks.size());
    std::vector<std::thread> threads;
    for (size_t r = 0; r < ranks.size(); ++r)
      threads.emplace_back([&, r] {
        uint64_t others = ((uint64_t(1) << ranks.size()) - 1) & ~(1ull << r);
        try {
          ranks[r]->connect(others, addresses, inSeconds(seconds), 10, nothing);
        } catch (const Error &error) {
          words[r] = error.text;
        }
      });
    for (std::thread &thread : threads)
      thread.join();
    return words;
  }
  Log log;
  std::vector<std::unique_ptr<Mesh>> ranks;
  std::vector<MeshAddress> addresses;
};

/// A connection to a rank's port.
struct Stranger {
  explicit Stranger(const MeshAddress &address) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(uint16_t(address.port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd = ::socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr *>(&to), sizeof to), 0);
  }
  ~Stranger() { ::close(fd); }
  void send(const void *data, size_t bytes) {
    EXPECT_EQ(::send(fd, data, bytes, MSG_NOSIGNAL), ssize_t(bytes));
  }
  /// True when the other side has closed without an answer.
  bool dropped() {
    char byte;
    pollfd wait{fd, POLLIN, 0};
    return ::poll(&wait, 1, 10'000) == 1 && ::recv(fd, &byte, 1, 0) <= 0;
  }
  int fd;
};

/// What `to` hears of `from`, or nothing within a few seconds.
std::optional<Notice> hear(Mesh &to, int from, bool &open, int &error) {
  std::optional<Notice> heard;
  for (int i = 0; i < 500 && !heard && open; ++i) {
    pollfd wait{to.socketOf(from), POLLIN, 0};
    ::poll(&wait, 1, 10);
    open = to.receive(from, error, [&](const Notice &n) { heard = n; });
  }
  return heard;
}

} // namespace

TEST(Mesh, AllMeetAndTellEachOther) {
  Team team(5);
  for (const std::string &words : team.connect(20))
    EXPECT_EQ(words, "");
  Notice notice;
  notice.kind = Notice::Kind::Broken;
  notice.key = 0x1234;
  notice.value = 7;
  notice.dead = 5;
  std::strcpy(notice.text, "why");
  team.ranks[3]->tell(0b10011, notice);
  for (int r : {0, 1, 4}) {
    bool open = true;
    int error = 0;
    auto heard = hear(*team.ranks[size_t(r)], 3, open, error);
    ASSERT_TRUE(heard) << r;
    EXPECT_EQ(heard->rank, 3);
    EXPECT_EQ(heard->kind, Notice::Kind::Broken);
    EXPECT_EQ(heard->key, 0x1234u);
    EXPECT_EQ(heard->dead, 5u);
    EXPECT_STREQ(heard->text, "why");
  }
  // Rank 2 was not meant.
  bool open = true;
  int error = 0;
  open = team.ranks[2]->receive(3, error, [](const Notice &) { FAIL(); });
  EXPECT_TRUE(open);
}

TEST(Mesh, TheEndOfARankIsSeen) {
  Team team(3);
  for (const std::string &words : team.connect(20))
    ASSERT_EQ(words, "");
  team.ranks[1].reset();
  for (int r : {0, 2}) {
    bool open = true;
    int error = 0;
    EXPECT_FALSE(hear(*team.ranks[size_t(r)], 1, open, error));
    EXPECT_FALSE(open) << r;
  }
  bool open = true;
  int error = 0;
  open = team.ranks[0]->receive(2, error, [](const Notice &) {});
  EXPECT_TRUE(open);
}

TEST(Mesh, StrangersAreTurnedAwayAndTheRanksStillMeet) {
  Team team(3);
  // Before the ranks come, so that these are taken first.
  Stranger silent(team.addresses[0]), noise(team.addresses[0]),
      secretless(team.addresses[0]), wrongRank(team.addresses[0]),
      gone(team.addresses[1]), half(team.addresses[0]);
  noise.send(std::string(4000, 'x').data(), 4000);
  Notice hello;
  hello.rank = 1;
  secretless.send(&hello, sizeof hello);
  std::memcpy(hello.secret, team.addresses[0].secret, 16);
  hello.rank = 40;
  wrongRank.send(&hello, sizeof hello);
  half.send(&hello, 100);
  ::shutdown(half.fd, SHUT_WR);
  for (const std::string &words : team.connect(60))
    EXPECT_EQ(words, "");
  EXPECT_TRUE(noise.dropped());
  EXPECT_TRUE(secretless.dropped());
  EXPECT_TRUE(wrongRank.dropped());
  EXPECT_TRUE(half.dropped());
  EXPECT_TRUE(silent.dropped());
}

TEST(Mesh, WhoCannotBeReachedIsNamed) {
  Team team(2);
  // Nobody listens there any more.
  team.ranks[0].reset();
  try {
    team.ranks[1]->connect(1, team.addresses, inSeconds(0.5), 10, nothing);
    FAIL();
  } catch (const Error &error) {
    EXPECT_EQ(error.status, CONCORD_ERROR_TIMEOUT);
    EXPECT_THAT(error.text, testing::HasSubstr("cannot connect to rank 0"));
    EXPECT_THAT(error.text, testing::HasSubstr("127.0.0.1"));
  }
  Team late(2);
  try {
    late.ranks[0]->connect(2, late.addresses, inSeconds(0.3), 10, nothing);
    FAIL();
  } catch (const Error &error) {
    EXPECT_EQ(error.status, CONCORD_ERROR_TIMEOUT);
    EXPECT_THAT(error.text, testing::HasSubstr("rank(s) 1"));
  }
}

TEST(Mesh, APeerThatSendsNonsenseIsCutOff) {
  Team team(2);
  for (const std::string &words : team.connect(20))
    ASSERT_EQ(words, "");
  std::string nonsense(sizeof(Notice), '\x7f');
  ASSERT_EQ(::send(team.ranks[1]->socketOf(0), nonsense.data(), nonsense.size(),
                   MSG_NOSIGNAL),
            ssize_t(nonsense.size()));
  bool open = true;
  int error = 0;
  EXPECT_FALSE(hear(*team.ranks[0], 1, open, error));
  EXPECT_FALSE(open);
  EXPECT_EQ(error, EPROTO);
}

TEST(Mesh, PacketsInPiecesAreWhole) {
  Team team(2);
  for (const std::string &words : team.connect(20))
    ASSERT_EQ(words, "");
  // Two packets byte by byte, while signals interrupt whoever reads.
  struct sigaction action = {}, former;
  action.sa_handler = [](int) {};
  ::sigaction(SIGUSR2, &action, &former);
  pthread_t reader = ::pthread_self();
  std::thread sender([&] {
    int fd = team.ranks[1]->socketOf(0), one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (uint64_t key : {7, 8}) {
      Notice notice;
      notice.kind = Notice::Kind::Revoked;
      notice.rank = 1;
      notice.key = key;
      const auto *bytes = reinterpret_cast<const char *>(&notice);
      for (size_t i = 0; i < sizeof notice; ++i) {
        EXPECT_EQ(::send(fd, bytes + i, 1, MSG_NOSIGNAL), 1);
        ::pthread_kill(reader, SIGUSR2);
      }
    }
  });
  std::vector<uint64_t> keys;
  bool open = true;
  for (int i = 0; i < 5000 && keys.size() < 2 && open; ++i) {
    pollfd wait{team.ranks[0]->socketOf(1), POLLIN, 0};
    ::poll(&wait, 1, 10);
    int error = 0;
    open = team.ranks[0]->receive(
        1, error, [&](const Notice &n) { keys.push_back(n.key); });
  }
  sender.join();
  ::sigaction(SIGUSR2, &former, nullptr);
  EXPECT_TRUE(open);
  EXPECT_THAT(keys, testing::ElementsAre(7u, 8u));
}

TEST(Mesh, AResetConnectionSaysSo) {
  Team team(2);
  for (const std::string &words : team.connect(20))
    ASSERT_EQ(words, "");
  linger reset{1, 0};
  ASSERT_EQ(::setsockopt(team.ranks[1]->socketOf(0), SOL_SOCKET, SO_LINGER,
                         &reset, sizeof reset),
            0);
  team.ranks[1].reset();
  bool open = true;
  int error = 0;
  EXPECT_FALSE(hear(*team.ranks[0], 1, open, error));
  EXPECT_FALSE(open);
  EXPECT_EQ(error, ECONNRESET);
}

TEST(Mesh, AnInterfaceThatIsNotThereIsNamed) {
  Log log;
  // The loopback device stays: parts of one machine meet there.
  Mesh mesh(0, 2, "nosuch0", log);
  EXPECT_EQ(mesh.address().list[0].family, uint32_t(AF_INET));
  EXPECT_EQ(mesh.address().list[0].bytes[0], 127);
}
