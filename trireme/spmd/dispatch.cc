#include "trireme/spmd/dispatch.h"

#include <algorithm>
#include <memory>

#include <ATen/Functions.h>
#include <ATen/core/boxing/KernelFunction.h>

#include "trireme/base/error.h"
#include "trireme/spmd/move_log.h"

namespace trireme::spmd {
namespace {

using torch::jit::Stack;

Rules all_rules() {
  Rules rules;
  add_pointwise_rules(rules);
  add_contraction_rules(rules);
  add_reduction_rules(rules);
  add_view_rules(rules);
  add_layer_rules(rules);
  std::ranges::sort(rules, {}, &Rule::name);
  return rules;
}

const Rules& rules() {
  static const Rules all = all_rules();
  return all;
}

std::string described(const OperatorCall& call) {
  std::string text = call.name() + "(";
  bool is_first = true;
  for (const at::Tensor& tensor : call.tensors()) {
    if (!tensor.defined()) continue;
    if (!is_first) text += ", ";
    is_first = false;
    const PlacedMeta* meta = placed(tensor);
    text += concat(tensor.sizes(), meta ? " " + to_string(*meta->grid, meta->places) : "");
  }
  return text + ")";
}

// The argument that the operator writes; -1: none.
int written_tensor(const OperatorCall& call) {
  if (!call.op().schema().is_mutable()) return -1;
  int tensor = 0;
  const auto& arguments = call.op().schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = arguments[i].alias_info();
    if (alias && alias->isWrite()) return tensor;
    if (call[i].isTensorList()) {
      tensor += static_cast<int>(call[i].toTensorList().size());
    } else if (call[i].isOptionalTensorList()) {
      tensor += static_cast<int>(call[i].toOptionalTensorList().size());
    } else if (arguments[i].type()->isSubtypeOf(*c10::OptionalType::ofTensor())) {
      ++tensor;
    }
  }
  return -1;
}

// An operator that writes a tensor which no strategy leaves as it is: it becomes replicated first.
// Only for memory that no view shares.
void replicate_written(const OperatorCall& call, const at::Tensor& tensor) {
  PlacedMeta* meta = placed(tensor);
  TRIREME_CHECK(meta && meta->local.storage().use_count() == 1, described(call),
                " writes a tensor in place whose split must change for it, and other tensors share "
                "its memory; use the operator that is not in place");
  meta->local = local_under(meta->grid, tensor, Places());
  meta->places = Places();
}

class Results {
 public:
  Results(const OperatorCall& call, const Form& form, const Strategy& strategy)
      : grid_(call.grid()), form_(form), strategy_(strategy) {
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
      sizes[dim] = lengths_[result][dim] / form_.output_scale(dim);
    }
    return place_block(grid_, local, places, sizes);
  }

  const GridPtr grid_;
  const Form& form_;
  const Strategy& strategy_;
  c10::SmallVector<c10::SmallVector<int64_t, 6>, 3> lengths_{};
};

void run_on_blocks(OperatorCall& call, const Rule& rule) {
  Form form;
  rule.make_form(call, form);
  TRIREME_ASSERT(form.inputs.size() == call.tensors().size(), described(call), ": ",
                 form.inputs.size(), " of its tensors have a form");
  const int written = written_tensor(call);
  at::Tensor self;
  Strategy strategy;
  if (written >= 0) self = call.tensors()[written];
  if (!choose(*call.grid(), form, call.arguments(), written, strategy)) {
    replicate_written(call, self);
    TRIREME_ASSERT(choose(*call.grid(), form, call.arguments(), written, strategy),
                   described(call));
  }
  const Results results(call, form, strategy);
  const size_t num_results = call.op().schema().returns().size();
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
  explicit RuleKernel(const Rule& rule) : rule_(rule) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) const {
    OperatorCall call(op, *stack);
    if (rule_.compose) {
      const at::AutoDispatchBelowADInplaceOrView below;
      if (rule_.compose(call)) return;
    }
    run_on_blocks(call, rule_);
  }

 private:
  const Rule& rule_;
};

void refuse(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const OperatorCall call(op, *stack);
  TRIREME_CHECK(false, "no rule says how to split ", described(call),
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
  for (const Rule& rule : rules()) {
    const size_t dot = rule.name.find('.');
    const c10::OperatorName name(rule.name.substr(0, dot),
                                 dot == std::string::npos ? "" : rule.name.substr(dot + 1));
    TRIREME_ASSERT(dispatcher.findSchema(name), "this libtorch has no operator ", rule.name);
    add(name, c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<RuleKernel>(rule)));
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

OperatorCall::OperatorCall(const c10::OperatorHandle& op, Stack& stack)
    : op_(op), stack_(stack), num_arguments_(op.schema().arguments().size()) {
  const auto add = [&](const c10::IValue& value) {
    tensors_.push_back(value.isTensor() ? value.toTensor() : at::Tensor());
  };
  for (size_t i = 0; i < num_arguments_; ++i) {
    const c10::IValue& value = (*this)[i];
    if (value.isTensor()) {
      add(value);
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) tensors_.push_back(tensor);
    } else if (value.isOptionalTensorList()) {
      for (const auto& tensor : value.toOptionalTensorVector())
        tensors_.push_back(tensor.value_or(at::Tensor()));
    } else if (value.isNone() &&
               op.schema().arguments()[i].type()->isSubtypeOf(*c10::OptionalType::ofTensor())) {
      add(value);
    }
  }
  static const Places everywhere;
  for (const at::Tensor& tensor : tensors_) {
    const PlacedMeta* meta = placed(tensor);
    Argument argument;
    if (tensor.defined()) {
      argument.sizes = tensor.sizes();
      argument.places = meta ? &meta->places : &everywhere;
      argument.bytes = static_cast<double>(tensor.numel()) * tensor.element_size();
    }
    arguments_.push_back(argument);
    if (!meta) continue;
    TRIREME_CHECK(!grid_ || grid_ == meta->grid, name(),
                  " takes tensors of two grids; expected one");
    grid_ = meta->grid;
  }
  TRIREME_ASSERT(grid_, name(), " without a placed tensor");
}

std::string OperatorCall::name() const {
  const auto& schema = op_.schema();
  return schema.overload_name().empty() ? schema.name()
                                        : concat(schema.name(), ".", schema.overload_name());
}

void OperatorCall::replace_tensors(c10::ArrayRef<at::Tensor> blocks) {
  size_t next = 0;
  for (size_t i = 0; i < num_arguments_; ++i) {
    c10::IValue& value = (*this)[i];
    if (value.isTensor()) {
      value = blocks[next++];
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (size_t count = value.toTensorList().size(); count > 0; --count)
        list.push_back(blocks[next++]);
      value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (size_t count = value.toOptionalTensorList().size(); count > 0; --count, ++next) {
        list.push_back(blocks[next].defined() ? std::optional(blocks[next]) : std::nullopt);
      }
      value = std::move(list);
    } else if (value.isNone() &&
               op_.schema().arguments()[i].type()->isSubtypeOf(*c10::OptionalType::ofTensor())) {
      ++next;
    }
  }
}

void OperatorCall::finish(c10::IValue result) const {
  torch::jit::drop(stack_, num_arguments_);
  stack_.push_back(std::move(result));
}

void register_rules() {
  // Until the process ends: the dispatcher may be gone before static objects are.
  static const auto* const handles = new std::vector(register_all());
  static_cast<void>(handles);
}

std::vector<std::string> names_of_rules() {
  std::vector<std::string> names;
  for (const Rule& rule : rules()) names.push_back(rule.name);
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
