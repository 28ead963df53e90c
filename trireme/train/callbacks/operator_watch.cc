#include "trireme/train/callbacks/operator_watch.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "trireme/base/error.h"

namespace trireme::train {

// libtorch tells observers when an operator begins and ends, the innermost first at its end; so the
// first bad result that is seen is that of the operator that made it. Backward passes on a device's
// thread take the observer along, with the debug information in which it finds the watch.

namespace {

using Values = std::vector<c10::IValue>;
using NamedTensor = std::pair<std::string, at::Tensor>;

bool can_be_read(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_meta() &&
         tensor.numel() > 0 && tensor.has_storage() && tensor.storage().nbytes() > 0 &&
         (at::isFloatingType(tensor.scalar_type()) || tensor.is_complex());
}

at::Tensor real_values(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach();
  return values.is_complex() ? at::view_as_real(values) : values;
}

void add_tensors(const c10::IValue& value, const std::string& name, std::vector<NamedTensor>& to) {
  if (value.isTensor()) {
    to.emplace_back(name, value.toTensor());
  } else if (value.isTensorList()) {
    const auto list = value.toTensorVector();
    for (size_t i = 0; i < list.size(); ++i) to.emplace_back(concat(name, ".", i), list[i]);
  } else if (value.isList()) {
    const auto list = value.toListRef();
    for (size_t i = 0; i < list.size(); ++i) add_tensors(list[i], concat(name, ".", i), to);
  }
}

std::vector<NamedTensor> tensors_in(c10::ArrayRef<c10::IValue> values, const char* kind) {
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < values.size(); ++i) add_tensors(values[i], concat(kind, ".", i), tensors);
  return tensors;
}

// NaN or an infinity if there is one, else the largest magnitude.
double largest_of(const at::Tensor& tensor) {
  const auto [low, high] = at::aminmax(real_values(tensor));
  const double a = low.item<double>(), b = high.item<double>();
  if (std::isnan(a) || std::isnan(b)) return std::nan("");
  return std::max(std::abs(a), std::abs(b));
}

// The worst of all: NaN before infinity before any other.
double largest_of(const std::vector<NamedTensor>& tensors) {
  double largest = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!can_be_read(tensor)) continue;
    const double one = largest_of(tensor);
    if (std::isnan(one)) return one;
    largest = std::max(largest, one);
  }
  return largest;
}

// Memory that nobody has written yet may hold anything.
bool gives_unwritten_memory(const std::string& name) {
  return name.find("::empty") != name.npos || name.find("::new_empty") != name.npos ||
         name.find("::resize") != name.npos || name.find("::_efficientzerotensor") != name.npos;
}

bool changes_in_place(const std::string& name) {
  return name.ends_with('_') && !name.ends_with("__");
}

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.has_storage() && b.has_storage() &&
         a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
}

// An operator between its begin and its end.
struct Call : at::ObserverContext {
  Values inputs{};  // empty of a backward node
  size_t depth = 0;
};

}  // namespace

TensorFacts facts_of(const std::string& name, const at::Tensor& values) {
  TensorFacts facts{
      .name = name, .dtype = c10::toString(values.scalar_type()), .shape = values.sizes().vec()};
  if (!can_be_read(values)) return facts;
  const at::Tensor real = real_values(values).to(at::kDouble);
  facts.num_nan = real.isnan().sum().item<int64_t>();
  facts.num_infinite = real.isinf().sum().item<int64_t>();
  const at::Tensor finite = real.masked_select(real.isfinite());
  if (finite.numel() == 0) return facts;
  facts.minimum = finite.min().item<double>();
  facts.maximum = finite.max().item<double>();
  facts.mean_magnitude = finite.abs().mean().item<double>();
  return facts;
}

class OperatorWatch::State : public c10::DebugInfoBase {
 public:
  State(const NamedParameters& parameters, double spike) : spike_(spike) {
    for (const auto& [name, tensor] : parameters) {
      const size_t dot = name.rfind('.');
      const std::string unit = dot == name.npos ? name : name.substr(0, dot);
      units_[tensor.unsafeGetTensorImpl()] = unit;
      if (can_be_read(tensor))
        units_of_memory_[tensor.storage().unsafeGetStorageImpl()][tensor.data_ptr()] = unit;
    }
  }

  void begin(bool is_baseline) {
    is_baseline_ = is_baseline;
    is_judging_ = !is_baseline;
    counts_.clear();
    num_operators_ = 0;
    stack_.clear();
    unit_.clear();
    units_of_nodes_.clear();
  }

  std::unique_ptr<Call> start(const at::RecordFunction& function) {
    const std::lock_guard lock(mutex_);
    auto call = std::make_unique<Call>();
    call->depth = stack_.size();
    Frame frame{.name = function.name(),
                .is_backward = function.scope() == at::RecordScope::BACKWARD_FUNCTION};
    if (frame.is_backward) {
      const auto found = units_of_nodes_.find(function.seqNr());
      frame.unit = found == units_of_nodes_.end() ? "" : found->second;
    } else {
      keep_inputs(function, frame, *call);
      if (const std::string unit = unit_read(call->inputs); !unit.empty()) {
        frame.reads_unit = true;
        unit_ = unit;
      }
      // A node of the backward pass has the number that is next when its operator begins. Operators
      // that make none have no number; the gradient mode of here is the observer's.
      if (function.seqNr() >= 0) units_of_nodes_[function.seqNr()] = unit_;
    }
    stack_.push_back(std::move(frame));
    return call;
  }

