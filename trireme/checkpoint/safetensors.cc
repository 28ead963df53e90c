#include "trireme/checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/numbers.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/fail.h"
#include "trireme/checkpoint/tensor_boxes.h"

namespace trireme::checkpoint {

// The reader trusts nothing in a file: lengths are compared with the file before they are used, the
// header goes through the bounded JSON reader, and the tensors must fill the data without gap or
// overlap. That last rule is the format's own, and it is what makes every later access safe: a
// tensor's range lies in the file and belongs to no other. Files are mapped and not read, so
// opening one costs its header. A mapped file that shrinks would end the process by SIGBUS; our
// code never rewrites a file in place, it makes a new one under another name. The writer sorts by
// element size, so that each tensor can be used where it is mapped.

namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

constexpr std::pair<at::ScalarType, const char*> kDtypes[] = {
    {at::kDouble, "F64"}, {at::kFloat, "F32"}, {at::kHalf, "F16"},  {at::kBFloat16, "BF16"},
    {at::kLong, "I64"},   {at::kInt, "I32"},   {at::kShort, "I16"}, {at::kChar, "I8"},
    {at::kByte, "U8"},    {at::kBool, "BOOL"}};

constexpr const char* kDtypeNames = "F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL";

// The header's length, little-endian, takes this many bytes.
constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
// A tensor takes about eight values, so this is a million tensors.
constexpr size_t kMaxHeaderValues = size_t{8} << 20;
constexpr const char* kMetadataKey = "__metadata__";

[[noreturn]] void fail_to_read(const std::filesystem::path& path, const char* reason) {
  throw CheckpointError(concat("cannot read ", path.string(), ": ", reason));
}

TensorInfo parse_info(const std::string& name, const JsonView& value) {
  TensorInfo info{.name = name};
  const JsonView dtype = value.at("dtype");
  try {
    info.dtype = parse_dtype(dtype.text());
  } catch (const ConfigError&) {
    // The message of JsonView has the place in the header.
    dtype.fail(concat("one of ", kDtypeNames));
  }
  info.shape = value.at("shape").integers(0);
  const JsonView offsets = value.at("data_offsets");
  const std::vector<int64_t> ends = offsets.integers(0);
  if (ends.size() != 2) offsets.fail("two offsets");
  info.begin = static_cast<uint64_t>(ends[0]);
  // Signs and order are checked below, all in one place.
  info.end = static_cast<uint64_t>(ends[1]);
  return info;
}

uint64_t size_in_bytes(const TensorInfo& info, const std::filesystem::path& path) {
  const auto bytes = num_bytes_of(info.shape, c10::elementSize(info.dtype));
  if (!bytes)
    fail(path, "tensor \"", info.name, "\" has an impossible shape: ", shown_shape(info.shape),
         ", expected at most ", kMaxDims, " dimensions and 2^63 - 1 bytes");
  return static_cast<uint64_t>(*bytes);
}

// The tensors must fill [0, data_bytes) exactly: no overlap, no gap, nothing after them.
void check_offsets(std::span<const TensorInfo> tensors, uint64_t data_bytes,
                   const std::filesystem::path& path) {
  uint64_t at = 0;
  for (const TensorInfo& info : tensors) {
    // Each comparison holds before the subtraction after it.
    if (info.begin > info.end || info.end > data_bytes)
      fail(path, "tensor \"", info.name, "\" lies at bytes ", info.begin, " to ", info.end, " of ",
           data_bytes, ": the file is truncated or damaged");
    if (info.end - info.begin != size_in_bytes(info, path))
      fail(path, "tensor \"", info.name, "\" has ", info.end - info.begin,
           " bytes, its shape and dtype need ", size_in_bytes(info, path));
    if (info.begin != at)
      fail(path, "tensor \"", info.name, "\" begins at byte ", info.begin, ", expected ", at,
           info.begin < at ? ": it overlaps another" : ": there is a gap before it");
    at = info.end;
  }
  if (at != data_bytes)
    fail(path, "the tensors end at byte ", at, " of ", data_bytes, ": surplus bytes behind them");
}

}  // namespace

