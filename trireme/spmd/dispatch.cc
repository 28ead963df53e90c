#include "trireme/spmd/dispatch.h"

#include <algorithm>
#include <memory>

#include <ATen/Functions.h>
#include <ATen/core/boxing/KernelFunction.h>

#include "trireme/base/error.h"
#include "trireme/spmd/move_log.h"
#include "trireme/spmd/rule.h"

namespace trireme::spmd {
namespace {

using torch::jit::Stack;

thread_local OperatorSink* operator_sink = nullptr;

Rules made_rules() {
  Rules rules;
  add_pointwise_rules(rules);
  add_contraction_rules(rules);
  add_reduction_rules(rules);
  add_view_rules(rules);
  add_arrangement_rules(rules);
  add_norm_rules(rules);
  add_image_rules(rules);
  add_index_rules(rules);
  add_embedding_rules(rules);
  add_loss_rules(rules);
  add_random_rules(rules);
  add_recurrent_rules(rules);
  add_factory_rules(rules);
  add_optimizer_rules(rules);
  std::ranges::sort(rules, {}, &Rule::name);
  return rules;
}

// What an operator's schema says, read once.
struct Traits {
  explicit Traits(const c10::FunctionSchema& schema) : num_results(schema.returns().size()) {
    int tensor = 0;
    for (const c10::Argument& argument : schema.arguments()) {
      const c10::AliasInfo* alias = argument.alias_info();
      if (alias && alias->isWrite() && written < 0) written = tensor;
      if (argument.type()->isSubtypeOf(*c10::OptionalType::ofTensor())) ++tensor;
    }
    const auto& returns = schema.returns();
    is_view = written < 0 && !returns.empty() && returns[0].alias_info() != nullptr;
  }

  size_t num_results;
  int written = -1;      // the tensor that it writes: lists come after it
  bool is_view = false;  // of its first tensor
};

// A write to a view whose block is a copy would not reach its base, nor the other way round.
void check_written(const OperatorCall& call, const PlacedMeta* meta) {
  if (!meta) return;
  TRIREME_CHECK(!meta->copied || !meta->copied->has_base(), call.described(),
                " writes a view whose block was copied, because the view needed another split; "
                "write to the tensor that it is a view of, or to a clone()");
  TRIREME_CHECK(!has_copied_views(meta->local), call.described(),
                " writes a tensor of which a view was copied, because it needed another split; use "
                "the operator that is not in place, or drop the view");
}

// An operator that writes a tensor which no strategy leaves as it is: it becomes replicated first.
// Only for memory that no view shares.
void replicate_written(const OperatorCall& call, const at::Tensor& tensor) {
  PlacedMeta* meta = placed(tensor);
  TRIREME_CHECK(meta && meta->local.storage().use_count() == 1, call.described(),
                " writes a tensor in place whose split must change for it, and other tensors share "
                "its memory; use the operator that is not in place");
  meta->local = local_under(meta->grid, tensor, Places());
  meta->places = Places();
}

class Results {
 public:
  // base: what the results are views of; null: of nothing
  Results(const OperatorCall& call, const Form& form, const Strategy& strategy,
          const PlacedMeta* base)
      : grid_(call.grid()), form_(form), strategy_(strategy), base_(base) {
    if (form.keeps_order) {
      for (size_t i = 0; i < call.tensors().size() && model_ < 0; ++i) {
        if (call.dims(i) == std::ssize(form.outputs[0])) model_ = static_cast<int>(i);
      }
      if (model_ >= 0) order_ = base ? exact(call) : strides_of_result(call, model_);
    }
    for (const Factors& dims : form.outputs) {
      lengths_.emplace_back();
      for (const Factor factor : dims) {
        lengths_.back().push_back(factor == kWholeDim ? -1
                                                      : length_of(form, call.arguments(), factor));
      }
    }
  }

