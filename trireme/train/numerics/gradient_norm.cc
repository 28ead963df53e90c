// Length: one number, from the sums of its grains to those of embedding tables.
#include "trireme/train/numerics/gradient_norm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <string_view>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/simd.h"
#include "trireme/parallel/data/bucket_plan.h"
#include "trireme/train/numerics/loss_sum.h"

namespace trireme::train {
namespace {

constexpr int64_t kLanes = 16;  // independent sums per grain, for vectorisation
constexpr int64_t kGrainsPerTask = 64;

template <typename Scalar>
TRIREME_INLINE double sum_lanes(const Scalar* data, int64_t count) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
// Unrolled, GCC no longer finds the vectors.
#pragma GCC unroll 1
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = static_cast<double>(widen(data[i + lane]));
      lanes[lane] += value * value;
    }
  }
  for (int64_t lane = 0; i < count; ++i, ++lane) {
    const double value = static_cast<double>(widen(data[i]));
    lanes[lane] += value * value;
  }
  double sum = 0;
  for (double lane : lanes) sum += lane;
  return sum;
}

// Each lane adds the same numbers in the same order, whatever the width of the vectors.
TRIREME_MULTIVERSION double sum_of_squares(const float* data, int64_t count) {
  return sum_lanes(data, count);
}
TRIREME_MULTIVERSION double sum_of_squares(const double* data, int64_t count) {
  return sum_lanes(data, count);
}
// Two bf16 are read as one word, so that none has to move from one part of a vector to another. The
// sum is that of sum_lanes(), bit for bit.
TRIREME_MULTIVERSION double sum_of_squares(const uint16_t* data, int64_t count) {
  static_assert(std::endian::native == std::endian::little);
  constexpr int64_t kPairs = kLanes / 2;
  double even[kPairs] = {}, odd[kPairs] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    uint32_t pairs[kPairs];
    std::memcpy(pairs, data + i, sizeof(pairs));
#pragma GCC unroll 1
    for (int64_t pair = 0; pair < kPairs; ++pair) {
      const double low = static_cast<double>(std::bit_cast<float>(pairs[pair] << 16));
      const double high = static_cast<double>(std::bit_cast<float>(pairs[pair] & 0xffff0000));
      even[pair] += low * low;
      odd[pair] += high * high;
    }
  }
  for (int64_t lane = 0; i < count; ++i, ++lane) {
    const double value = static_cast<double>(widen(data[i]));
    (lane % 2 == 0 ? even : odd)[lane / 2] += value * value;
  }
  double sum = 0;
  for (int64_t pair = 0; pair < kPairs; ++pair) {
    sum += even[pair];
    sum += odd[pair];
  }
  return sum;
}
TRIREME_MULTIVERSION double sum_of_squares(const fp16_t* data, int64_t count) {
  return sum_lanes(data, count);
}

// The number of grains in the box of `rank` in the layout.
int64_t num_grains(const mesh::Layout& layout, int rank) {
  const parallel::Grains grains = parallel::grains_of(layout.shape());
  const mesh::Box box = layout.local_box(rank);
  if (box.numel() == 0) return 0;
  return (box.size[static_cast<size_t>(grains.dim)] + grains.rows - 1) / grains.rows;
}

bool is_trained(const parallel::Shard& shard) { return shard.gradient.defined(); }

// Every rank's sums, over all its trained shards in order.
std::vector<std::vector<double>> exchange_sums(std::span<const parallel::Shard> shards,
                                               std::vector<double> mine,
                                               comm::Communicator& group) {
  std::vector<std::vector<double>> sums(static_cast<size_t>(group.size()));
  std::vector<at::Tensor> outputs;
  const auto as_tensor = [](std::vector<double>& numbers) {
    return at::from_blob(numbers.data(), {std::ssize(numbers)}, at::kDouble);
  };
  for (int rank = 0; rank < group.size(); ++rank) {
    int64_t count = 0;
    for (const parallel::Shard& shard : shards) {
      if (is_trained(shard)) count += num_grains(shard.layout, rank);
    }
    sums[static_cast<size_t>(rank)].resize(static_cast<size_t>(count));
    outputs.push_back(as_tensor(sums[static_cast<size_t>(rank)]));
  }
  group.all_gather(outputs, as_tensor(mine))->wait();
  return sums;
}

