#include "trireme/checkpoint/foreign/tensor_source.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <system_error>

#include "trireme/base/file/file.h"
#include "trireme/checkpoint/fail.h"
#include "trireme/checkpoint/foreign/safetensors_source.h"
#include "trireme/checkpoint/foreign/sharded_source.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using Source = std::unique_ptr<TensorSource>;

// A safetensors file has the size of its header in front of it.
constexpr size_t kBraceAt = 8;

Source open_safetensors(const fs::path& path) { return std::make_unique<SafetensorsSource>(path); }

Source open_safetensors_shards(const fs::path& path) {
  return std::make_unique<ShardedSource>(path, open_safetensors);
}

struct Form {
  const char* file;
  Source (*open)(const fs::path&);
};

// In the order in which transformers looks for them.
constexpr Form kForms[] = {
    {"model.safetensors", open_safetensors},
    {"model.safetensors.index.json", open_safetensors_shards},
};

Source open_folder(const fs::path& folder) {
  std::string looked_for;
  for (const Form& form : kForms) {
    const fs::path path = folder / form.file;
    std::error_code ignored;
    // One that cannot be looked at is opened, which fails with the reason.
    if (fs::status(path, ignored).type() != fs::file_type::not_found) return form.open(path);
    looked_for += concat(looked_for.empty() ? "" : ", ", form.file);
  }
  fail(folder, "is a folder without tensors; expected one of ", looked_for);
}

Source open_file(const fs::path& path) {
  size_of_file(path);  // a CheckpointError when there is none
  const InputFile file(path);
  std::array<char, 16> begin{};
  file.read(0, std::as_writable_bytes(
                   std::span(begin).first(std::min<uint64_t>(begin.size(), file.num_bytes()))));
  if (begin[kBraceAt] == '{') return open_safetensors(path);
  fail(path, "is no file of tensors; expected a safetensors file");
}

}  // namespace

Source open_tensors(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? open_folder(path) : open_file(path);
}

}  // namespace trireme::checkpoint
