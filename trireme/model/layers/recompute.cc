#include "trireme/model/layers/recompute.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/ivalue.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/mesh/probe.h"

namespace trireme::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The states of the default generators of the CPU and of the inputs' device.
class RandomState {
 public:
  explicit RandomState(at::Device device) {
    add(at::detail::getDefaultCPUGenerator());
    if (!device.is_cpu()) add(at::globalContext().defaultGenerator(device));
  }
  void restore() {
    for (auto& [generator, state] : states_) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }

 private:
  void add(at::Generator generator) {
    const std::lock_guard lock(generator.mutex());
    at::Tensor state = generator.get_state();
    states_.emplace_back(std::move(generator), std::move(state));
  }
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

// Marks the thread as recomputing.
class Recomputing {
 public:
  Recomputing() : before_(std::exchange(is_on, true)) {}
  ~Recomputing() { is_on = before_; }
  Recomputing(const Recomputing&) = delete;
  Recomputing& operator=(const Recomputing&) = delete;

  static thread_local bool is_on;

 private:
  bool before_;
};
thread_local bool Recomputing::is_on = false;

// The store of this thread; null: inputs stay with the graph.
thread_local std::shared_ptr<InputStore> input_store;

// Inputs in a store, until they are taken or the graph is dropped.
class StoredInputs {
 public:
  StoredInputs(std::shared_ptr<InputStore> store, at::TensorList inputs)
      : store_(std::move(store)) {
    for (const at::Tensor& input : inputs) numbers_.push_back(store_->put(input.detach()));
  }
  ~StoredInputs() {
    for (const int64_t number : numbers_) store_->drop(number);
  }
  StoredInputs(const StoredInputs&) = delete;
  StoredInputs& operator=(const StoredInputs&) = delete;

  variable_list take() {
    variable_list inputs;
    for (const int64_t number : std::exchange(numbers_, {})) inputs.push_back(store_->take(number));
    return inputs;
  }

 private:
  std::shared_ptr<InputStore> store_;
  std::vector<int64_t> numbers_;
};

struct Call : torch::CustomClassHolder {
  Call(TensorFunction function, at::Device device)
      : function(std::move(function)), random(device) {}
  TensorFunction function;
  RandomState random;
  std::vector<bool> needs_gradient{};  // of each input
  std::unique_ptr<StoredInputs> stored{};
  std::unique_ptr<const verify::ProbeContext> probes{};  // null: nobody listened in forward
};

class RecomputeFunction : public torch::autograd::Function<RecomputeFunction> {
 public:
  // needs_gradient: of each input. One may be tracked though it needs none.
  static at::Tensor forward(AutogradContext* ctx, const TensorFunction& function,
                            const std::vector<bool>& needs_gradient, at::TensorList inputs) {
    auto call = c10::make_intrusive<Call>(function, inputs.front().device());
    call->needs_gradient = needs_gradient;
    if (input_store != nullptr && !Recomputing::is_on) {
      call->stored = std::make_unique<StoredInputs>(input_store, inputs);
    } else {
      ctx->save_for_backward(inputs.vec());
    }
    if (verify::is_probing())
      call->probes = std::make_unique<verify::ProbeContext>(verify::probe_context());
    ctx->saved_data["call"] = c10::IValue::make_capsule(std::move(call));
    return function(inputs.vec());
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto call = c10::static_intrusive_pointer_cast<Call>(ctx->saved_data["call"].toCapsule());
    std::vector<at::Tensor> inputs;
    for (const at::Tensor& saved :
         call->stored != nullptr ? call->stored->take() : ctx->get_saved_variables()) {
      at::Tensor input = saved.detach();
      if (call->needs_gradient[inputs.size()]) input.requires_grad_();
      inputs.push_back(std::move(input));
    }
    RandomState now(inputs.front().device());
    call->random.restore();
    at::Tensor output;
    {
      const c10::AutoGradMode records(true);
      const Recomputing recomputing;
      std::optional<verify::ProbeScope> scope;
      if (call->probes != nullptr) scope.emplace(*call->probes);
      output = call->function(inputs);
    }
    now.restore();
    if (output.requires_grad()) torch::autograd::backward({output}, {grads[0]});
    variable_list result(2);  // of the function and of what needs a gradient
    for (at::Tensor& input : inputs) result.push_back(input.grad());
    return result;
  }
};

}  // namespace

