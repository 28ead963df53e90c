#include "trireme/checkpoint/foreign/torch_archive.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/bounded_json.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/fail.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/tensor_boxes.h"

namespace trireme::checkpoint {
namespace {

constexpr TorchName kNames[] = {
    {at::kDouble, "torch.float64", "torch.DoubleStorage"},
    {at::kFloat, "torch.float32", "torch.FloatStorage"},
    {at::kHalf, "torch.float16", "torch.HalfStorage"},
    {at::kBFloat16, "torch.bfloat16", "torch.BFloat16Storage"},
    {at::kLong, "torch.int64", "torch.LongStorage"},
    {at::kInt, "torch.int32", "torch.IntStorage"},
    {at::kShort, "torch.int16", "torch.ShortStorage"},
    {at::kChar, "torch.int8", "torch.CharStorage"},
    {at::kByte, "torch.uint8", "torch.ByteStorage"},
    {at::kBool, "torch.bool", "torch.BoolStorage"},
    {at::kComplexDouble, "torch.complex128", "torch.ComplexDoubleStorage"},
    {at::kComplexFloat, "torch.complex64", "torch.ComplexFloatStorage"},
    {at::kFloat8_e4m3fn, "torch.float8_e4m3fn", ""},
    {at::kFloat8_e5m2, "torch.float8_e5m2", ""},
    {at::kUInt16, "torch.uint16", ""},
    {at::kUInt32, "torch.uint32", ""},
    {at::kUInt64, "torch.uint64", ""}};

constexpr std::string_view kTensor2 = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kTensor3 = "torch._utils._rebuild_tensor_v3";
constexpr std::string_view kParameter = "torch._utils._rebuild_parameter";
constexpr std::string_view kUntyped = "torch.storage.UntypedStorage";

std::string find_folder(const StoredZip& zip) {
  constexpr std::string_view kPickle = "/data.pkl";
  for (const auto& [name, entry] : zip.entries()) {
    // The folder has the archive's name. A data.pkl deeper inside is another's.
    if (name.ends_with(kPickle) && name.find('/') == name.size() - kPickle.size())
      return name.substr(0, name.size() - kPickle.size() + 1);
  }
  fail(zip.file()->path(), "a zip archive without data.pkl; expected what torch.save writes");
}

// The elements from the first to the last in memory; -1 when the number does not fit.
int64_t extent(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
  int64_t last = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    int64_t more = 0;
    if (shape[d] == 0) return 0;
    // Strides come from the file, and their sum decides how much is read.
    if (__builtin_mul_overflow(shape[d] - 1, strides[d], &more) ||
        __builtin_add_overflow(last, more, &last))
      return -1;
  }
  return last == std::numeric_limits<int64_t>::max() ? -1 : last + 1;
}

// Values may contain each other in circles.
constexpr int kMaxDepth = 32;
// Values may be shared, so a small file can hold a tree of any size. This bounds the tree's memory.
constexpr size_t kMaxTreeBytes = size_t{256} << 20;
constexpr size_t kTensorBytes = 512;
constexpr size_t kValueBytes = 16;

TorchArchive open_archive(const std::filesystem::path& path) {
  size_of_file(path);  // a CheckpointError when there is none
  auto file = std::make_shared<const InputFile>(path);
  const uint64_t size = file->num_bytes();
  return {std::move(file), 0, size};
}

// Collects the tensors of a tree of dicts, lists and tuples.
class Collector {
 public:
  Collector(const std::filesystem::path& path, const TorchArchive& archive)
      : path_(path), archive_(archive) {}

  void visit(const PickleValue& value, const std::string& name, int depth) {
    if (depth > kMaxDepth) value.fail(concat("values nested at most ", kMaxDepth, " deep"));
    switch (value.kind()) {
      case PickleKind::kDict:
        for (const auto& [key, member] : value.members()) visit_member(key, member, name, depth);
        break;
      case PickleKind::kTuple:
      case PickleKind::kList: {
        size_t index = 0;
        for (const PickleValue& item : value.items())
          visit_part(item, name, std::to_string(index++), depth);
        break;
      }
      case PickleKind::kRecord: add(value, name); break;
      default: break;
    }
  }
  std::map<std::string, StoredTensor> take() { return std::move(tensors_); }

