//===- Weights.cpp - The file of parameters -------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reading the container. The file is foreign: every offset is held against its
// size, and the header may take no more than the file has.
//
//===----------------------------------------------------------------------===//

#include "program/Weights.h"
#include "concord/plan.h"
#include "diagnosis/Error.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace concord::rt;
using nlohmann::json;

static constexpr uint64_t kMaxHeader = uint64_t(100) << 20;

Weights::~Weights() {
  for (auto [address, bytes] : maps)
    ::munmap(address, bytes);
  if (fd >= 0)
    ::close(fd);
}

void Weights::open(const std::string &path) {
  file = path;
  fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT)
      raise(CONCORD_ERROR_NOT_FOUND,
            "%s does not exist: the weights must lie beside the program",
            path.c_str());
    raiseErrno("cannot open %s", path.c_str());
  }
  struct stat info;
  if (::fstat(fd, &info) != 0)
    raiseErrno("cannot look at %s", path.c_str());
  uint64_t fileBytes = uint64_t(info.st_size);
  auto corrupt = [&](const std::string &what) {
    raise(CONCORD_ERROR_CORRUPT, "%s: %s", path.c_str(), what.c_str());
  };
  auto readAt = [&](void *target, uint64_t bytes, uint64_t offset) {
    auto *at = static_cast<char *>(target);
    while (bytes) {
      ssize_t n = ::pread(fd, at, bytes, off_t(offset));
      if (n < 0 && errno == EINTR)
        continue;
      if (n < 0)
        raiseErrno("cannot read %s", path.c_str());
      if (n == 0)
        corrupt("the file is truncated");
      at += n;
      bytes -= uint64_t(n);
      offset += uint64_t(n);
    }
  };
  unsigned char length[8];
  if (fileBytes < sizeof length)
    corrupt("the file is truncated");
  readAt(length, sizeof length, 0);
  uint64_t headerBytes = 0;
  for (int i = 7; i >= 0; --i)
    headerBytes = headerBytes << 8 | length[i];
  if (headerBytes > fileBytes - 8 || headerBytes > kMaxHeader)
    corrupt("the header is longer than the file");
  std::string text(headerBytes, 0);
  readAt(text.data(), headerBytes, 8);
  json header = json::parse(text, nullptr, false);
  if (!header.is_object())
    corrupt("the header is not JSON");
  json metadata = json::object();
  if (auto it = header.find("__metadata__");
      it != header.end() && it->is_object())
    metadata = *it;
  uint64_t start = 8 + headerBytes;
  for (auto &[name, entry] : header.items()) {
    // "__pad#N" sections fill the holes up to page boundaries.
    if (name.starts_with("__"))
      continue;
    auto offsets = entry.is_object() ? entry.find("data_offsets") : entry.end();
    if (!entry.is_object() || offsets == entry.end() || !offsets->is_array() ||
        offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
        !(*offsets)[1].is_number_unsigned())
      corrupt("section '" + name + "' has no data_offsets");
    uint64_t begin = (*offsets)[0], end = (*offsets)[1];
    if (begin > end || end > fileBytes - start)
      corrupt("the file is truncated: section '" + name +
              "' ends beyond its end");
    Section section{start + begin, end - begin, ""};
    if (section.bytes && section.offset % 4096)
      corrupt("section '" + name + "' does not begin on a page");
    for (const std::string &key : {name, "sha256:" + name})
      if (auto it = metadata.find(key); it != metadata.end() && it->is_string())
        section.hash = it->get<std::string>();
    sections.emplace(name, section);
  }
}

const Weights::Section *Weights::find(const std::string &section,
                                      int rank) const {
  // A parameter's own name may have a '#' in it.
  for (const std::string &name :
       {section, section.substr(0, section.rfind('#'))})
    for (const std::string &candidate :
         {name + "#" + std::to_string(rank), name + "#*"})
      if (auto it = sections.find(candidate); it != sections.end())
        return &it->second;
  return nullptr;
}

const void *Weights::map(const Section &section, bool verify) {
  static const uint64_t kNothing[8] = {};
  if (section.bytes == 0)
    return kNothing;
  void *address = ::mmap(nullptr, section.bytes, PROT_READ,
                         MAP_SHARED | MAP_POPULATE, fd, off_t(section.offset));
  if (address == MAP_FAILED)
    raiseErrno("cannot map %llu bytes of %s", (unsigned long long)section.bytes,
               file.c_str());
  maps.emplace_back(address, section.bytes);
  mapped += section.bytes;
  if (verify && !section.hash.empty()) {
    auto digest = plan::sha256(
        {static_cast<const std::byte *>(address), size_t(section.bytes)});
    if (plan::toHex(digest) != section.hash)
      raise(CONCORD_ERROR_CORRUPT,
            "%s: the bytes at %llu do not have the SHA-256 that the header "
            "gives",
            file.c_str(), (unsigned long long)section.offset);
  }
  return address;
}