std::string safetensors_header(std::span<const TensorInfo> tensors,
                               const std::map<std::string, std::string>& metadata,
                               const std::filesystem::path& path, size_t alignment) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  for (const TensorInfo& info : tensors) {
    header[info.name] = {{"dtype", dtype_name(info.dtype)},
                         {"shape", info.shape},
                         {"data_offsets", {info.begin, info.end}}};
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    fail(path, "a tensor's name or the metadata is not UTF-8");
  }
  // Padding with blanks is allowed by the format, and puts the data at the alignment.
  text.resize(round_up(kLengthBytes + text.size(), alignment) - kLengthBytes, ' ');
  if (text.size() > kMaxHeaderBytes)
    fail(path, "header of ", text.size(), " bytes, at most ", kMaxHeaderBytes, " allowed");
  const uint64_t length = text.size();
  std::string result(kLengthBytes, '\0');
  std::memcpy(result.data(), &length, kLengthBytes);
  return result + text;
}

std::string dtype_name(at::ScalarType dtype) {
  for (const auto& [type, name] : kDtypes) {
    if (type == dtype) return name;
  }
  throw ConfigError(
      concat("dtype ", c10::toString(dtype), " cannot be stored; expected one of ", kDtypeNames));
}

at::ScalarType parse_dtype(const std::string& name) {
  for (const auto& [type, known] : kDtypes) {
    if (name == known) return type;
  }
  throw ConfigError(concat("dtype \"", name, "\" is unknown; expected one of ", kDtypeNames));
}

uint64_t size_of_file(const std::filesystem::path& path) {
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  // Not found is the checkpoint's fault, and any other error this machine's.
  if (status.type() == std::filesystem::file_type::not_found || !code) {
    if (!std::filesystem::exists(status)) fail_to_read(path, "No such file or directory");
    if (!std::filesystem::is_regular_file(status)) fail_to_read(path, "it is not a regular file");
    const uint64_t num_bytes = std::filesystem::file_size(path, code);
    if (!code) return num_bytes;
  }
  throw Error(concat("cannot read ", path.string(), ": ", code.message()));
}

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path) : path_(path) {
  // A FIFO would block the mapping's open.
  size_of_file(path);  // also checks that it is a regular file
  file_ = std::make_shared<MappedFile>(path);
  parse(path);
}

void SafetensorsReader::parse(const std::filesystem::path& path) {
  const auto bytes = file_->bytes();
  if (bytes.size() < kLengthBytes)
    fail(path, bytes.size(), " bytes, a safetensors file has at least 8: truncated");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes)
    fail(path, "header of ", length, " bytes, at most ", kMaxHeaderBytes,
         " allowed: not a safetensors file, or damaged");
  if (length > bytes.size() - kLengthBytes)
    fail(path, "header of ", length, " bytes in a file of ", bytes.size(), ": truncated");
  data_begin_ = kLengthBytes + length;
  parse_header({reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length});
  // JSON has no order of its own, and the checks go by byte.
  std::stable_sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  check_offsets(tensors_, bytes.size() - data_begin_, path);
  for (size_t i = 0; i < tensors_.size(); ++i) index_[tensors_[i].name] = i;
}

void SafetensorsReader::parse_header(std::string_view text) {
  const std::string source = path_.string() + ", header";
  try {
    const nlohmann::json header =
        parse_json(text, source, {.max_bytes = kMaxHeaderBytes, .max_values = kMaxHeaderValues});
    for (const auto& [name, value] : JsonView(header, source).members()) {
      if (name != kMetadataKey) {
        if (!is_printable(name))
          fail(path_, "the name ", in_quotes(name), " is too long or has control characters");
        tensors_.push_back(parse_info(name, value));
        continue;
      }
      for (const auto& [key, entry] : value.members()) metadata_[key] = entry.text();
    }
  } catch (const ConfigError& error) {
    throw CheckpointError(error.what());
  }
}

const TensorInfo* SafetensorsReader::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

std::span<const std::byte> SafetensorsReader::header() const {
  return file_->bytes().first(data_begin_);
}

std::span<const std::byte> SafetensorsReader::bytes(const std::string& name) const {
  const TensorInfo* info = find(name);
  if (info == nullptr) fail(path_, "there is no tensor \"", name, "\"");
  return file_->bytes().subspan(data_begin_ + info->begin, info->end - info->begin);
}

std::span<const std::byte> SafetensorsReader::data() const {
  return file_->bytes().subspan(data_begin_);
}

at::Tensor SafetensorsReader::view(const std::string& name) const {
  bytes(name);  // or throws
  const TensorInfo& info = *find(name);
  return view(info.begin, info.dtype, info.shape);
}