 private:
  static bool holds_tensors(const PickleValue& value) {
    return value.kind() == PickleKind::kDict || value.kind() == PickleKind::kTuple ||
           value.kind() == PickleKind::kList || value.kind() == PickleKind::kRecord;
  }
  void visit_member(const PickleValue& key, const PickleValue& member, const std::string& name,
                    int depth) {
    // Not tensors, but counted all the same: they come from the file.
    if (!holds_tensors(member)) return count(member, kValueBytes);
    // Optimizers number their states.
    const bool is_number = key.kind() == PickleKind::kInteger;
    visit_part(
        member, name,
        is_number ? std::to_string(key.integer(std::numeric_limits<int64_t>::min())) : key.word(),
        depth);
  }
  void visit_part(const PickleValue& part, const std::string& name, const std::string& key,
                  int depth) {
    count(part, kValueBytes);
    if (!holds_tensors(part)) return;
    const std::string full = name.empty() ? key : name + "." + key;
    // Names grow with the depth, and this bounds them.
    if (!is_printable(full)) part.fail("a value whose name is shorter");
    count(part, full.size());
    visit(part, full, depth + 1);
  }
  void add(const PickleValue& value, const std::string& name) {
    auto tensor = archive_.find_tensor(value);
    if (!tensor) return;
    count(value, kTensorBytes + name.size());
    // A key may be an integer or its text, which become the same name.
    if (!tensors_.emplace(name, std::move(*tensor)).second)
      fail(path_, "has the tensor ", in_quotes(name), " twice");
  }
  void count(const PickleValue& value, size_t num_bytes) {
    tree_bytes_ += num_bytes;
    if (tree_bytes_ > kMaxTreeBytes)
      value.fail(concat("a tree of at most ", kMaxTreeBytes, " bytes of names and values"));
  }

  const std::filesystem::path& path_;
  const TorchArchive& archive_;
  std::map<std::string, StoredTensor> tensors_;
  size_t tree_bytes_ = 0;
};

}  // namespace

const TorchName* find_torch_name(at::ScalarType dtype) {
  const auto* found = std::ranges::find(kNames, dtype, &TorchName::dtype);
  return found == std::end(kNames) ? nullptr : found;
}

const TorchName* find_torch_name(std::string_view name) {
  const auto* found = std::ranges::find_if(kNames, [&](const TorchName& known) {
    return !name.empty() && (known.name == name || known.storage == name);
  });
  return found == std::end(kNames) ? nullptr : found;
}

std::vector<std::string_view> torch_names(std::initializer_list<std::string_view> more) {
  std::vector<std::string_view> names(more);
  for (const TorchName& known : kNames) {
    names.push_back(known.name);
    if (!known.storage.empty()) names.push_back(known.storage);
  }
  return names;
}

TorchArchive::TorchArchive(std::shared_ptr<const InputFile> file, uint64_t begin, uint64_t size)
    : zip_(as_checkpoint_error(
          [&] { return StoredZip(std::move(file), begin, size, "torch.save"); })),
      folder_(find_folder(zip_)) {
  constexpr uint64_t kMaxWord = 64;
  const std::string entry = folder_ + "byteorder";
  // Older versions of PyTorch do not write it.
  if (!zip_.entries().contains(entry)) return;
  const std::string order = as_checkpoint_error([&] { return zip_.read(entry, kMaxWord); });
  if (order != "little")
    fail(zip_.file()->path(), "its byte order is ", in_quotes(order),
         "; expected little: save it on a little-endian machine");
}

Pickle TorchArchive::pickle() const {
  // Functions that build tensors, and types of values that trainers save with them: bytes are
  // _codecs.encode in protocol 2.
  const auto names = torch_names(
      {"collections.OrderedDict", kTensor2, kTensor3, kParameter, kUntyped, "torch.Size",
       "torch.device", "torch.serialization._get_layout", "argparse.Namespace", "_codecs.encode"});
  return {as_checkpoint_error([&] { return zip_.read(folder_ + "data.pkl", kMaxPickleBytes); }),
          names, concat(zip_.file()->path().string(), ", data.pkl")};
}

std::optional<StoredTensor> TorchArchive::find_tensor(const PickleValue& value) const {
  if (value.kind() != PickleKind::kRecord) return std::nullopt;
  const std::string_view callable = value.global();
  if (callable == kParameter) {
    const PickleValue data = value.arguments(1)[0];
    // Otherwise a circle of parameters would be followed for ever.
    // A parameter holds a tensor and not another parameter.
    if (data.global() != kTensor2 && data.global() != kTensor3) data.fail("a tensor");
    return tensor_of(data);
  }
  if (callable != kTensor2 && callable != kTensor3) return std::nullopt;
  return tensor_of(value);
}

