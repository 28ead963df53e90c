#include "trireme/model/family/init.h"

#include <cmath>
#include <numbers>
#include <optional>
#include <string>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/mesh/box_runs.h"
#include "trireme/model/family/family.h"
#include "trireme/model/family/frozen_weights.h"
#include "trireme/parallel/data/sharded_weights.h"

namespace trireme::model {
namespace {

constexpr double kStd = 0.02;
// Where this thread builds parameters without memory; none: they get some.
thread_local std::optional<at::Device> unfilled_on;
constexpr int64_t kGrain = 1 << 14;

// Elements 2 i and 2 i + 1 of a stream: both outputs of one Box-Muller draw, made from block i.
std::pair<double, double> normal_pair(RandomKey key, uint64_t block) {
  const auto bits = random_bits(key, block);
  const auto unit = [](uint32_t high, uint32_t low) {
    const uint64_t joined = (static_cast<uint64_t>(high) << 32) | low;
    return static_cast<double>(joined >> 11) * 0x1.0p-53;
  };
  // 1 - u lies in (0, 1], where the logarithm is finite.
  const double radius = std::sqrt(-2.0 * std::log(1.0 - unit(bits[0], bits[1])));
  const double angle = 2.0 * std::numbers::pi * unit(bits[2], bits[3]);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// Writes elements [begin, begin + size) of the stream to `out`.
template <typename scalar>
void fill_run(scalar* out, int64_t begin, int64_t size, RandomKey key, double std) {
  const int64_t end = begin + size;
  for (int64_t block = begin / 2; 2 * block < end; ++block) {
    const auto [even, odd] = normal_pair(key, static_cast<uint64_t>(block));
    if (2 * block >= begin) out[2 * block - begin] = static_cast<scalar>(std * even);
    if (2 * block + 1 < end) out[2 * block + 1 - begin] = static_cast<scalar>(std * odd);
  }
}

}  // namespace

Initialiser default_initialiser(const ModelConfig& config, std::string_view name) {
  const auto contains = [&](std::string_view part) { return name.find(part) != name.npos; };
  if (name.ends_with(".bias") || name.ends_with("_bias")) return {};
  if (contains("norm.") || contains("layernorm.") || contains("layer_norm") || contains("ln_"))
    return {.value = 1};
  const bool closes_branch = contains(".o_proj") || contains(".down_proj") || contains(".c_proj");
  if (!closes_branch) return {.std = kStd};
  return {.std = kStd / std::sqrt(2.0 * static_cast<double>(config.layers))};
}

Initialiser initialiser_of(const ModelConfig& config, std::string_view name) {
  if (name.ends_with(kAdapterA)) return {.std = 1 / std::numbers::sqrt3, .over_inputs = true};
  if (is_of_adapter(name)) return {};
  if (const auto part = frozen_part(name, config.lora.base)) {
    Initialiser rule = family_of(config).initialiser_of(config, part->weight);
    rule.format = part->format;
    return rule;
  }
  return family_of(config).initialiser_of(config, name);
}

void fill_normal(at::Tensor local, const mesh::Box& box, const std::vector<int64_t>& global_shape,
                 RandomKey key, double std) {
  TRIREME_ASSERT(local.sizes() == at::IntArrayRef(box.size),
                 "box does not have the tensor's shape");
  TRIREME_ASSERT(box.size.size() == global_shape.size() && !global_shape.empty(),
                 "box and global shape differ in dimensions");
  TRIREME_ASSERT(local.is_contiguous(), "fill_normal needs contiguous memory");
  if (local.numel() == 0) return;
  if (!local.is_cpu()) {
    at::Tensor host = at::empty(local.sizes(), local.options().device(at::kCPU));
    fill_normal(host, box, global_shape, key, std);
    local.copy_(host);
    return;
  }
  const mesh::BoxRuns runs(box, global_shape);
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kBFloat16, at::kHalf, local.scalar_type(), "fill_normal", [&] {
        scalar_t* out = local.mutable_data_ptr<scalar_t>();
        at::parallel_for(0, local.numel(), kGrain, [&](int64_t begin, int64_t end) {
          runs.visit(begin, end, [&](int64_t first, int64_t index, int64_t count) {
            fill_run(out + first, index, count, key, std);
          });
        });
      });
}

at::Tensor new_parameter(at::IntArrayRef shape, at::ScalarType dtype, double value) {
  if (!unfilled_on) return at::full(shape, value, dtype);
  return parallel::without_memory(shape, at::dtype(dtype).device(*unfilled_on));
}

WithoutMemory::WithoutMemory(std::optional<at::Device> device) : before_(unfilled_on) {
  if (device) unfilled_on = device;
}

WithoutMemory::~WithoutMemory() { unfilled_on = before_; }

void initialise(at::Tensor local, const mesh::Box& box, const std::vector<int64_t>& global_shape,
                const Initialiser& rule, uint64_t seed, std::string_view name) {
  const at::NoGradGuard no_grad;
  if (const auto part = frozen_part(name, rule.format)) {
    std::vector<int64_t> shape = global_shape;
    shape.back() *= part->numbers();
    const mesh::Box whole = part->weight_box(box);
    const at::Tensor weights = at::empty(whole.size, at::kFloat);
    Initialiser of_weight = rule;
    of_weight.format = WeightFormat::kRun;
    initialise(weights, whole, shape, of_weight, seed, part->weight);
    local.copy_(part->of(weights, box));
    return;
  }
  if (rule.std == 0) {
    local.fill_(rule.value);
  } else {
    const double inputs = rule.over_inputs ? static_cast<double>(global_shape.back()) : 1;
    fill_normal(local, box, global_shape, random_key(seed, name), rule.std / std::sqrt(inputs));
  }
}

void initialise(torch::nn::Module& module, const ModelPlan& plan, AxisRanks ranks, uint64_t seed) {
  initialise(module, plan, ranks, seed,
             [&](std::string_view name) { return initialiser_of(plan.config(), name); });
}

void initialise(torch::nn::Module& module, const ModelPlan& plan, AxisRanks ranks, uint64_t seed,
                const InitialiserRule& rule) {
  for (const auto& item : module.named_parameters()) {
    if (!parallel::has_memory(item.value())) continue;
    const mesh::Layout& layout = plan.layout(item.key());
    initialise(item.value(), layout.local_box(rank_in(layout, ranks)), layout.shape(),
               rule(item.key()), seed, item.key());
  }
}

void initialise(std::span<const parallel::Shard> shards, uint64_t seed,
                const InitialiserRule& rule) {
  for (const parallel::Shard& shard : shards) {
    initialise(shard.weights, shard.layout.whole_box(shard.rank), shard.layout.whole_shape(),
               rule(shard.name), seed, shard.name);
  }
}

Initialiser Family::initialiser_of(const ModelConfig& config, std::string_view name) const {
  return default_initialiser(config, name);
}

}  // namespace trireme::model
