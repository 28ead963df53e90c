#include "trireme/model/family/expert_config.h"

#include "trireme/base/error.h"
#include "trireme/model/family/model_config.h"

namespace trireme::model {
namespace {

// Without experts the other keys would have no effect.
void check_dense(const ExpertConfig& config) {
  TRIREME_CHECK(config.shared_experts == 0, "model.shared_experts is ", config.shared_experts,
                " and model.experts 0, so that no block has experts; set model.experts");
  TRIREME_CHECK(!config.shared_gate,
                "model.shared_gate is true and model.experts 0, so that no block has experts; set "
                "model.experts");
  TRIREME_CHECK(config.dense_layers == 0, "model.dense_layers is ", config.dense_layers,
                " and model.experts 0, so that all blocks are dense; set model.experts");
  TRIREME_CHECK(config.expert_width == 0, "model.expert_width is ", config.expert_width,
                " and model.experts 0, so that no block has experts; set model.experts");
  TRIREME_CHECK(!config.router_bias,
                "model.router_bias is true and model.experts 0, so that there is no router; set "
                "model.experts");
  TRIREME_CHECK(!config.expert_bias && config.swiglu_limit == 0, "model.expert_bias is ",
                config.expert_bias, ", model.swiglu_limit ", config.swiglu_limit,
                " and model.experts 0, so that no block has experts; set model.experts");
}

}  // namespace

void check_experts(const ModelConfig& config) {
  const ExpertConfig& sparse = config.sparse;
  TRIREME_CHECK(
      sparse.swiglu_limit > 0 || sparse.swiglu_alpha == ExpertConfig{}.swiglu_alpha,
      "model.swiglu_alpha is ", sparse.swiglu_alpha,
      " and model.swiglu_limit 0, so that nothing uses it; set the limit, or leave it out");
  if (sparse.experts == 0) return check_dense(sparse);
  TRIREME_CHECK(
      sparse.shared_experts > 0 || !sparse.shared_gate,
      "model.shared_gate is true and model.shared_experts 0, so that nothing uses it; set "
      "model.shared_experts, or leave it out");
  TRIREME_CHECK(sparse.experts_per_token <= sparse.experts, "model.experts_per_token is ",
                sparse.experts_per_token, " and model.experts ", sparse.experts,
                "; expected at most as many: lower the one or raise the other");
  TRIREME_CHECK(
      sparse.experts_per_token > 1 || !sparse.router_normalise,
      "model.experts_per_token is 1 and model.router_normalise true, so that a token's one "
      "weight would always be 1 and the router could not learn; set "
      "model.router_normalise to false, as Switch does");
  TRIREME_CHECK(sparse.experts % sparse.expert_groups == 0,
                "model.expert_groups = ", sparse.expert_groups,
                " does not divide model.experts = ", sparse.experts,
                "; expected a divisor: change one of them");
  TRIREME_CHECK(sparse.groups_per_token <= sparse.expert_groups, "model.groups_per_token is ",
                sparse.groups_per_token, " and model.expert_groups ", sparse.expert_groups,
                "; expected at most as many: lower the one or raise the other");
  const int64_t reach = sparse.groups_per_token * (sparse.experts / sparse.expert_groups);
  TRIREME_CHECK(
      sparse.experts_per_token <= reach, "model.experts_per_token is ", sparse.experts_per_token,
      " and the model.groups_per_token = ", sparse.groups_per_token, " groups of a token have ",
      reach, " experts; expected at most as many: raise model.groups_per_token");
  const double room = sparse.capacity_factor * static_cast<double>(config.sequence_length) *
                      static_cast<double>(sparse.experts_per_token) /
                      static_cast<double>(sparse.experts);
  TRIREME_CHECK(sparse.capacity_factor == 0 || room >= 1, "model.capacity_factor is ",
                sparse.capacity_factor, ", so that an expert has room for ", room,
                " tokens of a sequence; expected at least 1: set it to at least ",
                sparse.capacity_factor / room, ", or to 0, which drops nothing");
  const int64_t first = sparse.dense_layers / sparse.expert_interval * sparse.expert_interval +
                        sparse.expert_interval - 1;
  TRIREME_CHECK(first < config.layers, "model.layers is ", config.layers,
                " and the first sparse block would be number ", first + 1,
                " (model.dense_layers = ", sparse.dense_layers,
                ", model.expert_interval = ", sparse.expert_interval,
                "); lower one of them, or set model.experts to 0");
  // Products of sizes are counted in 64 bits.
  const double elements = static_cast<double>(config.layers) * static_cast<double>(sparse.experts) *
                          static_cast<double>(config.width) *
                          static_cast<double>(config.expert_width());
  TRIREME_CHECK(elements < 0x1p58, "model.layers x experts x width x expert_width is ", elements,
                "; expected below 2^58: lower one of them");
}

}  // namespace trireme::model
