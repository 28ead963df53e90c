#include "trireme/checkpoint/foreign/dcp_writer.h"

#include <exception>
#include <set>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/file/folder.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/fail.h"
#include "trireme/checkpoint/foreign/pickle.h"
#include "trireme/checkpoint/foreign/torch_archive.h"
#include "trireme/checkpoint/tensor_boxes.h"

namespace trireme::checkpoint {
namespace {

// In the caller's order: it reads slices of large tensors and needs them so.
using NamedTensors = std::vector<std::pair<std::string, SourceTensor>>;

constexpr const char* kModule = "torch.distributed.checkpoint.metadata";

// A dtype or storage without its "torch.".
std::string_view short_name(std::string_view name) { return name.substr(sizeof("torch.") - 1); }

// The arguments of _rebuild_tensor_v2, or of _v3 for dtypes without a storage type.
std::string pickle_tensor(const SourceTensor& tensor, uint64_t num_bytes) {
  const TorchName& known = *find_torch_name(tensor.dtype);
  const bool is_typed = !known.storage.empty();
  const uint64_t item_size = is_typed ? c10::elementSize(tensor.dtype) : 1;
  std::vector<int64_t> strides(tensor.shape.size(), 1);
  // As PyTorch computes them: a length of 0 counts as 1.
  for (size_t d = strides.size(); d-- > 1;)
    strides[d - 1] = strides[d] * std::max<int64_t>(tensor.shape[d], 1);
  Pickler pickler;
  pickler.global("torch._utils", is_typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3").mark();
  pickler.mark().text("storage");
  if (is_typed) {
    pickler.global("torch", short_name(known.storage));
  } else {
    pickler.global("torch.storage", "UntypedStorage");
  }
  pickler.text("0").text("cpu").integer(static_cast<int64_t>(num_bytes / item_size));
  pickler.tuple().persistent();
  pickler.integer(0).integers(tensor.shape).integers(strides).boolean(false);
  pickler.global("collections", "OrderedDict").empty_tuple().call();
  if (!is_typed) pickler.global("torch", short_name(known.name));
  return pickler.tuple().call().finish();
}

// Counts what it writes. libtorch's writer of archives is C code that no exception may cross, so a
// failure is kept until it is done.
class Sink {
 public:
  explicit Sink(OutputFile& file) : file_(file) {}
  size_t write(const void* data, size_t num_bytes) {
    try {
      if (!error_) file_.write(data, num_bytes);
    } catch (...) {
      // Goes on after an error, since its caller cannot stop; finish() throws.
      error_ = std::current_exception();
    }
    num_bytes_ += num_bytes;
    return num_bytes;
  }
  uint64_t finish() const {
    if (error_) std::rethrow_exception(error_);
    return num_bytes_;
  }

 private:
  OutputFile& file_;
  uint64_t num_bytes_ = 0;
  std::exception_ptr error_;
};

// Appends what torch.save writes for the tensor, and returns its number of bytes.
uint64_t append_archive(OutputFile& file, const at::Tensor& tensor, const SourceTensor& info) {
  constexpr std::string_view kOrder = "little";
  const std::string pickle = pickle_tensor(info, tensor.nbytes());
  Sink sink(file);
  caffe2::serialize::PyTorchStreamWriter writer(
      [&](const void* data, size_t num_bytes) { return sink.write(data, num_bytes); });
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  writer.writeRecord("byteorder", kOrder.data(), kOrder.size());
  // Not null for a tensor without elements either.
  // The archive's writer asserts on null.
  const void* data = tensor.nbytes() == 0 ? kOrder.data() : tensor.const_data_ptr();
  writer.writeRecord("data/0", data, tensor.nbytes());
  writer.writeEndOfFile();
  return sink.finish();
}

// torch.Size(values)
void add_size(Pickler& pickler, std::span<const int64_t> values) {
  pickler.global("torch", "Size").mark().integers(values).tuple().call();
}

// An object without arguments; its state follows.
Pickler& add_object(Pickler& pickler, std::string_view module, std::string_view name) {
  return pickler.global(module, name).empty_tuple().new_object();
}

void add_properties(Pickler& pickler, at::ScalarType dtype) {
  add_object(pickler, kModule, "TensorProperties").mark();
  pickler.global("torch", short_name(find_torch_name(dtype)->name));
  pickler.global("torch.serialization", "_get_layout").mark().text("torch.strided").tuple().call();
  pickler.boolean(false);  // requires_grad
  pickler.global(kModule, "_MEM_FORMAT_ENCODING").mark().integer(0).tuple().call();
  pickler.boolean(false).tuple().set_state();  // pin_memory
}

// A part of a tensor, and where its archive is.
struct WrittenChunk {
  mesh::Box box{};
  uint64_t offset = 0;
  uint64_t size = 0;
};
using WrittenChunks = std::vector<std::vector<WrittenChunk>>;  // of each tensor

void add_tensor(Pickler& pickler, const SourceTensor& tensor,
                const std::vector<WrittenChunk>& chunks) {
  add_object(pickler, kModule, "TensorStorageMetadata").empty_dict().mark();
  pickler.text("properties");
  add_properties(pickler, tensor.dtype);
  pickler.text("size");
  add_size(pickler, tensor.shape);
  pickler.text("chunks").empty_list();
  for (const WrittenChunk& chunk : chunks) {
    add_object(pickler, kModule, "ChunkStorageMetadata").empty_dict().mark();
    pickler.text("offsets");
    add_size(pickler, chunk.box.offset);
    pickler.text("sizes");
    add_size(pickler, chunk.box.size);
    pickler.set_items().set_state().append();
  }
  pickler.set_items().set_state();
}

// The key and the value of the place of a tensor's chunk number `index`.
void add_place(Pickler& pickler, const std::string& name, const WrittenChunk& chunk, size_t index) {
  add_object(pickler, kModule, "MetadataIndex").empty_dict().mark();
  pickler.text("fqn").text(name).text("offset");
  add_size(pickler, chunk.box.offset);
  pickler.text("index").integer(static_cast<int64_t>(index)).set_items().set_state();
  add_object(pickler, "torch.distributed.checkpoint.filesystem", "_StorageInfo").empty_dict();
  pickler.mark().text("relative_path").text(kDcpFile).text("offset");
  pickler.integer(static_cast<int64_t>(chunk.offset)).text("length");
  pickler.integer(static_cast<int64_t>(chunk.size)).set_items().set_state();
}

std::string pickle_metadata(const NamedTensors& tensors, const WrittenChunks& chunks) {
  Pickler pickler;
  add_object(pickler, kModule, "Metadata").empty_dict().mark();
  pickler.text("state_dict_metadata").empty_dict().mark();
  for (size_t i = 0; i < tensors.size(); ++i) {
    pickler.text(tensors[i].first);
    add_tensor(pickler, tensors[i].second, chunks[i]);
  }
  // The path of each name in nested dicts: here none is nested.
  pickler.set_items().text("planner_data").empty_dict().mark();
  for (const auto& [name, tensor] : tensors) pickler.text(name).mark().text(name).tuple();
  pickler.set_items().text("storage_data").empty_dict().mark();
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (size_t k = 0; k < chunks[i].size(); ++k)
      add_place(pickler, tensors[i].first, chunks[i][k], k);
  }
  pickler.set_items().text("storage_meta");
  add_object(pickler, kModule, "StorageMeta").empty_dict().mark();
  pickler.text("checkpoint_id").none().text("save_id").none().text("load_id").none();
  pickler.text("modules").empty_list().set_items().set_state();
  pickler.text("version").text("1.0.0").set_items().set_state();
  return pickler.finish();
}

void check_tensors(const std::filesystem::path& folder, const NamedTensors& tensors) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    if (!is_printable(name) || !is_utf8(name))
      fail(folder, "the name ", in_quotes(name), " cannot be written; expected UTF-8 of at most ",
           kMaxWordBytes, " bytes without control characters");
    if (!names.insert(name).second) fail(folder, "the name ", in_quotes(name), " is taken");
    if (find_torch_name(tensor.dtype) == nullptr)
      fail(folder, "the dtype ", c10::toString(tensor.dtype), " of ", in_quotes(name),
           " cannot be written; expected one of floats, integers or booleans");
  }
}

}  // namespace

