#include "trireme/spmd/rule.h"

#include <algorithm>
#include <utility>

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/node.h>

#include "trireme/base/error.h"
#include "trireme/spmd/dispatch.h"

namespace trireme::spmd {
namespace {

constexpr const char* kRemedy =
    "; a plan needs steps that run what was traced: plan again for this model, or leave the plan "
    "out";

bool keeps_gradient() {
  const auto node = torch::autograd::get_current_node();
  return node && dynamic_cast<const torch::autograd::AccumulateGrad*>(node.get()) != nullptr;
}

}  // namespace

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
  if (OperatorSink* const sink = current_sink()) return sink->sum(tensor);
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

// Source: FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/
uint64_t with_name(uint64_t mark, std::string_view name) {
  const auto add = [&](unsigned char byte) { mark = (mark ^ byte) * 0x100000001b3; };
  for (const char letter : name) add(static_cast<unsigned char>(letter));
  add('\n');
  return mark;
}

bool is_numbered(const OperatorCall& call) {
  const std::string& name = call.op().schema().name();
  if (name == "aten::ones_like" || name == "aten::detach" || name == "aten::alias") return false;
  if (name == "aten::view" || name == "aten::_unsafe_view") {
    if (call[1].isIntList() && call.sizes(0) == c10::IntArrayRef(call[1].toIntVector()))
      return false;
  }
  return !keeps_gradient();
}

StepFollower::StepFollower(StepNotes notes)
    : notes_(std::move(notes)),
      places_(notes_.arguments.size()),
      is_placed_(notes_.arguments.size(), 0),
      forward_{"forward", 0, notes_.num_forward, notes_.forward_mark},
      backward_{"backward", notes_.num_forward, notes_.num_backward, notes_.backward_mark} {
  std::ranges::stable_sort(notes_.arguments, {}, &ArgumentNote::number);
  const auto is_forward = [&](const ArgumentNote& note) { return note.number < forward_.count; };
  backward_.first_note = static_cast<size_t>(std::ranges::count_if(notes_.arguments, is_forward));
  backward_.rewind();
}

void StepFollower::begin(bool follows) {
  TRIREME_CHECK(!is_forward_ || forward_.done == 0, "a step's forward has ended after ",
                forward_.done, " operators, and its plan has ", forward_.count, kRemedy);
  forward_.rewind();
  is_forward_ = follows;
  if (follows) return;
  backward_.rewind();
  backwards_to_come_ = 0;
}

void StepFollower::check_name(const ArgumentNote& note, const OperatorCall& call) const {
  const std::string name = call.name();
  TRIREME_CHECK(name == note.operation, "operator ", note.number, " of the step is ", name,
                ", and its plan has ", note.operation, " there", kRemedy);
  TRIREME_CHECK(note.argument >= 0 && note.argument < std::ssize(call.tensors()), "operator ",
                note.number, " of the step, ", name, ", has ", call.tensors().size(),
                " tensors, and its plan names number ", note.argument, kRemedy);
}

void StepFollower::next(OperatorCall& call) {
  if (!is_forward_ && backwards_to_come_ == 0) return;
  if (!is_numbered(call)) return;
  Pass& pass = is_forward_ ? forward_ : backward_;
  const int64_t number = pass.first + pass.done++;
  pass.mark = with_name(pass.mark, call.name());
  call.keep_places();
  for (; pass.note < notes_.arguments.size(); ++pass.note) {
    const ArgumentNote& note = notes_.arguments[pass.note];
    if (note.number != number) break;
    check_name(note, call);
    const auto argument = static_cast<size_t>(note.argument);
    if (!is_placed_[pass.note]) {
      places_[pass.note] = note.splits.evenly_on(
          *call.grid(), call.dims(argument),
          concat("argument ", note.argument, " of operator ", number, " of the plan"));
      is_placed_[pass.note] = 1;
    }
    call.want(argument, places_[pass.note]);
  }
  if (pass.done < pass.count) return;
  TRIREME_CHECK(pass.mark == pass.whole_mark, "the ", pass.count, " operators of the step's ",
                pass.name, " are others than its plan has", kRemedy);
  pass.rewind();
  backwards_to_come_ += is_forward_ ? 1 : -1;
  is_forward_ = false;
}

}  // namespace trireme::spmd
