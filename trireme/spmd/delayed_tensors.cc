#include "trireme/spmd/delayed_tensors.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "trireme/base/error.h"
#include "trireme/spmd/dispatch.h"

namespace trireme::spmd {
namespace {

using torch::jit::Stack;

// A key above autograd that no tensor has: while a thread includes it, all operators come here.
constexpr c10::DispatchKey kDelayKey = c10::DispatchKey::DeferredInit;
thread_local DelayedTensors::Recorder* recording = nullptr;

bool draws(const c10::OperatorHandle& op) { return op.hasTag(at::Tag::nondeterministic_seeded); }

// Arguments that are lists of tensors are not recorded.
bool has_list(const c10::OperatorHandle& op) {
  return std::ranges::any_of(op.schema().arguments(), [](const c10::Argument& argument) {
    return argument.type()->kind() == c10::TypeKind::ListType &&
           argument.type()->containedType(0)->isSubtypeOf(*c10::OptionalType::ofTensor());
  });
}

bool gives_tensors(const c10::OperatorHandle& op) {
  const auto& returns = op.schema().returns();
  return !returns.empty() && std::ranges::all_of(returns, [](const c10::Argument& value) {
    return value.type()->isSubtypeOf(*c10::TensorType::get());
  });
}

at::Tensor shape_only(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

}  // namespace

class DelayedTensors::Recorder {
 public:
  explicit Recorder(GridPtr grid) : grid_(std::move(grid)) {}

  void run(const c10::OperatorHandle& op, Stack& stack) {
    const c10::impl::ExcludeDispatchKeyGuard below(kDelayKey);
    const at::NoGradGuard no_gradient;
    const size_t count = op.schema().arguments().size();
    const size_t first = stack.size() - count;
    bool takes_delayed = false, takes_any = false;
    for (size_t i = first; i < stack.size(); ++i) {
      if (!stack[i].isTensor() || !stack[i].toTensor().defined()) continue;
      takes_any = true;
      takes_delayed |= pending(stack[i].toTensor()) >= 0;
    }
    const bool is_new = !takes_any && gives_tensors(op) && !has_list(op);
    if ((takes_delayed || is_new) && record(op, stack, first)) return;
    // Draws keep their order, and values that are needed are made.
    if (takes_delayed || has_list(op) || draws(op)) replay();
    run_on_memory(op, stack, first);
  }

  // Does what has been recorded; tensors stay whole.
  void replay() { replay(nullptr); }
  void finish(const PlacesOf& places_of) {
    replay(&places_of);
    for (Value& value : values_) settle(value, places_of);
  }

 private:
  struct Value {
    c10::intrusive_ptr<c10::BackendMeta> meta;
    int group = 0;  // of values that share memory
    PlacedMeta& placed() const { return static_cast<PlacedMeta&>(*meta); }
    bool is_used() const { return meta.use_count() > 1; }  // by a tensor
  };
  struct Step {
    c10::OperatorHandle op;
    std::vector<c10::IValue> arguments;
    std::vector<std::pair<size_t, int>> delayed;  // argument, value
    std::vector<int> results;                     // -1: written in place
    int group = -1;                               // that the results share memory with
  };

  int value_of(const at::Tensor& tensor) const {
    const PlacedMeta* meta = placed(tensor);
    for (size_t i = values_.size(); meta && i-- > 0;) {
      if (values_[i].meta.get() == meta) return static_cast<int>(i);
    }
    return -1;
  }
  // A value without memory yet.
  int pending(const at::Tensor& tensor) const {
    const PlacedMeta* meta = placed(tensor);
    return meta && !meta->local.defined() ? value_of(tensor) : -1;
  }