  void place(c10::IValue& value, size_t result) const {
    if (value.isTensor()) {
      value = place(value.toTensor(), result);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& each : value.toTensorVector()) list.push_back(place(each, result));
      value = std::move(list);
    }
  }

 private:
  at::Tensor place(const at::Tensor& local, size_t result) const {
    if (!local.defined()) return local;
    const Places& places = strategy_.outputs[result];
    c10::SmallVector<int64_t, 6> sizes(local.sizes().begin(), local.sizes().end());
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      if (num_splits(places, static_cast<int>(dim)) == 0) continue;
      sizes[dim] = lengths_[result][dim] / form_.output_scale(result, dim);
    }
    const at::Tensor whole = place_block(grid_, local, places, sizes, strides(sizes));
    if (base_) tell_copy(*placed(whole));
    return whole;
  }

  static c10::SmallVector<int64_t, 6> exact(const OperatorCall& call) {
    const c10::IntArrayRef strides = call.tensors()[0].strides();
    return {strides.begin(), strides.end()};
  }

  // Empty: contiguous.
  c10::SmallVector<int64_t, 6> strides(c10::IntArrayRef sizes) const {
    if (form_.strides.size() == sizes.size()) return form_.strides;
    if (order_.size() != sizes.size()) return {};
    return base_ ? order_ : dense_strides(sizes, order_);
  }

  void tell_copy(PlacedMeta& view) const {
    view.copied = base_->copied;
    if (view.local.is_alias_of(base_->local)) return;
    view.copied = std::make_shared<const CopiedView>(base_->local);
  }

  const GridPtr grid_;
  const Form& form_;
  const Strategy& strategy_;
  const PlacedMeta* base_;
  int model_ = -1;
  c10::SmallVector<int64_t, 6> order_{};
  c10::SmallVector<c10::SmallVector<int64_t, 6>, 3> lengths_{};
};

void run_on_blocks(OperatorCall& call, const Rule& rule, const Traits& traits) {
  Form form;
  rule.make_form(call, form);
  TRIREME_ASSERT(form.inputs.size() == call.tensors().size(), call.described(), ": ",
                 form.inputs.size(), " of its tensors have a form");
  const int written = traits.written;
  at::Tensor self;
  Strategy strategy;
  if (written >= 0) {
    self = call.tensors()[written];
    check_written(call, placed(self));
  }
  const bool is_kept = call.keeps_places() && choose(*call.grid(), form, call.arguments(), written,
                                                     strategy, /*all_fixed=*/true);
  if (!is_kept && !choose(*call.grid(), form, call.arguments(), written, strategy)) {
    replicate_written(call, self);
    TRIREME_ASSERT(choose(*call.grid(), form, call.arguments(), written, strategy),
                   call.described());
  }
  const Results results(call, form, strategy, traits.is_view ? placed(call.tensors()[0]) : nullptr);
  const size_t num_results = traits.num_results;
  {
    const OnBlocks on_blocks;
    c10::SmallVector<at::Tensor, 4> blocks;
    for (size_t i = 0; i < call.tensors().size(); ++i) {
      const at::Tensor& tensor = call.tensors()[i];
      if (MoveLog* log = call.grid()->log()) log->set_argument(static_cast<int>(i));
      blocks.push_back(tensor.defined() ? local_under(call.grid(), tensor, strategy.inputs[i])
                                        : tensor);
    }
    call.replace_tensors(blocks);
    if (rule.adjust) rule.adjust(call, form, strategy);
    if (rule.run) {
      rule.run(call, form, strategy);
    } else {
      call.op().callBoxed(&call.stack());
    }
  }
  Stack& stack = call.stack();
  if (written >= 0) {
    torch::jit::drop(stack, num_results);
    if (num_results > 0) stack.emplace_back(std::move(self));
    return;
  }
  for (size_t i = 0; i < num_results; ++i) {
    results.place(torch::jit::peek(stack, i, num_results), i);
  }
}

