//===- Npy.cpp - NumPy's .npy files ---------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The header is a Python literal; the grammar read here is the part of it that
// NumPy writes: a dictionary with string keys whose values are strings,
// booleans and tuples of integers.
//
//===----------------------------------------------------------------------===//

#include "common/Npy.h"

#include "common/Files.h"

#include <algorithm>
#include <cstring>

namespace concord::tools {

namespace {

constexpr size_t kMaxHeader = 1 << 20;

struct Header {
  std::string descr;
  bool fortran = false;
  Shape shape;
};

class HeaderParser {
public:
  HeaderParser(std::string_view text, const std::string &name)
      : text(text), name(name) {}

  Header parse() {
    Header header;
    bool seenDescr = false, seenOrder = false, seenShape = false;
    expect('{');
    while (!accept('}')) {
      std::string key = string();
      expect(':');
      if (key == "descr") {
        if (peek() == '[')
          fail("structured dtypes are not supported");
        header.descr = string();
        seenDescr = true;
      } else if (key == "fortran_order") {
        header.fortran = boolean();
        seenOrder = true;
      } else if (key == "shape") {
        header.shape = tuple();
        seenShape = true;
      } else {
        fail("unknown key '" + key + "' in the header");
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    if (!seenDescr || !seenOrder || !seenShape)
      fail("the header lacks 'descr', 'fortran_order' or 'shape'");
    return header;
  }

  [[noreturn]] void fail(const std::string &what) const {
    throw Error(name + ": not a usable .npy file: " + what);
  }

private:
  char peek() {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\n' ||
                                text[at] == '\t' || text[at] == '\r'))
      ++at;
    return at < text.size() ? text[at] : '\0';
  }
  bool accept(char c) {
    if (peek() != c || at >= text.size())
      return false;
    ++at;
    return true;
  }
  void expect(char c) {
    if (!accept(c))
      fail(std::string("the header has no '") + c + "' where one belongs");
  }
  std::string string() {
    char quote = peek();
    if (quote != '\'' && quote != '"')
      fail("the header has no string where one belongs");
    size_t end = text.find(quote, at + 1);
    if (end == std::string_view::npos)
      fail("a string in the header does not end");
    std::string value(text.substr(at + 1, end - at - 1));
    at = end + 1;
    return value;
  }
  bool boolean() {
    peek();
    for (std::string_view word : {"True", "False"}) {
      if (text.substr(at, word.size()) == word) {
        at += word.size();
        return word == "True";
      }
    }
    fail("'fortran_order' is neither True nor False");
  }
  Shape tuple() {
    Shape shape;
    expect('(');
    while (!accept(')')) {
      uint64_t value = 0;
      bool any = false;
      for (char c = peek(); c >= '0' && c <= '9'; c = peek()) {
        if (value > kMaxTensorBytes)
          fail("a dimension is too large");
        value = value * 10 + static_cast<uint64_t>(c - '0');
        any = true;
        ++at;
      }
      if (!any)
        fail("'shape' is not a tuple of sizes");
      accept('L'); // Python 2 wrote long integers so
      shape.push_back(static_cast<int64_t>(value));
      if (shape.size() > kMaxRank)
        fail("more than " + std::to_string(kMaxRank) + " dimensions");
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }

  std::string_view text;
  const std::string &name;
  size_t at = 0;
};

DType dtypeOf(std::string_view kind) {
  struct Row {
    std::string_view kind;
    DType dtype;
  };
  static constexpr Row rows[] = {
      {"f4", DType::F32}, {"f8", DType::F64}, {"f2", DType::F16},
      {"i1", DType::I8},  {"i2", DType::I16}, {"i4", DType::I32},
      {"i8", DType::I64}, {"u1", DType::U8},  {"u2", DType::U16},
      {"u4", DType::U32}, {"u8", DType::U64}, {"b1", DType::BOOL},
      {"?", DType::BOOL}, {"V1", DType::U8},  {"V2", DType::U16}};
  for (const Row &row : rows)
    if (row.kind == kind)
      return row.dtype;
  return DType::Invalid;
}

/// Fortran order is C order of the reversed shape; walk the result in C order
/// and pick from the source by stride.
void transposeFromFortran(std::span<const std::byte> source, HostTensor &out) {
  size_t size = dtypeSize(out.dtype), rank = out.shape.size();
  uint64_t count = out.numElements();
  std::vector<uint64_t> stride(rank), index(rank, 0);
  uint64_t step = 1;
  for (size_t d = 0; d < rank; ++d) {
    stride[d] = step;
    step *= static_cast<uint64_t>(out.shape[d]);
  }
  uint64_t from = 0;
  for (uint64_t i = 0; i < count; ++i) {
    std::memcpy(out.bytes.data() + i * size, source.data() + from * size, size);
    for (size_t d = rank; d-- > 0;) {
      from += stride[d];
      if (++index[d] < static_cast<uint64_t>(out.shape[d]))
        break;
      from -= stride[d] * index[d];
      index[d] = 0;
    }
  }
}

} // namespace

HostTensor parseNpy(std::span<const std::byte> bytes, const std::string &name) {
  auto fail = [&](const std::string &what) {
    throw Error(name + ": not a usable .npy file: " + what);
  };
  auto byteAt = [&](size_t i) { return std::to_integer<size_t>(bytes[i]); };
  if (bytes.size() < 10 || std::memcmp(bytes.data(), "\x93NUMPY", 6) != 0)
    fail("it does not begin with the .npy magic");
  size_t major = byteAt(6), prefix = 10, length;
  if (major == 1) {
    length = byteAt(8) | byteAt(9) << 8;
  } else if (major == 2 || major == 3) {
    if (bytes.size() < 12)
      fail("truncated header");
    length = byteAt(8) | byteAt(9) << 8 | byteAt(10) << 16 | byteAt(11) << 24;
    prefix = 12;
  } else {
    fail("format version " + std::to_string(major) + " (1 to 3 are known)");
    return {};
  }
  if (length > kMaxHeader)
    fail("its header would be " + std::to_string(length) + " bytes");
  if (length > bytes.size() - prefix)
    fail("truncated header");
  std::string_view text(reinterpret_cast<const char *>(bytes.data()) + prefix,
                        length);
  Header header = HeaderParser(text, name).parse();

  std::string_view descr = header.descr;
  char order = '|';
  if (!descr.empty() && std::strchr("<>=|", descr.front())) {
    order = descr.front();
    descr.remove_prefix(1);
  }
  HostTensor tensor;
  tensor.dtype = dtypeOf(descr);
  tensor.shape = header.shape;
  if (tensor.dtype == DType::Invalid)
    fail("dtype '" + header.descr + "' is not supported");
  std::optional<uint64_t> size = numBytes(tensor.dtype, tensor.shape);
  std::span<const std::byte> data = bytes.subspan(prefix + length);
  if (!size)
    fail("shape " + shapeToString(tensor.shape) + " is too large");
  if (*size != data.size())
    fail("shape " + shapeToString(tensor.shape) + " of '" + header.descr +
         "' needs " + std::to_string(*size) + " bytes of data, there are " +
         std::to_string(data.size()));
  if (header.fortran && tensor.shape.size() > 1) {
    tensor.bytes.resize(*size);
    transposeFromFortran(data, tensor);
  } else {
    tensor.bytes.assign(data.begin(), data.end());
  }
  size_t width = dtypeSize(tensor.dtype);
  if (order == '>' && width > 1)
    for (size_t i = 0; i + width <= tensor.bytes.size(); i += width)
      std::reverse(tensor.bytes.begin() + static_cast<ptrdiff_t>(i),
                   tensor.bytes.begin() + static_cast<ptrdiff_t>(i + width));
  // NumPy's bool is any non-zero byte; Concord's is 0 or 1.
  if (tensor.dtype == DType::BOOL)
    for (std::byte &value : tensor.bytes)
      value = std::byte(value != std::byte(0));
  return tensor;
}

HostTensor readNpy(const std::filesystem::path &path) {
  MappedFile file(path);
  return parseNpy(file.bytes(), path.string());
}

std::string npyHeader(DType dtype, std::span<const int64_t> shape) {
  const char *descr = nullptr;
  switch (dtype) {
  case DType::F32:
    descr = "<f4";
    break;
  case DType::F64:
    descr = "<f8";
    break;
  case DType::F16:
    descr = "<f2";
    break;
  case DType::I8:
    descr = "|i1";
    break;
  case DType::I16:
    descr = "<i2";
    break;
  case DType::I32:
    descr = "<i4";
    break;
  case DType::I64:
    descr = "<i8";
    break;
  case DType::U8:
  case DType::F8E4M3:
  case DType::F8E5M2:
    descr = "|u1";
    break;
  case DType::U16:
  case DType::BF16:
    descr = "<u2";
    break;
  case DType::U32:
    descr = "<u4";
    break;
  case DType::U64:
    descr = "<u8";
    break;
  case DType::BOOL:
    descr = "|b1";
    break;
  case DType::Invalid:
    throw Error("cannot write a tensor without a dtype");
  }
  std::string dict = std::string("{'descr': '") + descr +
                     "', 'fortran_order': False, 'shape': (";
  for (size_t i = 0; i < shape.size(); ++i)
    dict += (i ? " " : "") + std::to_string(shape[i]) + ",";
  if (shape.size() > 1)
    dict.pop_back(); // only a 1-tuple keeps its comma
  dict += "), }";
  auto padded = [&](size_t prefix) {
    size_t total = prefix + dict.size() + 1;
    return dict + std::string((64 - total % 64) % 64, ' ') + '\n';
  };
  std::string text = padded(10);
  std::string header("\x93NUMPY", 6);
  if (text.size() <= 0xffff) {
    header += {'\1', '\0', static_cast<char>(text.size() & 0xff),
               static_cast<char>(text.size() >> 8)};
    return header + text;
  }
  text = padded(12);
  header += {'\2', '\0'};
  for (int shift = 0; shift < 32; shift += 8)
    header += static_cast<char>((text.size() >> shift) & 0xff);
  return header + text;
}

void writeNpy(const std::filesystem::path &path, const HostTensor &tensor) {
  std::string header = npyHeader(tensor.dtype, tensor.shape);
  writeFile(path, {std::as_bytes(std::span(header)), std::span(tensor.bytes)});
}

} // namespace concord::tools
