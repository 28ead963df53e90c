// The network that a family builds: embedding, blocks, norm and head, or those of them that a
// pipeline stage has. Runs them in order, each as one unit. Knows no layer.
#pragma once

#include <algorithm>
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

// What a part of a model runs on.
struct NetworkInput {
  // The model's input, such as tokens_BT, if the part embeds; otherwise hidden states.
  at::Tensor x{};
  TokenBatch batch{};
  // This rank's tokens of the decoder, [B, u] int64, and their batch; only with a decoder.
  at::Tensor decoder_tokens{};
  TokenBatch decoder{};
  NamedTensors carried{};  // from earlier parts, see CarriedTensor
};
struct NetworkOutput {
  at::Tensor x{};
  NamedTensors carried{};  // for later parts
};

class Network : public torch::nn::Module {
 public:
  // Adds to the batch what the layers need to know about its positions.
  virtual void complete(TokenBatch& /*batch*/) const {}
  // Runs the part's layers, and the norm if the part has the head.
  // Shapes: the model's input if the part embeds, such as tokens_BT [B, T] int64, otherwise x
  //         [B, T, D] or its rows as the tensor axis holds them -> x [B, T, D] or its rows
  at::Tensor forward(const at::Tensor& input, const TokenBatch& batch);
  // The same for a part that may have to do with a decoder, or with tensors of other parts.
  virtual NetworkOutput run(const NetworkInput& in) { return {forward(in.x, in.batch)}; }
  // The weight that turns hidden states into logits: the head's own, or the embedding's when tied.
  // Undefined if the part has neither.
  const at::Tensor& head_VD() const { return head_VD_; }  // [v, D]
  // What is added to the logits. Undefined: nothing.
  const at::Tensor& head_bias_V() const { return head_bias_V_; }  // [v]
  virtual void set_recompute(const RecomputePlan& plan);
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
  // Puts what the model reads beside its input into what was embedded, in units of its own, which
  // come right after those of the embedding.
  // Shapes: x [B, T, D], or its rows as the tensor axis holds them -> the same
  virtual at::Tensor insert(const at::Tensor& x, const TokenBatch& /*batch*/) { return x; }
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
    add_blocks_of<BlockType>(parent, name, {0, part_.end()}, config, axes, dtype);
  }
  // The same for those of the model's blocks that are in `all`, whose names count from its first.
  template <typename BlockType>
  void add_blocks_of(torch::nn::Module& parent, const std::string& name, const mesh::Range& all,
                     const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype) {
    const auto folder = parent.register_module(name, std::make_shared<torch::nn::Module>());
    const int64_t end = std::min(part_.end(), all.offset + all.size);
    for (int64_t layer = std::max(part_.first_layer, all.offset); layer < end; ++layer) {
      add_block(concat(name, ".", layer - part_.first_layer),
                folder->register_module(std::to_string(layer - all.offset),
                                        std::make_shared<BlockType>(config, axes, dtype, layer)));
    }
  }
  // Adds a unit of other parameters, which the network runs itself, and returns its number.
  size_t add_unit(std::string unit, std::vector<at::Tensor> parameters, bool weights_in_backward);
  const ModelPart& part() const { return part_; }
  // Runs the part's block `index` as its unit. Its output is the probe with its module's name.
  at::Tensor run_block(size_t index, const at::Tensor& x, const TokenBatch& batch);

 private:
  struct BlockUnit {
    std::shared_ptr<Block> block;
    size_t unit;
  };
  void add_block(std::string unit, std::shared_ptr<Block> block);
  // The name in the whole model of a module within this one.
  std::string path_of(const torch::nn::Module& module) const;

  ModelPart part_;
  std::vector<BlockUnit> blocks_;
  std::vector<parallel::Unit> units_;
  bool has_embedding_norm_ = false;
  std::optional<size_t> norm_unit_;  // of last_norm()
  std::optional<size_t> head_unit_;
  at::Tensor head_VD_;
  at::Tensor head_bias_V_;
};

}  // namespace trireme::model