StoredTensor TorchArchive::tensor_of(const PickleValue& value) const {
  const bool has_dtype = value.global() == kTensor3;
  const auto arguments = value.arguments(has_dtype ? 7 : 6);
  // ("storage", its type, its name, its device, its number of elements)
  const auto storage = arguments[0].reference().items(5);
  const TorchName* type = find_torch_name(storage[1].global());
  if (type == nullptr && storage[1].global() != kUntyped) storage[1].fail("a type of storage");
  const TorchName* dtype = has_dtype ? find_torch_name(arguments[6].global()) : type;
  if (dtype == nullptr) value.fail("a tensor of a known dtype");
  StoredTensor stored{
      .tensor = {.dtype = dtype->dtype, .shape = arguments[2].integers(kMaxDims, 0)},
      .strides = arguments[3].integers(kMaxDims, 0)};
  const std::vector<int64_t>& shape = stored.tensor.shape;
  const auto item_size = static_cast<int64_t>(c10::elementSize(dtype->dtype));
  const auto num_bytes = num_bytes_of(shape, static_cast<size_t>(item_size));
  if (!num_bytes || stored.strides.size() != shape.size())
    value.fail(concat("a tensor of at most 2^63 - 1 bytes and as many strides as dimensions, not ",
                      shown_shape(shape), " and ", shown_shape(stored.strides)));
  const StoredZip::Entry entry =
      as_checkpoint_error([&] { return zip_.at(folder_ + "data/" + storage[2].word()); });
  const int64_t storage_item =
      // An untyped storage counts bytes.
      type == nullptr ? 1 : static_cast<int64_t>(c10::elementSize(type->dtype));
  int64_t storage_bytes = 0;
  if (__builtin_mul_overflow(storage[4].integer(0), storage_item, &storage_bytes) ||
      // The zip entry's size is a fact; the pickle's number is a claim.
      static_cast<uint64_t>(storage_bytes) != entry.size)
    value.fail(concat("a storage of ", entry.size, " bytes, as ", in_quotes(storage[2].word()),
                      " has in the archive"));
  const int64_t room = storage_bytes / item_size;
  const int64_t first = arguments[1].integer(0, room);
  stored.num_elements = extent(shape, stored.strides);
  // A tensor may be a view of a storage that others share, but never reach outside.
  if (stored.num_elements < 0 || stored.num_elements > room - first)
    value.fail(concat("a tensor within its storage of ", room, " elements, not ",
                      shown_shape(shape), " with strides ", shown_shape(stored.strides),
                      " at element ", first));
  // Strides of 0 repeat elements: a small file could claim any memory.
  if (static_cast<uint64_t>(*num_bytes) > zip_.file()->num_bytes())
    value.fail(concat("a tensor of at most the ", zip_.file()->num_bytes(),
                      " bytes of the file: save it without repeated elements (Tensor.contiguous)"));
  stored.offset = entry.offset + static_cast<uint64_t>(first * item_size);
  return stored;
}

StoredTensor TorchArchive::part_of(const StoredTensor& stored, const mesh::Box& box) {
  StoredTensor part = stored;
  part.tensor.shape = box.size;
  part.num_elements = extent(box.size, stored.strides);
  const uint64_t item_size = c10::elementSize(stored.tensor.dtype);
  for (size_t d = 0; d < box.size.size(); ++d)
    part.offset += static_cast<uint64_t>(box.offset[d] * stored.strides[d]) * item_size;
  return part;
}

at::Tensor TorchArchive::read(const StoredTensor& stored) const {
  const auto options = at::TensorOptions().dtype(stored.tensor.dtype);
  if (stored.num_elements == 0) return at::empty(stored.tensor.shape, options);
  const at::Tensor range = at::empty({stored.num_elements}, options);
  zip_.file()->read(stored.offset,
                    {static_cast<std::byte*>(range.mutable_data_ptr()), range.nbytes()});
  // The elements in their range first, in one read, then in order.
  return range.as_strided(stored.tensor.shape, stored.strides).contiguous();
}

StateDictSource::StateDictSource(const std::filesystem::path& path)
    : path_(path), archive_(open_archive(path)) {
  const Pickle pickle = archive_.pickle();
  if (archive_.find_tensor(pickle.root()))
    fail(path, "is one tensor without a name; expected a dict of tensors: save {name: tensor}");
  Collector collector(path, archive_);
  collector.visit(pickle.root(), "", 0);
  stored_ = collector.take();
  for (const auto& [name, stored] : stored_) tensors_.emplace(name, stored.tensor);
}

const StoredTensor& StateDictSource::stored(const std::string& name) const {
  const auto found = stored_.find(name);
  if (found == stored_.end()) fail(path_, "there is no tensor ", in_quotes(name));
  return found->second;
}

}  // namespace trireme::checkpoint