  void end(const at::RecordFunction& function, const Call& call) {
    const std::lock_guard lock(mutex_);
    if (call.depth < stack_.size() && !stack_[call.depth].is_backward && !finding_)
      judge(function, call);
    if (call.depth < stack_.size()) stack_.resize(call.depth);
  }

  const std::optional<OperatorFinding>& finding() const { return finding_; }
  int64_t num_operators() const { return num_operators_; }

 private:
  struct Frame {
    std::string name{};
    bool is_backward = false;
    bool reads_unit = false;
    std::string unit{};  // of a backward node: its forward's
  };

  // The memory that the operator changes is copied; else only references are kept.
  static void keep_inputs(const at::RecordFunction& function, const Frame& frame, Call& call) {
    call.inputs.assign(function.inputs().begin(), function.inputs().end());
    if (!changes_in_place(frame.name) || call.inputs.empty()) return;
    c10::IValue& changed = call.inputs.front();
    if (changed.isTensor()) {
      if (can_be_read(changed.toTensor())) changed = changed.toTensor().detach().clone();
    } else if (changed.isTensorList()) {
      std::vector<at::Tensor> copies;
      for (const at::Tensor& one : changed.toTensorVector()) {
        copies.push_back(can_be_read(one) ? one.detach().clone() : one);
      }
      changed = copies;
    }
  }

  std::string unit_read(c10::ArrayRef<c10::IValue> inputs) const {
    for (const auto& [name, tensor] : tensors_in(inputs, "input")) {
      if (!tensor.defined()) continue;
      const auto found = units_.find(tensor.unsafeGetTensorImpl());
      if (found != units_.end()) return found->second;
      if (!can_be_read(tensor)) continue;
      const auto memory = units_of_memory_.find(tensor.storage().unsafeGetStorageImpl());
      if (memory == units_of_memory_.end()) continue;
      const auto place = memory->second.find(tensor.data_ptr());
      if (place != memory->second.end()) return place->second;
    }
    return "";
  }

  void judge(const at::RecordFunction& function, const Call& call) {
    const std::string& name = stack_[call.depth].name;
    std::vector<NamedTensor> outputs = tensors_in(function.outputs(), "output");
    if (outputs.empty() && changes_in_place(name))
      outputs = tensors_in(
          function.inputs().slice(0, std::min<size_t>(1, function.inputs().size())), "output");
    if (outputs.empty() || gives_unwritten_memory(name)) return;
    const int64_t number = num_operators_++;
    const double largest = largest_of(outputs);
    if (is_baseline_) {
      if (spike_ > 0) baseline_[name].push_back(largest);
      return;
    }
    if (!is_judging_) return;
    const int64_t occurrence = counts_[name]++;
    double ratio = 0;
    const bool writes =
        changes_in_place(name) ||
        std::string_view(function.overload_name()).find("out") != std::string_view::npos;
    std::optional<BadValue> what;
    if (!std::isfinite(largest)) {
      what = made(largest, call.inputs, outputs, writes);
    } else if (!is_view(call.inputs, outputs, writes)) {
      what = spike_of(name, occurrence, largest, ratio);
    }
    if (what) find(*what, number, ratio, call, outputs);
  }

  // Whether a result is memory of an operand, which may not be written yet.
  static bool is_view(const Values& inputs, const std::vector<NamedTensor>& outputs, bool writes) {
    for (const auto& [name, tensor] : tensors_in(inputs, "input")) {
      if (!can_be_read(tensor)) continue;
      for (const auto& [out, output] : outputs) {
        if (share_memory(output, tensor) && !(writes && output.is_same(tensor))) return true;
      }
    }
    return false;
  }

  std::optional<BadValue> spike_of(const std::string& name, int64_t occurrence, double largest,
                                   double& ratio) const {
    const auto before = baseline_.find(name);
    if (spike_ <= 0 || before == baseline_.end() || occurrence >= std::ssize(before->second))
      return std::nullopt;
    const double usual = before->second[static_cast<size_t>(occurrence)];
    if (!std::isfinite(usual) || usual == 0) return std::nullopt;
    ratio = largest / usual;
    return ratio >= spike_ ? std::optional(BadValue::kSpike) : std::nullopt;
  }