  // The results' shapes; false: torch cannot tell, or the operator changes an argument's.
  static bool find_shapes(const c10::OperatorHandle& op, const Stack& stack, size_t first,
                          Stack& results) {
    results.assign(stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end());
    at::Tensor written;
    for (size_t i = 0; i < results.size(); ++i) {
      const c10::Argument& argument = op.schema().arguments()[i];
      c10::IValue& value = results[i];
      if (value.isTensor() && value.toTensor().defined()) {
        value = shape_only(value.toTensor());
        const c10::AliasInfo* alias = argument.alias_info();
        if (alias && alias->isWrite()) written = value.toTensor();
      } else if (argument.name() == "device") {
        value = at::Device(at::kMeta);
      }
    }
    const std::vector<int64_t> before =
        written.defined() ? written.sizes().vec() : std::vector<int64_t>();
    try {
      op.callBoxed(&results);
    } catch (const std::exception&) {
      return false;
    }
    return !written.defined() || written.sizes() == at::IntArrayRef(before);
  }

  bool record(const c10::OperatorHandle& op, Stack& stack, size_t first) {
    if (!gives_tensors(op) || has_list(op)) return false;
    Stack shapes;
    if (!find_shapes(op, stack, first, shapes)) return false;
    Step step{op, {stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end()}, {}, {}, -1};
    const auto device = device_of(op, step.arguments);
    for (size_t i = 0; i < step.arguments.size(); ++i) {
      c10::IValue& value = step.arguments[i];
      if (!value.isTensor() || !value.toTensor().defined()) continue;
      const int index = value_of(value.toTensor());
      const c10::AliasInfo* alias = op.schema().arguments()[i].alias_info();
      if (index < 0) {
        if (alias) return false;  // of memory that is there
        value = value.toTensor().clone();
        continue;
      }
      step.delayed.emplace_back(i, index);
      if (alias) step.group = values_[index].group;
      value = c10::IValue();
    }
    const bool writes = op.schema().is_mutable();
    Stack results;
    for (size_t i = 0; i < shapes.size(); ++i) {
      if (writes) {
        step.results.push_back(-1);
        results.push_back(stack[first + step.delayed.front().first]);
      } else {
        results.emplace_back(add(shapes[i].toTensor(), device, step));
      }
    }
    if (writes && step.group < 0) return false;
    steps_.push_back(std::move(step));
    stack.resize(first);
    for (c10::IValue& result : results) stack.push_back(std::move(result));
    return true;
  }

  // Where results are: as the operator says, or as its first tensor.
  static at::Device device_of(const c10::OperatorHandle& op,
                              const std::vector<c10::IValue>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (op.schema().arguments()[i].name() == "device" && values[i].isDevice())
        return values[i].toDevice();
    }
    for (const c10::IValue& value : values) {
      if (value.isTensor() && value.toTensor().defined()) return value.toTensor().device();
    }
    return at::kCPU;
  }

  at::Tensor add(const at::Tensor& shape, at::Device device, Step& step) {
    auto meta = c10::make_intrusive<PlacedMeta>(grid_, at::Tensor(), Places());
    const auto keys = c10::DispatchKeySet(
        c10::computeDispatchKey(shape.scalar_type(), c10::Layout::Strided, device));
    auto impl = c10::make_intrusive<c10::TensorImpl>(keys.add(kPlacedKey), shape.dtype(), device);
    impl->set_sizes_and_strides(shape.sizes(), shape.strides());
    impl->set_backend_meta(meta);
    step.results.push_back(static_cast<int>(values_.size()));
    values_.push_back({std::move(meta), step.group >= 0 ? step.group : num_groups_++});
    return at::Tensor(std::move(impl));
  }

  void run_on_memory(const c10::OperatorHandle& op, Stack& stack, size_t first) {
    const auto real = [](const at::Tensor& tensor) {
      const PlacedMeta* meta = placed(tensor);
      return meta ? meta->local : tensor;
    };
    std::vector<std::pair<at::Tensor, at::Tensor>> taken;  // a placed tensor and its memory
    for (size_t i = first; i < stack.size(); ++i) {
      c10::IValue& value = stack[i];
      if (value.isTensor() && placed(value.toTensor())) {
        taken.emplace_back(value.toTensor(), real(value.toTensor()));
        value = taken.back().second;
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& each : value.toTensorVector()) list.push_back(real(each));
        value = std::move(list);
      } else if (value.isOptionalTensorList()) {
        c10::List<std::optional<at::Tensor>> list;
        for (const auto& each : value.toOptionalTensorVector())
          list.push_back(each ? std::optional(real(*each)) : std::nullopt);
        value = std::move(list);
      }
    }
    op.callBoxed(&stack);
    for (const auto& [tensor, local] : taken) {
      if (tensor.sizes() != local.sizes())
        tensor.unsafeGetTensorImpl()->set_sizes_and_strides(local.sizes(), local.strides());
      for (size_t i = first; i < stack.size(); ++i) {
        if (stack[i].isTensor() && stack[i].toTensor().is_same(local)) stack[i] = tensor;
      }
    }
  }

