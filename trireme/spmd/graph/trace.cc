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
#include "trireme/spmd/placed_tensor.h"

namespace trireme::spmd {
namespace {

using torch::jit::Stack;

at::Tensor traced(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  auto keys = c10::DispatchKeySet(c10::computeDispatchKey(dtype, c10::Layout::Strided, c10::kCPU));
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      keys.add(kPlacedKey), c10::scalarTypeToTypeMeta(dtype), c10::Device(c10::kCPU));
  impl->set_sizes_and_strides(sizes, strides);
  impl->set_backend_meta(c10::make_intrusive<PlacedMeta>(nullptr, at::Tensor(), Places()));
  return at::Tensor(std::move(impl));
}
at::Tensor traced(const at::Tensor& meta) {
  return traced(meta.sizes(), meta.strides(), meta.scalar_type());
}
at::Tensor meta_of(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  return at::empty_strided(sizes, strides, at::TensorOptions().dtype(dtype).device(c10::kMeta));
}
at::Tensor meta_of(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_meta()) return tensor;
  return meta_of(tensor.sizes(), tensor.strides(), tensor.scalar_type());
}

bool is_any_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::ranges::any_of(names, [&](const char* each) {
    return name.compare(6, std::string::npos, each) == 0;  // behind "aten::"
  });
}

WorkKind work_of(const std::string& name) {
  if (!name.starts_with("aten::")) return WorkKind::kElements;
  if (is_any_of(name, {"mm", "addmm", "bmm", "baddbmm", "mv", "dot"})) return WorkKind::kProduct;
  if (is_any_of(name, {"convolution"})) return WorkKind::kConvolution;
  if (is_any_of(name, {"convolution_backward"})) return WorkKind::kConvolutionBackward;
  if (is_any_of(name, {"embedding", "index_select", "gather"})) return WorkKind::kLookUp;
  if (name.starts_with("aten::_scaled_dot_product")) {
    return name.ends_with("_backward") ? WorkKind::kAttentionBackward : WorkKind::kAttention;
  }
  if (is_any_of(name,
                {"view", "_unsafe_view", "t", "transpose.int", "permute", "unsqueeze", "squeeze",
                 "squeeze.dim", "squeeze.dims", "expand", "detach", "alias", "slice.Tensor",
                 "select.int", "split.Tensor", "split_with_sizes", "empty_like", "unbind.int"})) {
    return WorkKind::kView;
  }
  return WorkKind::kElements;
}

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
    const int value = add_value(tensor, GraphValue::Kind::kParameter);
    graph_.values[value].name = name;
    const size_t dot = name.rfind('.');
    modules_[value] = dot == std::string::npos ? "" : name.substr(0, dot);
  }
  void begin_backward() { is_backward_ = true; }
  void add_gradient(const at::Tensor& parameter, const at::Tensor& gradient) {
    if (gradient.defined()) graph_.gradients.push_back({value_of(parameter), value_of(gradient)});
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

 private:
  void record(OperatorCall& call, const std::string& name, const Rule* rule) {
    GraphNode node;
    const bool makes = call.tensors().empty();
    const bool wants_node = keeps_ && !makes;
    if (wants_node) {
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
    if (!wants_node) return;
    const int number = static_cast<int>(graph_.nodes.size());
    for (size_t i = 0; i < num_results; ++i) {
      const c10::IValue& value = torch::jit::peek(call.stack(), i, num_results);
      const auto add = [&](const at::Tensor& tensor) {
        if (!placed(tensor)) return;
        const int result = add_value(tensor, GraphValue::Kind::kResult);
        graph_.values[result].producer = number;
        if (node.work == WorkKind::kView) follow(node, result);
        node.outputs.push_back(result);
        node.output_forms.push_back(static_cast<int>(i));
      };
      if (value.isTensor()) add(value.toTensor());
      if (value.isTensorList()) {
        for (const at::Tensor& each : value.toTensorVector()) add(each);
      }
    }
    node.form.outputs.resize(std::max(node.form.outputs.size(), num_results));
    graph_.nodes.push_back(std::move(node));
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
    graph_.values.push_back({.kind = kind,
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

at::Tensor without_memory(at::IntArrayRef sizes, at::ScalarType dtype) {
  register_rules();
  const OnBlocks on_blocks;
  return traced(at::empty(sizes, at::TensorOptions().dtype(dtype).device(c10::kMeta)));
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
