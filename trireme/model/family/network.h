// The network that a family builds: embedding, blocks, norm and head, or those of them that a
// pipeline stage has. Runs them in order, each as one unit. Knows no layer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/model/family/model_config.h"
#include "trireme/model/family/plan.h"
#include "trireme/parallel/data/unit.h"

namespace trireme::model {
struct RecomputePlan;
}

namespace trireme::model {

class Block : public torch::nn::Module {
 public:
  // Shapes: x [B, T, D], or its rows as the tensor axis holds them -> the same
  virtual at::Tensor forward(const at::Tensor& x, const TokenBatch& batch) = 0;
  // index: of the block in its stage.
  virtual void set_recompute(const RecomputePlan& plan, int64_t index) = 0;
};

class Network : public torch::nn::Module {
 public:
  // Adds to the batch what the layers need to know about its positions.
  virtual void complete(TokenBatch& /*batch*/) const {}
  // Runs the part's layers, and the norm if the part has the head.
  // Shapes: the model's input if the part embeds, such as tokens_BT [B, T] int64, otherwise x
  //         [B, T, D] or its rows as the tensor axis holds them -> x [B, T, D] or its rows
  at::Tensor forward(const at::Tensor& input, const TokenBatch& batch);
  // The weight that turns hidden states into logits: the head's own, or the embedding's when tied.
  // Undefined if the part has neither.
  const at::Tensor& head_VD() const { return head_VD_; }  // [v, D]
  // What is added to the logits. Undefined: nothing.
  const at::Tensor& head_bias_V() const { return head_bias_V_; }  // [v]
  void set_recompute(const RecomputePlan& plan);
  // Adds the blocks' parameters again that have come since the blocks were added.
  void collect_parameters();

  // In the order of forward. See LanguageModel::units().
  const std::vector<parallel::Unit>& units() const { return units_; }
  // The unit of the head's weight and bias. Empty: the part has neither.
  std::optional<size_t> head_unit() const { return head_unit_; }
  parallel::RunUnit run_unit = parallel::run_directly;

 protected:
  explicit Network(const ModelPart& part) : part_(part) {}

  // Computes the input of the first block.
  // Shapes: the model's input -> x [B, T, D], or its rows as the tensor axis holds them
  virtual at::Tensor embed(const at::Tensor& input, const TokenBatch& batch) = 0;
  // Applies the norm between the embedding and the first block, in a unit of its own. Only called
  // after add_embedding_norm().
  virtual at::Tensor embedding_norm(const at::Tensor& x, const TokenBatch& /*batch*/) { return x; }
  // Applies what lies between the last block and the head: at least a norm.
  virtual at::Tensor last_norm(const at::Tensor& x, const TokenBatch& batch) = 0;

  // Constructors call these in the order of forward, each only if the part has what it adds. Each
  // adds one unit of `parameters`, which must be registered already.
  // weights_in_backward: as Unit::weights_in_backward
  void add_embedding(std::string unit, std::vector<at::Tensor> parameters,
                     bool weights_in_backward = false);
  void add_embedding_norm(std::string unit, std::vector<at::Tensor> parameters);
  void add_norm(std::string unit, std::vector<at::Tensor> parameters);
  void add_head(std::string unit, const at::Tensor& weight_VD);
  // The same for a head whose forward is not fused with the loss, so that its backward reads them.
  void add_head(std::string unit, std::vector<at::Tensor> parameters);
  // Replaces add_head() when the head is the embedding, which is in the first unit.
  void tie_head(const at::Tensor& weight_VD) {
    head_VD_ = weight_VD;
    head_unit_ = 0;
  }
  // Gives the head a bias. With a tied head it is in the embedding's unit, or if another part has
  // the embedding, in the unit that this adds.
  void add_head_bias(std::string unit, const at::Tensor& bias_V);
  // Registers all blocks of the part as `name`.<layer> in `parent`.
  template <typename BlockType>
  void add_blocks(torch::nn::Module& parent, const std::string& name, const ModelConfig& config,
                  const ModelAxes& axes, at::ScalarType dtype) {
    const auto folder = parent.register_module(name, std::make_shared<torch::nn::Module>());
    for (int64_t i = 0; i < part_.num_layers; ++i) {
      const int64_t layer = part_.first_layer + i;
      add_block(concat(name, ".", i),
                folder->register_module(std::to_string(layer),
                                        std::make_shared<BlockType>(config, axes, dtype, layer)));
    }
  }

 private:
  void add_block(std::string unit, std::shared_ptr<Block> block);

  ModelPart part_;
  std::vector<std::shared_ptr<Block>> blocks_;
  size_t first_block_unit_ = 0;
  std::vector<parallel::Unit> units_;
  bool has_embedding_norm_ = false;
  std::optional<size_t> head_unit_;
  at::Tensor head_VD_;
  at::Tensor head_bias_V_;
};

}  // namespace trireme::model
