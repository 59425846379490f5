//===- Sha256.cpp - SHA-256 -----------------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The hash of plan digests and weight sections: FIPS 180-4, written from the
// standard, so that the plan library needs nothing but the language.
//
//===----------------------------------------------------------------------===//

#include "Sha256.h"

#include <bit>
#include <cstring>

using namespace concord::plan;

static constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void Sha256::block(const uint8_t *data) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i)
    w[i] = uint32_t(data[4 * i]) << 24 | uint32_t(data[4 * i + 1]) << 16 |
           uint32_t(data[4 * i + 2]) << 8 | uint32_t(data[4 * i + 3]);
  for (int i = 16; i < 64; ++i) {
    uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) +
           w[i - 7] + (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  uint32_t s[8];
  std::memcpy(s, state, sizeof s);
  // Names turn instead of values: eight rounds bring them back.
  auto round = [&](uint32_t a, uint32_t b, uint32_t c, uint32_t &d, uint32_t e,
                   uint32_t f, uint32_t g, uint32_t &h, int i) {
    uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                  ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    d += t1;
    h = t1 + (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) +
        ((a & b) ^ (a & c) ^ (b & c));
  };
  for (int i = 0; i < 64; i += 8) {
    round(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], i);
    round(s[7], s[0], s[1], s[2], s[3], s[4], s[5], s[6], i + 1);
    round(s[6], s[7], s[0], s[1], s[2], s[3], s[4], s[5], i + 2);
    round(s[5], s[6], s[7], s[0], s[1], s[2], s[3], s[4], i + 3);
    round(s[4], s[5], s[6], s[7], s[0], s[1], s[2], s[3], i + 4);
    round(s[3], s[4], s[5], s[6], s[7], s[0], s[1], s[2], i + 5);
    round(s[2], s[3], s[4], s[5], s[6], s[7], s[0], s[1], i + 6);
    round(s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[0], i + 7);
  }
  for (int i = 0; i < 8; ++i)
    state[i] += s[i];
}

void Sha256::update(std::span<const std::byte> bytes) {
  const auto *data = reinterpret_cast<const uint8_t *>(bytes.data());
  size_t size = bytes.size();
  length += size;
  if (fill) {
    size_t take = std::min(size, sizeof buffer - fill);
    std::memcpy(buffer + fill, data, take);
    fill += take;
    data += take;
    size -= take;
    if (fill < sizeof buffer)
      return;
    block(buffer);
    fill = 0;
  }
  for (; size >= sizeof buffer; size -= sizeof buffer, data += sizeof buffer)
    block(data);
  if (size)
    std::memcpy(buffer, data, size);
  fill = size;
}

Digest Sha256::finish() {
  uint64_t bits = length * 8;
  buffer[fill++] = 0x80;
  if (fill > 56) {
    std::memset(buffer + fill, 0, 64 - fill);
    block(buffer);
    fill = 0;
  }
  std::memset(buffer + fill, 0, 56 - fill);
  for (int i = 0; i < 8; ++i)
    buffer[56 + i] = uint8_t(bits >> (56 - 8 * i));
  block(buffer);
  Digest out;
  for (int i = 0; i < 32; ++i)
    out[i] = uint8_t(state[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

Digest concord::plan::sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

std::string concord::plan::toHex(const Digest &digest) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (uint8_t byte : digest) {
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
  return out;
}
