#include "trireme/checkpoint/foreign/tensor_source.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <system_error>

#include "trireme/base/file/file.h"
#include "trireme/checkpoint/fail.h"
#include "trireme/checkpoint/foreign/dcp_source.h"
#include "trireme/checkpoint/foreign/safetensors_source.h"
#include "trireme/checkpoint/foreign/torch_archive.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using Source = std::unique_ptr<TensorSource>;

// A safetensors file has the size of its header in front of its JSON.
constexpr size_t kBraceAt = 8;
constexpr std::string_view kZip = "PK\x03\x04";
// torch.save before PyTorch 1.6: pickles one after the other, the first of a number of 10 bytes.
constexpr std::string_view kLegacy = "\x80\x02\x8a\x0a";

Source open_safetensors(const fs::path& path) { return std::make_unique<SafetensorsSource>(path); }

Source open_state_dict(const fs::path& path) { return std::make_unique<StateDictSource>(path); }

Source open_file(const fs::path& path) {
  size_of_file(path);  // a CheckpointError when there is none
  const InputFile file(path);
  // A shorter file leaves zeros behind, which match none of the forms.
  std::array<char, 16> begin{};
  file.read(0, std::as_writable_bytes(
                   std::span(begin).first(std::min<uint64_t>(begin.size(), file.num_bytes()))));
  const std::string_view text(begin.data(), begin.size());
  if (text.starts_with(kZip)) return open_state_dict(path);
  // The older form begins like any pickle. Only its first number tells it.
  if (text.starts_with(kLegacy))
    fail(path,
         "is in the form of torch.save before PyTorch 1.6, which is not read: convert it in Python "
         "with torch.save(torch.load(path, weights_only=True), path)");
  if (text[kBraceAt] == '{') return open_safetensors(path);
  fail(path, "is not a file of tensors; expected a safetensors file or one of torch.save");
}

Source open_file_shards(const fs::path& path) {
  return std::make_unique<ShardedSource>(path, open_file);
}

Source open_dcp(const fs::path& metadata) {
  return std::make_unique<DcpSource>(metadata.parent_path());
}

struct Form {
  const char* file;
  Source (*open)(const fs::path&);
};

// The first that is there is taken; transformers and diffusers have the same order.
constexpr Form kForms[] = {
    {"model.safetensors", open_file},
    {"model.safetensors.index.json", open_file_shards},
    {"pytorch_model.bin", open_file},
    {"pytorch_model.bin.index.json", open_file_shards},
    {"diffusion_pytorch_model.safetensors", open_file},
    {"diffusion_pytorch_model.safetensors.index.json", open_file_shards},
    {"diffusion_pytorch_model.bin", open_file},
    {kDcpMetadata, open_dcp},
};

Source open_folder(const fs::path& folder) {
  std::string looked_for;
  for (const Form& form : kForms) {
    const fs::path path = folder / form.file;
    // Not exists(): that is false as well for what this user may not look at.
    std::error_code ignored;
    // One that cannot be looked at is opened, which fails with the reason.
    if (fs::status(path, ignored).type() != fs::file_type::not_found) return form.open(path);
    looked_for += concat(looked_for.empty() ? "" : ", ", form.file);
  }
  fail(folder, "is a folder without tensors; expected one of ", looked_for);
}

}  // namespace

at::Tensor TensorSource::read_box(const std::string& name, const mesh::Box& box) const {
  return view_box(read(name), box).contiguous();
}

Source open_tensors(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? open_folder(path) : open_file(path);
}

}  // namespace trireme::checkpoint
