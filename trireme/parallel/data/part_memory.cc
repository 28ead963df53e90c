#include "trireme/parallel/data/part_memory.h"

#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/io/mapped_scratch.h"

namespace trireme::parallel {
namespace {

class HostParts final : public PartMemory {
 public:
  at::Tensor make(int64_t elements, at::ScalarType dtype) override {
    return at::zeros({elements}, at::TensorOptions().dtype(dtype).pinned_memory(true));
  }
  void will_need(const at::Tensor& /*part*/) override {}
  void let_go(const at::Tensor& /*part*/) override {}
};

class MappedParts final : public PartMemory {
 public:
  MappedParts(const std::filesystem::path& folder, const std::string& content)
      : scratch_(folder, {.content = content}) {}

  at::Tensor make(int64_t elements, at::ScalarType dtype) override {
    const size_t num_bytes = static_cast<size_t>(elements) * c10::elementSize(dtype);
    std::shared_ptr<std::byte> memory = scratch_.take(num_bytes);
    void* const data = memory.get();
    return at::from_blob(
        data, {elements}, [memory = std::move(memory)](void*) {}, at::TensorOptions().dtype(dtype));
  }
  void will_need(const at::Tensor& part) override {
    scratch_.will_need(part.const_data_ptr(), part.nbytes());
  }
  void let_go(const at::Tensor& part) override {
    scratch_.let_go(part.const_data_ptr(), part.nbytes());
  }

 private:
  MappedScratch scratch_;
};

}  // namespace

std::shared_ptr<PartMemory> make_host_parts() { return std::make_shared<HostParts>(); }

std::shared_ptr<PartMemory> make_mapped_parts(const std::filesystem::path& folder,
                                              const std::string& content) {
  return std::make_shared<MappedParts>(folder, content);
}

}  // namespace trireme::parallel
