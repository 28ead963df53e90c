#include "trireme/checkpoint/foreign/torch_archive.h"

#include <span>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/bounded_json.h"
#include "trireme/checkpoint/exact_cover.h"
#include "trireme/checkpoint/fail.h"
#include "trireme/checkpoint/foreign/torch_names.h"

namespace trireme::checkpoint::inline internal {
namespace {

constexpr std::string_view kTensor2 = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kTensor3 = "torch._utils._rebuild_tensor_v3";
constexpr std::string_view kParameter = "torch._utils._rebuild_parameter";
constexpr std::string_view kUntyped = "torch.storage.UntypedStorage";

std::string find_folder(const StoredZip& zip) {
  constexpr std::string_view kPickle = "/data.pkl";
  for (const auto& [name, entry] : zip.entries()) {
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
    if (__builtin_mul_overflow(shape[d] - 1, strides[d], &more) ||
        __builtin_add_overflow(last, more, &last))
      return -1;
  }
  return last == std::numeric_limits<int64_t>::max() ? -1 : last + 1;
}

}  // namespace

TorchArchive::TorchArchive(std::shared_ptr<const InputFile> file, uint64_t begin, uint64_t size)
    : zip_(as_checkpoint_error(
          [&] { return StoredZip(std::move(file), begin, size, "torch.save"); })),
      folder_(find_folder(zip_)) {
  constexpr uint64_t kMaxWord = 64;
  const std::string entry = folder_ + "byteorder";
  if (!zip_.entries().contains(entry)) return;
  const std::string order = as_checkpoint_error([&] { return zip_.read(entry, kMaxWord); });
  if (order != "little")
    fail(zip_.file()->path(), "its byte order is ", in_quotes(order),
         "; expected little: save it on a little-endian machine");
}

Pickle TorchArchive::pickle() const {
  // Those that build tensors, and those of values that trainers save with them: bytes are
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
      type == nullptr ? 1 : static_cast<int64_t>(c10::elementSize(type->dtype));
  int64_t storage_bytes = 0;
  if (__builtin_mul_overflow(storage[4].integer(0), storage_item, &storage_bytes) ||
      static_cast<uint64_t>(storage_bytes) != entry.size)
    value.fail(concat("a storage of ", entry.size, " bytes, as ", in_quotes(storage[2].word()),
                      " has in the archive"));
  const int64_t room = storage_bytes / item_size;
  const int64_t first = arguments[1].integer(0, room);
  stored.num_elements = extent(shape, stored.strides);
  if (stored.num_elements < 0 || stored.num_elements > room - first)
    value.fail(concat("a tensor within its storage of ", room, " elements, not ",
                      shown_shape(shape), " with strides ", shown_shape(stored.strides),
                      " at element ", first));
  if (static_cast<uint64_t>(*num_bytes) > zip_.file()->num_bytes())
    value.fail(concat("a tensor of at most the ", zip_.file()->num_bytes(),
                      " bytes of the file: save it without repeated elements (Tensor.contiguous)"));
  stored.offset = entry.offset + static_cast<uint64_t>(first * item_size);
  return stored;
}

at::Tensor TorchArchive::read(const StoredTensor& stored) const {
  const auto options = at::TensorOptions().dtype(stored.tensor.dtype);
  if (stored.num_elements == 0) return at::empty(stored.tensor.shape, options);
  const at::Tensor range = at::empty({stored.num_elements}, options);
  zip_.file()->read(stored.offset,
                    {static_cast<std::byte*>(range.mutable_data_ptr()), range.nbytes()});
  return range.as_strided(stored.tensor.shape, stored.strides).contiguous();
}

}  // namespace trireme::checkpoint::inline internal
