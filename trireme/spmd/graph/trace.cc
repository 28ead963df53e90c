#include "trireme/spmd/graph/trace.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include <ATen/Functions.h>
#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/spmd/dispatch.h"
#include "trireme/spmd/graph/result_sizes.h"
#include "trireme/spmd/graph/traced_tensor.h"
#include "trireme/spmd/graph/work_kind.h"
#include "trireme/spmd/placed_tensor.h"
#include "trireme/spmd/rule.h"

namespace trireme::spmd {
namespace {

using torch::jit::Stack;

// Changes arguments to those of the meta device.
void to_meta(OperatorCall& call) {
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& tensor : call.tensors()) tensors.push_back(meta_of(tensor));
  call.replace_tensors(tensors);
  const auto& arguments = call.op().schema().arguments();
  for (size_t i = 0; i < call.num_arguments(); ++i) {
    if (call[i].isDevice() || (arguments[i].name() == "device" && call[i].isNone())) {
      if (call[i].isNone() && !call.tensors().empty()) continue;  // the arguments' device
      call[i] = c10::IValue(c10::Device(c10::kMeta));
    }
  }
}

class Tracer final : public OperatorSink {
 public:
  // keeps: whether the graph is wanted
  explicit Tracer(bool keeps) : keeps_(keeps) {}

  void name_parameter(const std::string& name, const at::Tensor& tensor) {
    TRIREME_CHECK(placed(tensor), "parameter ", name,
                  " has memory; make the module with made_without_memory()");
    if (const auto found = values_.find(placed(tensor)); found != values_.end()) {
      graph_.values[found->second].more_names.push_back(name);
      return;
    }
    const int value = add_value(tensor, GraphValue::Kind::kParameter);
    graph_.values[value].name = name;
    const size_t dot = name.rfind('.');
    modules_[value] = dot == std::string::npos ? "" : name.substr(0, dot);
  }
  // Each rank has it whole, unless it is annotated.
  void add_buffer(const at::Tensor& tensor) {
    if (placed(tensor)) made_.insert(key_of(tensor));
  }
  void begin_backward() { is_backward_ = true; }
  void add_gradient(const at::Tensor& parameter, const at::Tensor& gradient) {
    if (!gradient.defined()) return;
    const Graph::Gradient each{value_of(parameter), value_of(gradient)};
    if (std::ranges::count(graph_.gradients, each) == 0) graph_.gradients.push_back(each);
  }
  Graph take() { return std::move(graph_); }

  void run(const c10::OperatorHandle& op, Stack& stack, const Rule* rule) override {
    OperatorCall call(op, stack);
    const std::string name = call.name();
    TRIREME_CHECK(name != "aten::_local_scalar_dense", "the module reads a value with item()",
                  place_in_module(), "; a trace has none: compute without it");
    if (name == "aten::equal") return call.finish(true);
    if (name == "aten::_fused_sdp_choice") return call.finish(int64_t{1});  // as the CPU's: flash
    const bool is_traced = std::ranges::any_of(
        call.tensors(), [](const at::Tensor& tensor) { return placed(tensor) != nullptr; });
    const bool has_tensors = std::ranges::any_of(
        call.tensors(), [](const at::Tensor& tensor) { return tensor.defined(); });
    if (has_tensors && !is_traced) {  // constants with memory
      const OnBlocks on_blocks;
      op.callBoxed(&stack);
      return;
    }
    if (rule != nullptr && rule->compose != nullptr && !rule->composes_blocks) {
      const at::AutoDispatchBelowADInplaceOrView below;
      if (rule->compose(call)) return;
    }
    record(call, name, rule);
  }

  at::Tensor sum(const at::Tensor& tensor) override {
    if (!keeps_ || is_constant(tensor)) return tensor;
    GraphNode node{.name = kSummed, .is_backward = is_backward_, .work = WorkKind::kView};
    node.is_like_first = true;
    node.inputs = {value_of(tensor)};
    node.module = module_of(node);
    node.form.inputs = {factors(tensor.dim())};
    node.form.outputs = node.form.inputs;
    const at::Tensor total = traced(tensor.sizes(), tensor.strides(), tensor.scalar_type());
    node.outputs = {add_value(total, GraphValue::Kind::kResult)};
    node.output_forms = {0};
    graph_.values[node.outputs[0]].producer = static_cast<int>(graph_.nodes.size());
    graph_.nodes.push_back(std::move(node));
    return total;
  }

