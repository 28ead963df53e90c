// Problems, and layouts of at most eight ranks to solve them with, drawn from a seed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "tests/parity/layout_config.h"
#include "trireme/base/error.h"
#include "trireme/train/parallel/run_layout.h"

namespace trireme::train {

using Overrides = std::vector<Override>;

inline Overrides joined(Overrides first, const Overrides& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// A gradient is at the end of about 12 products and norms a layer, forward and backward, each a sum
// of up to n terms taken in another order: sqrt(n) roundings of 2^-24 each, times 8.
inline double fp32_bound(const RunConfig& config) {
  const model::ModelConfig& model = model_of(config);
  const double longest =
      static_cast<double>(std::max({model.vocab_size, model.ffn_width, 2 * model.sequence_length}));
  return 8 * 12 * static_cast<double>(model.num_blocks()) * std::sqrt(longest) * 0x1p-24;
}

// The seed that TRIREME_LAYOUT_SEED asks for; otherwise any from `first` on.
inline int layout_seed(int first) {
  const char* const asked = std::getenv("TRIREME_LAYOUT_SEED");
  return asked != nullptr ? std::atoi(asked)
                          : first + static_cast<int>(std::random_device()() % 1'000'000);
}

class Draw {
 public:
  explicit Draw(int seed) : random_(static_cast<uint64_t>(seed)) {}

  // first, …, first + count - 1.
  int64_t number(int64_t first, int64_t count) {
    return first + static_cast<int64_t>(random_() % static_cast<uint64_t>(count));
  }
  std::string one_of(const std::vector<std::string>& values) {
    return values[static_cast<size_t>(number(0, std::ssize(values)))];
  }

 private:
  std::mt19937_64 random_;
};

// Learns from pairs of answers, in whose padding routers must not count anything.
inline const Overrides kPreferences = {{"objective.name", "dpo"},
                                       {"objective.beta", "0.3"},
                                       {"objective.label_smoothing", "0.1"},
                                       {"model.balance_loss", "0"},
                                       {"model.router_z_loss", "0"},
                                       {"model.capacity_factor", "0"},
                                       {"model.router_bias_rate", "0"}};

// How ranks divide a step.
struct DrawnLayout {
  // What decides the order of sums. Layouts that agree in it give the same bits.
  Overrides sums{};
  // The rest, which changes none.
  Overrides others{};
  int ranks = 1;

  Overrides all() const { return joined(sums, others); }
};

inline bool is_legal(const Overrides& overrides, int num_ranks) {
  try {
    RunConfig config = config_of(overrides);
    resolve(config, num_ranks);
    check_layout(config);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

inline void draw_experts(Draw& draw, Overrides& overrides) {
  const auto set = [&](const std::string& key, const std::string& value) {
    overrides.emplace_back("model." + key, value);
  };
  const std::string per_token = draw.one_of({"1", "2"});
  set("experts", draw.one_of({"4", "6", "8"}));
  set("experts_per_token", per_token);
  set("expert_width", std::to_string(draw.number(9, 9)));
  const std::string shared = draw.one_of({"0", "1", "2"});
  set("shared_experts", shared);
  if (shared != "0") set("shared_gate", draw.one_of({"false", "true"}));
  set("dense_layers", draw.one_of({"0", "1"}));
  set("expert_interval", draw.one_of({"1", "2"}));
  set("router_score", draw.one_of({"softmax", "sigmoid"}));
  set("router_normalise", per_token == "1" ? "false" : draw.one_of({"false", "true"}));
  set("expert_groups", draw.one_of({"1", "2"}));
  set("balance_loss", draw.one_of({"0", "0.3"}));
  set("balance_over", draw.one_of({"sequence", "batch"}));
  set("router_bias_rate", draw.one_of({"0", "0.05"}));
  set("router_jitter", draw.one_of({"0", "0.1"}));
  set("capacity_factor", draw.one_of({"0", "1.2", "2"}));
  set("drop_by", draw.one_of({"position", "probability"}));
  set("router_z_loss", draw.one_of({"0", "0.1"}));
  set("expert_bias", draw.one_of({"false", "true"}));
  set("swiglu_limit", draw.one_of({"0", "0.05"}));
}

// A model and its microbatches. The caller says how many sequences a step has, and the vocabulary.
inline Overrides draw_problem(Draw& draw) {
  Overrides overrides;
  const auto set = [&](const std::string& key, const std::string& value) {
    overrides.emplace_back(key, value);
  };
  set("model.width", "24");
  set("model.heads", "6");
  set("model.layers", std::to_string(draw.number(4, 2)));
  set("model.ffn_width", std::to_string(draw.number(17, 20)));
  set("model.sequence_length", std::to_string(draw.number(7, 12)));
  set("model.tied_embedding", draw.one_of({"false", "true"}));
  if (draw.number(0, 3) == 0) {
    const std::string family = draw.one_of({"gpt2", "bert"});
    set("model.family", family);
    set("model.kv_heads", "6");
    if (family == "bert") set("data.masked_share", "0.15");
  } else {
    const std::string attention =
        draw.one_of({"plain", "biases and wide heads", "norms", "latent"});
    set("model.kv_heads", attention == "latent" ? "6" : draw.one_of({"1", "2", "3", "6"}));
    set("model.qk_norm", attention == "norms" ? "true" : "false");
    if (attention == "norms") set("model.qk_norm_over", draw.one_of({"head", "all"}));
    if (attention == "biases and wide heads") {
      set("model.attention_bias", "true");
      set("model.attention_output_bias", draw.one_of({"false", "true"}));
      set("model.head_width", draw.one_of({"2", "10"}));
    }
    if (attention == "latent") {
      set("model.kv_lora_rank", draw.one_of({"5", "8"}));
      set("model.q_lora_rank", draw.one_of({"0", "7"}));
      set("model.qk_nope_width", draw.one_of({"2", "3"}));
      set("model.qk_rope_width", draw.one_of({"2", "4"}));
      set("model.v_head_width", draw.one_of({"3", "8"}));
    }
    if (attention != "latent" && draw.number(0, 3) == 0) {
      // Of a token that reads itself alone, the gradients of q and k are nothing but rounding.
      set("model.window", draw.one_of({"2", "3", "8"}));
      set("model.window_layers", draw.one_of({"w", "wf"}));
      set("model.rope_local_base", draw.one_of({"0", "50"}));
    }
    if (attention != "latent" && draw.number(0, 3) == 0) set("model.rope_layers", "rn");
    const bool is_gemma = attention != "latent" && draw.number(0, 3) == 0;
    if (is_gemma) set("model.family", "gemma");
    if (attention != "latent" && draw.number(0, 3) == 0) {
      set("model.query_scalar", draw.one_of({"0", "3"}));
      set("model.attention_softcap", draw.one_of({"0", "0.1", "2"}));
      set("model.logits_softcap", draw.one_of({"0", "0.3", "5"}));
      set("model.attention_sinks", draw.one_of({"false", "true"}));
    }
    if (!is_gemma && draw.number(0, 3) == 0) {
      set("model.embedding_scale", draw.one_of({"1", "3"}));
      set("model.residual_scale", draw.one_of({"1", "0.22"}));
      set("model.logits_divisor", draw.one_of({"1", "0.7"}));
    }
    if (!is_gemma && draw.number(0, 3) == 0) {
      set("model.branch_norms", draw.one_of({"after", "both"}));
    }
    if (!is_gemma && draw.number(0, 2) == 0) draw_experts(draw, overrides);
  }
  set("model.dropout", draw.one_of({"0", "0.1"}));
  set("data.separate_documents", draw.one_of({"false", "true"}));
  set("train.micro_batch", draw.one_of({"1", "2"}));
  set("train.uneven_batches", "true");
  return overrides;
}

// The part of a layout that changes no bit: stages, what ZeRO shards, and when things happen.
inline DrawnLayout with_other_stages(Draw& draw, DrawnLayout layout, int64_t most_ranks = 8) {
  layout.others.clear();
  const auto set = [&](const std::string& key, const std::string& value) {
    layout.others.emplace_back(key, value);
  };
  const RunConfig config = config_of(layout.sums);
  const ParallelConfig& axes = config.parallel;
  const int64_t ranks = axes.data * axes.tensor * axes.context;
  const int64_t pipeline = draw.number(1, std::min<int64_t>(most_ranks / ranks, 4));
  layout.ranks = static_cast<int>(ranks * pipeline);
  set("parallel.pipeline", std::to_string(pipeline));
  const bool may_have_chunks = pipeline <= 2;
  set("parallel.schedule", may_have_chunks
                               ? draw.one_of({"gpipe", "1f1b", "interleaved", "zero-bubble",
                                              "zero-bubble-v", "breadth-first"})
                               : draw.one_of({"gpipe", "1f1b", "zero-bubble"}));
  const bool has_replicas_of_shards = axes.shard > 0;
  const std::string zero =
      has_replicas_of_shards ? draw.one_of({"1", "2", "3"}) : draw.one_of({"0", "1", "2", "3"});
  set("parallel.zero", zero);
  set("train.overlap", draw.one_of({"false", "true"}));
  set("train.symmetric_memory", draw.one_of({"false", "true"}));
  set("train.bucket_bytes", draw.one_of({"1", "4096", "4194304"}));
  const std::string recompute = draw.one_of({"none", "selective", "full"});
  set("train.recompute", recompute);
  // What the stage and the recompute allow.
  constexpr std::string_view kInputs = "offload.activations";
  bool stores_inputs = false;
  for (const auto& [key, allowed] : {std::pair("offload.parameters", zero == "3"),
                                     {"offload.gradients", zero == "2" || zero == "3"},
                                     {kInputs.data(), recompute != "none"},
                                     {"offload.optimizer", true}}) {
    const std::string place = draw.one_of({"none", "disk"});
    if (allowed) set(key, place);
    stores_inputs = stores_inputs || (allowed && key == kInputs && place == "disk");
  }
  set("train.recompute_modules", draw.one_of({"attention_core", "attention", "feed_forward"}));
  const std::string blocks = draw.one_of({"0", "1", "2"}), stored = draw.one_of({"0", "1"});
  if (recompute != "none") set("train.recompute_blocks", blocks);
  if (stores_inputs) set("offload.activation_blocks", stored);
  if (axes.expert > 1) set("parallel.expert_replicas", draw.one_of({"0", "1", "2", "4"}));
  return layout;
}

inline DrawnLayout draw_layout(Draw& draw, const Overrides& problem, int64_t most_ranks = 8) {
  DrawnLayout layout;
  const auto set = [&](const std::string& key, const std::string& value) {
    layout.sums.emplace_back(key, value);
  };
  int64_t data = 1, tensor = 1, context = 1;
  for (int64_t* size : {&data, &tensor, &context}) {
    *size = draw.number(1, std::min<int64_t>(most_ranks / (data * tensor * context), 4));
  }
  set("parallel.data", std::to_string(data));
  set("parallel.tensor", std::to_string(tensor));
  set("parallel.context", std::to_string(context));
  set("parallel.sequence_parallel", draw.one_of({"false", "true"}));
  set("parallel.context_form", draw.one_of({"ring", "all-to-all"}));
  set("parallel.async_tensor", draw.one_of({"off", "on"}));
  set("parallel.shard", data == 4 ? draw.one_of({"0", "2"}) : "0");
  set("parallel.gradient_order", draw.one_of({"microbatch-first", "rank-first"}));
  const RunConfig config = config_of(problem);
  const int64_t experts = model_of(config).sparse.experts;
  if (experts > 0) {
    std::vector<std::string> degrees;
    for (int64_t n = 1; n <= experts; ++n) {
      if (data * context % n == 0) degrees.push_back(std::to_string(n));
    }
    set("parallel.expert", draw.one_of(degrees));
    set("parallel.expert_chunk", draw.one_of({"0", "0", "4", "100"}));
  }
  layout = with_other_stages(draw, layout, most_ranks);
  // Tensor ranks may have too few heads to share out once more.
  if (!is_legal(joined(problem, layout.all()), layout.ranks)) set("parallel.context_form", "ring");
  return layout;
}

// Samples per forward of each data rank, some perhaps 0, in one of three draws; otherwise none.
inline std::vector<int64_t> draw_shares(Draw& draw, const RunConfig& config) {
  if (draw.number(0, 3) != 0) return {};
  std::vector<int64_t> shares;
  for (int64_t rank = 0; rank < sample_ranks(config.parallel); ++rank) {
    shares.push_back(draw.number(0, 4));
  }
  if (std::ranges::max(shares) == 0) shares.back() = 1;
  return shares;
}

}  // namespace trireme::train
