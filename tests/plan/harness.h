// Workloads that the tests of the cost model share.
#pragma once

#include "trireme/plan/cost/workload.h"
#include "trireme/plan/device/cluster.h"

namespace trireme::plan {

// GPT as in Megatron-LM: a feed-forward of 4 D, a tied head.
inline model::ModelConfig gpt(int64_t layers, int64_t width, int64_t heads) {
  model::ModelConfig config;
  config.family = "gpt2";
  config.layers = layers;
  config.width = width;
  config.heads = config.kv_heads = heads;
  config.ffn_width = 4 * width;
  config.sequence_length = 2048;
  config.vocab_size = 51200;
  return config;
}

inline model::ModelConfig sparse_llama() {
  model::ModelConfig config = gpt(4, 256, 8);
  config.family = "mixtral";
  config.kv_heads = 4;
  config.ffn_width = 704;
  config.sparse.experts = 8;
  config.sparse.experts_per_token = 2;
  config.sparse.shared_experts = 1;
  config.sparse.dense_layers = 1;
  return config;
}

// In bf16 with master weights.
inline Workload mixed(model::ModelConfig config) {
  Workload work;
  work.set_model(std::move(config));
  work.sizes = {.weight = 2, .gradient = 2, .wide = 4, .states = 8, .has_masters = true};
  work.kept_by_block = {.feed_forward = 2};
  return work;
}

inline void set_recompute(Workload& work, model::Recompute kind) {
  work.recompute_kind = kind;
  work.recompute = model::recompute_plan(kind, "attention_core");
}

inline Cluster cluster_of(std::string_view device, int64_t nodes, int64_t devices_per_node) {
  return {.device = device_named(device), .nodes = nodes, .devices_per_node = devices_per_node};
}

}  // namespace trireme::plan