// For parameters that an outer layout splits, sums over its ranks. For others, keeps this rank's
// sum.
void sum_over_outer(std::span<const parallel::Shard> shards, comm::Communicator& outer,
                    std::vector<double>& squares) {
  const std::vector<double> all = gather(outer, squares);
  for (size_t i = 0; i < shards.size(); ++i) {
    const mesh::Layout& layout = shards[i].layout;
    if (layout.shape() == layout.whole_shape()) continue;
    TRIREME_ASSERT(layout.outer()->num_ranks() == outer.size(), shards[i].name, " is split over ",
                   layout.outer()->num_ranks(), " of ", outer.size(), " ranks");
    squares[i] = 0;
    // Replicas of a part count once.
    for (int rank = 0; rank < outer.size(); ++rank) {
      if (layout.outer()->owner(rank) != rank) continue;
      squares[i] += all[static_cast<size_t>(rank) * squares.size() + i];
    }
  }
}

// For any device, which keeps the tensor. Adds up in at least fp32; for fp64 libtorch would copy
// the gradient first.
at::Tensor composed_grain_squares(const at::Tensor& flat, int64_t grain) {
  const int64_t count = flat.numel(), num_whole = count / grain;
  const at::ScalarType wide = at::promote_types(flat.scalar_type(), at::kFloat);
  const auto norms = [wide](const at::Tensor& rows) {
    return at::linalg_vector_norm(rows, 2, at::IntArrayRef{1}, /*keepdim=*/false, wide);
  };
  at::Tensor all = norms(flat.narrow(0, 0, num_whole * grain).view({num_whole, grain}));
  if (const int64_t rest = count % grain; rest > 0) {
    all = at::cat({all, norms(flat.narrow(0, num_whole * grain, rest).view({1, rest}))});
  }
  return all.to(at::kDouble).square_();
}

// The sums of grain_squares(), where the tensor is.
at::Tensor grain_sums(const at::Tensor& tensor, const mesh::Layout& layout) {
  const at::Tensor flat = tensor.detach().contiguous().view({-1});
  const int64_t grain = parallel::grains_of(layout.shape()).elements;
  if (!flat.is_cpu()) return composed_grain_squares(flat, grain);
  const int64_t count = flat.numel();
  const at::Tensor sums = at::empty({(count + grain - 1) / grain}, at::kDouble);
  auto* const out = sums.mutable_data_ptr<double>();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, flat.scalar_type(), "grain_squares", [&] {
        const auto* data = stored_in<scalar_t>(flat);
        at::parallel_for(0, sums.numel(), kGrainsPerTask, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            out[i] = sum_of_squares(data + i * grain, std::min(grain, count - i * grain));
          }
        });
      });
  return sums;
}

std::vector<double> to_numbers(const at::Tensor& numbers) {
  const at::Tensor host = numbers.cpu();
  return {host.const_data_ptr<double>(), host.const_data_ptr<double>() + host.numel()};
}

// The numbers of all tensors, one after the other.
std::vector<double> joined(const std::vector<at::Tensor>& parts) {
  if (parts.empty()) return {};
  const auto is_alike = [&](const at::Tensor& part) {
    return part.device() == parts.front().device();
  };
  // One copy from a device, as each waits for it.
  if (std::ranges::all_of(parts, is_alike)) return to_numbers(at::cat(parts));
  std::vector<at::Tensor> on_host;
  for (const at::Tensor& part : parts) on_host.push_back(part.cpu());
  return to_numbers(at::cat(on_host));
}

bool is_on_device(const parallel::Shard& shard) {
  return is_trained(shard) && !shard.gradient.is_cpu();
}

// Squared norms of whole gradients on a device, in a few kernels for all of them.
std::vector<double> squares_on_device(std::span<const parallel::Shard> shards) {
  std::vector<double> squares(shards.size(), 0.0);
  // Some may be kept on the host.
  using Kind = std::pair<at::ScalarType, at::DeviceType>;
  std::map<Kind, std::pair<std::vector<size_t>, std::vector<at::Tensor>>> by_kind;
  for (size_t i = 0; i < shards.size(); ++i) {
    if (!is_trained(shards[i]) || shards[i].gradient.numel() == 0) continue;
    const at::Tensor& gradient = shards[i].gradient;
    auto& [indices, gradients] = by_kind[{gradient.scalar_type(), gradient.device().type()}];
    indices.push_back(i);
    gradients.push_back(gradient.detach());
  }
  for (const auto& [kind, list] : by_kind) {
    const auto& [indices, gradients] = list;
    const auto norms = at::_foreach_norm(gradients, 2, at::promote_types(kind.first, at::kFloat));
    const std::vector<double> numbers = to_numbers(at::stack(norms).to(at::kDouble));
    for (size_t i = 0; i < indices.size(); ++i) squares[indices[i]] = numbers[i] * numbers[i];
  }
  return squares;
}

}  // namespace

