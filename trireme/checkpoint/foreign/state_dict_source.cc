#include "trireme/checkpoint/foreign/state_dict_source.h"

#include <utility>

#include "trireme/base/bounded_json.h"
#include "trireme/base/shown.h"
#include "trireme/checkpoint/fail.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::checkpoint::inline internal {
namespace {

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
    if (!is_printable(full)) part.fail("a value whose name is shorter");
    count(part, full.size());
    visit(part, full, depth + 1);
  }
  void add(const PickleValue& value, const std::string& name) {
    auto tensor = archive_.find_tensor(value);
    if (!tensor) return;
    count(value, kTensorBytes + name.size());
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

at::Tensor StateDictSource::read(const std::string& name) const {
  const auto found = stored_.find(name);
  if (found == stored_.end()) fail(path_, "there is no tensor ", in_quotes(name));
  return archive_.read(found->second);
}

}  // namespace trireme::checkpoint::inline internal
