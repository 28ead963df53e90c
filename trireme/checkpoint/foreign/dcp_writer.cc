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
#include "trireme/base/file/new_folder.h"
#include "trireme/base/shown.h"
#include "trireme/base/utf8.h"
#include "trireme/checkpoint/exact_cover.h"
#include "trireme/checkpoint/fail.h"
#include "trireme/checkpoint/foreign/pickler.h"
#include "trireme/checkpoint/foreign/torch_names.h"

namespace trireme::checkpoint {
namespace {

using NamedTensors = std::vector<std::pair<std::string, SourceTensor>>;

constexpr const char* kModule = "torch.distributed.checkpoint.metadata";

// A dtype or storage without its "torch.".
std::string_view short_name(std::string_view name) { return name.substr(sizeof("torch.") - 1); }

// What _rebuild_tensor_v2 or, for dtypes without a storage of their own, _v3 is called with.
std::string pickle_tensor(const SourceTensor& tensor, uint64_t num_bytes) {
  const TorchName& known = *find_torch_name(tensor.dtype);
  const bool is_typed = !known.storage.empty();
  const uint64_t item_size = is_typed ? c10::elementSize(tensor.dtype) : 1;
  std::vector<int64_t> strides(tensor.shape.size(), 1);
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

void add_tensor(Pickler& pickler, const SourceTensor& tensor) {
  const std::vector<int64_t> zeros(tensor.shape.size(), 0);
  add_object(pickler, kModule, "TensorStorageMetadata").empty_dict().mark();
  pickler.text("properties");
  add_properties(pickler, tensor.dtype);
  pickler.text("size");
  add_size(pickler, tensor.shape);
  pickler.text("chunks").empty_list();
  add_object(pickler, kModule, "ChunkStorageMetadata").empty_dict().mark();
  pickler.text("offsets");
  add_size(pickler, zeros);
  pickler.text("sizes");
  add_size(pickler, tensor.shape);
  pickler.set_items().set_state().append().set_items().set_state();
}

struct Extent {
  uint64_t offset = 0;
  uint64_t size = 0;
};

// The key and the value of a tensor's place.
void add_place(Pickler& pickler, const std::string& name, const SourceTensor& tensor,
               const Extent& extent) {
  const std::vector<int64_t> zeros(tensor.shape.size(), 0);
  add_object(pickler, kModule, "MetadataIndex").empty_dict().mark();
  pickler.text("fqn").text(name).text("offset");
  add_size(pickler, zeros);
  pickler.text("index").integer(0).set_items().set_state();
  add_object(pickler, "torch.distributed.checkpoint.filesystem", "_StorageInfo").empty_dict();
  pickler.mark().text("relative_path").text(kDcpFile).text("offset");
  pickler.integer(static_cast<int64_t>(extent.offset)).text("length");
  pickler.integer(static_cast<int64_t>(extent.size)).set_items().set_state();
}

std::string pickle_metadata(const NamedTensors& tensors, const std::vector<Extent>& extents) {
  Pickler pickler;
  add_object(pickler, kModule, "Metadata").empty_dict().mark();
  pickler.text("state_dict_metadata").empty_dict().mark();
  for (const auto& [name, tensor] : tensors) {
    pickler.text(name);
    add_tensor(pickler, tensor);
  }
  // The path of each name in nested dicts: here none is nested.
  pickler.set_items().text("planner_data").empty_dict().mark();
  for (const auto& [name, tensor] : tensors) pickler.text(name).mark().text(name).tuple();
  pickler.set_items().text("storage_data").empty_dict().mark();
  for (size_t i = 0; i < tensors.size(); ++i)
    add_place(pickler, tensors[i].first, tensors[i].second, extents[i]);
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

void write_dcp(const std::filesystem::path& folder, const NamedTensors& tensors,
               const std::function<at::Tensor(const std::string& name)>& read) {
  check_tensors(folder, tensors);
  NewFolder target(folder);
  OutputFile file(target.path() / kDcpFile);
  std::vector<Extent> extents;
  uint64_t offset = 0;
  for (const auto& [name, info] : tensors) {
    const at::Tensor tensor = read(name).detach().cpu().contiguous();
    TRIREME_ASSERT(
        tensor.scalar_type() == info.dtype && tensor.sizes() == at::IntArrayRef(info.shape), "\"",
        name, "\" was announced with another dtype or shape");
    const uint64_t size = append_archive(file, tensor, info);
    extents.push_back({offset, size});
    offset += size;
  }
  file.sync();
  file.close();
  write_file_atomically(target.path() / kDcpMetadata, pickle_metadata(tensors, extents));
  target.commit();
}

}  // namespace trireme::checkpoint