at::Tensor SafetensorsReader::view(uint64_t begin, at::ScalarType dtype,
                                   at::IntArrayRef shape) const {
  const auto num_bytes = num_bytes_of(shape, c10::elementSize(dtype));
  TRIREME_ASSERT(num_bytes && begin <= data().size() &&
                     static_cast<uint64_t>(*num_bytes) <= data().size() - begin,
                 path_.string(), " has no tensor of shape ", shape, " at byte ", begin);
  const auto found = data().subspan(begin, static_cast<size_t>(*num_bytes));
  const auto options = at::TensorOptions().dtype(dtype);
  // The format does not promise alignment; other programs' files may lack it.
  const bool is_aligned = reinterpret_cast<uintptr_t>(found.data()) % c10::elementSize(dtype) == 0;
  if (is_aligned && !found.empty()) {
    // The deleter holds the mapping as long as any tensor needs it.
    // from_blob takes no const pointer, but the mapping itself forbids writes.
    return at::from_blob(
        const_cast<std::byte*>(found.data()), shape, [file = file_](void*) {}, options);
  }
  at::Tensor copy = at::empty(shape, options);
  if (!found.empty()) std::memcpy(copy.mutable_data_ptr(), found.data(), found.size());
  return copy;
}

at::Tensor SafetensorsReader::read(const std::string& name) const {
  const auto data = bytes(name);
  const TensorInfo& info = *find(name);
  at::Tensor result = at::empty(info.shape, at::TensorOptions().dtype(info.dtype));
  if (!data.empty()) std::memcpy(result.mutable_data_ptr(), data.data(), data.size());
  return result;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<TensorInfo> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), file_(path), tensors_(std::move(tensors)) {
  std::stable_sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) {
    return c10::elementSize(a.dtype) > c10::elementSize(b.dtype);
  });
  uint64_t at = 0;
  // The reserved key counts as taken.
  std::map<std::string, int> uses{{kMetadataKey, 1}};
  for (TensorInfo& info : tensors_) {
    if (++uses[info.name] > 1) fail(path, "tensor name \"", info.name, "\" is taken");
    info.begin = at;
    info.end = at + size_in_bytes(info, path);
    at = info.end;
  }
  const std::string header = safetensors_header(tensors_, metadata, path);
  header_checksum_ = checksum(std::as_bytes(std::span(header)));
  num_bytes_ = header.size() + at;
  file_.write(header);
}

std::string SafetensorsWriter::write(const at::Tensor& tensor) {
  // Parts and whole tensors must not be mixed: the bytes would be at the wrong place.
  TRIREME_ASSERT(next_ < tensors_.size() && part_bytes_ == 0, path_.string(),
                 " is complete, or a tensor in it is not");
  const TensorInfo& info = tensors_[next_++];
  TRIREME_ASSERT(
      tensor.scalar_type() == info.dtype && tensor.sizes() == at::IntArrayRef(info.shape), "\"",
      info.name, "\" was announced with another dtype or shape");
  // A device's tensor comes here, one at a time.
  const at::Tensor data = tensor.detach().cpu().contiguous();
  const auto* begin = static_cast<const std::byte*>(data.const_data_ptr());
  file_.write(begin, data.nbytes());
  return checksum({begin, data.nbytes()});
}

void SafetensorsWriter::write_part(const at::Tensor& part) {
  TRIREME_ASSERT(next_ < tensors_.size(), path_.string(), " is complete");
  const TensorInfo& info = tensors_[next_];
  const at::Tensor data = part.detach().cpu().contiguous();
  part_bytes_ += data.nbytes();
  TRIREME_ASSERT(data.scalar_type() == info.dtype && part_bytes_ <= info.end - info.begin, "\"",
                 info.name, "\" was announced with another dtype or fewer elements");
  file_.write(data.const_data_ptr(), data.nbytes());
  if (part_bytes_ < info.end - info.begin) return;
  ++next_;
  part_bytes_ = 0;
}

void SafetensorsWriter::finish(bool fsync) {
  TRIREME_ASSERT(next_ == tensors_.size(), tensors_.size() - next_, " tensors were not written");
  if (fsync) file_.sync();
  file_.close();
}

void write_safetensors(const std::filesystem::path& path,
                       const std::map<std::string, at::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<TensorInfo> infos;
  for (const auto& [name, tensor] : tensors)
    infos.push_back({.name = name, .dtype = tensor.scalar_type(), .shape = tensor.sizes().vec()});
  SafetensorsWriter writer(path, std::move(infos), metadata);
  for (const TensorInfo& info : writer.tensors()) writer.write(tensors.at(info.name));
  writer.finish(/*fsync=*/true);
}

}  // namespace trireme::checkpoint
