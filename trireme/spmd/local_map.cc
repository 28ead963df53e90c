#include "trireme/spmd/local_map.h"

#include <exception>
#include <string>

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "trireme/base/error.h"
#include "trireme/spmd/dispatch.h"
#include "trireme/spmd/move_log.h"
#include "trireme/spmd/place_as.h"
#include "trireme/spmd/placed_tensor.h"

namespace trireme::spmd {
namespace {

using Tensors = std::vector<at::Tensor>;

const std::string kCause = "local_map()";

// A call, from its forward to its backward.
struct MappedCall : torch::CustomClassHolder {
  GridPtr grid;
  const LocalFunction* function = nullptr;  // in forward
  const LocalMapSplits* splits = nullptr;
  std::vector<Places> in{}, gradients{}, out{};  // out: the gradients' of results
  std::vector<std::vector<int64_t>> in_sizes{};
  std::vector<bool> needs_gradient{};
  Tensors blocks{}, results{};  // of the function's own graph
};
using CallPtr = c10::intrusive_ptr<MappedCall>;

Tensors call_function(MappedCall& call, std::exception_ptr& failure) {
  const at::AutoGradMode with_gradient(true);
  try {
    Tensors results = (*call.function)(call.blocks);
    const size_t expected = call.splits->out.size();
    TRIREME_CHECK(results.size() == expected, "local_map(): the function gives ", results.size(),
                  " tensors, and ", expected, " are annotated");
    for (const at::Tensor& result : results)
      TRIREME_CHECK(result.defined() && !placed(result),
                    "local_map(): a result is undefined or placed; expected this rank's block");
    return results;
  } catch (...) {
    failure = std::current_exception();
    return {};
  }
}

struct LocalMap : torch::autograd::Function<LocalMap> {
  static Tensors forward(torch::autograd::AutogradContext* context, at::TensorList arguments,
                         const CallPtr& call) {
    context->set_materialize_grads(false);
    for (size_t i = 0; i < arguments.size(); ++i) {
      at::Tensor block = placed(arguments[i])->local.detach();
      call->blocks.push_back(block.requires_grad_(call->needs_gradient[i]));
    }
    std::exception_ptr failure;
    call->results = call_function(*call, failure);
    std::vector<std::string> names;
    for (size_t i = 0; i < call->splits->out.size(); ++i)
      names.push_back(concat("result ", i, " of local_map()"));
    std::vector<TiledTensor> wholes;
    try {
      wholes = tile(*call->grid, call->results, call->splits->out, names);
    } catch (const ConfigError&) {
      if (failure) std::rethrow_exception(failure);
      throw;
    }
    Tensors placed_results, without_gradient;
    for (size_t i = 0; i < wholes.size(); ++i) {
      placed_results.push_back(
          place_block(call->grid, call->results[i].detach(), wholes[i].places, wholes[i].sizes));
      if (!at::isFloatingType(call->results[i].scalar_type()))
        without_gradient.push_back(placed_results.back());
      call->out.push_back(wholes[i].places);
      for (Place& place : call->out.back()) {
        if (place.is_partial()) place = Place::replicated();
      }
    }
    context->mark_non_differentiable(without_gradient);
    call->function = nullptr;
    call->splits = nullptr;
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return placed_results;
  }

  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients) {
    auto call =
        c10::static_intrusive_pointer_cast<MappedCall>(context->saved_data["call"].toCapsule());
    TRIREME_CHECK(!at::GradMode::is_enabled(),
                  "second derivatives through local_map(); expected first ones only");
    Tensors results, of_results, blocks;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const MoveLog::Scope scope(call->grid->log(), kCause);
      const at::Tensor local = local_under(call->grid, gradients[i], call->out[i]);
      if (!call->results[i].requires_grad()) continue;
      results.push_back(call->results[i]);
      of_results.push_back(local);
    }
    for (const at::Tensor& block : call->blocks) {
      if (block.requires_grad()) blocks.push_back(block);
    }
    Tensors found(blocks.size());
    if (!results.empty()) {
      found = torch::autograd::grad(results, blocks, of_results, /*retain_graph=*/std::nullopt,
                                    /*create_graph=*/false, /*allow_unused=*/true);
    }
    Tensors all(call->blocks.size() + 1);
    size_t next = 0;
    for (size_t i = 0; i < call->blocks.size(); ++i) {
      if (!call->blocks[i].requires_grad()) continue;
      at::Tensor gradient = found[next++];
      // Of a block that this rank did not use; others may have.
      if (!gradient.defined()) gradient = at::zeros_like(call->blocks[i]);
      all[i] = place_block(call->grid, gradient, call->gradients[i], call->in_sizes[i]);
    }
    return all;
  }
};

// Where a whole argument's gradient is a sum over the ranks' parts, see local_map().
Places default_gradient(const Grid& grid, const Places& in, const std::vector<bool>& differs) {
  Places places = in;
  for (int axis = 0; axis < grid.num_axes(); ++axis) {
    if (in[axis].is_partial()) places[axis] = Place::replicated();
    if (in[axis].is_replicated() && differs[axis]) places[axis] = Place::partial();
  }
  return places;
}

std::vector<bool> differing_axes(const Grid& grid, const LocalMapSplits& splits,
                                 const std::vector<Places>& in) {
  std::vector<bool> differs(grid.num_axes(), false);
  for (int axis = 0; axis < grid.num_axes(); ++axis) {
    for (const Places& places : in) differs[axis] = differs[axis] || !places[axis].is_replicated();
    for (const Splits& out : splits.out)
      differs[axis] = differs[axis] || out.names(grid.axes()[axis].name);
  }
  return differs;
}

}  // namespace

Tensors run_local_map(const LocalFunction& function, const LocalMapSplits& splits,
                      const Tensors& arguments) {
  TRIREME_CHECK(arguments.size() == splits.in.size(), "local_map(): ", arguments.size(),
                " arguments, and ", splits.in.size(), " are annotated");
  TRIREME_CHECK(splits.gradients.empty() || splits.gradients.size() == arguments.size(),
                "local_map(): ", splits.gradients.size(), " gradients are annotated of ",
                arguments.size(), " arguments; expected all or none");
  auto call = c10::make_intrusive<MappedCall>();
  for (const at::Tensor& argument : arguments) {
    TRIREME_CHECK(argument.defined(), "local_map(): an argument is undefined");
    if (!call->grid && placed(argument)) call->grid = placed(argument)->grid;
  }
  TRIREME_CHECK(call->grid,
                "local_map(): no argument is placed; expected one at least, or call the "
                "function itself");
  const Grid& grid = *call->grid;
  Tensors inputs;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string what = concat("argument ", i, " of local_map()");
    call->in.push_back(splits.in[i].on(grid, arguments[i].sizes(), what));
    call->in_sizes.push_back(arguments[i].sizes().vec());
    inputs.push_back(place_as(call->grid, arguments[i], call->in.back(), what));
    // A tensor that was whole and not placed is placed for its block.
    call->needs_gradient.push_back(at::GradMode::is_enabled() && inputs.back().requires_grad());
  }
  const std::vector<bool> differs = differing_axes(grid, splits, call->in);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string what = concat("gradient ", i, " of local_map()");
    call->gradients.push_back(splits.gradients.empty()
                                  ? default_gradient(grid, call->in[i], differs)
                                  : splits.gradients[i].on(grid, arguments[i].sizes(), what));
  }
  call->function = &function;
  call->splits = &splits;
  return LocalMap::apply(at::TensorList(inputs), call);
}

}  // namespace trireme::spmd
