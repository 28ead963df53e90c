// Fused updates of parameters: each rank updates its blocks. torch's _foreach operators are made of
// others, which have rules of their own.
#include <ATen/Functions.h>

#include "trireme/base/error.h"
#include "trireme/spmd/dispatch.h"
#include "trireme/spmd/rule.h"

namespace trireme::spmd {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor block_of(const at::Tensor& tensor) {
  const PlacedMeta* meta = placed(tensor);
  return meta ? meta->local : tensor;
}

// Parameters, gradients, then lists of states: gradients are brought to where the parameters are,
// states lie there.
bool fused_update(const OperatorCall& call) {
  const Tensors parameters = call[0].toTensorVector();
  const auto places_of = [&](const at::Tensor& tensor) {
    const PlacedMeta* meta = placed(tensor);
    return meta ? meta->places : Places();
  };
  for (const at::Tensor& parameter : parameters) {
    for (const Place& place : places_of(parameter)) {
      TRIREME_CHECK(!place.is_partial(), call.name(), " updates a parameter placed ",
                    to_string(*call.grid(), places_of(parameter)), "; expected no partial sum");
    }
  }
  Tensors gradients = call[1].toTensorVector();
  for (size_t i = 0; i < gradients.size(); ++i)
    gradients[i] = local_under(call.grid(), gradients[i], places_of(parameters[i]));
  for (size_t list = 2; list < call.num_arguments() && call[list].isTensorList(); ++list) {
    Tensors states = call[list].toTensorVector();
    for (size_t i = 0; i < states.size(); ++i) {
      TRIREME_CHECK(states[i].dim() == 0 || places_of(states[i]) == places_of(parameters[i]),
                    call.name(), " has a state placed ",
                    to_string(*call.grid(), places_of(states[i])), " of a parameter placed ",
                    to_string(*call.grid(), places_of(parameters[i])),
                    "; make states with zeros_like() of the parameter");
      states[i] = block_of(states[i]);
    }
    call[list] = std::move(states);
  }
  Tensors blocks;
  for (const at::Tensor& parameter : parameters) blocks.push_back(block_of(parameter));
  call[0] = std::move(blocks);
  call[1] = std::move(gradients);
  const OnBlocks on_blocks;
  call.run_operator();
  return true;
}

}  // namespace

void add_optimizer_rules(Rules& rules) {
  for (const char* name :
       {"_fused_adamw_", "_fused_adamw_.tensor_lr", "_fused_adam_", "_fused_adam_.tensor_lr",
        "_fused_sgd_", "_fused_sgd_.tensor_lr", "_fused_adagrad_"}) {
    rules.push_back({.name = std::string("aten::") + name,
                     .splits = "all dims, each parameter by itself",
                     .compose = fused_update,
                     .composes_blocks = true});
  }
}

}  // namespace trireme::spmd
