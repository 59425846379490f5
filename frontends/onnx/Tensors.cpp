//===- Tensors.cpp - Wire tensors to tensors and back
//-----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Raw data and external data are referred to in their mapping; typed fields
// (`float_data` and its sisters) are converted. Counts are checked against the
// shape before anything is allocated, so a false shape cannot make a large
// allocation.
//
//===----------------------------------------------------------------------===//

#include "Wire.h"
#include "concord/onnx/Reader.h"
#include "concord_onnx.pb.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace concord::onnx {
namespace detail {

namespace {
struct WireDtype {
  int32_t number;
  const char *name;
  DType dtype;
};
constexpr WireDtype kWireDtypes[] = {
    {0, "UNDEFINED", DType::Invalid},
    {1, "FLOAT", DType::F32},
    {2, "UINT8", DType::U8},
    {3, "INT8", DType::I8},
    {4, "UINT16", DType::U16},
    {5, "INT16", DType::I16},
    {6, "INT32", DType::I32},
    {7, "INT64", DType::I64},
    {8, "STRING", DType::Invalid},
    {9, "BOOL", DType::BOOL},
    {10, "FLOAT16", DType::F16},
    {11, "DOUBLE", DType::F64},
    {12, "UINT32", DType::U32},
    {13, "UINT64", DType::U64},
    {14, "COMPLEX64", DType::Invalid},
    {15, "COMPLEX128", DType::Invalid},
    {16, "BFLOAT16", DType::BF16},
    {17, "FLOAT8E4M3FN", DType::F8E4M3},
    {18, "FLOAT8E4M3FNUZ", DType::Invalid},
    {19, "FLOAT8E5M2", DType::F8E5M2},
    {20, "FLOAT8E5M2FNUZ", DType::Invalid},
    {21, "UINT4", DType::Invalid},
    {22, "INT4", DType::Invalid},
    {23, "FLOAT4E2M1", DType::Invalid},
    {24, "FLOAT8E8M0", DType::Invalid},
    {25, "UINT2", DType::Invalid},
    {26, "INT2", DType::Invalid},
};

uint64_t parseNumber(const std::string &text, const std::string &what,
                     const char *key) {
  uint64_t value = 0;
  const char *end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || at != end)
    throw Error(what + ": the external data's " + key + " '" + text +
                "' is not a number of bytes");
  return value;
}

/// The file that `location` names, which must lie inside the model's folder
/// even after symbolic links are followed.
const MappedFile &externalFile(Source &source, const std::string &location,
                               const std::string &what) {
  auto it = source.external.find(location);
  if (it != source.external.end())
    return it->second;
  namespace fs = std::filesystem;
  auto refuse = [&](const std::string &why) {
    throw Error(what + ": external data file '" + location + "' " + why);
  };
  if (source.directory.empty())
    refuse("cannot be read: the model was given without a folder");
  if (location.empty() || location.find('\0') != std::string::npos)
    refuse("is not a file name");
  const fs::path relative(location);
  if (relative.is_absolute())
    refuse("is an absolute path; it must lie in the model's own folder");
  for (const fs::path &part : relative)
    if (part == "..")
      refuse("climbs out of the model's folder with '..'; move the file "
             "beside the model");
  std::error_code error;
  const fs::path folder = fs::canonical(source.directory, error);
  if (error)
    refuse("cannot be read: the model's folder: " + error.message());
  const fs::path file = fs::canonical(folder / relative, error);
  if (error)
    refuse("cannot be opened: " + error.message());
  const auto [folderEnd, fileAt] =
      std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  if (folderEnd != folder.end() || fileAt == file.end())
    refuse("leads out of the model's folder through a symbolic link; copy "
           "the file into the folder");
  return source.external.emplace(location, mapFile(file.string()))
      .first->second;
}

template <typename T, typename Field>
Tensor typedData(const Field &field, TensorType type, const std::string &what,
                 const char *fieldName) {
  if (static_cast<uint64_t>(field.size()) !=
      static_cast<uint64_t>(type.numElements()))
    throw Error(
        what + ": " + fieldName + " holds " + std::to_string(field.size()) +
        " elements and the shape needs " + std::to_string(type.numElements()));
  Tensor result = Tensor::allocate(std::move(type));
  auto *out = reinterpret_cast<T *>(result.mutableBytes().data());
  for (const auto &element : field)
    *out++ = static_cast<T>(element);
  return result;
}

/// Kernels read bool as 0 or 1; a file may hold any byte.
void normaliseBools(Tensor &tensor) {
  bool clean = true;
  for (std::byte b : tensor.bytes)
    clean &= static_cast<uint8_t>(b) <= 1;
  if (clean)
    return;
  Tensor copy = Tensor::allocate(tensor.type);
  for (size_t i = 0; i < tensor.bytes.size(); ++i)
    copy.mutableBytes()[i] = std::byte{tensor.bytes[i] != std::byte{0}};
  tensor = copy;
}

std::string shapeText(const Shape &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}

} // namespace