std::vector<double> grain_squares(const at::Tensor& tensor, const mesh::Layout& layout) {
  return to_numbers(grain_sums(tensor, layout));
}

std::vector<double> gradient_squares(const NormPart& part) {
  const std::span<const parallel::Shard> shards = part.shards;
  const bool are_whole = std::ranges::all_of(
      shards, [](const parallel::Shard& shard) { return shard.layout.num_ranks() == 1; });
  if (are_whole && std::ranges::any_of(shards, is_on_device)) {
    std::vector<double> squares = squares_on_device(shards);
    if (part.outer != nullptr) sum_over_outer(shards, *part.outer, squares);
    return squares;
  }
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < shards.size(); ++i) {
    const parallel::Shard& shard = shards[i];
    if (!is_trained(shard)) continue;
    if (shard.gradient_home != nullptr && i + 1 < shards.size() && is_trained(shards[i + 1])) {
      shard.gradient_home->will_need(shards[i + 1].gradient);
    }
    parts.push_back(grain_sums(shard.gradient, shard.layout));
    if (shard.gradient_home != nullptr) shard.gradient_home->let_go(shard.gradient);
  }
  std::vector<double> mine = joined(parts);
  std::vector<std::vector<double>> sums;
  if (are_whole) {
    sums.push_back(std::move(mine));
  } else {
    sums = exchange_sums(shards, std::move(mine), part.shard);
  }
  std::vector<size_t> next(sums.size());
  std::vector<double> squares;
  for (const parallel::Shard& shard : shards) {
    double sum = 0;
    // The grains of a parameter are in rank order.
    for (size_t rank = 0; is_trained(shard) && rank < sums.size(); ++rank) {
      for (int64_t i = num_grains(shard.layout, static_cast<int>(rank)); i > 0; --i) {
        sum += sums[rank][next[rank]++];
      }
    }
    squares.push_back(sum);
  }
  if (part.outer != nullptr) sum_over_outer(shards, *part.outer, squares);
  return squares;
}

std::vector<double> gradient_squares(std::span<const NormPart> parts, comm::Communicator* pipeline,
                                     std::span<const std::string> parameters) {
  std::map<std::string_view, double> mine;
  for (const NormPart& part : parts) {
    const std::vector<double> squares = gradient_squares(part);
    for (size_t i = 0; i < squares.size(); ++i) mine.emplace(part.shards[i].name, squares[i]);
  }
  // Each parameter is on one stage.
  std::vector<double> all;
  for (const std::string& name : parameters) {
    const auto found = mine.find(name);
    all.push_back(found == mine.end() ? 0.0 : found->second);
  }
  if (pipeline != nullptr)
    pipeline->all_reduce(at::from_blob(all.data(), {std::ssize(all)}, at::kDouble))->wait();
  return all;
}

double gradient_norm(std::span<const double> squares) {
  return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
}

double clip_factor(double norm, double max_norm) {
  return max_norm <= 0 || norm <= max_norm ? 1.0 : max_norm / norm;
}

std::string first_nonfinite_gradient(std::span<const std::string> parameters,
                                     std::span<const double> squares) {
  const auto found = std::ranges::find_if(squares, [](double sum) { return !std::isfinite(sum); });
  return found == squares.end() ? "" : parameters[static_cast<size_t>(found - squares.begin())];
}

at::Tensor l2_norm(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) return at::linalg_vector_norm(tensor);
  return at::scalar_tensor(gradient_norm(grain_squares(tensor, {tensor.sizes().vec(), {}})),
                           at::kDouble);
}

at::Tensor root_mean_square(const at::Tensor& tensor) {
  return l2_norm(tensor).div_(std::sqrt(static_cast<double>(tensor.numel())));
}

at::Tensor trust_ratio(const at::Tensor& numerator, const at::Tensor& denominator) {
  return at::where(numerator.gt(0).logical_and_(denominator.gt(0)), at::div(numerator, denominator),
                   1.0);
}

