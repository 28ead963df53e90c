// What a family builds: an embedding, blocks, a norm and a head, or those of them that a pipeline
// stage has. Runs them one after another, each as a unit. Knows no layer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/model/family/config.h"
#include "trireme/model/family/plan.h"
#include "trireme/parallel/data/unit.h"

namespace trireme::model {

struct RecomputePlan;

class Block : public torch::nn::Module {
 public:
  // Shapes: x [B, T, D], or its rows as the tensor axis holds them -> the same
  virtual at::Tensor forward(const at::Tensor& x, const TokenBatch& batch) = 0;
  virtual void set_recompute(const RecomputePlan& plan) = 0;
};

class Network : public torch::nn::Module {
 public:
  // Adds what the layers have to know of the batch's positions.
  virtual void complete(TokenBatch& /*batch*/) const {}
  // x of the part's first layer -> of its last one, after the norm if it has the head.
  // Shapes: tokens_BT [B, T] int64 if the part embeds, else x [B, T, D] or its rows as the tensor
  //         axis holds them -> the same of x
  at::Tensor forward(const at::Tensor& input, const TokenBatch& batch);
  // What turns hidden states into logits: the head's own weight, or the embedding's when tied;
  // undefined where the part has neither.
  const at::Tensor& head_VD() const { return head_VD_; }  // [v, D]
  void set_recompute(const RecomputePlan& plan);

  // In the order of forward; see LanguageModel.
  const std::vector<parallel::Unit>& units() const { return units_; }
  size_t head_unit() const { return head_unit_; }
  parallel::RunUnit run_unit = parallel::run_directly;

 protected:
  explicit Network(const ModelPart& part) : part_(part) {}

  // What enters the first block.
  // Shapes: tokens_BT [B, T] int64 -> x [B, T, D], or its rows as the tensor axis holds them
  virtual at::Tensor embed(const at::Tensor& tokens_BT, const TokenBatch& batch) = 0;
  // The norm between the last block and the head.
  virtual at::Tensor last_norm(const at::Tensor& x) = 0;

  // A constructor calls these in the order of forward, as far as the part has what they add. Each
  // makes one unit of `parameters`, which are registered already.
  void add_embedding(std::string unit, std::vector<at::Tensor> parameters);
  void add_norm(std::string unit, std::vector<at::Tensor> parameters);
  void add_head(std::string unit, const at::Tensor& weight_VD);
  // In place of add_head(): the head is the embedding, which the first unit has.
  void tie_head(const at::Tensor& weight_VD) { head_VD_ = weight_VD; }
  // Registers all blocks of the part as `name`.<layer> of `parent`.
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
  std::vector<parallel::Unit> units_;
  size_t head_unit_ = 0;
  at::Tensor head_VD_;
};

}  // namespace trireme::model
