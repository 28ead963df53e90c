#include "trireme/train/optimizer/elementwise.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/bf16_numbers.h"
#include "trireme/base/machine/simd.h"

namespace trireme::train {
namespace {

// A piece's weights, gradient and two states are 1 MiB in fp32, a core's L2 cache. Calling a fused
// kernel per piece costs at most a tenth more than calling it once.
constexpr int64_t kPieceElements = 1 << 16;
// Converted gradients and the weights that are rounded are still in the cache.
constexpr int64_t kBatchElements = 1 << 17;
// Limits the memory for converting the gradients of one batch.
constexpr int64_t kBatchElementsOnGpu = 1 << 26;

struct Piece {
  const UpdateItem* item = nullptr;
  int64_t offset = 0;
  int64_t size = 0;
};

std::pair<double, double> settings_of(const UpdateItem& item) {
  return {item.weight_decay, item.rate_scale};
}

// All tensors flat and without autograd. Items with equal settings are adjacent; empty ones are
// left out.
std::vector<UpdateItem> flatten(std::span<const UpdateItem> items) {
  std::vector<UpdateItem> flat;
  for (const UpdateItem& item : items) {
    if (item.weights.numel() == 0) continue;
    TRIREME_ASSERT(item.state.size() == items.front().state.size(), item.state.size(), " and ",
                   items.front().state.size(), " states");
    UpdateItem& copy = flat.emplace_back(item);
    const auto flatten_one = [](at::Tensor& tensor) { tensor = tensor.detach().view({-1}); };
    flatten_one(copy.weights);
    flatten_one(copy.gradient);
    if (copy.rounded.defined()) flatten_one(copy.rounded);
    std::ranges::for_each(copy.state, flatten_one);
  }
  std::ranges::stable_sort(flat, {}, settings_of);
  return flat;
}

std::vector<Piece> cut(const std::vector<UpdateItem>& items, bool on_cpu) {
  std::vector<Piece> pieces;
  for (const UpdateItem& item : items) {
    const int64_t length = item.weights.numel();
    const int64_t step = on_cpu ? kPieceElements : length;
    for (int64_t offset = 0; offset < length; offset += step) {
      pieces.push_back({&item, offset, std::min(step, length - offset)});
    }
  }
  return pieces;
}

void add(PieceBatch& batch, const Piece& piece) {
  const auto part = [&](const at::Tensor& t) { return t.narrow(0, piece.offset, piece.size); };
  UpdateItem item = *piece.item;
  batch.weight_decay = item.weight_decay;
  batch.rate_scale = item.rate_scale;
  batch.weights.push_back(part(item.weights));
  item.gradient = part(item.gradient);
  batch.gradients.push_back(converted_gradient(item));
  batch.rounded.push_back(item.rounded.defined() ? part(item.rounded) : at::Tensor());
  batch.state.resize(item.state.size());
  for (size_t i = 0; i < item.state.size(); ++i) batch.state[i].push_back(part(item.state[i]));
}

void round_to_nearest(const at::Tensor& exact, const at::Tensor& rounded) {
  if (exact.scalar_type() == at::kFloat && rounded.scalar_type() == at::kBFloat16) {
    narrow_numbers(exact.const_data_ptr<float>(), exact.numel(), 1,
                   stored_out<at::BFloat16>(rounded));
  } else {
    rounded.copy_(exact);
  }
}

void run_batches(std::span<const Piece> pieces, int64_t batch_elements,
                 const std::function<void(PieceBatch&)>& kernel) {
  const c10::NoGradGuard no_grad;  // its state is per thread
  for (size_t next = 0; next < pieces.size();) {
    PieceBatch batch;
    const auto settings = settings_of(*pieces[next].item);
    for (int64_t elements = 0; next < pieces.size() && elements < batch_elements &&
                               settings_of(*pieces[next].item) == settings;
         ++next) {
      add(batch, pieces[next]);
      elements += pieces[next].size;
    }
    kernel(batch);
    for (size_t i = 0; i < batch.weights.size(); ++i) {
      if (batch.rounded[i].defined()) round_to_nearest(batch.weights[i], batch.rounded[i]);
    }
  }
}

}  // namespace

void update_elementwise(std::span<const UpdateItem> items,
                        const std::function<void(PieceBatch&)>& kernel) {
  const std::vector<UpdateItem> flat = flatten(items);
  if (flat.empty()) return;
  const bool on_cpu = flat.front().weights.is_cpu();
  const std::vector<Piece> pieces = cut(flat, on_cpu);
  if (!on_cpu) return run_batches(pieces, kBatchElementsOnGpu, kernel);
  at::parallel_for(0, std::ssize(pieces), 1, [&](int64_t begin, int64_t end) {
    run_batches(std::span(pieces).subspan(begin, end - begin), kBatchElements, kernel);
  });
}

namespace {

constexpr int64_t kGrain = 4096;
constexpr int64_t kPerDraw = 8;  // 16 bits each of the 128 drawn

// bf16 is the upper half of fp32. Adding a random lower half carries into it with a probability
// equal to the fraction that the lower half represents.
c10::BFloat16 round_by(float value, uint32_t random) {
  if (!std::isfinite(value)) return c10::BFloat16(value);
  const uint32_t bits = std::bit_cast<uint32_t>(value) + random;
  return {static_cast<uint16_t>(bits >> 16), c10::BFloat16::from_bits()};
}

// `count` elements, the first of which has number `index` in the whole parameter.
void round_run(const float* from, c10::BFloat16* to, int64_t index, int64_t count, RandomKey key) {
  constexpr int64_t kDraws = 64;
  std::array<uint32_t, kDraws * kPerDraw / 2> words{};
  for (int64_t done = 0; done < count;) {
    const int64_t skipped = (index + done) % kPerDraw;
    const int64_t here = std::min(count - done, kDraws * kPerDraw - skipped);
    const auto num_words = static_cast<size_t>((skipped + here + 1) / 2);
    fill_random_words(key, static_cast<uint64_t>((index + done) / kPerDraw),
                      std::span(words).first(num_words));
    for (int64_t i = 0; i < here; ++i) {
      const int64_t lane = skipped + i;
      const uint32_t random = words[static_cast<size_t>(lane / 2)] >> (lane % 2 * 16) & 0xffffu;
      to[done + i] = round_by(from[done + i], random);
    }
    done += here;
  }
}

}  // namespace

void round_stochastically(const at::Tensor& exact, at::Tensor rounded, const mesh::BoxRuns& part,
                          int64_t first, RandomKey key) {
  TRIREME_ASSERT(exact.scalar_type() == at::kFloat && rounded.scalar_type() == at::kBFloat16,
                 "stochastic rounding of ", toString(exact.scalar_type()), " to ",
                 toString(rounded.scalar_type()));
  if (!rounded.is_cpu()) {
    const at::Tensor host = at::empty(rounded.sizes(), rounded.options().device(at::kCPU));
    round_stochastically(exact.cpu(), host, part, first, key);
    rounded.copy_(host);
    return;
  }
  const auto* from = exact.const_data_ptr<float>();
  auto* to = rounded.mutable_data_ptr<c10::BFloat16>();
  at::parallel_for(first, first + exact.numel(), kGrain, [&](int64_t begin, int64_t end) {
    part.visit(begin, end, [&](int64_t element, int64_t index, int64_t count) {
      round_run(from + (element - first), to + (element - first), index, count, key);
    });
  });
}

}  // namespace trireme::train
