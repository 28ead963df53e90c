#include "trireme/checkpoint/foreign/dcp_source.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/bounded_json.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/fail.h"
#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/checkpoint/foreign/torch_archive.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/tensor_boxes.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

// Bounds the table of files; a real folder has one or a few per rank.
constexpr size_t kMaxFiles = size_t{1} << 20;
// A pickle may share a list of chunks among tensors, so their number says little about their work.
constexpr size_t kMaxChunks = size_t{8} << 20;

#define TRIREME_DCP "torch.distributed.checkpoint.metadata."
constexpr std::string_view kMetadataClass = TRIREME_DCP "Metadata";
constexpr std::string_view kTensorClass = TRIREME_DCP "TensorStorageMetadata";
constexpr std::string_view kBytesClass = TRIREME_DCP "BytesStorageMetadata";
constexpr std::string_view kChunkClass = TRIREME_DCP "ChunkStorageMetadata";
constexpr std::string_view kPropertiesClass = TRIREME_DCP "TensorProperties";
constexpr std::string_view kIndexClass = TRIREME_DCP "MetadataIndex";
constexpr std::string_view kFormatClass = TRIREME_DCP "_MEM_FORMAT_ENCODING";
constexpr std::string_view kStorageClass = TRIREME_DCP "StorageMeta";
#undef TRIREME_DCP
constexpr std::string_view kPlaceClass = "torch.distributed.checkpoint.filesystem._StorageInfo";
constexpr std::string_view kSizeClass = "torch.Size";

void require(const PickleValue& value, std::string_view global) {
  if (value.kind() != PickleKind::kRecord || value.global() != global) value.fail(global);
}

std::vector<int64_t> read_size(const PickleValue& value) {
  require(value, kSizeClass);
  return value.arguments(1)[0].integers(kMaxDims, 0);
}

std::string read_metadata(const fs::path& path) {
  size_of_file(path);  // a CheckpointError when there is none
  return read_file(path, kMaxPickleBytes);
}

}  // namespace

DcpSource::DcpSource(const fs::path& folder) : folder_(folder) {
  const fs::path path = folder / kDcpMetadata;
  const auto names = torch_names(
      // Every global that such a pickle of PyTorch 2.13 names. Others are refused, and none is
      // called.
      {kMetadataClass, kTensorClass, kBytesClass, kChunkClass, kPropertiesClass, kIndexClass,
       kFormatClass, kStorageClass, kPlaceClass, kSizeClass, "torch.serialization._get_layout",
       "collections.OrderedDict", "pathlib.PosixPath", "pathlib._local.PosixPath"});
  const Pickle pickle(read_metadata(path), names, path.string());
  require(pickle.root(), kMetadataClass);
  const Places places = read_places(pickle.root().attribute("storage_data"));
  for (const auto& [key, value] : pickle.root().attribute("state_dict_metadata").members()) {
    const std::string name = key.word();
    if (value.global() == kBytesClass) continue;
    require(value, kTensorClass);
    read_tensor(name, value, places);
  }
  check_overlap();
}

DcpSource::Places DcpSource::read_places(const PickleValue& storage) {
  Places places;
  for (const auto& [index, info] : storage.members()) {
    require(index, kIndexClass);
    const auto offset = index.find_attribute("offset");
    // Values that are not tensors have an index without an offset.
    if (!offset || offset->kind() == PickleKind::kNone) continue;  // not a tensor
    const std::string name = index.attribute("fqn").word();
    if (!places[name].emplace(read_size(*offset), read_place(info)).second)
      index.fail(concat("one place for the chunk of ", in_quotes(name), " at ",
                        shown_shape(read_size(*offset))));
  }
  return places;
}

