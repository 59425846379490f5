//===- IssueLog.cpp - Keeping the issue log -------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All stores are relaxed atomics: a peer reads them when nothing has moved for
// seconds, or after this rank has died.
//
//===----------------------------------------------------------------------===//

#include "diagnosis/IssueLog.h"
#include "context/Context.h"

#include <algorithm>
#include <cstring>
#include <sys/syscall.h>
#include <unistd.h>

using namespace concord;
using namespace concord::rt;
using namespace concord::issuelog;

static uint64_t get(const uint64_t &word) {
  return std::atomic_ref(const_cast<uint64_t &>(word))
      .load(std::memory_order_relaxed);
}
static void put(uint64_t &word, uint64_t value) {
  std::atomic_ref(word).store(value, std::memory_order_relaxed);
}

static void putText(uint64_t *words, size_t count, std::string_view text) {
  for (size_t i = 0; i < count; ++i) {
    char part[8] = {};
    size_t at = i * 8;
    if (at < text.size())
      std::memcpy(part, text.data() + at,
                  std::min<size_t>(i + 1 == count ? 7 : 8, text.size() - at));
    uint64_t word;
    std::memcpy(&word, part, 8);
    put(words[i], word);
  }
}

uint32_t concord::rt::threadId() {
  static thread_local uint32_t id = uint32_t(::syscall(SYS_gettid));
  return id;
}

void IssueLog::open(Block *own, int rank, int world) {
  block = own;
  if (!own)
    return;
  // Written, so that no later issue meets a page that is not there.
  for (auto *word = reinterpret_cast<uint64_t *>(own);
       word < reinterpret_cast<uint64_t *>(own + 1); word += 512)
    put(*word, 0);
  put(own->version, kVersion);
  put(own->rank, uint64_t(rank));
  put(own->world, uint64_t(world));
  put(own->pid, uint64_t(::getpid()));
  put(own->turn, ~uint64_t(0));
  std::atomic_ref(own->magic).store(kMagic, std::memory_order_release);
}

static bool sameDomain(const Domain &domain, const std::string &name,
                       const std::vector<int32_t> &members) {
  Domain wanted{};
  putText(wanted.name, kNameWords, name);
  if (get(domain.size) != members.size())
    return false;
  for (size_t i = 0; i < kNameWords; ++i)
    if (get(domain.name[i]) != wanted.name[i])
      return false;
  for (size_t i = 0; i < members.size() && i < kMaxMembers; ++i)
    if (uint8_t(get(domain.members[i / 8]) >> (8 * (i % 8))) !=
        uint8_t(members[i]))
      return false;
  return true;
}

uint32_t IssueLog::addDomain(const std::string &name,
                             const std::vector<int32_t> &members) {
  if (!block)
    return uint32_t(kDomains);
  for (uint32_t i = 0; i < kDomains; ++i) {
    Domain &domain = block->domains[i];
    if (get(domain.size)) {
      // Made again, and released in between: the same line.
      if (sameDomain(domain, name, members))
        return i;
      continue;
    }
    putText(domain.name, kNameWords, name);
    for (size_t w = 0; w < kMaxMembers / 8; ++w) {
      uint64_t word = 0;
      for (size_t b = 0; b < 8 && w * 8 + b < members.size(); ++b)
        word |= uint64_t(uint8_t(members[w * 8 + b])) << (8 * b);
      put(domain.members[w], word);
    }
    put(domain.size, members.size());
    return i;
  }
  return uint32_t(kDomains);
}

void IssueLog::issue(Op &op, uint32_t domain, uint32_t stream) {
  op.number = ++numbers;
  if (op.launch == 0)
    op.launch = op.number;
  op.record = nullptr;
  if (!block)
    return;
  const OpRequest &r = op.request;
  Record &record = block->records[(numbers - 1) % kRecords];
  put(record.number, 0);
  put(record.instance, op.instance);
  put(record.count, elementsIn(r.dtype, r.chunk));
  put(record.launch, op.launch);
  put(record.site, uint64_t(r.site) | uint64_t(threadId()) << 32);
  put(record.what, uint64_t(r.kind) | uint64_t(r.dtype) << 16 |
                       uint64_t(r.reduction) << 32 |
                       uint64_t(uint16_t(r.root + 1)) << 48);
  put(record.place, uint64_t(domain) | uint64_t(stream) << 32);
  put(record.state, uint64_t(State::Issued));
  std::atomic_ref(record.number).store(numbers, std::memory_order_release);
  put(block->issued, numbers);
  op.record = &record;
  // The next one's line has left the caches since it was written last, and
  // stores after it, a flag for instance, would wait until it is back.
  const Record &next = block->records[numbers % kRecords];
  __builtin_prefetch(&next.number, 1);
  __builtin_prefetch(&next.state, 1);
}

void IssueLog::gate(uint64_t mode, uint64_t round, uint64_t turn) {
  if (!block)
    return;
  put(block->gateMode, mode);
  put(block->round, round);
  put(block->turn, turn);
}

HostWaiting::HostWaiting(Block *block, HostState state, std::string_view note) {
  if (!block)
    return;
  uint64_t own = uint64_t(state) | uint64_t(threadId()) << 32;
  for (Thread &each : block->threads) {
    uint64_t none = 0;
    if (!std::atomic_ref(each.state).compare_exchange_strong(none, own))
      continue;
    thread = &each;
    put(each.since, uint64_t(nowNanoseconds()));
    put(each.after, get(block->issued));
    putText(each.note, kNoteWords, note);
    return;
  }
}

HostWaiting::~HostWaiting() {
  if (thread)
    std::atomic_ref(thread->state).store(0, std::memory_order_release);
}

void concord::rt::copyBlock(const Block &from, Block &to) {
  auto *source = reinterpret_cast<const uint64_t *>(&from);
  auto *target = reinterpret_cast<uint64_t *>(&to);
  for (size_t i = 0; i < sizeof(Block) / 8; ++i)
    target[i] = get(source[i]);
}
