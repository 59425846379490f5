//===- WeightStore.cpp - The data behind comm.weight ----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads and writes the safetensors container described in docs/contracts.md.
//
//===----------------------------------------------------------------------===//

#include "comm/WeightStore.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace concord::comm;

static constexpr uint64_t kPage = 4096;

static uint64_t alignUp(uint64_t value, uint64_t to) {
  return (value + to - 1) / to * to;
}

void WeightStore::add(const std::string &file, const std::string &section,
                      Section data) {
  std::lock_guard<std::mutex> lock(mutex);
  sections[{file, section}] = std::move(data);
  opened[file] = true;
}

bool WeightStore::open(const std::string &file, std::string &error) {
  llvm::SmallString<256> path(file);
  if (llvm::sys::path::is_relative(path)) {
    path = directory;
    llvm::sys::path::append(path, file);
  }
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                            /*RequiresNullTerminator=*/false);
  if (!buffer) {
    error = "cannot open parameter file '" + std::string(path) +
            "': " + buffer.getError().message() +
            "; it must lie beside the .mlir that refers to it";
    return false;
  }
  std::shared_ptr<llvm::MemoryBuffer> owner = std::move(*buffer);
  llvm::StringRef data = owner->getBuffer();
  auto bad = [&](const llvm::Twine &what) {
    error = ("parameter file '" + llvm::Twine(path) + "': " + what).str();
    return false;
  };
  uint64_t headerBytes = 0;
  if (data.size() < 8)
    return bad("too short for a safetensors header");
  std::memcpy(&headerBytes, data.data(), 8);
  if (headerBytes > data.size() - 8)
    return bad("the header is longer than the file");
  auto header = llvm::json::parse(data.substr(8, headerBytes));
  if (!header) {
    llvm::consumeError(header.takeError());
    return bad("the header is not JSON");
  }
  auto *object = header->getAsObject();
  if (!object)
    return bad("the header is not a JSON object");
  llvm::StringRef body = data.substr(8 + headerBytes);
  for (auto &[key, value] : *object) {
    auto *entry = value.getAsObject();
    if (!entry || key == "__metadata__")
      continue;
    auto *offsets = entry->getArray("data_offsets");
    if (!offsets || offsets->size() != 2)
      return bad("section '" + llvm::Twine(key.str()) +
                 "' has no data_offsets");
    auto begin = (*offsets)[0].getAsInteger(),
         end = (*offsets)[1].getAsInteger();
    if (!begin || !end || *begin < 0 || *end < *begin ||
        static_cast<uint64_t>(*end) > body.size())
      return bad("section '" + llvm::Twine(key.str()) + "' leaves the file");
    sections[{file, key.str()}] = {
        {reinterpret_cast<const std::byte *>(body.data()) + *begin,
         static_cast<size_t>(*end - *begin)},
        owner};
  }
  return true;
}

std::optional<WeightStore::Section>
WeightStore::lookup(const std::string &file, const std::string &section,
                    std::string &error) {
  std::lock_guard<std::mutex> lock(mutex);
  auto it = sections.find({file, section});
  if (it == sections.end() && !opened[file]) {
    if (!open(file, error))
      return std::nullopt;
    opened[file] = true;
    it = sections.find({file, section});
  }
  if (it == sections.end()) {
    error = "parameter file '" + file + "' has no section '" + section + "'";
    return std::nullopt;
  }
  return it->second;
}

//===----------------------------------------------------------------------===//
// WeightWriter
//===----------------------------------------------------------------------===//

/// The header's text. Holes up to the next page are named, since readers of the
/// container insist on sections that leave none.
static std::string
renderHeader(const std::vector<WeightSection> &sections,
             const std::map<std::string, std::string> &metadata) {
  llvm::json::Object root;
  llvm::json::Object meta;
  for (auto &[key, value] : metadata)
    meta[key] = value;
  uint64_t position = 0;
  unsigned pad = 0;
  for (const WeightSection &section : sections) {
    root[section.name] = llvm::json::Object{
        {"dtype", section.dtype},
        {"shape", llvm::json::Array(section.shape)},
        {"data_offsets",
         llvm::json::Array{position, position + section.bytes}}};
    meta["sha256:" + section.name] =
        section.sha256.empty() ? std::string(64, '0') : section.sha256;
    position += section.bytes;
    uint64_t hole = alignUp(position, kPage) - position;
    if (hole && &section != &sections.back()) {
      root["__pad#" + std::to_string(pad++)] = llvm::json::Object{
          {"dtype", "U8"},
          {"shape", llvm::json::Array{hole}},
          {"data_offsets", llvm::json::Array{position, position + hole}}};
      position += hole;
    }
  }
  root["__metadata__"] = std::move(meta);
  std::string text;
  llvm::raw_string_ostream os(text);
  os << llvm::json::Value(std::move(root));
  text.append(alignUp(8 + text.size(), kPage) - 8 - text.size(), ' ');
  return text;
}

WeightWriter::WeightWriter(std::string path, std::vector<WeightSection> list,
                           std::map<std::string, std::string> meta)
    : path(std::move(path)), sections(std::move(list)),
      metadata(std::move(meta)) {
  temporary = this->path + ".tmp-XXXXXX";
  fd = mkstemp(temporary.data());
  if (fd < 0) {
    error = "cannot write '" + this->path + "': " + std::strerror(errno);
    return;
  }
  headerBytes = 8 + renderHeader(sections, metadata).size();
  position = headerBytes;
}

WeightWriter::~WeightWriter() {
  if (fd >= 0) {
    ::close(fd);
    ::unlink(temporary.c_str());
  }
}

static bool writeAll(int fd, const void *data, size_t bytes, off_t offset) {
  const char *cursor = static_cast<const char *>(data);
  while (bytes) {
    ssize_t written = ::pwrite(fd, cursor, bytes, offset);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return false;
    cursor += written;
    offset += written;
    bytes -= written;
  }
  return true;
}

bool WeightWriter::append(std::span<const std::byte> bytes) {
  if (!error.empty())
    return false;
  WeightSection &section = sections[next];
  if (bytes.size() != section.bytes) {
    error = "internal: section '" + section.name + "' has " +
            std::to_string(bytes.size()) + " bytes, " +
            std::to_string(section.bytes) + " were announced";
    return false;
  }
  llvm::ArrayRef<uint8_t> data(reinterpret_cast<const uint8_t *>(bytes.data()),
                               bytes.size());
  section.sha256 = llvm::toHex(llvm::SHA256::hash(data), /*LowerCase=*/true);
  if (!writeAll(fd, bytes.data(), bytes.size(), position)) {
    error = "cannot write '" + path + "': " + std::strerror(errno);
    return false;
  }
  position += bytes.size();
  if (++next < sections.size())
    position = headerBytes + alignUp(position - headerBytes, kPage);
  return true;
}

std::string WeightWriter::finish() {
  if (error.empty() && next != sections.size())
    error = "internal: not all sections were written";
  if (!error.empty())
    return error;
  std::string header = renderHeader(sections, metadata);
  uint64_t length = header.size();
  if (!writeAll(fd, &length, 8, 0) ||
      !writeAll(fd, header.data(), header.size(), 8) ||
      ::ftruncate(fd, position) != 0 || ::fchmod(fd, 0644) != 0) {
    error = "cannot write '" + path + "': " + std::strerror(errno);
    return error;
  }
  int closed = ::close(fd);
  fd = -1;
  if (closed != 0 || ::rename(temporary.c_str(), path.c_str()) != 0) {
    error = "cannot write '" + path + "': " + std::strerror(errno);
    ::unlink(temporary.c_str());
  }
  return error;
}