DcpSource::Place DcpSource::read_place(const PickleValue& info) {
  require(info, kPlaceClass);
  if (const auto transforms = info.find_attribute("transform_descriptors");
      transforms && transforms->kind() != PickleKind::kNone)
    transforms->fail("None: chunks that are compressed or transformed are not read");
  const size_t file = file_of(info.attribute("relative_path"));
  // Against the size of the file itself: a place beyond its end is damage, and not memory to
  // allocate.
  const auto bytes = static_cast<int64_t>(file_bytes_[file]);
  const int64_t offset = info.attribute("offset").integer(0, bytes);
  const int64_t size = info.attribute("length").integer(0, bytes - offset);
  return {file, static_cast<uint64_t>(offset), static_cast<uint64_t>(size)};
}

size_t DcpSource::file_of(const PickleValue& relative_path) {
  const std::string name(relative_path.text());
  if (!is_plain_name(name)) relative_path.fail(concat("a file of this folder: ", kPlainName));
  const auto [found, is_new] = file_index_.emplace(name, files_.size());
  if (!is_new) return found->second;
  if (files_.size() == kMaxFiles) relative_path.fail(concat("at most ", kMaxFiles, " files"));
  const fs::path path = folder_ / name;
  file_bytes_.push_back(size_of_file(path));
  files_.push_back(name);
  std::error_code code;
  // A name without a slash may still be a link.
  if (fs::canonical(path, code).parent_path() != fs::canonical(folder_, code) || code)
    fail(path, "is a link that leads out of its folder; expected a file: copy it there");
  return found->second;
}

void DcpSource::read_tensor(const std::string& name, const PickleValue& metadata,
                            const Places& places) {
  const PickleValue properties = metadata.attribute("properties");
  require(properties, kPropertiesClass);
  const auto state = properties.state();
  if (!state || state->kind() != PickleKind::kTuple) properties.fail("an object with a tuple");
  const PickleValue dtype = state->items(5)[0];
  const TorchName* known = find_torch_name(dtype.global());
  if (known == nullptr) dtype.fail("a known dtype");
  SourceTensor tensor{.dtype = known->dtype, .shape = read_size(metadata.attribute("size"))};
  if (!num_bytes_of(tensor.shape, c10::elementSize(tensor.dtype)))
    metadata.fail(concat("a tensor of at most 2^63 - 1 bytes, not ", shown_shape(tensor.shape)));
  auto chunks = read_chunks(metadata.attribute("chunks"), name, tensor, places);
  std::vector<mesh::Box> boxes;
  // DCP does not promise that chunks fit together, and what no chunk covers would be memory that
  // nobody wrote.
  for (const Chunk& chunk : chunks) boxes.push_back(chunk.box);
  if (const std::string error = cover_error(tensor.shape, boxes); !error.empty())
    fail(folder_ / kDcpMetadata, "tensor ", in_quotes(name), ": ", error);
  if (!tensors_.emplace(name, std::move(tensor)).second)
    fail(folder_ / kDcpMetadata, "has the tensor ", in_quotes(name), " twice");
  chunks_.emplace(name, std::move(chunks));
}

std::vector<DcpSource::Chunk> DcpSource::read_chunks(const PickleValue& chunks,
                                                     const std::string& name,
                                                     const SourceTensor& tensor,
                                                     const Places& places) {
  std::vector<Chunk> result;
  const auto places_of_name = places.find(name);
  for (const PickleValue& value : chunks.items()) {
    // Counted over all tensors, not for each.
    if (++num_chunks_ > kMaxChunks) value.fail(concat("at most ", kMaxChunks, " chunks"));
    require(value, kChunkClass);
    Chunk chunk{.box = {.offset = read_size(value.attribute("offsets")),
                        .size = read_size(value.attribute("sizes"))}};
    // A rank without a part saves a chunk without elements.
    // It has no bytes and no place.
    if (std::ranges::count(chunk.box.size, 0) > 0) continue;
    if (places_of_name == places.end() || !places_of_name->second.contains(chunk.box.offset))
      value.fail(concat("a chunk of ", in_quotes(name), " with a place, not one at ",
                        shown_shape(chunk.box.offset)));
    chunk.place = places_of_name->second.at(chunk.box.offset);
    const auto bytes = num_bytes_of(chunk.box.size, c10::elementSize(tensor.dtype));
    if (!bytes || static_cast<uint64_t>(*bytes) > chunk.place.size)
      value.fail(concat("a chunk of at most the ", chunk.place.size, " bytes at its place, not ",
                        shown_shape(chunk.box.size)));
    // A chunk may be listed again and again in a small pickle.
    if (result.size() == places_of_name->second.size())
      value.fail(concat("as many chunks of ", in_quotes(name), " as places"));
    result.push_back(std::move(chunk));
  }
  return result;
}

