//===- Wire.cpp - Files and wire bytes of ONNX
//------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Mapping files, and the pass over the wire bytes that takes tensor data out.
// Protobuf would copy `raw_data` into strings, which doubles the memory of a
// model; here the data stays in the mapped file and the parsed message only
// says where. The same pass bounds nesting before protobuf's recursion begins.
//
//===----------------------------------------------------------------------===//

#include "Wire.h"
#include "concord/onnx/Reader.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace concord::onnx::detail {

MappedFile mapFile(const std::string &path) {
  auto fail = [&](const std::string &why) -> MappedFile {
    throw Error(path + ": " + why);
  };
  // O_NONBLOCK: opening a FIFO that nobody writes must not hang.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return fail(std::string("cannot be opened: ") + std::strerror(errno));
  struct Closer {
    int fd;
    ~Closer() { ::close(fd); }
  } closer{fd};
  struct stat status;
  if (::fstat(fd, &status) != 0)
    return fail(std::string("cannot be examined: ") + std::strerror(errno));
  if (!S_ISREG(status.st_mode))
    return fail("is not a regular file; give the path of a file");
  const auto size = static_cast<size_t>(status.st_size);
  if (size == 0)
    return {};
  void *base = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (base == MAP_FAILED)
    return fail(std::string("cannot be mapped: ") + std::strerror(errno));
  MappedFile file;
  file.bytes = {static_cast<const std::byte *>(base), size};
  file.owner = std::shared_ptr<const void>(
      base, [size](const void *p) { ::munmap(const_cast<void *>(p), size); });
  return file;
}

namespace {

// Raw data of at most this size is not worth a reference to the file.
constexpr uint64_t kSmallRawData = 256;
// Graphs nest through attributes (three messages a level); protobuf itself
// stops at 100 messages.
constexpr int kMaxDepth = 96;
constexpr uint32_t kRawDataField = 9;
constexpr uint32_t kMappedOffsetField = 9001;
constexpr uint32_t kMappedLengthField = 9002;

constexpr int kNoMessage = -1;

/// Which message a length-delimited field of `kind` holds, as far as tensors
/// may lie inside it.
int nested(Message kind, uint32_t field) {
  auto is = [](Message m) { return static_cast<int>(m); };
  switch (kind) {
  case Message::Model:
    return field == 7    ? is(Message::Graph)
           : field == 25 ? is(Message::Function)
                         : kNoMessage;
  case Message::Graph:
    return field == 1   ? is(Message::Node)
           : field == 5 ? is(Message::Tensor)
                        : kNoMessage;
  case Message::Node:
    return field == 5 ? is(Message::Attribute) : kNoMessage;
  case Message::Function:
    return field == 7    ? is(Message::Node)
           : field == 11 ? is(Message::Attribute)
                         : kNoMessage;
  case Message::Attribute:
    return field == 5 || field == 10   ? is(Message::Tensor)
           : field == 6 || field == 11 ? is(Message::Graph)
                                       : kNoMessage;
  case Message::Tensor:
    return kNoMessage;
  }
  return kNoMessage;
}

const char *messageName(Message kind) {
  switch (kind) {
  case Message::Model:
    return "model";
  case Message::Graph:
    return "graph";
  case Message::Node:
    return "node";
  case Message::Function:
    return "function";
  case Message::Attribute:
    return "attribute";
  case Message::Tensor:
    return "tensor";
  }
  return "message";
}

class Stripper {
public:
  explicit Stripper(std::span<const std::byte> all) : all(all) {}

  void run(Message kind, size_t begin, size_t end, int depth,
           std::string &out) {
    if (depth > kMaxDepth)
      throw Error("graphs are nested more than " +
                  std::to_string(kMaxDepth / 3) + " deep");
    size_t at = begin;
    while (at < end) {
      const size_t start = at;
      const uint64_t tag = varint(kind, at, end);
      const auto field = static_cast<uint32_t>(tag >> 3);
      if (field == 0 || (tag >> 3) >= (1u << 29))
        malformed(kind, start, "no field has this tag");
      switch (tag & 7) {
      case 0:
        varint(kind, at, end);
        break;
      case 1:
        skip(kind, at, end, 8);
        break;
      case 5:
        skip(kind, at, end, 4);
        break;
      case 2: {
        const uint64_t length = varint(kind, at, end);
        if (length > end - at)
          throw Error("truncated: field " + std::to_string(field) + " of a " +
                      messageName(kind) + " at byte " + std::to_string(start) +
                      " needs " + std::to_string(length) + " bytes and " +
                      std::to_string(end - at) + " are left");
        const size_t body = at;
        at += length;
        const int inner = nested(kind, field);
        if (inner != kNoMessage) {
          std::string stripped;
          run(static_cast<Message>(inner), body, at, depth + 1, stripped);
          put(out, tag);
          put(out, stripped.size());
          out += stripped;
          continue;
        }
        if (kind == Message::Tensor && field == kRawDataField &&
            length > kSmallRawData) {
          put(out, uint64_t{kMappedOffsetField} << 3);
          put(out, body);
          put(out, uint64_t{kMappedLengthField} << 3);
          put(out, length);
          continue;
        }
        break;
      }
      default:
        malformed(kind, start, "this wire type is not used");
      }
      if (kind == Message::Tensor &&
          (field == kMappedOffsetField || field == kMappedLengthField))
        continue; // only this pass may say what is mapped
      out.append(reinterpret_cast<const char *>(all.data()) + start,
                 at - start);
      if (out.size() > (size_t{1} << 31) - 1)
        throw Error("more than 2 GiB of graph besides tensor data; keep "
                    "weights in raw_data or in external files");
    }
  }

private:
  [[noreturn]] void malformed(Message kind, size_t at, const char *why) {
    throw Error("not a valid ONNX file: byte " + std::to_string(at) +
                " (in a " + messageName(kind) + "): " + why);
  }
  uint64_t varint(Message kind, size_t &at, size_t end) {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at >= end)
        throw Error(std::string("truncated: a ") + messageName(kind) +
                    " ends in the middle of a number at byte " +
                    std::to_string(at));
      const auto byte = static_cast<uint8_t>(all[at++]);
      if (shift < 64)
        value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (!(byte & 0x80))
        return value;
    }
    malformed(kind, at, "a number of more than ten bytes");
  }
  void skip(Message kind, size_t &at, size_t end, size_t count) {
    if (count > end - at)
      throw Error(std::string("truncated: a ") + messageName(kind) +
                  " ends in the middle of a field at byte " +
                  std::to_string(at));
    at += count;
  }
  static void put(std::string &out, uint64_t value) {
    while (value >= 0x80) {
      out.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    out.push_back(static_cast<char>(value));
  }

  std::span<const std::byte> all;
};

} // namespace

std::string takeOutRawData(std::span<const std::byte> bytes, Message kind) {
  std::string out;
  Stripper(bytes).run(kind, 0, bytes.size(), 0, out);
  return out;
}

} // namespace concord::onnx::detail
