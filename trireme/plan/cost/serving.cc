#include "trireme/plan/cost/serving.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/plan/cost/device_seconds.h"
#include "trireme/plan/cost/layer_costs.h"

namespace trireme::plan {
namespace {

// Weights narrower than this are widened before they are multiplied.
constexpr double kLeastActivationSize = 2;

// A lower bound: its bytes at the group's rate, and a single message's latency.
double least_all_reduce_seconds(const Cluster& cluster, const Group& group, double bytes) {
  if (group.ranks == 1) return 0;
  const RingRate rate = ring_rate(cluster, group);
  const double p = number(group.ranks);
  return 2 * (p - 1) / p * bytes / rate.bytes_per_second + rate.seconds;
}

double activation_size(const ServingOptions& options) {
  return std::max(kLeastActivationSize, options.weight_size);
}

// Forward operations of one query head over one cached token. Latent attention multiplies the
// cached latent itself, so the cache is never expanded.
double flops_per_cached_token(const model::ModelConfig& model) {
  const model::AttentionConfig& attention = model.attention;
  return attention.is_latent() ? 2 * number(2 * attention.kv_lora_rank + attention.qk_rope_width)
                               : 4 * number(model.head_width());
}

}  // namespace

double cached_numbers(const model::ModelConfig& model, int64_t tensor) {
  if (model.attention.is_latent()) {
    return number(model.attention.kv_lora_rank + model.attention.qk_rope_width);
  }
  const int64_t heads = (model.kv_heads + tensor - 1) / tensor;
  return 2 * number(heads * model.head_width());
}

double expected_experts(const model::ExpertConfig& experts, double tokens) {
  if (experts.experts == 0) return 0;
  const double all = number(experts.experts);
  return all * (1 - std::pow(1 - number(experts.experts_per_token) / all, tokens));
}

Serving::Serving(const model::ModelConfig& model, const Cluster& cluster,
                 const ServingOptions& options)
    : model_(model.without_adapters()),
      counts_(count_model(model_)),
      cluster_(cluster),
      options_(options) {
  TRIREME_CHECK(counts_.is_causal, "model.family is \"", model.family,
                "\", which generates no tokens one after the other; expected a causal family, such "
                "as \"llama\"");
  TRIREME_CHECK(options.tensor >= 1 && model.heads % options.tensor == 0, "a replica of ",
                options.tensor, " tensor ranks does not divide the ", model.heads,
                " heads of the model; expected a divisor, such as 1");
  TRIREME_CHECK(options.tensor <= cluster.num_devices(), "a replica of ", options.tensor,
                " tensor ranks needs more than the cluster's ", cluster.num_devices(),
                " devices; use fewer ranks, or set cluster.nodes higher");
}

ServingMemory Serving::memory() const {
  const Device& device = cluster_.device;
  ServingMemory memory;
  memory.weights =
      number(model::num_parameters(model_)) * options_.weight_size / number(options_.tensor);
  memory.cache_per_token =
      number(model_.layers) * cached_numbers(model_, options_.tensor) * options_.cache_size;
  memory.cache_per_sequence = memory.cache_per_token * number(options_.context);
  memory.for_cache = device.memory_bytes - device.reserved_bytes - memory.weights;
  memory.largest_batch =
      static_cast<int64_t>(std::floor(std::max(0.0, memory.for_cache) / memory.cache_per_sequence));
  return memory;
}

// Parameters of a replica that a forward pass of `tokens` tokens reads: all but embedding rows and
// idle experts.
double Serving::read_parameters(double tokens) const {
  const model::ExpertConfig& experts = model_.sparse;
  const double sparse = number(model::num_sparse_blocks(model_));
  const double idle = number(experts.experts) - expected_experts(experts, tokens);
  const double head = number(model_.vocab_size * model_.width);
  return (number(model_.layers) - sparse) * counts_.dense_parameters +
         sparse * (counts_.sparse_parameters - idle * counts_.expert_parameters) + head;
}

// product_flops and bytes: of a replica and of a device.
ServingSeconds Serving::seconds(double product_flops, double core_seconds, double bytes,
                                double tokens) const {
  const Device& device = cluster_.device;
  const double size = activation_size(options_), ranks = number(options_.tensor);
  ServingSeconds seconds;
  seconds.compute =
      product_flops / ranks / (device.peak(size) * device.product_share) + core_seconds;
  seconds.memory = elementwise_seconds(device, bytes, 1);
  // After attention and after the feed-forward of each block.
  seconds.tensor = 2 * number(model_.layers) *
                   least_all_reduce_seconds(cluster_, {options_.tensor, 1},
                                            tokens * number(model_.width) * size);
  return seconds;
}

ServingSeconds Serving::prefill() const {
  const double tokens = number(options_.context), ranks = number(options_.tensor);
  model::ModelConfig without_scores = model_;
  without_scores.sequence_length = 0;
  const double of_head = 2 * number(model_.vocab_size * model_.width);
  const double of_blocks = model::flops_per_token(without_scores) / 3 - of_head;
  const AttentionCore core{.queries = tokens,
                           .keys = tokens,
                           .heads = number(model_.heads) / ranks,
                           .width = number(model_.core_width())};
  const double core_seconds =
      number(model_.layers) *
      attention_seconds(cluster_.device, core, activation_size(options_), /*is_fused=*/true);
  // Only the last token's logits are needed.
  return seconds(tokens * of_blocks + of_head, core_seconds,
                 read_parameters(tokens) * options_.weight_size / ranks, tokens);
}

ServingSeconds Serving::decode(int64_t batch) const {
  const double tokens = number(batch), ranks = number(options_.tensor);
  const Device& device = cluster_.device;
  model::ModelConfig without_scores = model_;
  without_scores.sequence_length = 0;
  const double products = tokens * model::flops_per_token(without_scores) / 3;
  const double cached = tokens * number(options_.context);
  const double core =
      cached * number(model_.layers * model_.heads) / ranks * flops_per_cached_token(model_);
  const double core_seconds = core / device.attention_rate(activation_size(options_));
  const double bytes =
      read_parameters(tokens) * options_.weight_size / ranks + tokens * memory().cache_per_sequence;
  return seconds(products, core_seconds, bytes, tokens);
}

int64_t fewest_tensor_ranks(const model::ModelConfig& model, const Cluster& cluster,
                            ServingOptions options) {
  const int64_t most = std::min(model.heads, cluster.num_devices());
  for (options.tensor = 1; options.tensor <= most; ++options.tensor) {
    if (model.heads % options.tensor != 0) continue;
    if (Serving(model, cluster, options).memory().largest_batch > 0) return options.tensor;
  }
  return 0;
}

}  // namespace trireme::plan
