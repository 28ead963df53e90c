#include "trireme/parallel/data/sharded_weights.h"

#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/parallel/data/tree_sum.h"

namespace trireme::parallel::inline internal {
namespace {

// A tensor [elements] whose storage has the right size, but no memory yet.
at::Tensor without_memory(int64_t elements, const at::TensorOptions& options) {
  const auto num_bytes = static_cast<size_t>(elements) * options.dtype().itemsize();
  const c10::Storage storage(c10::Storage::use_byte_size_t(), num_bytes,
                             at::DataPtr(nullptr, options.device()));
  return at::empty({0}, options).set_(storage, 0, {elements});
}

}  // namespace

ShardedWeights::ShardedWeights(std::span<const at::Tensor> parameters,
                               std::vector<BucketWeights> buckets, comm::Communicator& group,
                               bool symmetric)
    : buckets_(std::move(buckets)),
      group_(group),
      symmetric_(symmetric),
      pool_([](int64_t elements, const at::TensorOptions& options) {
        return at::empty({elements}, options);
      }) {
  const c10::NoGradGuard no_grad;
  const auto rank = static_cast<size_t>(group_.rank());
  for (const auto& [bucket, cuts, released] : buckets_) {
    const int64_t elements = cuts[rank + 1] - cuts[rank];
    Flat flat;
    if (released) {
      flat.whole = without_memory(bucket->num_elements, bucket->options);
      flat.part = allocate(elements, bucket->options);
      flat.memory = pool_.take(bucket->num_elements, bucket->options);
      point_to_memory(flat);
    } else {
      flat.whole = allocate(bucket->num_elements, bucket->options);
      flat.part = flat.whole.narrow(0, cuts[rank], elements);
    }
    flat.whole.zero_();
    const std::vector<at::Tensor> views = view_parameters(*bucket, flat.whole, parameters);
    for (size_t i = 0; i < views.size(); ++i) {
      const at::Tensor& parameter = parameters[bucket->parameters[i]];
      views[i].copy_(parameter);
      const_cast<at::Tensor&>(parameter).set_data(views[i]);
    }
    if (released) flat.part.copy_(flat.whole.narrow(0, cuts[rank], elements));
    flats_.push_back(std::move(flat));
    release(flats_.size() - 1);
  }
}

ShardedWeights::~ShardedWeights() {
  // The pool's memory must not be freed while the parameters point to it.
  for (Flat& flat : flats_) {
    if (!flat.memory.defined()) continue;
    flat.whole.storage().set_data_ptr_noswap(at::DataPtr(
        flat.memory.data_ptr(), new at::Tensor(flat.memory),
        [](void* memory) { delete static_cast<at::Tensor*>(memory); }, flat.memory.device()));
  }
}

at::Tensor ShardedWeights::allocate(int64_t elements, const at::TensorOptions& options) {
  if (!symmetric_ || !options.device().is_cpu()) return at::empty({elements}, options);
  return group_.symmetric_empty({elements}, c10::typeMetaToScalarType(options.dtype()));
}

void ShardedWeights::point_to_memory(Flat& flat) const {
  void* data = flat.memory.defined() ? flat.memory.data_ptr() : nullptr;
  flat.whole.storage().set_data_ptr_noswap(at::DataPtr(data, flat.whole.device()));
}

comm::WorkPtr ShardedWeights::gather(size_t bucket, bool background) {
  Flat& flat = flats_[bucket];
  if (buckets_[bucket].released_when_idle && !flat.memory.defined()) {
    flat.memory = pool_.take(flat.whole.numel(), flat.whole.options());
    point_to_memory(flat);
  }
  return group_.all_gather(view_parts(flat.whole, buckets_[bucket].cuts), flat.part,
                           {.background = background});
}

void ShardedWeights::release(size_t bucket) {
  Flat& flat = flats_[bucket];
  if (!buckets_[bucket].released_when_idle) return;
  flat.memory.reset();
  point_to_memory(flat);
}

int64_t ShardedWeights::resident_bytes() const {
  int64_t num_bytes = 0;
  for (size_t i = 0; i < flats_.size(); ++i) {
    const at::Tensor& kept = buckets_[i].released_when_idle ? flats_[i].part : flats_[i].whole;
    num_bytes += static_cast<int64_t>(kept.nbytes());
  }
  return num_bytes;
}

}  // namespace trireme::parallel::inline internal
