// The base of transformer blocks: an attention branch and a feed-forward branch on a residual
// stream. Each branch has dropout under its own name and can be recomputed in backward.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/model/family/network.h"
#include "trireme/model/family/token_probe.h"
#include "trireme/model/layers/dropout.h"
#include "trireme/model/layers/linear.h"
#include "trireme/model/layers/norm.h"
#include "trireme/model/layers/recompute.h"

namespace trireme::model {

// A block's view of its attention, whatever its form.
class AttentionBranch : public torch::nn::Module {
 public:
  // Adds the attention of x, after dropout, to the residual stream. Rotates queries and keys if the
  // batch has rotary positions.
  // Shapes: x, residual [B, T, D], or their rows as the tensor axis holds them; residual undefined:
  //         none -> the same
  virtual at::Tensor forward(const at::Tensor& x, const at::Tensor& residual,
                             const TokenBatch& batch) = 0;

  bool recompute_core = false;      // recompute softmax(q k^T) v in backward
  Dropout dropout;                  // of the output projection
  std::string place = "attention";  // the name of its probe within the block
};

class TransformerBlock : public Block {
 public:
  at::Tensor forward(const at::Tensor& x, const TokenBatch& batch) final;
  void set_recompute(const RecomputePlan& plan, int64_t index) final;

 protected:
  // layer: the block's number in the whole model.
  TransformerBlock(const ModelConfig& config, int64_t layer)
      : dropout_(config.dropout), layer_(layer) {}

  // The block as in its paper, composed of attend() and feed_forward().
  virtual at::Tensor compute(const at::Tensor& x, const TokenBatch& batch) = 0;

  // Each adds its branch of `normed`, after dropout, to the residual stream.
  // Shapes: normed, residual [B, T, D], or their rows as the tensor axis holds them; residual
  //         undefined: none -> the same
  at::Tensor attend(AttentionBranch& attention, const at::Tensor& normed,
                    const at::Tensor& residual, const TokenBatch& batch) const {
    return probe_tokens(attention.place,
                        run_branch(plan_.attention, attention, normed, residual, batch), batch);
  }
  template <typename FeedForward>
  at::Tensor feed_forward(FeedForward& mlp, const at::Tensor& normed, const at::Tensor& residual,
                          const TokenBatch& batch) const {
    return run_branch(plan_.feed_forward, mlp, normed, residual, batch);
  }

  // What a branch has around it. Either norm may be null, but not both.
  struct BranchForm {
    std::shared_ptr<RmsNorm> before{};  // of its input
    std::shared_ptr<RmsNorm> after{};   // of its output
    Dropout dropout{};                  // behind that norm
    double scale = 1;                   // of what it adds to the residual stream
  };
  // x + scale * dropout(after(branch(before(x)))), with the branch's own dropout.
  at::Tensor add_attention(const BranchForm& form, AttentionBranch& attention, const at::Tensor& x,
                           const TokenBatch& batch) const {
    return probe_tokens(attention.place, add_branch(plan_.attention, form, attention, x, batch),
                        batch);
  }
  template <typename FeedForward>
  at::Tensor add_feed_forward(const BranchForm& form, FeedForward& mlp, const at::Tensor& x,
                              const TokenBatch& batch) const {
    return add_branch(plan_.feed_forward, form, mlp, x, batch);
  }

  // name: with dots it names modules within modules. place: of its dropout.
  template <typename AttentionType>
  std::shared_ptr<AttentionType> register_attention(std::string_view name,
                                                    std::shared_ptr<AttentionType> attention,
                                                    std::string_view place = "attention") {
    attention->dropout = Dropout(dropout_, concat("blocks.", layer_, ".", place));
    attention->place = place;
    attentions_.push_back(attention);
    return register_at(*this, name, std::move(attention));
  }
  // An empty name registers the feed-forward's modules in the block itself.
  template <typename FeedForward>
  std::shared_ptr<FeedForward> register_feed_forward(std::string_view name,
                                                     std::shared_ptr<FeedForward> mlp) {
    mlp->set_dropout(dropout_, concat("blocks.", layer_, ".feed_forward"));
    if (!name.empty()) return register_at(*this, name, std::move(mlp));
    for (const auto& part : mlp->named_children()) register_module(part.key(), part.value());
    return mlp;
  }

 private:
  // The sum of a branch's output and the residual stream, where the branch does not add it itself.
  static at::Tensor close_branch(const BranchForm& form, const at::Tensor& y,
                                 const at::Tensor& residual, const TokenBatch& batch);
  template <typename Branch>
  static at::Tensor add_branch(bool again, const BranchForm& form, Branch& branch,
                               const at::Tensor& x, const TokenBatch& batch) {
    // A view: gradients of the branch's own uses of x are summed before the residual stream's is
    // added, as when the branch is recomputed. So recompute changes no bits.
    const auto [residual, normed] =
        form.before ? form.before->branch(x) : std::pair(x, x.view_as(x));
    const bool adds_itself = !form.after && form.scale == 1;
    const at::Tensor y =
        run_branch(again, branch, normed, adds_itself ? residual : at::Tensor(), batch);
    return adds_itself ? y : close_branch(form, y, residual, batch);
  }
  template <typename Branch>
  static at::Tensor run_branch(bool again, Branch& branch, const at::Tensor& normed,
                               const at::Tensor& residual, const TokenBatch& batch) {
    std::vector<at::Tensor> inputs{normed};
    if (residual.defined()) inputs.push_back(residual);
    const size_t own = inputs.size();
    for (const at::Tensor& tensor : batch.tracked()) inputs.push_back(tensor);
    return recompute_if(
        again,
        [&branch, batch, own](const std::vector<at::Tensor>& in) {
          return branch.forward(in[0], own > 1 ? in[1] : at::Tensor(),
                                batch.with_tracked(std::span(in).subspan(own)));
        },
        inputs);
  }

  double dropout_;
  int64_t layer_;
  RecomputePlan plan_;
  std::vector<std::shared_ptr<AttentionBranch>> attentions_;
};

}  // namespace trireme::model
