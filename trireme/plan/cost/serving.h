// Arithmetic of serving a trained model: memory of its weights and of its cache of keys and values,
// and lower bounds of the time of a prompt and of a token. It does not model a server: batching,
// sampling and kernel launches come on top.
#pragma once

#include <cstdint>

#include "trireme/model/family/model_config.h"
#include "trireme/plan/cost/workload.h"
#include "trireme/plan/device/cluster.h"

namespace trireme::plan {

struct ServingOptions {
  int64_t tensor = 1;      // ranks that divide one replica
  int64_t context = 1;     // tokens of each sequence, the prompt included
  double weight_size = 2;  // bytes of a weight
  double cache_size = 2;   // bytes of a number in the cache
};

// Numbers that one layer caches for a token on each of `tensor` ranks. Heads of keys and values are
// divided; ranks beyond their number hold copies. A latent is whole on every rank.
// Source: latent attention caches its latent and the rotary key: DeepSeek-AI 2024,
//         arXiv:2405.04434, section 2.1
double cached_numbers(const model::ModelConfig& model, int64_t tensor);

// Expected number of a block's experts that `tokens` use when each token draws its experts evenly.
double expected_experts(const model::ExpertConfig& experts, double tokens);

// Memory of one device, in bytes.
struct ServingMemory {
  double weights = 0;
  double cache_per_token = 0;
  double cache_per_sequence = 0;
  double for_cache = 0;       // what weights and driver leave; negative: they do not fit
  int64_t largest_batch = 0;  // sequences of a replica
};

// Seconds of one forward of a replica.
struct ServingSeconds {
  double compute = 0;
  double memory = 0;  // reading weights and cache, behind which computation may hide
  double tensor = 0;  // all-reduces, each with the latency of one message

  double total() const { return (compute > memory ? compute : memory) + tensor; }
};

class Serving {
 public:
  // Throws: ConfigError when options.tensor does not divide the heads, or is more than the cluster,
  //         or the model is not causal
  Serving(const model::ModelConfig& model, const Cluster& cluster, const ServingOptions& options);

  ServingMemory memory() const;
  // The prompt of one sequence, of `context` tokens.
  ServingSeconds prefill() const;
  // The next token of `batch` sequences that have `context` tokens each.
  ServingSeconds decode(int64_t batch) const;

 private:
  double read_parameters(double tokens) const;
  ServingSeconds seconds(double product_flops, double core_seconds, double bytes,
                         double tokens) const;

  model::ModelConfig model_;
  ModelCounts counts_;
  Cluster cluster_;
  ServingOptions options_;
};

// The fewest tensor ranks whose memory holds the weights and one sequence; 0: even all of the
// cluster's are too few. options.tensor is ignored.
int64_t fewest_tensor_ranks(const model::ModelConfig& model, const Cluster& cluster,
                            ServingOptions options);

}  // namespace trireme::plan