  // Whether the operator has made what its result has. An infinity that it was given, such as that
  // of a mask, is none of its own.
  // writes: into its operands, or else those that it returns are as they were.
  static std::optional<BadValue> made(double largest, const Values& inputs,
                                      const std::vector<NamedTensor>& outputs, bool writes) {
    bool given_nan = false, given_infinity = false;
    for (const c10::IValue& value : inputs) {
      if (!value.isDouble()) continue;
      given_nan = given_nan || std::isnan(value.toDouble());
      given_infinity = given_infinity || std::isinf(value.toDouble());
    }
    for (const auto& [name, tensor] : tensors_in(inputs, "input")) {
      if (!can_be_read(tensor)) continue;
      bool is_result = false;  // an operand that only receives the result
      for (const auto& [out, output] : outputs) {
        is_result = is_result || (writes && output.is_same(tensor));
      }
      if (is_result) continue;
      const double given = largest_of(tensor);
      given_nan = given_nan || std::isnan(given);
      given_infinity = given_infinity || std::isinf(given);
    }
    if (std::isinf(largest)) {
      return given_infinity || given_nan ? std::nullopt : std::optional(BadValue::kInfinity);
    }
    if (!given_nan) return BadValue::kNan;
    return is_view(inputs, outputs, writes) ? std::nullopt : std::optional(BadValue::kGiven);
  }

  void find(BadValue what, int64_t number, double ratio, const Call& call,
            const std::vector<NamedTensor>& outputs) {
    OperatorFinding found{.what = what,
                          .name = stack_[call.depth].name,
                          .unit = unit_,
                          .number = number,
                          .ratio = ratio};
    for (size_t i = 0; i <= call.depth; ++i) {
      const Frame& frame = stack_[i];
      if (i < call.depth) found.within.push_back(frame.name);
      if (frame.is_backward) {
        found.is_backward = true;
        found.unit = frame.unit;
      }
      // Recomputed layers run forward within a backward node.
      if (frame.reads_unit) found.unit = unit_;
      found.reads_unit = found.reads_unit || frame.reads_unit;
    }
    for (const auto& [name, tensor] : tensors_in(call.inputs, "input")) {
      if (!tensor.defined()) continue;
      found.inputs.push_back(facts_of(name, tensor));
      if (tensor.has_storage() && !tensor.is_meta() && tensor.layout() == at::kStrided)
        found.tensors[name] = tensor.detach().to(at::kCPU).contiguous().clone();
    }
    for (const auto& [name, tensor] : outputs) found.outputs.push_back(facts_of(name, tensor));
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const c10::IValue& value = call.inputs[i];
      const std::string name = concat("input.", i);
      if (value.isDouble()) found.numbers[name] = concat(value.toDouble());
      if (value.isInt()) found.numbers[name] = concat(value.toInt());
      if (value.isBool()) found.numbers[name] = value.toBool() ? "true" : "false";
    }
    finding_ = std::move(found);
  }

  std::mutex mutex_;
  const double spike_;
  std::unordered_map<const void*, std::string> units_;  // by the parameter's own tensor
  std::unordered_map<const void*, std::map<const void*, std::string>> units_of_memory_;
  std::unordered_map<int64_t, std::string> units_of_nodes_;  // by their sequence number
  std::vector<Frame> stack_;
  std::string unit_;
  bool is_baseline_ = false, is_judging_ = false;
  std::map<std::string, std::vector<double>> baseline_;
  std::map<std::string, int64_t> counts_;
  int64_t num_operators_ = 0;
  std::optional<OperatorFinding> finding_;
};

namespace {

OperatorWatch::State* watch_of_thread() {
  return dynamic_cast<OperatorWatch::State*>(
      c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PRODUCER_INFO));
}

std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& function) {
  OperatorWatch::State* const watch = watch_of_thread();
  if (watch == nullptr || watch->finding()) return nullptr;
  const at::DisableRecordFunctionGuard unwatched;
  const at::NoGradGuard no_gradient;
  return watch->start(function);
}

void on_operator_end(const at::RecordFunction& function, at::ObserverContext* context) {
  OperatorWatch::State* const watch = watch_of_thread();
  if (watch == nullptr || context == nullptr) return;
  const at::DisableRecordFunctionGuard unwatched;
  const at::NoGradGuard no_gradient;
  watch->end(function, static_cast<const Call&>(*context));
}

}  // namespace

struct OperatorWatch::Installed {
  explicit Installed(const std::shared_ptr<State>& state)
      : info(c10::DebugInfoKind::PRODUCER_INFO, state),
        handle(at::addThreadLocalCallback(
            at::RecordFunctionCallback(on_operator, on_operator_end)
                .needsInputs(true)
                .needsOutputs(true)
                .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}))) {}
  ~Installed() { at::removeCallback(handle); }
  Installed(const Installed&) = delete;
  Installed& operator=(const Installed&) = delete;

  c10::DebugInfoGuard info;
  at::CallbackHandle handle;
};

OperatorWatch::OperatorWatch(const NamedParameters& parameters, double spike)
    : state_(std::make_shared<State>(parameters, spike)),
      installed_(std::make_unique<Installed>(state_)) {}

OperatorWatch::~OperatorWatch() = default;

void OperatorWatch::begin_baseline() { state_->begin(/*is_baseline=*/true); }
void OperatorWatch::begin_step() { state_->begin(/*is_baseline=*/false); }

const std::optional<OperatorFinding>& OperatorWatch::finding() const { return state_->finding(); }
int64_t OperatorWatch::num_operators() const { return state_->num_operators(); }

}  // namespace trireme::train