class RuleKernel final : public c10::OperatorKernel {
 public:
  RuleKernel(const Rule& rule, const c10::FunctionSchema& schema) : rule_(rule), traits_(schema) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) const {
    if (operator_sink) return operator_sink->run(op, *stack, &rule_);
    OperatorCall call(op, *stack);
    TRIREME_ASSERT(call.grid(), call.name(), " without a placed tensor");
    StepFollower* const follower = call.grid()->follower();
    if (follower && rule_.composes_blocks) follower->next(call);
    if (rule_.compose) {
      const at::AutoDispatchBelowADInplaceOrView below;
      if (rule_.compose(call)) return;
    }
    if (follower && !rule_.composes_blocks) follower->next(call);
    TRIREME_ASSERT(rule_.make_form, call.described());
    run_on_blocks(call, rule_, traits_);
  }

 private:
  const Rule& rule_;
  const Traits traits_;
};

void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  if (operator_sink) return operator_sink->run(op, *stack, nullptr);
  const OperatorCall call(op, *stack);
  TRIREME_CHECK(false, "no rule says how to split ", call.described(),
                "; call it within local_map(), or on tensors that are whole on each rank");
}

std::vector<c10::RegistrationHandleRAII> register_all() {
  check_key_is_free(kPlacedKey);
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<c10::RegistrationHandleRAII> handles;
  const auto add = [&](const c10::OperatorName& name, c10::KernelFunction kernel) {
    handles.push_back(dispatcher.registerImpl(name, kPlacedKey, with_log(std::move(kernel)),
                                              std::nullopt, nullptr, "trireme::spmd"));
  };
  for (const Rule& rule : all_rules()) {
    const size_t dot = rule.name.find('.');
    const c10::OperatorName name(rule.name.substr(0, dot),
                                 dot == std::string::npos ? "" : rule.name.substr(dot + 1));
    const auto op = dispatcher.findSchema(name);
    TRIREME_ASSERT(op, "this libtorch has no operator ", rule.name);
    add(name, c10::KernelFunction::makeFromBoxedFunctor(
                  std::make_unique<RuleKernel>(rule, op->schema())));
  }
  // Operators without a kernel for a device are made of others, which come here in their turn.
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (!op || !op->hasSchema() || op->hasKernelForDispatchKey(kPlacedKey)) continue;
    add(name, op->hasKernelForDispatchKey(c10::DispatchKey::CPU)
                  ? c10::KernelFunction::makeFromBoxedFunction<&refuse>()
                  : c10::KernelFunction::makeFallthrough());
  }
  return handles;
}

}  // namespace

const Rules& all_rules() {
  static const Rules all = made_rules();
  return all;
}

OperatorSink* current_sink() { return operator_sink; }

ToSink::ToSink(OperatorSink& sink) : before_(operator_sink) {
  register_rules();
  operator_sink = &sink;
}
ToSink::~ToSink() { operator_sink = before_; }

void register_rules() {
  // Until the process ends: the dispatcher may be gone before static objects are.
  static const auto* const handles = new std::vector(register_all());
  static_cast<void>(handles);
}

std::vector<std::string> names_of_rules() {
  std::vector<std::string> names;
  for (const Rule& rule : all_rules()) names.push_back(rule.name);
  return names;
}

void check_key_is_free(c10::DispatchKey key) {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::string user = dispatcher.hasBackendFallbackForDispatchKey(key) ? "a fallback" : "";
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (!user.empty()) break;
    const auto op = dispatcher.findOp(name);
    if (op && op->hasKernelForDispatchKey(key)) user = toString(name);
  }
  TRIREME_CHECK(
      user.empty(), "this libtorch uses the dispatch key ", c10::toString(key), " itself (", user,
      "), which annotated tensors need; use a libtorch that docs/guide/annotate.md names, "
      "or set kPlacedKey to a free key and build again");
}

}  // namespace trireme::spmd