  // places_of: null: whole tensors stay
  void replay(const PlacesOf* places_of) {
    std::vector<size_t> last(num_groups_, 0);
    for (size_t i = 0; i < steps_.size(); ++i) {
      for (const auto& [argument, value] : steps_[i].delayed) last[values_[value].group] = i;
      for (const int value : steps_[i].results) {
        if (value >= 0) last[values_[value].group] = i;
      }
    }
    std::vector<std::vector<int>> done(steps_.size());  // values that no later step needs
    for (size_t i = 0; !steps_.empty() && i < values_.size(); ++i)
      done[last[values_[i].group]].push_back(static_cast<int>(i));
    for (size_t i = 0; i < steps_.size(); ++i) {
      run(steps_[i]);
      if (!places_of) continue;
      for (const int value : done[i]) settle(values_[value], *places_of);
    }
    steps_.clear();
  }

  void run(Step& step) {
    Stack stack = std::move(step.arguments);
    for (const auto& [argument, value] : step.delayed)
      stack[argument] = values_[value].placed().local;
    step.op.callBoxed(&stack);
    for (size_t i = 0; i < step.results.size(); ++i) {
      if (step.results[i] < 0) continue;
      PlacedMeta& meta = values_[step.results[i]].placed();
      meta.local = stack[i].toTensor();
    }
  }

  // Cuts a whole tensor that has all its values; drops one that nobody has.
  void settle(Value& value, const PlacesOf& places_of) const {
    PlacedMeta& meta = value.placed();
    if (!meta.local.defined()) return;
    if (!value.is_used()) {
      meta.local = at::Tensor();
      return;
    }
    const std::optional<Places> places = places_of(meta);
    if (!places || meta.places == *places) return;
    const auto is_shared = [&](const Value& other) {
      return other.meta != value.meta && other.group == value.group && other.is_used();
    };
    TRIREME_CHECK(std::ranges::none_of(values_, is_shared), "make() keeps a view of ",
                  meta.parameter ? *meta.parameter : "a parameter",
                  ", which is to be split; make the view in forward()");
    meta.local = local_under(grid_, meta.local, *places).clone(at::MemoryFormat::Contiguous);
    meta.places = *places;
  }

  GridPtr grid_;
  std::vector<Value> values_{};
  std::vector<Step> steps_{};
  int num_groups_ = 0;
};

namespace {

void delay(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  recording->run(op, *stack);
}

void register_delay() {
  static const auto* const handle =
      new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().registerFallback(
          kDelayKey, c10::KernelFunction::makeFromBoxedFunction<&delay>(), "trireme::spmd"));
  static_cast<void>(handle);
}

}  // namespace

DelayedTensors::DelayedTensors(GridPtr grid)
    : recorder_(std::make_unique<Recorder>(std::move(grid))) {}
DelayedTensors::~DelayedTensors() = default;

void DelayedTensors::record(const std::function<void()>& make) {
  register_rules();
  register_delay();
  struct Recording {
    explicit Recording(Recorder* recorder) { recording = recorder; }
    ~Recording() { recording = nullptr; }
  } now(recorder_.get());
  const c10::impl::IncludeDispatchKeyGuard all(kDelayKey);
  make();
}

void DelayedTensors::finish(const PlacesOf& places_of) {
  const at::NoGradGuard no_gradient;
  recorder_->finish(places_of);
}

}  // namespace trireme::spmd
