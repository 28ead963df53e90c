// The placement of a model's parameters: which ones the tensor axis splits, and where. Nothing else
// defines it. Layers, initial values, norm and checkpoints read it. Also whether the tensor and
// context axes can divide a transformer, for a task to check a config before the model is built.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/layout.h"
#include "trireme/model/family/model_config.h"
#include "trireme/model/family/parts.h"
#include "trireme/parallel/context/context_attention.h"
#include "trireme/parallel/context/sequence_split.h"

namespace trireme::model {

// The cuts of a model's dimensions between `ranks` ranks: rank r has [cuts[r], cuts[r + 1]), as
// evenly as possible. Query heads follow their kv heads. With more ranks than kv heads, query heads
// are spread evenly. Every rank then keeps the kv projections whole and computes the kv heads it
// needs.
struct TensorCuts {
  // Throws: ConfigError when a rank would have no head, no feed-forward row or no token
  TensorCuts(const ModelConfig& config, int ranks);

  int ranks = 1;
  std::vector<int64_t> heads;     // N
  std::vector<int64_t> kv_heads;  // K; empty: whole on every rank
  std::vector<int64_t> ffn;       // F
  std::vector<int64_t> expert;    // the width of an expert's feed-forward; empty: no experts
  std::vector<int64_t> shared;    // that of the shared experts together
  std::vector<int64_t> vocab;     // V

  mesh::Range heads_of(int rank) const;
  // The kv heads that the rank's query heads read.
  mesh::Range kv_heads_of(int rank, const ModelConfig& config) const;
  mesh::Range ffn_of(int rank) const;
  mesh::Range expert_of(int rank) const;
  mesh::Range shared_of(int rank) const;
  mesh::Range vocab_of(int rank) const;
};

struct RandomDraw;

struct CachedTokens;  // cache/key_cache.h

// The tokens of one forward, with what layers need to know about them.
struct TokenBatch {
  int64_t B = 1;
  int64_t T = 1;
  at::Tensor positions_T{};  // [T] int64: position of each token in its sequence
  at::Tensor cos_TH{};       // [T, H/2] of the positions; only with rotary positions
  at::Tensor sin_TH{};       // [T, H/2]
  // The same for layers with a window. Undefined: those above.
  at::Tensor local_cos_TH{};
  at::Tensor local_sin_TH{};
  // The tokens of its sequence that a token reads: see AttentionReach.
  bool causal = true;
  at::Tensor documents_BT{};
  // Positions of the T tokens in their sequences. Null: the sequences are whole.
  std::shared_ptr<const parallel::ContextParallel> context{};
  // Empty in evaluation and generation.
  std::optional<TrainingPlace> training{};
  // Under sequence parallelism those of the B * T rows that this rank holds between layers. Empty:
  // all.
  std::optional<mesh::Range> held_rows{};
  // The source of dropout's masks. Null: nothing is dropped.
  std::shared_ptr<const RandomDraw> dropout{};
  // The source of routers' jitter, for all B * T tokens. Null: none.
  std::shared_ptr<const RandomDraw> jitter{};

  // Of a decoder: the output of its encoder, [B, S, D] or its rows, how many of those tokens this
  // rank has of each sequence, and their split. Undefined and null: there is none.
  at::Tensor memory{};
  int64_t memory_T = 0;
  std::shared_ptr<const parallel::SequenceSplit> memory_split{};
  at::Tensor distance_bias_NR{};  // see AttentionReach

  // The images whose features take the places of some tokens, [n, 3, image_size, image_size], n may
  // be 0; and which feature each of this rank's tokens takes, [B, T] int64, -1: none. Undefined:
  // the model reads text only.
  at::Tensor images{};
  at::Tensor image_rows_BT{};

  // In generation: where the keys of earlier tokens are. B is 1, and the T tokens are those of its
  // runs. Null: every token reads those of this batch.
  std::shared_ptr<const CachedTokens> cached{};

  // The tensors of this batch that have gradients: what is recomputed takes them as inputs.
  std::vector<at::Tensor> tracked() const;
  // The same batch with others in their place.
  TokenBatch with_tracked(std::span<const at::Tensor> tensors) const;
  std::vector<int64_t> lead() const { return {B, T}; }
  parallel::AttentionReach reach() const { return {causal, documents_BT}; }
};

// Every parameter of a model, in its order.
class ModelPlan {
 public:
  ModelPlan(const ModelConfig& config, AxisSizes sizes)
      : config_(config), sizes_(sizes), cuts_(config, sizes.tensor) {}

  // Adds a parameter that every rank of the axis holds whole.
  void add_whole(std::string name, std::vector<int64_t> shape);
  // Adds a parameter that is split in dimension `dim`. Rank c of the axis holds
  // [cuts[c], cuts[c + 1]) * `width`. Without cuts, every rank holds it whole.
  void add_split(std::string name, std::vector<int64_t> shape, int dim,
                 std::span<const int64_t> cuts, int64_t width = 1);

  // Adds a parameter of all experts, [E, ...]: the expert axis splits dimension 0 evenly, the
  // tensor axis dimension `dim` at `cuts`. Without cuts, its ranks hold them whole.
  void add_experts(std::string name, std::vector<int64_t> shape, int dim,
                   std::span<const int64_t> cuts);

  // Marks the parameters whose names begin with `prefix` as not trained, whatever the config says.
  void freeze(std::string_view prefix);

  // Adds the adapters of config().lora, each after its layer, and marks as not trained what they
  // are trained in place of. A layer whose outputs the tensor axis splits has the whole A and the
  // same rows of B; one whose inputs it splits, the same columns of A and the whole B. Adapters of
  // stacks of experts come after all of these, split as they are. A weight that is frozen as codes
  // with scales is replaced by those, which are split as it is.
  // Throws: ConfigError when a pattern matches nothing, stacks would have dropout or magnitudes, or
  //         a rank would have a part of the numbers that share a scale
  void add_adapters();

  const std::vector<ParameterPlan>& parameters() const { return parameters_; }
  // Throws: InternalError for an unknown name
  const mesh::Layout& layout(std::string_view name) const;
  const ModelConfig& config() const { return config_; }
  const TensorCuts& cuts() const { return cuts_; }

 private:
  void add_codes(const ParameterPlan& weight, std::vector<ParameterPlan>& all) const;
  // Adds to `all` the adapters that follow parameter `i`.
  void add_layer_adapter(size_t i, std::vector<ParameterPlan>& all) const;
  void add_stack_adapters(size_t i, std::vector<ParameterPlan>& all) const;
  void check_adapters() const;

  ModelConfig config_;
  AxisSizes sizes_;
  TensorCuts cuts_;
  std::vector<ParameterPlan> parameters_;
};

// The plan of the family that `config` names, with the adapters that it asks for.
// Throws: ConfigError when the model cannot be split over this many ranks or for an unknown family;
//         as add_adapters()
ModelPlan make_plan(const ModelConfig& config, AxisSizes sizes = {});

struct TransformerAxes {
  int64_t tensor = 1;   // parallel.tensor
  int64_t context = 1;  // parallel.context
  parallel::ContextForm context_form = parallel::ContextForm::kRing;
};

// tokens: what the model's sequence_length is to the user, such as "model.sequence_length"
// Throws: ConfigError with the key, its value, the reason, and what to do
void check_axes(const ModelConfig& model, const TransformerAxes& axes, std::string_view tokens);

}  // namespace trireme::model
