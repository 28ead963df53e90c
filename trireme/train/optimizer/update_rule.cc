#include "trireme/train/optimizer/update_rule.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/bf16_numbers.h"
#include "trireme/base/machine/simd.h"

namespace trireme::train {

namespace {

bool is_of_experts(const mesh::Layout& layout, size_t dims) {
  const mesh::Layout& outermost = layout.outer() != nullptr ? *layout.outer() : layout;
  return outermost.shape().size() == dims && !outermost.axes().empty() &&
         outermost.axes().front().name == "expert";
}

}  // namespace

bool is_expert_stack(const mesh::Layout& layout) { return is_of_experts(layout, 3); }
bool is_expert_bias(const mesh::Layout& layout) { return is_of_experts(layout, 2); }

StateSpec state_like(const parallel::Shard& shard, const std::string& name, bool is_positive) {
  return {name, shard.weights.sizes().vec(), shard.layout, is_positive};
}

mesh::Layout with_dim(const mesh::Layout& layout, int64_t dim,
                      const std::function<int64_t(int64_t position, int64_t length)>& map) {
  const int64_t length = layout.shape()[dim];
  std::vector<int64_t> shape = layout.shape();
  shape[dim] = map(length, length);
  std::vector<mesh::Placement> placements = layout.placements();
  for (mesh::Placement& placement : placements) {
    if (placement.kind != mesh::Placement::Kind::kSharded || placement.dim != dim) continue;
    for (int64_t& cut : placement.cuts) cut = map(cut, length);
  }
  const mesh::Layout result(shape, layout.axes(), placements);
  return layout.outer() == nullptr
             ? result
             : result.inside(with_dim(*layout.outer(), dim, map), layout.outer_rank());
}

mesh::Layout with_length_one(const mesh::Layout& layout, int64_t dim) {
  return with_dim(layout, dim, [](int64_t position, int64_t length) -> int64_t {
    TRIREME_ASSERT(position == 0 || position == length, "a matrix is cut at ", position, " of ",
                   length);
    return position == 0 ? 0 : 1;
  });
}

at::Tensor converted_gradient(const UpdateItem& item) {
  const at::Tensor gradient = item.gradient.detach();
  const at::ScalarType dtype = item.weights.scalar_type();
  if (gradient.is_cpu() && gradient.scalar_type() == at::kBFloat16 && dtype == at::kFloat) {
    const at::Tensor wide = at::empty(gradient.sizes(), gradient.options().dtype(dtype));
    widen_numbers(stored_in<at::BFloat16>(gradient), gradient.numel(),
                  static_cast<float>(item.gradient_factor), wide.mutable_data_ptr<float>());
    return wide;
  }
  if (item.gradient_factor == 1) return gradient.to(dtype);
  if (gradient.scalar_type() == dtype) return gradient.mul(item.gradient_factor);
  return gradient.to(dtype).mul_(item.gradient_factor);
}

namespace {

constexpr int64_t kCut = 64;  // elements; cuts at its multiples change no result (see UpdateRule)

int64_t round_up_bytes(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

// Bytes of a state per kCut elements, of a shard that has elements. A byte may be for many of them.
int64_t bytes_per_cut(const ShardSize& shard, int64_t bytes) {
  return std::max<int64_t>(bytes * kCut / shard.elements, 1);
}

// Bytes of the states of `count` elements.
int64_t bytes_of(const ShardSize& shard, int64_t count, int64_t unit) {
  int64_t total = 0;
  for (const int64_t bytes : shard.state_bytes) {
    const bool is_all = count == shard.elements;
    total += round_up_bytes(is_all ? bytes : bytes_per_cut(shard, bytes) * count / kCut, unit);
  }
  return total;
}

// Fills chunks one after another.
class Cutter {
 public:
  explicit Cutter(const ChunkLimits& limits) : limits_(limits) {}

  void add(const ShardSize& shard, size_t index) {
    for (int64_t first = 0; first == 0 || first < shard.elements;) {
      int64_t count = shard.elements - first;
      if (!fits(shard, count)) {
        const bool may_cut = limits_.may_cut && shard.elements > 0;
        const int64_t cut = may_cut ? largest_cut(shard, count) : 0;
        if (cut == 0 && elements_ + bytes_ > 0) {
          close();
          continue;
        }
        // Even as the only one in its chunk, it may be too large.
        if (may_cut) count = std::max(cut, std::min(count, smallest_cut(shard)));
      }
      chunk_.push_back({index, first, count});
      elements_ += count;
      bytes_ += bytes_of(shard, count, limits_.unit);
      first += count;
      if (count == 0) return;
    }
  }

  std::vector<UpdateChunk> take() {
    close();
    return std::move(chunks_);
  }

 private:
  bool fits(const ShardSize& shard, int64_t count) const {
    return elements_ + count <= limits_.elements &&
           bytes_of(shard, count, limits_.unit) <= limits_.bytes - bytes_;
  }

  // Cuts at multiples of this many elements leave every state at a whole unit.
  int64_t smallest_cut(const ShardSize& shard) const {
    int64_t fewest = limits_.unit;
    for (const int64_t bytes : shard.state_bytes) {
      fewest = std::min(fewest, bytes_per_cut(shard, bytes));
    }
    return kCut * (limits_.unit / fewest);
  }

  // The most elements before a cut that still fit; 0 if even the smallest cut does not fit.
  int64_t largest_cut(const ShardSize& shard, int64_t left) const {
    const int64_t step = smallest_cut(shard);
    int64_t count = std::min(left, limits_.elements - elements_);
    if (!shard.state_bytes.empty()) {
      const int64_t a_state =
          (limits_.bytes - bytes_) / static_cast<int64_t>(shard.state_bytes.size());
      const int64_t most = bytes_per_cut(
          shard, *std::max_element(shard.state_bytes.begin(), shard.state_bytes.end()));
      count = std::min(count, a_state / most * kCut);
    }
    return std::max<int64_t>(count, 0) / step * step;
  }

  void close() {
    if (!chunk_.empty()) chunks_.push_back(std::move(chunk_));
    chunk_.clear();
    elements_ = bytes_ = 0;
  }

  const ChunkLimits limits_;
  std::vector<UpdateChunk> chunks_;
  UpdateChunk chunk_;
  int64_t elements_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace

std::vector<UpdateChunk> cut_into_chunks(std::span<const ShardSize> shards,
                                         const ChunkLimits& limits) {
  Cutter cutter(limits);
  for (size_t i = 0; i < shards.size(); ++i) {
    int64_t bytes = 0;
    for (const int64_t state : shards[i].state_bytes) bytes += state;
    if (shards[i].elements + bytes > 0) cutter.add(shards[i], i);
  }
  return cutter.take();
}

}  // namespace trireme::train
