// Rules: what each operator of torch does on placed tensors.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "trireme/comm/communicator.h"
#include "trireme/spmd/form.h"
#include "trireme/spmd/placed_tensor.h"
#include "trireme/spmd/strategy.h"

namespace trireme::spmd {

// An operator's call: its arguments on torch's stack. Tensors are those of the caller until the
// strategy is chosen, then this rank's blocks.
class OperatorCall {
 public:
  // Throws: ConfigError when tensors lie on different grids
  OperatorCall(const c10::OperatorHandle& op, torch::jit::Stack& stack);

  const c10::OperatorHandle& op() const { return op_; }
  torch::jit::Stack& stack() const { return stack_; }
  std::string name() const;       // "aten::add.Tensor"
  std::string described() const;  // with sizes and places, for errors
  size_t num_arguments() const { return num_arguments_; }
  c10::IValue& operator[](size_t i) const { return torch::jit::peek(stack_, i, num_arguments_); }
  const GridPtr& grid() const { return grid_; }

  // All tensor arguments in order: elements of lists one by one, undefined ones too.
  c10::ArrayRef<at::Tensor> tensors() const { return tensors_; }
  c10::IntArrayRef sizes(size_t tensor) const { return tensors_[tensor].sizes(); }
  int64_t dims(size_t tensor) const {
    return tensors_[tensor].defined() ? tensors_[tensor].dim() : 0;
  }
  // tensors()[i], as torch's functions take tensors that may be missing
  std::optional<at::Tensor> optional_tensor(size_t i) const;
  c10::ArrayRef<Argument> arguments() const { return arguments_; }
  // Puts blocks in the place of the tensors on the stack; tensors() stay.
  void replace_tensors(c10::ArrayRef<at::Tensor> blocks);
  // Takes the arguments from the stack and puts a result there.
  void finish(c10::IValue result) const;
  void finish(std::initializer_list<at::Tensor> results) const;
  // Takes the arguments from the stack and puts there what the operator makes of them.
  void run_operator() const;

 private:
  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  size_t num_arguments_;
  GridPtr grid_;
  c10::SmallVector<at::Tensor, 4> tensors_;
  c10::SmallVector<Argument, 4> arguments_;
};

struct Rule {
  // What the operator does to dimensions. Reads the call's arguments; the same on every rank.
  using MakeForm = void (*)(const OperatorCall& call, Form& form);
  // Changes arguments such as sizes to those of the blocks, before the operator runs on them.
  using Adjust = void (*)(OperatorCall& call, const Form& form, const Strategy& strategy);
  // The operator in terms of others, on the caller's tensors. Takes the arguments from the stack
  // and leaves the results; or returns false, so that the form is used.
  using Compose = bool (*)(const OperatorCall& call);

  std::string name;         // "aten::add.Tensor"
  const char* splits = "";  // what may be split, for docs/reference/operators.md
  MakeForm make_form = nullptr;
  Adjust adjust = nullptr;
  // In place of the operator, on the blocks.
  Adjust run = nullptr;
  Compose compose = nullptr;
  // Whether compose works on blocks, by itself: a trace, which has none, takes the form.
  bool composes_blocks = false;
};
using Rules = std::vector<Rule>;

// One function per kind of operator, in rules/.
void add_pointwise_rules(Rules& rules);
void add_contraction_rules(Rules& rules);
void add_reduction_rules(Rules& rules);
void add_view_rules(Rules& rules);
void add_arrangement_rules(Rules& rules);
void add_norm_rules(Rules& rules);
void add_image_rules(Rules& rules);
void add_index_rules(Rules& rules);
void add_embedding_rules(Rules& rules);
void add_loss_rules(Rules& rules);
void add_random_rules(Rules& rules);
void add_recurrent_rules(Rules& rules);
void add_factory_rules(Rules& rules);
void add_optimizer_rules(Rules& rules);

// Dense strides for a result of the sizes of tensor `model`: in its order, or as the argument
// `memory_format` says.
c10::SmallVector<int64_t, 6> strides_of_result(const OperatorCall& call, size_t model);
// Partial sums become whole ones; the rest of the placement stays.
// Collective: as redistribute()
at::Tensor summed(const at::Tensor& tensor);
// Reduces `data` of all ranks of the axes that split `dim`, in place.
// Collective: their groups
void sum_over_splits(const Grid& grid, const Places& places, int dim, at::Tensor& data,
                     comm::ReduceOp operation = comm::ReduceOp::kSum);

}  // namespace trireme::spmd
