#include "trireme/spmd/place_as.h"

#include <utility>

#include <ATen/Functions.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/spmd/dispatch.h"
#include "trireme/spmd/move_log.h"

namespace trireme::spmd {
namespace {

at::Tensor under(const GridPtr& grid, const at::Tensor& tensor, const Places& places,
                 const std::string& cause) {
  at::Tensor block;
  {
    const MoveLog::Scope scope(grid->log(), cause);
    block = local_under(grid, tensor, places);
  }
  {
    const OnBlocks on_blocks;
    block = block.contiguous(tensor.suggest_memory_format());
  }
  return place_block(grid, block, places, tensor.sizes());
}

struct PlaceAs : torch::autograd::Function<PlaceAs> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& tensor,
                            const GridPtr& grid, const Places& places, const std::string& cause) {
    context->saved_data["is_whole"] = placed(tensor) == nullptr;
    context->saved_data["cause"] = "gradient of " + cause;
    return under(grid, tensor, places, cause);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    at::Tensor gradient = gradients[0];
    const PlacedMeta* meta = placed(gradient);
    if (meta && context->saved_data["is_whole"].toBool()) {
      TRIREME_CHECK(
          !at::GradMode::is_enabled() || !gradient.requires_grad(),
          "second derivatives by a tensor that is not placed; place it with place_whole() "
          "before the module takes it");
      const std::string cause = context->saved_data["cause"].toStringRef();
      const MoveLog::Scope scope(meta->grid->log(), cause);
      gradient = whole_of(gradient);
    }
    return {gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// For a context, which keeps no pointers of ours.
struct HeldGrid : torch::CustomClassHolder {
  explicit HeldGrid(GridPtr held) : grid(std::move(held)) {}
  GridPtr grid;
};

struct LeaveGrid : torch::autograd::Function<LeaveGrid> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& tensor,
                            const std::string& cause) {
    const GridPtr grid = placed(tensor)->grid;
    context->saved_data["grid"] = c10::IValue::make_capsule(c10::make_intrusive<HeldGrid>(grid));
    const MoveLog::Scope scope(grid->log(), cause);
    return whole_of(tensor).detach();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    TRIREME_CHECK(!at::GradMode::is_enabled() || !gradients[0].requires_grad(),
                  "second derivatives by a tensor that has left its grid");
    const auto held = context->saved_data["grid"].toCapsule();
    const GridPtr& grid = static_cast<const HeldGrid&>(*held).grid;
    return {place_whole(grid, gradients[0], Places()), at::Tensor()};
  }
};

}  // namespace

at::Tensor leave_grid(const at::Tensor& tensor, const std::string& cause) {
  return placed(tensor) ? LeaveGrid::apply(tensor, cause) : tensor;
}

at::Tensor place_as(const GridPtr& grid, const at::Tensor& tensor, const Places& places,
                    const std::string& cause) {
  const PlacedMeta* meta = placed(tensor);
  if (meta && meta->grid == grid && meta->places == places) return tensor;
  return PlaceAs::apply(tensor, grid, places, cause);
}

}  // namespace trireme::spmd