 private:
  void record(OperatorCall& call, const std::string& name, const Rule* rule) {
    GraphNode node;
    const bool makes = std::ranges::all_of(
        call.tensors(), [&](const at::Tensor& tensor) { return is_constant(tensor); });
    const bool wants_node = keeps_ && !makes;
    if (wants_node) {
      number(call, rule, node);
      node.name = name;
      node.has_rule = rule != nullptr;
      node.work = work_of(name);
      node.is_backward = is_backward_;
      set_form(call, rule, node);
      for (const at::Tensor& tensor : call.tensors())
        node.inputs.push_back(tensor.defined() ? value_of(tensor) : -1);
      if (node.work == WorkKind::kAttention || node.work == WorkKind::kAttentionBackward)
        node.is_causal = argument(call, "is_causal").toBool();
      node.module = module_of(node);
    }
    const size_t num_results = call.op().schema().returns().size();
    compute(call, name);
    if (keeps_ && makes) {
      for_each_result(call.stack(), num_results,
                      [&](const at::Tensor& tensor, size_t) { made_.insert(key_of(tensor)); });
    }
    if (!wants_node) return;
    const int producer = static_cast<int>(graph_.nodes.size());
    for_each_result(call.stack(), num_results, [&](const at::Tensor& tensor, size_t i) {
      const int result = add_value(tensor, GraphValue::Kind::kResult);
      graph_.values[result].producer = producer;
      if (node.work == WorkKind::kView) follow(node, result);
      node.outputs.push_back(result);
      node.output_forms.push_back(static_cast<int>(i));
    });
    node.form.outputs.resize(std::max(node.form.outputs.size(), num_results));
    graph_.nodes.push_back(std::move(node));
  }

  // When the step runs on ranks, what is made without its inputs is whole on each, and no operator
  // on placed tensors.
  bool is_constant(const at::Tensor& tensor) const {
    return !placed(tensor) || made_.contains(placed(tensor));
  }
  template <typename Do>
  static void for_each_result(const Stack& stack, size_t num_results, const Do& act) {
    for (size_t i = 0; i < num_results; ++i) {
      const c10::IValue& value = torch::jit::peek(stack, i, num_results);
      if (value.isTensor() && placed(value.toTensor())) act(value.toTensor(), i);
      if (!value.isTensorList()) continue;
      for (const at::Tensor& each : value.toTensorVector()) {
        if (placed(each)) act(each, i);
      }
    }
  }

  void number(const OperatorCall& call, const Rule* rule, GraphNode& node) {
    int tensor = 0;
    for (const c10::Argument& argument : call.op().schema().arguments()) {
      const c10::AliasInfo* alias = argument.alias_info();
      if (alias && alias->isWrite() && node.written < 0) node.written = tensor;
      if (argument.type()->isSubtypeOf(*c10::OptionalType::ofTensor())) ++tensor;
    }
    node.is_like_first = rule != nullptr && rule->composes_blocks;
    if (!is_numbered(call)) {
      node.is_like_first = true;
      return;
    }
    int64_t& count = is_backward_ ? graph_.num_backward : graph_.num_forward;
    uint64_t& mark = is_backward_ ? graph_.backward_mark : graph_.forward_mark;
    mark = with_name(count == 0 ? kNoNames : mark, call.name());
    node.number = count++ + (is_backward_ ? graph_.num_forward : 0);
  }

  static void set_form(const OperatorCall& call, const Rule* rule, GraphNode& node) {
    if (rule != nullptr && rule->make_form != nullptr) {
      rule->make_form(call, node.form);
      TRIREME_ASSERT(node.form.inputs.size() == call.tensors().size(), node.name, ": ",
                     node.form.inputs.size(), " of its tensors have a form");
      return;
    }
    for (size_t i = 0; i < call.tensors().size(); ++i)
      node.form.inputs.push_back(whole_dims(call.dims(i)));
  }