DType dtypeFromWire(int64_t number) {
  for (const WireDtype &entry : kWireDtypes)
    if (entry.number == number)
      return entry.dtype;
  return DType::Invalid;
}

int32_t dtypeToWire(DType dtype) {
  for (const WireDtype &entry : kWireDtypes)
    if (entry.dtype == dtype && dtype != DType::Invalid)
      return entry.number;
  return 0;
}

std::string wireDtypeName(int64_t number) {
  for (const WireDtype &entry : kWireDtypes)
    if (entry.number == number)
      return entry.name;
  return "type number " + std::to_string(number);
}

uint64_t hashOf(const Tensor &tensor) {
  uint64_t hash = 0xcbf29ce484222325;
  for (std::byte byte : tensor.bytes)
    hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  return hash;
}

void checkTensorSize(const TensorType &type, const std::string &what) {
  constexpr uint64_t kMaxBytes = uint64_t{1} << 46;
  if (type.shape.size() > 64)
    throw Error(what + " has " + std::to_string(type.shape.size()) +
                " dimensions; at most 64 are supported");
  uint64_t bytes = std::max<uint64_t>(dtypeSize(type.dtype), 1);
  for (int64_t dim : type.shape) {
    if (dim < 0)
      throw Error(what + " has a negative dimension: " + shapeText(type.shape));
    // Also where another dimension is 0: products over some of the dimensions
    // must not overflow anywhere.
    if (dim != 0 &&
        __builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes))
      bytes = UINT64_MAX;
    if (bytes > kMaxBytes)
      throw Error(what + " is too large: " + shapeText(type.shape));
  }
}