// So the files' sizes bound the memory that their tensors take.
void DcpSource::check_overlap() const {
  std::vector<std::tuple<size_t, uint64_t, uint64_t>> places;
  for (const auto& [name, chunks] : chunks_) {
    for (const Chunk& chunk : chunks)
      places.emplace_back(chunk.place.file, chunk.place.offset, chunk.place.size);
  }
  std::ranges::sort(places);
  for (size_t i = 1; i < places.size(); ++i) {
    const auto& [file, offset, size] = places[i - 1];
    if (std::get<0>(places[i]) == file && std::get<1>(places[i]) - offset < size)
      fail(folder_ / kDcpMetadata, "two chunks overlap at byte ", std::get<1>(places[i]), " of ",
           files_[file], ": damaged");
  }
}

at::Tensor DcpSource::read(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) fail(folder_ / kDcpMetadata, "there is no tensor ", in_quotes(name));
  const std::vector<int64_t>& shape = found->second.shape;
  return read_box(name, {std::vector<int64_t>(shape.size(), 0), shape});
}

at::Tensor DcpSource::read_box(const std::string& name, const mesh::Box& box) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) fail(folder_ / kDcpMetadata, "there is no tensor ", in_quotes(name));
  const at::ScalarType dtype = found->second.dtype;
  // Most boxes lie in one chunk, which then needs no copy.
  at::Tensor whole{};  // allocated when several chunks meet the box
  for (const Chunk& chunk : chunks_.at(name)) {
    mesh::Box part = mesh::intersect(chunk.box, box);
    if (part.numel() == 0) continue;
    if (part == box) return read_chunk(chunk, part, name, dtype);
    if (!whole.defined()) whole = at::empty(box.size, at::TensorOptions().dtype(dtype));
    const at::Tensor values = read_chunk(chunk, part, name, dtype);
    for (size_t d = 0; d < part.offset.size(); ++d) part.offset[d] -= box.offset[d];
    view_box(whole, part).copy_(values);
  }
  return whole.defined() ? whole : at::empty(box.size, at::TensorOptions().dtype(dtype));
}

at::Tensor DcpSource::read_chunk(const Chunk& chunk, const mesh::Box& box, const std::string& name,
                                 at::ScalarType dtype) const {
  const fs::path path = folder_ / files_[chunk.place.file];
  const TorchArchive archive(std::make_shared<const InputFile>(path), chunk.place.offset,
                             chunk.place.size);
  const auto stored = archive.find_tensor(archive.pickle().root());
  if (!stored || stored->tensor.dtype != dtype || stored->tensor.shape != chunk.box.size)
    fail(path, "the chunk at byte ", chunk.place.offset, " is ",
         stored
             ? concat(c10::toString(stored->tensor.dtype), " ", shown_shape(stored->tensor.shape))
             : "no tensor",
         "; expected ", c10::toString(dtype), " ", shown_shape(chunk.box.size), " of ",
         in_quotes(name), ": damaged");
  mesh::Box inside = box;
  for (size_t d = 0; d < inside.offset.size(); ++d) inside.offset[d] -= chunk.box.offset[d];
  return archive.read(TorchArchive::part_of(*stored, inside));
}

}  // namespace trireme::checkpoint
