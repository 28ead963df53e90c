// What of a model lies where: which parameters the tensor axis splits, and at which rows. The one
// place that says so; layers, initial values, norm and checkpoints read it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/layout.h"
#include "trireme/model/family/config.h"
#include "trireme/parallel/context/context_attention.h"
#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::model {

// Where `ranks` ranks cut a model's dimensions: rank r has [cuts[r], cuts[r + 1]), as even as it
// goes. Query heads follow their kv heads; with more ranks than kv heads the query heads are spread
// evenly and every rank keeps the kv projections whole, computing the heads it needs.
struct TensorCuts {
  // Throws: ConfigError when a rank would have no head, no feed-forward row or no token
  TensorCuts(const ModelConfig& config, int ranks);

  int ranks = 1;
  std::vector<int64_t> heads;     // N
  std::vector<int64_t> kv_heads;  // K; empty: whole on every rank
  std::vector<int64_t> ffn;       // F
  std::vector<int64_t> vocab;     // V

  mesh::Range heads_of(int rank) const;
  // Those its query heads read.
  mesh::Range kv_heads_of(int rank, const ModelConfig& config) const;
  mesh::Range ffn_of(int rank) const;
  mesh::Range vocab_of(int rank) const;
};

// The axes that a model's own layers work on.
struct ModelAxes {
  parallel::TensorAxis tensor{};
  comm::Communicator* context = nullptr;  // whose ranks share each sequence out; null: nobody
  parallel::ContextForm context_form = parallel::ContextForm::kRing;
  parallel::RingOptions ring{};
};

// The part of a model that a pipeline stage has.
struct ModelPart {
  int64_t first_layer = 0;
  int64_t num_layers = -1;  // -1: all from the first on
  bool embeds = true;       // what comes before the layers
  bool has_head = true;     // what comes after: norm and head
};

struct DropoutDraw;

// The tokens of one forward, as every layer may need to know them.
struct TokenBatch {
  int64_t B = 1;
  int64_t T = 1;
  at::Tensor positions_T{};  // [T] int64: where each lies in its sequence
  at::Tensor cos_TH{};       // [T, H/2] of the positions; models with rotary positions
  at::Tensor sin_TH{};       // [T, H/2]
  // [B, T] of the whole sequences: tokens read those of their own document; undefined: all before
  at::Tensor documents_BT{};
  // How the T tokens lie in their sequences; null: they are whole.
  std::shared_ptr<const parallel::ContextParallel> context{};
  // What dropout draws from; null: nothing is dropped.
  std::shared_ptr<const DropoutDraw> dropout{};

  std::vector<int64_t> lead() const { return {B, T}; }
};

struct ParameterPlan {
  std::string name;
  mesh::Layout layout;  // of the whole parameter, over the axis "tensor"
};

// Every parameter of a model, in its order.
class ModelPlan {
 public:
  ModelPlan(const ModelConfig& config, int tensor_ranks)
      : config_(config), cuts_(config, tensor_ranks) {}

  // A parameter that every rank of the axis has whole.
  void add_whole(std::string name, std::vector<int64_t> shape);
  // One of which coordinate c of the axis has [cuts[c], cuts[c + 1]) * `width` of dimension `dim`;
  // without cuts all of it.
  void add_split(std::string name, std::vector<int64_t> shape, int dim,
                 std::span<const int64_t> cuts, int64_t width = 1);

  const std::vector<ParameterPlan>& parameters() const { return parameters_; }
  // Throws: InternalError on an unknown name
  const mesh::Layout& layout(std::string_view name) const;
  const ModelConfig& config() const { return config_; }
  const TensorCuts& cuts() const { return cuts_; }

 private:
  ModelConfig config_;
  TensorCuts cuts_;
  std::vector<ParameterPlan> parameters_;
};

// The plan of the family that `config` names.
// Throws: ConfigError when so many ranks cannot share the model, or on an unknown family
ModelPlan make_plan(const ModelConfig& config, int tensor_ranks);

}  // namespace trireme::model
