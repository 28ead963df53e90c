#include "trireme/spmd/rule.h"

#include "trireme/base/error.h"

namespace trireme::spmd {

OperatorCall::OperatorCall(const c10::OperatorHandle& op, torch::jit::Stack& stack)
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
}

std::string OperatorCall::name() const {
  const auto& schema = op_.schema();
  return schema.overload_name().empty() ? schema.name()
                                        : concat(schema.name(), ".", schema.overload_name());
}

std::string OperatorCall::described() const {
  std::string text = name() + "(";
  bool is_first = true;
  for (const at::Tensor& tensor : tensors_) {
    if (!tensor.defined()) continue;
    if (!is_first) text += ", ";
    is_first = false;
    const PlacedMeta* meta = placed(tensor);
    text += concat(tensor.sizes(),
                   meta && meta->grid ? " " + to_string(*meta->grid, meta->places) : "");
  }
  return text + ")";
}

std::optional<at::Tensor> OperatorCall::optional_tensor(size_t i) const {
  return tensors_[i].defined() ? std::optional(tensors_[i]) : std::nullopt;
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

void OperatorCall::finish(std::initializer_list<at::Tensor> results) const {
  torch::jit::drop(stack_, num_arguments_);
  for (const at::Tensor& result : results) stack_.emplace_back(result);
}

void OperatorCall::run_operator() const { op_.callBoxed(&stack_); }

c10::SmallVector<int64_t, 6> strides_of_result(const OperatorCall& call, size_t model) {
  const at::Tensor& tensor = call.tensors()[model];
  c10::DimVector order(tensor.strides());
  const auto& arguments = call.op().schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() != "memory_format" || call[i].isNone()) continue;
    const auto format = call[i].toMemoryFormat();
    if (format == at::MemoryFormat::Contiguous) order = c10::contiguous_strides(tensor.sizes());
    if (format == at::MemoryFormat::ChannelsLast && tensor.dim() == 4)
      order = c10::DimVector(c10::get_channels_last_strides_2d(tensor.sizes()));
    if (format == at::MemoryFormat::ChannelsLast3d && tensor.dim() == 5)
      order = c10::DimVector(c10::get_channels_last_strides_3d(tensor.sizes()));
  }
  return dense_strides(tensor.sizes(), order);
}

at::Tensor summed(const at::Tensor& tensor) {
  const PlacedMeta* meta = placed(tensor);
  if (!meta) return tensor;
  Places whole = meta->places;
  for (Place& place : whole) {
    if (place.is_partial()) place = Place();
  }
  if (whole == meta->places) return tensor;
  return place_block(meta->grid, local_under(meta->grid, tensor, whole), whole, tensor.sizes(),
                     dense_strides(tensor.sizes(), tensor.strides()));
}

void sum_over_splits(const Grid& grid, const Places& places, int dim, at::Tensor& data,
                     comm::ReduceOp operation) {
  for (int axis = 0; axis < grid.num_axes(); ++axis) {
    if (!places[axis].is_sharded(dim)) continue;
    grid.group(axis).all_reduce(data, {.operation = operation})->wait();
  }
}

}  // namespace trireme::spmd
