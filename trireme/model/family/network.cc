#include "trireme/model/family/network.h"

#include <utility>

#include "trireme/model/family/token_probe.h"

namespace trireme::model {

// Neither the backward of a look-up nor the fused head's reads the weights.
void Network::add_embedding(std::string unit, std::vector<at::Tensor> parameters,
                            bool weights_in_backward) {
  add_unit(std::move(unit), std::move(parameters), weights_in_backward);
}

void Network::add_block(std::string unit, std::shared_ptr<Block> block) {
  const size_t number = add_unit(std::move(unit), block->parameters(), true);
  blocks_.push_back({std::move(block), number});
}

size_t Network::add_unit(std::string unit, std::vector<at::Tensor> parameters,
                         bool weights_in_backward) {
  units_.push_back({std::move(unit), std::move(parameters), weights_in_backward});
  return units_.size() - 1;
}

at::Tensor Network::run_block(size_t index, const at::Tensor& x, const TokenBatch& batch) {
  const auto& [block, unit] = blocks_[index];
  const parallel::UnitForward forward = [&batch, &run = *block](const at::Tensor& in) {
    return run.forward(in, batch);
  };
  if (!verify::is_probing()) return run_unit(unit, x, forward);
  const std::string path = path_of(*block);
  at::Tensor y;
  {
    const verify::ProbeScope scope(verify::ProbeScope::at(path).value());
    y = run_unit(unit, x, forward);
  }
  return probe_tokens(path, y, batch);
}

std::string Network::path_of(const torch::nn::Module& module) const {
  for (const auto& item : named_modules("", /*include_self=*/false)) {
    if (item.value().get() == &module) return item.key();
  }
  throw InternalError("a module that is not of this network");
}

void Network::add_embedding_norm(std::string unit, std::vector<at::Tensor> parameters) {
  has_embedding_norm_ = true;
  add_norm(std::move(unit), std::move(parameters));
}

void Network::add_norm(std::string unit, std::vector<at::Tensor> parameters) {
  norm_unit_ = add_unit(std::move(unit), std::move(parameters), true);
}

void Network::add_head(std::string unit, const at::Tensor& weight_VD) {
  head_VD_ = weight_VD;
  head_unit_ = units_.size();
  units_.push_back({std::move(unit), {weight_VD}, /*weights_in_backward=*/false});
}

void Network::add_head(std::string unit, std::vector<at::Tensor> parameters) {
  head_unit_ = units_.size();
  units_.push_back({std::move(unit), std::move(parameters)});
}

void Network::add_head_bias(std::string unit, const at::Tensor& bias_V) {
  head_bias_V_ = bias_V;
  if (head_unit_) {
    units_[*head_unit_].parameters.push_back(bias_V);
  } else {
    head_unit_ = units_.size();
    units_.push_back({std::move(unit), {bias_V}, /*weights_in_backward=*/false});
  }
}

void Network::collect_parameters() {
  for (const auto& [block, unit] : blocks_) units_[unit].parameters = block->parameters();
}

void Network::set_recompute(const RecomputePlan& plan) {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    blocks_[i].block->set_recompute(plan, static_cast<int64_t>(i));
  }
}

at::Tensor Network::forward(const at::Tensor& input, const TokenBatch& batch) {
  size_t unit = 0;
  at::Tensor x = input;
  if (part_.embeds) {
    x = run_unit(unit++, x, [&](const at::Tensor& tokens) { return embed(tokens, batch); });
  }
  if (has_embedding_norm_) {
    x = run_unit(unit, x, [&](const at::Tensor& in) { return embedding_norm(in, batch); });
  }
  if (part_.embeds) x = probe_tokens("embedding", insert(x, batch), batch);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    x = run_block(i, x, batch);
  }
  if (!part_.has_head) return x;
  x = run_unit(norm_unit_.value(), x, [&](const at::Tensor& in) { return last_norm(in, batch); });
  return probe_tokens("norm", x, batch);
}

}  // namespace trireme::model