void write_dcp(
    const std::filesystem::path& folder, const NamedTensors& tensors,
    const std::function<at::Tensor(const std::string& name, const mesh::Box& part)>& read,
    uint64_t most_chunk_bytes) {
  check_tensors(folder, tensors);
  NewFolder target(folder);
  OutputFile file(target.path() / kDcpFile);
  WrittenChunks chunks;
  uint64_t offset = 0;
  for (const auto& [name, info] : tensors) {
    const TensorParts parts(info.shape, c10::elementSize(info.dtype), most_chunk_bytes);
    std::vector<WrittenChunk>& own = chunks.emplace_back();
    for (int64_t i = 0; i < parts.size(); ++i) {
      const mesh::Box part = parts.at(i);
      const at::Tensor values = read(name, part).detach().cpu().contiguous();
      TRIREME_ASSERT(
          values.scalar_type() == info.dtype && values.sizes() == at::IntArrayRef(part.size), "\"",
          name, "\" was announced with another dtype or shape");
      const uint64_t size = append_archive(file, values, {.dtype = info.dtype, .shape = part.size});
      own.push_back({part, offset, size});
      offset += size;
    }
  }
  // The data first: the metadata says that they are there.
  file.sync();
  file.close();
  write_file_atomically(target.path() / kDcpMetadata, pickle_metadata(tensors, chunks));
  // Only now the folder gets its name.
  target.commit();
}

}  // namespace trireme::checkpoint