RecomputePlan RecomputePlan::of_block(int64_t index) const {
  if (index >= num_blocks) return {};
  RecomputePlan one = *this;
  one.num_blocks = kAllBlocks;
  one.num_stored = index < num_stored ? kAllBlocks : 0;
  return one;
}

std::vector<BlockRun> RecomputePlan::runs(int64_t num_blocks_of_stage) const {
  std::vector<BlockRun> runs;
  for (int64_t i = 0; i < num_blocks_of_stage;) {
    int64_t end = num_blocks_of_stage;
    for (const int64_t change : {num_stored, num_blocks}) {
      if (change > i) end = std::min(end, change);
    }
    runs.push_back({i, end - i, of_block(i)});
    i = end;
  }
  return runs;
}

RecomputePlan recompute_plan(Recompute kind, std::string_view modules) {
  TRIREME_ASSERT(kind != Recompute::kAuto, "a recomputation that nobody has chosen");
  RecomputePlan plan;
  if (kind == Recompute::kNone) return plan;
  if (kind == Recompute::kFull) return {.block = true};
  const std::pair<std::string_view, bool RecomputePlan::*> names[] = {
      {"attention_core", &RecomputePlan::attention_core},
      {"attention", &RecomputePlan::attention},
      {"feed_forward", &RecomputePlan::feed_forward}};
  bool any = false;
  for (std::string_view rest = modules; !rest.empty();) {
    const size_t comma = rest.find(',');
    std::string_view name = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    while (name.starts_with(' ')) name.remove_prefix(1);
    while (name.ends_with(' ')) name.remove_suffix(1);
    const auto found =
        std::ranges::find(names, name, [](const auto& entry) { return entry.first; });
    TRIREME_CHECK(found != std::end(names), "train.recompute_modules has \"", name,
                  "\"; expected attention_core, attention or feed_forward, separated by commas");
    plan.*(found->second) = true;
    any = true;
  }
  TRIREME_CHECK(any,
                "recompute is \"selective\" and recompute_modules is empty; name "
                "attention_core, attention or feed_forward");
  return plan;
}

at::Tensor recompute(const TensorFunction& function, const std::vector<at::Tensor>& inputs) {
  TRIREME_ASSERT(!inputs.empty(), "recompute without inputs");
  if (!at::GradMode::is_enabled()) return function(inputs);
  std::vector<at::Tensor> tracked = inputs;
  std::vector<bool> needs_gradient;
  for (const at::Tensor& input : inputs) needs_gradient.push_back(input.requires_grad());
  // The weights inside need a gradient even when no input does.
  if (std::ranges::find(needs_gradient, true) == needs_gradient.end()) {
    const auto first = std::ranges::find_if(
        tracked, [](const at::Tensor& input) { return input.is_floating_point(); });
    TRIREME_ASSERT(first != tracked.end(), "recompute of inputs that have no gradient");
    *first = first->detach().requires_grad_();
  }
  return RecomputeFunction::apply(function, needs_gradient, at::TensorList(tracked));
}

StoresInputs::StoresInputs(std::shared_ptr<InputStore> store)
    : before_(std::exchange(input_store, std::move(store))) {}

StoresInputs::~StoresInputs() { input_store = std::move(before_); }

bool is_recomputing() { return Recomputing::is_on; }

at::Tensor recompute_if(bool enabled, const TensorFunction& function,
                        const std::vector<at::Tensor>& inputs) {
  return enabled ? recompute(function, inputs) : function(inputs);
}

at::Tensor run_block(const RecomputePlan& plan, const TensorFunction& forward,
                     const std::vector<at::Tensor>& inputs) {
  std::optional<StoresInputs> nowhere;
  if (plan.any() && plan.num_stored == 0) nowhere.emplace(nullptr);
  return recompute_if(plan.block, forward, inputs);
}

}  // namespace trireme::model