Tensor tensorFromWire(const wire::Tensor &proto, Source &source,
                      const std::string &what) {
  TensorType type;
  type.dtype = dtypeFromWire(proto.data_type());
  if (type.dtype == DType::Invalid)
    throw Error(what + " is of " + wireDtypeName(proto.data_type()) +
                ", which is not supported; convert it to one of FLOAT, DOUBLE, "
                "FLOAT16, BFLOAT16, FLOAT8E4M3FN, FLOAT8E5M2, BOOL or an 8 to "
                "64 bit integer type");
  if (proto.has_segment())
    throw Error(what + " is stored in segments, which is not supported");
  type.shape.assign(proto.dims().begin(), proto.dims().end());
  checkTensorSize(type, what);
  const uint64_t needed = type.numBytes();

  Tensor result;
  result.type = type;
  auto fits = [&](uint64_t have) {
    if (have != needed)
      throw Error(what + ": " + std::to_string(have) +
                  " bytes of data, and the shape " + shapeText(type.shape) +
                  " of " + std::string(dtypeName(type.dtype)) + " needs " +
                  std::to_string(needed));
  };

  if (proto.data_location() == 1) {
    std::string location;
    uint64_t offset = 0;
    std::optional<uint64_t> length;
    for (const auto &entry : proto.external_data()) {
      if (entry.key() == "location")
        location = entry.value();
      else if (entry.key() == "offset")
        offset = parseNumber(entry.value(), what, "offset");
      else if (entry.key() == "length")
        length = parseNumber(entry.value(), what, "length");
    }
    if (length)
      fits(*length);
    const MappedFile &file = externalFile(source, location, what);
    if (offset > file.bytes.size() || needed > file.bytes.size() - offset)
      throw Error(what + ": external data file '" + location + "' has " +
                  std::to_string(file.bytes.size()) + " bytes, and " +
                  std::to_string(needed) + " at offset " +
                  std::to_string(offset) +
                  " are needed; the file is truncated or belongs to another "
                  "model");
    result.bytes = file.bytes.subspan(offset, needed);
    result.owner = file.owner;
  } else if (proto.mapped_length() > 0) {
    const uint64_t offset = proto.mapped_offset();
    const uint64_t length = proto.mapped_length();
    fits(length);
    if (offset > source.file.bytes.size() ||
        length > source.file.bytes.size() - offset)
      throw Error(what + ": its data lies outside the file");
    result.bytes = source.file.bytes.subspan(offset, length);
    result.owner = source.file.owner;
  } else if (!proto.raw_data().empty() || needed == 0) {
    fits(proto.raw_data().size());
    result = Tensor::allocate(type);
    if (needed)
      std::memcpy(result.mutableBytes().data(), proto.raw_data().data(),
                  needed);
  } else {
    switch (type.dtype) {
    case DType::F32:
      return typedData<float>(proto.float_data(), type, what, "float_data");
    case DType::F64:
      return typedData<double>(proto.double_data(), type, what, "double_data");
    case DType::I64:
      return typedData<int64_t>(proto.int64_data(), type, what, "int64_data");
    case DType::U64:
      return typedData<uint64_t>(proto.uint64_data(), type, what,
                                 "uint64_data");
    case DType::U32:
      return typedData<uint32_t>(proto.uint64_data(), type, what,
                                 "uint64_data");
    case DType::I32:
      return typedData<int32_t>(proto.int32_data(), type, what, "int32_data");
    case DType::I16:
      return typedData<int16_t>(proto.int32_data(), type, what, "int32_data");
    case DType::U16:
    case DType::F16:
    case DType::BF16:
      return typedData<uint16_t>(proto.int32_data(), type, what, "int32_data");
    case DType::I8:
      return typedData<int8_t>(proto.int32_data(), type, what, "int32_data");
    case DType::BOOL:
      result = typedData<uint8_t>(proto.int32_data(), type, what, "int32_data");
      break;
    default:
      return typedData<uint8_t>(proto.int32_data(), type, what, "int32_data");
    }
  }
  if (type.dtype == DType::BOOL)
    normaliseBools(result);
  return result;
}

} // namespace detail

Tensor readTensorProto(const std::string &path) {
  detail::Source source;
  source.name = path;
  source.file = detail::mapFile(path);
  source.directory = std::filesystem::path(path).parent_path().string();
  if (source.directory.empty())
    source.directory = ".";
  try {
    const std::string message =
        detail::takeOutRawData(source.file.bytes, detail::Message::Tensor);
    onnx_wire::Tensor proto;
    if (!proto.ParseFromString(message))
      throw Error("not a serialised TensorProto");
    return detail::tensorFromWire(proto, source,
                                  "tensor '" + proto.name() + "'");
  } catch (const Error &error) {
    throw Error(path + ": " + error.what());
  }
}

void writeTensorProto(const std::string &path, const std::string &name,
                      const Tensor &tensor) {
  onnx_wire::Tensor proto;
  proto.set_name(name);
  proto.set_data_type(detail::dtypeToWire(tensor.type.dtype));
  for (int64_t dim : tensor.type.shape)
    proto.add_dims(dim);
  proto.set_raw_data(tensor.bytes.data(), tensor.bytes.size());
  // Written beside the target and renamed, so that a full disk leaves no half
  // file under the name.
  const std::string temporary = path + ".partial";
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    if (!proto.SerializeToOstream(&out) || !out.flush()) {
      out.close();
      std::remove(temporary.c_str());
      throw Error(path + ": cannot be written: " + std::strerror(errno));
    }
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    std::remove(temporary.c_str());
    throw Error(path + ": cannot be written: " + why);
  }
}

} // namespace concord::onnx
