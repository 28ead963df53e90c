#include "trireme/parallel/data/sharded_weights.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/machine/memory_ledger.h"
#include "trireme/parallel/data/tree_sum.h"

namespace trireme::parallel {

// A released parameter keeps its tensor, its shape and its place in the module, and loses only the
// memory under it. The storage's data pointer is exchanged instead of the tensor, because autograd,
// optimizers and user code hold references to the tensor. Memory comes from a pool, so that
// gathering a unit does not allocate in every step.

at::Tensor without_memory(at::IntArrayRef shape, const at::TensorOptions& options) {
  const auto num_bytes =
      static_cast<size_t>(c10::multiply_integers(shape)) * options.dtype().itemsize();
  const c10::Storage storage(c10::Storage::use_byte_size_t(), num_bytes,
                             at::DataPtr(nullptr, options.device()));
  at::Tensor tensor = at::empty({0}, options);
  return tensor.set_(storage, 0, shape, c10::contiguous_strides(shape));
}

bool has_memory(const at::Tensor& tensor) {
  return tensor.numel() == 0 || tensor.storage().data() != nullptr;
}

ShardedWeights::ShardedWeights(std::span<const at::Tensor> parameters,
                               std::vector<BucketWeights> buckets, comm::Communicator& group,
                               bool symmetric, PartMemory* home)
    : buckets_(std::move(buckets)),
      group_(group),
      symmetric_(symmetric),
      home_(home),
      pool_([](int64_t elements, const at::TensorOptions& options) {
        const MemoryScope scope(MemoryKind::kGathered);
        return at::empty({elements}, options);
      }) {
  const c10::NoGradGuard no_grad;
  const MemoryScope scope(MemoryKind::kWeights);
  const auto rank = static_cast<size_t>(group_.rank());
  for (const auto& [bucket, cuts, released] : buckets_) {
    const int64_t elements = cuts[rank + 1] - cuts[rank];
    Flat flat;
    if (released) {
      // Views of it are made once and stay valid, whatever memory it gets.
      flat.whole = without_memory({bucket->num_elements}, bucket->options);
      flat.part = home_ == nullptr
                      ? allocate(elements, bucket->options).zero_()
                      : home_->make(elements, c10::typeMetaToScalarType(bucket->options.dtype()));
    } else {
      flat.whole = allocate(bucket->num_elements, bucket->options).zero_();
      flat.part = flat.whole.narrow(0, cuts[rank], elements);
    }
    const bool has_values = std::ranges::any_of(
        bucket->parameters, [&](size_t p) { return has_memory(parameters[p]); });
    if (released && has_values) {
      flat.memory = pool_.take(bucket->num_elements, bucket->options).zero_();
      point_to_memory(flat);
    }
    const std::vector<at::Tensor> views = view_parameters(*bucket, flat.whole, parameters);
    for (size_t i = 0; i < views.size(); ++i) {
      const at::Tensor& parameter = parameters[bucket->parameters[i]];
      if (has_memory(parameter)) views[i].copy_(parameter);
      // set_data keeps the parameter's identity.
      const_cast<at::Tensor&>(parameter).set_data(views[i]);
    }
    if (released && has_values) flat.part.copy_(flat.whole.narrow(0, cuts[rank], elements));
    flats_.push_back(std::move(flat));
    release(flats_.size() - 1);
  }
}

ShardedWeights::~ShardedWeights() {
  // The pool's memory must not be freed while the parameters point to it.
  for (Flat& flat : flats_) {
    if (!flat.memory.defined()) continue;
    // The memory then lives as long as a parameter that somebody still holds.
    flat.whole.storage().set_data_ptr_noswap(at::DataPtr(
        flat.memory.data_ptr(), new at::Tensor(flat.memory),
        [](void* memory) { delete static_cast<at::Tensor*>(memory); }, flat.memory.device()));
  }
}

at::Tensor ShardedWeights::allocate(int64_t elements, const at::TensorOptions& options) {
  // A rank's part is what others read in a gather: in symmetric memory they read it in place.
  if (!symmetric_ || !options.device().is_cpu()) return at::empty({elements}, options);
  return group_.symmetric_empty({elements}, c10::typeMetaToScalarType(options.dtype()));
}

void ShardedWeights::point_to_memory(Flat& flat) const {
  void* data = flat.memory.defined() ? flat.memory.data_ptr() : nullptr;
  // noswap: the old pointer is freed by nobody, since the pool owns it.
  flat.whole.storage().set_data_ptr_noswap(at::DataPtr(data, flat.whole.device()));
}

comm::WorkPtr ShardedWeights::gather(size_t bucket, bool background) {
  Flat& flat = flats_[bucket];
  if (buckets_[bucket].released_when_idle && !flat.memory.defined()) {
    flat.memory = pool_.take(flat.whole.numel(), flat.whole.options());
    point_to_memory(flat);
  }
  const std::vector<at::Tensor> parts = view_parts(flat.whole, buckets_[bucket].cuts);
  at::Tensor part = flat.part;
  if (part.device() != flat.whole.device()) {  // it is kept on the host
    part = parts[static_cast<size_t>(group_.rank())];
    part.copy_(flat.part);
  }
  return group_.all_gather(parts, part, {.background = background});
}

void ShardedWeights::will_need(size_t bucket) const {
  if (home_ != nullptr && buckets_[bucket].released_when_idle) {
    home_->will_need(flats_[bucket].part);
  }
}

void ShardedWeights::let_go(size_t bucket) const {
  if (home_ != nullptr && buckets_[bucket].released_when_idle) home_->let_go(flats_[bucket].part);
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

}  // namespace trireme::parallel
