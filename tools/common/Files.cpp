//===- Files.cpp - Reading, writing and temporary folders -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// POSIX calls with every failure turned into an Error that names the file.
//
//===----------------------------------------------------------------------===//

#include "common/Files.h"

#include "common/HostTensor.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fs = std::filesystem;

namespace concord::tools {

namespace {

[[noreturn]] void fail(const fs::path &path, const char *action, int error) {
  throw Error(path.string() + ": cannot " + action + ": " +
              std::strerror(error) +
              (error == ENOSPC ? "; TMPDIR, CONCORD_CACHE_DIR or the name of "
                                 "the file can name a place with room"
                               : ""));
}

} // namespace

MappedFile::MappedFile(const fs::path &path) {
  // O_NONBLOCK: opening a FIFO must not hang; it is refused just below.
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    fail(path, "open", errno);
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    int error = errno;
    ::close(fd);
    fail(path, "stat", error);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    throw Error(path.string() + ": not a regular file");
  }
  size = static_cast<size_t>(info.st_size);
  if (size) {
    void *address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    int error = errno;
    ::close(fd);
    if (address == MAP_FAILED)
      fail(path, "map", error);
    data = static_cast<const std::byte *>(address);
    return;
  }
  ::close(fd);
}

MappedFile::~MappedFile() {
  if (data)
    ::munmap(const_cast<std::byte *>(data), size);
}

void writeFile(const fs::path &path,
               std::initializer_list<std::span<const std::byte>> parts) {
  std::string temporary = path.string() + ".XXXXXX";
  int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0)
    fail(path, "create", errno);
  auto giveUp = [&](const char *action) {
    int error = errno;
    ::close(fd);
    ::unlink(temporary.c_str());
    fail(path, action, error);
  };
  for (std::span<const std::byte> part : parts) {
    while (!part.empty()) {
      ssize_t written = ::write(fd, part.data(), part.size());
      if (written < 0 && errno == EINTR)
        continue;
      if (written < 0)
        giveUp("write");
      part = part.subspan(static_cast<size_t>(written));
    }
  }
  // mkostemp gives 0600; results are the user's ordinary files.
  mode_t mask = ::umask(0);
  ::umask(mask);
  if (::fchmod(fd, 0666 & ~mask) != 0)
    giveUp("set the mode of");
  if (::close(fd) != 0) {
    int error = errno;
    ::unlink(temporary.c_str());
    fail(path, "write", error);
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    int error = errno;
    ::unlink(temporary.c_str());
    fail(path, "replace", error);
  }
}

void writeFile(const fs::path &path, std::string_view text) {
  writeFile(path, {std::as_bytes(std::span(text.data(), text.size()))});
}

fs::path makePrivateDir(const fs::path &parent, std::string_view prefix) {
  std::string name = (parent / prefix).string() + "XXXXXX";
  if (!::mkdtemp(name.data()))
    fail(parent, "make a folder in", errno);
  return name;
}

fs::path tempParent() {
  if (const char *dir = std::getenv("TMPDIR"); dir && *dir)
    return dir;
  if (::access("/dev/shm", W_OK | X_OK) == 0)
    return "/dev/shm";
  return "/tmp";
}

std::string fileSafe(std::string_view name) {
  std::string safe;
  for (char c : name) {
    bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                 (c >= '0' && c <= '9') || std::strchr("._@+-", c);
    safe += plain && c != '\0' ? c : '_';
  }
  if (safe.empty())
    return "_";
  if (safe.front() == '.')
    safe.front() = '_';
  // File systems end names at 255 bytes; room stays for an extension.
  if (safe.size() > 200)
    safe.resize(200);
  return safe;
}

fs::path executableDir() {
  std::error_code error;
  fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error)
    throw Error("cannot read /proc/self/exe: " + error.message());
  return self.parent_path();
}

} // namespace concord::tools