  static c10::IValue argument(const OperatorCall& call, const char* name) {
    const auto& arguments = call.op().schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].name() == name) return call[i];
    }
    return false;
  }

  // Leaves traced results on the stack.
  void compute(OperatorCall& call, const std::string& name) {
    const c10::FunctionSchema& schema = call.op().schema();
    if (schema.is_mutable()) return write(call);
    const OnBlocks on_blocks;
    if (const MakeResultSizes make = result_sizes_of(name)) {
      const auto results = make(call);
      torch::jit::drop(call.stack(), call.num_arguments());
      for (const ResultSizes& result : results) {
        call.stack().emplace_back(result.is_defined ? contiguous(result) : at::Tensor());
      }
      return;
    }
    to_meta(call);
    try {
      call.op().callBoxed(&call.stack());
    } catch (const c10::Error& error) {
      throw ConfigError(concat(name, place_in_module(), " cannot be traced without memory: ",
                               first_line(error.what_without_backtrace())));
    }
    for (size_t i = 0; i < schema.returns().size(); ++i) {
      c10::IValue& value = torch::jit::peek(call.stack(), i, schema.returns().size());
      if (value.isTensor() && value.toTensor().defined()) {
        value = traced(value.toTensor());
      } else if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& each : value.toTensorVector()) list.push_back(traced(each));
        value = std::move(list);
      }
    }
  }

  static at::Tensor contiguous(const ResultSizes& result) {
    return traced(meta_of_sizes(result.sizes, result.dtype));
  }
  static at::Tensor meta_of_sizes(at::IntArrayRef sizes, at::ScalarType dtype) {
    return at::empty(sizes, at::TensorOptions().dtype(dtype).device(c10::kMeta));
  }

  // An operator that writes its arguments: they become its results, with the sizes that `out=`
  // gives them.
  static void write(OperatorCall& call) {
    const auto& schema = call.op().schema();
    std::vector<at::Tensor> written;
    bool is_out = false;
    for (size_t i = 0; i < call.num_arguments(); ++i) {
      const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
      if (!alias || !alias->isWrite() || !call[i].isTensor()) continue;
      written.push_back(call[i].toTensor());
      is_out |= schema.arguments()[i].kwarg_only();
    }
    if (is_out) {
      const OnBlocks on_blocks;
      to_meta(call);
      call.op().callBoxed(&call.stack());
      for (size_t i = 0; i < written.size() && i < schema.returns().size(); ++i) {
        const at::Tensor& made =
            torch::jit::peek(call.stack(), i, schema.returns().size()).toTensor();
        c10::TensorImpl* impl = written[i].unsafeGetTensorImpl();
        if (placed(written[i]) && impl->sizes() != made.sizes())
          impl->set_sizes_and_strides(made.sizes(), made.strides());
      }
      torch::jit::drop(call.stack(), schema.returns().size());
    } else {
      torch::jit::drop(call.stack(), call.num_arguments());
    }
    for (size_t i = 0; i < schema.returns().size(); ++i) {
      call.stack().emplace_back(i < written.size() ? written[i] : at::Tensor());
    }
  }

  static std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

  std::string place_in_module() const {
    return current_module_.empty() ? "" : concat(" near ", current_module_);
  }

  // The module of the parameter that the node reads; otherwise where the forward was last; in
  // backward, where its forward ran. libtorch numbers the steps of backward as forward makes them.
  std::string module_of(const GraphNode& node) {
    if (is_backward_) {
      const auto now = torch::autograd::get_current_node();
      const auto found = now ? by_sequence_.find(now->sequence_nr()) : by_sequence_.end();
      if (found != by_sequence_.end()) current_module_ = found->second;
      return current_module_;
    }
    for (const int input : node.inputs) {
      const auto found = input < 0 ? modules_.end() : modules_.find(input);
      if (found != modules_.end()) current_module_ = found->second;
    }
    const uint64_t next = at::sequence_number::peek();
    if (next > 0) by_sequence_[next - 1] = current_module_;
    return current_module_;
  }
  // A view of a parameter belongs to its module.
  void follow(const GraphNode& node, int result) {
    const auto found = node.inputs.empty() ? modules_.end() : modules_.find(node.inputs.front());
    if (found != modules_.end()) modules_[result] = std::string(found->second);
  }

  int value_of(const at::Tensor& tensor) {
    const void* key = key_of(tensor);
    const auto found = values_.find(key);
    return found != values_.end() ? found->second : add_value(tensor, GraphValue::Kind::kGiven);
  }
  int add_value(const at::Tensor& tensor, GraphValue::Kind kind) {
    const int value = static_cast<int>(graph_.values.size());
    const c10::ScalarType dtype = tensor.scalar_type();
    const PlacedMeta* meta = placed(tensor);
    const bool is_named = kind == GraphValue::Kind::kGiven && meta != nullptr && meta->parameter;
    if (kind == GraphValue::Kind::kResult) made_.erase(meta);
    graph_.values.push_back({.kind = kind,
                             .name = is_named ? *meta->parameter : "",
                             .sizes = tensor.sizes().vec(),
                             .itemsize = static_cast<int64_t>(c10::elementSize(dtype)),
                             .is_floating = c10::isFloatingType(dtype)});
    values_[key_of(tensor)] = value;
    return value;
  }
  // Tensors that autograd saves are other TensorImpls with the same PlacedMeta. What is kept here
  // keeps its address from being used again, and is no tensor whose uses autograd counts.
  const void* key_of(const at::Tensor& tensor) {
    PlacedMeta* meta = placed(tensor);
    if (meta == nullptr) {
      if (kept_.insert(tensor.unsafeGetTensorImpl()).second) constants_.push_back(tensor);
      return tensor.unsafeGetTensorImpl();
    }
    if (kept_.insert(meta).second) {
      metas_.push_back(c10::intrusive_ptr<PlacedMeta>::reclaim_copy(meta));
    }
    return meta;
  }

  bool keeps_;
  bool is_backward_ = false;
  Graph graph_{};
  std::unordered_map<const void*, int> values_{};
  std::unordered_set<const void*> kept_{};
  std::unordered_set<const void*> made_{};  // without inputs of the step
  std::vector<c10::intrusive_ptr<PlacedMeta>> metas_{};
  std::vector<at::Tensor> constants_{};
  std::unordered_map<int, std::string> modules_{};  // of parameters and their views
  std::unordered_map<uint64_t, std::string> by_sequence_{};
  std::string current_module_{};
};

