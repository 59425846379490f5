//===- Kernel.h - Registry and description of kernels -----------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a kernel is inside this room: a class made from a parsed description.
// A family of kernels is one function `registerX(Registry &)`, called from the
// explicit table in Registry.cpp; nothing depends on static initialisers, which
// a static library may lose.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_KERNEL_H
#define CONCORD_KERNELS_KERNEL_H

#include "concord/dtype.h"
#include "concord/kernel.h"

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace concord::kernels {

/// The error codes of concord.h that kernels use; same numbers.
enum Status : int32_t {
  kOk = 0,
  kInvalidArgument = 1,
  kNotSupported = 2,
  kOutOfMemory = 3,
};

/// Thrown while a kernel is made; becomes the error code of
/// concord_kernel_create and its message.
class KernelError : public std::runtime_error {
public:
  KernelError(Status code, const std::string &message)
      : std::runtime_error(message), code(code) {}
  Status code;
};

[[noreturn]] void invalidArgument(const std::string &message);
[[noreturn]] void notSupported(const std::string &message);

/// A parsed description, `NAME key=value ...` (kernel.h has the grammar).
/// Getters without a default throw when the key is missing; all throw, naming
/// kernel and key, when the value has another form. A key that no getter asked
/// for makes concord_kernel_create fail, so that a misspelt key cannot be
/// ignored.
class Description {
public:
  /// Throws KernelError on text outside the grammar, on duplicate or unordered
  /// keys, and beyond fixed limits (64 KiB of text, 64 keys, 65,536 list
  /// elements).
  static Description parse(std::string_view text);

  const std::string &name() const { return kernelName; }
  bool has(std::string_view key) const;

  int64_t i64(std::string_view key) const;
  int64_t i64(std::string_view key, int64_t fallback) const;
  /// Also takes integers, `inf`, `-inf` and `nan`.
  double f64(std::string_view key) const;
  double f64(std::string_view key, double fallback) const;
  /// 0 or 1 (or `false`, `true`).
  bool flag(std::string_view key, bool fallback) const;
  std::string word(std::string_view key) const;
  std::string word(std::string_view key, std::string_view fallback) const;
  /// As `word`, but the value must be one of `choices`; returns its position.
  int choice(std::string_view key,
             std::initializer_list<std::string_view> choices,
             int fallback = -1) const;
  std::string string(std::string_view key) const;
  std::string string(std::string_view key, std::string_view fallback) const;
  DType dtype(std::string_view key) const;
  DType dtype(std::string_view key, DType fallback) const;
  std::vector<DType> dtypes(std::string_view key) const;
  std::vector<int64_t> list(std::string_view key) const;
  std::vector<int64_t> list(std::string_view key,
                            const std::vector<int64_t> &fallback) const;
  std::vector<double> floats(std::string_view key) const;
  std::vector<std::string> words(std::string_view key) const;
  std::vector<std::vector<int64_t>> lists(std::string_view key) const;

  /// As `i64`, with bounds; the message says them.
  int64_t size(std::string_view key, int64_t least = 0,
               int64_t most = int64_t(1) << 40) const;

  /// The whole text, for a family that reads it by itself (onnx/); counts as
  /// having asked for every key.
  std::string_view text() const {
    for (const Entry &entry : entries)
      entry.read = true;
    return wholeText;
  }

  /// Throws if some key was never asked for.
  void requireAllRead() const;

  [[noreturn]] void fail(std::string_view key, const std::string &why) const;
  [[noreturn]] void unsupported(std::string_view key,
                                const std::string &why) const;

private:
  struct Entry {
    std::string key;
    std::string text; ///< the raw value
    mutable bool read = false;
  };
  const Entry *find(std::string_view key) const;
  const Entry &get(std::string_view key) const;
  std::vector<std::string_view> items(const Entry &entry) const;
  int64_t toI64(const Entry &entry, std::string_view text) const;
  double toF64(const Entry &entry, std::string_view text) const;
  DType toDType(const Entry &entry, std::string_view text) const;

  std::string kernelName;
  std::string wholeText;
  std::vector<Entry> entries;
};

/// Product of `dims`; throws if it, times `elementSize`, exceeds 2^48 or a
/// dimension is negative.
int64_t elementCount(const std::vector<int64_t> &dims, size_t elementSize = 1);

/// A floating product without batch dimensions, for kernels that contain one
/// and do it block by block.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  size_t elementSize = 0;
  bool transA = false;
  bool plain = false; ///< neither bias, residual nor activation
};

