#include "trireme/checkpoint/offline/lazy_entry.h"

#include <utility>

#include <ATen/ops/empty.h>

#include "trireme/base/error.h"

namespace trireme::checkpoint::inline internal {
namespace {

class LazyTensor : public OffloadedTensor {
 public:
  LazyTensor(std::string name, std::function<at::Tensor()> make)
      : name_(std::move(name)), make_(std::move(make)) {}

  at::Tensor read() const override { return make_(); }
  void write(const at::Tensor& /*values*/) override {
    throw InternalError(concat("\"", name_, "\" can only be saved"));
  }

 private:
  std::string name_;
  std::function<at::Tensor()> make_;
};

}  // namespace

std::shared_ptr<OffloadedTensor> lazy_tensor(std::string name, std::function<at::Tensor()> make) {
  return std::make_shared<LazyTensor>(std::move(name), std::move(make));
}

Entry lazy_entry(const std::string& name, c10::ScalarType dtype, const mesh::Layout& layout,
                 int rank, std::function<at::Tensor()> make) {
  return {.name = name,
          .local = at::empty(layout.local_box(rank).size,
                             at::TensorOptions().dtype(dtype).device(at::kMeta)),
          .layout = layout,
          .rank = rank,
          .offloaded = lazy_tensor(name, std::move(make))};
}

}  // namespace trireme::checkpoint::inline internal