Graph trace_once(torch::nn::Module& module, const std::function<at::Tensor()>& loss) {
  Tracer tracer(/*keeps=*/true);
  for (const auto& each : module.named_parameters()) {
    tracer.name_parameter(each.key(), each.value());
    at::Tensor parameter = each.value();
    parameter.mutable_grad() = at::Tensor();
  }
  for (const at::Tensor& buffer : module.buffers()) tracer.add_buffer(buffer);
  {
    const ToSink to_sink(tracer);
    const at::Tensor value = loss();
    TRIREME_CHECK(value.defined() && value.numel() == 1 && value.requires_grad(),
                  "the traced loss is ", value.defined() ? concat(value.sizes()) : "undefined",
                  "; expected a scalar that depends on a parameter");
    tracer.begin_backward();
    torch::autograd::backward({value});
  }
  for (const auto& each : module.named_parameters()) {
    at::Tensor parameter = each.value();
    tracer.add_gradient(parameter, parameter.grad());
    parameter.mutable_grad() = at::Tensor();
  }
  return tracer.take();
}

}  // namespace

at::Tensor without_memory(at::IntArrayRef sizes, at::ScalarType dtype, const std::string* name) {
  register_rules();
  const OnBlocks on_blocks;
  at::Tensor tensor = traced(at::empty(sizes, at::TensorOptions().dtype(dtype).device(c10::kMeta)));
  placed(tensor)->parameter = name;
  return tensor;
}

Graph trace_step(torch::nn::Module& module, const std::function<at::Tensor()>& loss) {
  Graph graph = trace_once(module, loss);
  const std::string difference = first_difference(graph, trace_once(module, loss));
  TRIREME_CHECK(difference.empty(), "two steps of the module differ at ", difference,
                "; a plan needs steps that run the same operators");
  return graph;
}

void internal::run_without_memory(const std::function<void()>& run) {
  Tracer tracer(/*keeps=*/false);
  const ToSink to_sink(tracer);
  run();
}

}  // namespace trireme::spmd