/// Rows [row, row + rows) and columns [column, column + columns) of C; column
/// is a multiple of kProductColumns. The pointer of A is to row firstRowOfA.
struct ProductBlock {
  int64_t row = 0, rows = 0, column = 0, columns = 0, firstRowOfA = 0;
};
/// What is done of a block beyond a plain product: it is added to those of
/// other members (GemmOperands::parts), and bias and residual come after.
/// Addresses are of the block's first element, of `bias` of its first column.
struct ProductEnd {
  void *c = nullptr;
  const void *bias = nullptr, *residual = nullptr;
  void *const *parts = nullptr;
  int members = 0, me = 0;
};
/// A multiple of the panels' width in every CPU class.
constexpr int64_t kProductColumns = 64;

class Kernel {
public:
  virtual ~Kernel() = default;

  uint32_t numInputs = 0;
  uint32_t numOutputs = 1;
  uint32_t packedInput = ~0u;
  uint64_t workspaceBytes = 0;
  uint64_t packedWeightBytes = 0;

  /// Called only if packedWeightBytes is not 0.
  virtual int32_t pack(const void *weight, void *packed) const;
  /// Must not throw, allocate or make a system call. `workspace` is 64-byte
  /// aligned and may be null if workspaceBytes is 0. On failure, returns a code
  /// after setLastError.
  virtual int32_t run(void *const *pointers, void *workspace) const = 0;

  /// A kernel that is one with a collective (kernel.h); null for all others.
  virtual const concord_fused_info *fused() const { return nullptr; }
  virtual int32_t step(const concord_fused_step &step) const;

  /// Whether blocks can be had, and of what product.
  virtual bool product(ProductShape &) const { return false; }
  virtual uint64_t blockWorkspace(int64_t, int64_t) const { return 0; }
  virtual void runBlock(const ProductBlock &, void *const *, void *) const {}
  /// Only of a plain product; of the pointers, those of A and B are looked at.
  virtual void runBlock(const ProductBlock &, const ProductEnd &, void *const *,
                        void *) const {}
};

/// Sets concord_kernel_last_error of this thread without allocating (cut at 511
/// bytes) and returns `code`, so that run can say `return fail(...)`.
int32_t setLastError(Status code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

using Factory = std::unique_ptr<Kernel> (*)(const Description &);

class Registry {
public:
  /// Adding a name twice is a programming error and aborts.
  void add(std::string_view name, Factory factory);
  Factory find(std::string_view name) const;
  std::vector<std::string_view> names() const;

  /// The table of all kernels of this library, filled on first use.
  static const Registry &all();

private:
  struct Item {
    std::string_view name;
    Factory factory;
  };
  std::vector<Item> items; ///< sorted by name
};

/// Helper for tables: `registry.add("softmax", make<Softmax>)`, where Softmax
/// has a constructor from a Description.
template <typename K>
std::unique_ptr<Kernel> make(const Description &description) {
  return std::make_unique<K>(description);
}

void registerFused(Registry &);
void registerUpdate(Registry &);
void registerGemm(Registry &);
void registerRows(Registry &);
void registerAttention(Registry &);
void registerConv(Registry &);
void registerLayout(Registry &);
void registerMath(Registry &);
/// kernels/onnx/Register.cpp: one kernel per ONNX operator family.
void registerOnnxKernels(Registry &);

} // namespace concord::kernels

#endif // CONCORD_KERNELS_KERNEL_H