std::vector<double> table_squares(const parallel::EmbeddingTables& tables,
                                  comm::Communicator& group) {
  const size_t T = tables.configs().size();
  std::vector<ExactSum> sums(T);
  const std::vector<at::Tensor> squares_of_rows = tables.gradient_squares();
  for (size_t t = 0; t < squares_of_rows.size(); ++t) {
    const at::Tensor& squares = squares_of_rows[t];
    if (!squares.defined()) continue;
    const auto* const begin = squares.const_data_ptr<double>();
    for (int64_t i = 0; i < squares.numel(); ++i) sums[t].add(begin[i]);
  }
  const at::Tensor limbs =
      at::empty({static_cast<int64_t>(T), static_cast<int64_t>(ExactSum::kNumLimbs)}, at::kLong);
  const std::span all(limbs.mutable_data_ptr<int64_t>(), T * ExactSum::kNumLimbs);
  const auto limbs_of = [&](size_t t) {
    return all.subspan(t * ExactSum::kNumLimbs, ExactSum::kNumLimbs);
  };
  for (size_t t = 0; t < T; ++t) std::ranges::copy(sums[t].limbs(), limbs_of(t).begin());
  group.all_reduce(limbs)->wait();
  std::vector<double> squares;
  for (size_t t = 0; t < T; ++t) {
    ExactSum whole;
    whole.add(limbs_of(t));
    squares.push_back(whole.value());
  }
  return squares;
}

namespace {

constexpr int kLimbBits = 32;
constexpr int kLowest = -1152;  // exponent of the first limb's lowest bit
constexpr int kMantissaBits = 53;
constexpr size_t kNotFinite = ExactSum::kNumLimbs - 1;
constexpr uint64_t kLimbMask = (uint64_t{1} << kLimbBits) - 1;
// Each term adds less than 2^32 to a limb.
constexpr int64_t kMaxAdded = int64_t{1} << 30;

}  // namespace

void ExactSum::add(double term) {
  if (!std::isfinite(term)) {
    ++limbs_[kNotFinite];
    return;
  }
  if (term == 0) return;
  if (++num_added_ > kMaxAdded) carry();
  int exponent = 0;
  const double fraction = std::frexp(std::abs(term), &exponent);
  const auto mantissa = static_cast<uint64_t>(std::ldexp(fraction, kMantissaBits));
  const int place = exponent - kMantissaBits - kLowest;
  const auto first = static_cast<size_t>(place / kLimbBits);
  const int shift = place % kLimbBits;
  const int64_t sign = term < 0 ? -1 : 1;
  const uint64_t low = (mantissa & kLimbMask) << shift;
  const uint64_t high = (mantissa >> kLimbBits) << shift;
  const uint64_t middle = (low >> kLimbBits) + (high & kLimbMask);
  limbs_[first] += sign * static_cast<int64_t>(low & kLimbMask);
  limbs_[first + 1] += sign * static_cast<int64_t>(middle & kLimbMask);
  limbs_[first + 2] += sign * static_cast<int64_t>((high >> kLimbBits) + (middle >> kLimbBits));
}

std::span<const int64_t> ExactSum::limbs() {
  carry();
  return limbs_;
}

void ExactSum::add(std::span<const int64_t> limbs) {
  TRIREME_ASSERT(limbs.size() == kNumLimbs, "a sum has ", kNumLimbs, " limbs");
  for (size_t i = 0; i < kNumLimbs; ++i) limbs_[i] += limbs[i];
  carry();
}

// Brings every limb but the highest into [0, 2^32).
void ExactSum::carry() {
  for (size_t i = 0; i + 1 < kNotFinite; ++i) {
    const int64_t over = limbs_[i] >> kLimbBits;  // rounds down
    limbs_[i] -= over * (int64_t{1} << kLimbBits);
    limbs_[i + 1] += over;
  }
  num_added_ = 0;
}

double ExactSum::value() {
  if (limbs_[kNotFinite] != 0) return std::numeric_limits<double>::quiet_NaN();
  carry();
  // A negative sum has a negative highest limb; its magnitude is summed without cancellation.
  const bool is_negative = limbs_[kNotFinite - 1] < 0;
  ExactSum magnitude = *this;
  if (is_negative) {
    for (int64_t& limb : magnitude.limbs_) limb = -limb;
    magnitude.carry();
  }
  double sum = 0;
  for (size_t i = kNotFinite; i-- > 0;) {
    sum += std::ldexp(static_cast<double>(magnitude.limbs_[i]),
                      kLowest + kLimbBits * static_cast<int>(i));
  }
  return is_negative ? -sum : sum;
}

}  // namespace trireme::train
