// Rules: what each operator of torch does on placed tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "trireme/comm/communicator.h"
#include "trireme/spmd/form.h"
#include "trireme/spmd/placed_tensor.h"
#include "trireme/spmd/splits.h"
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
  // The strategy that is chosen is one that takes every argument from where it is, if there is one.
  void keep_places() { keeps_places_ = true; }
  bool keeps_places() const { return keeps_places_; }
  // A plan wants an argument there: the strategy is chosen as if it were. `places` outlives the
  // call.
  void want(size_t tensor, const Places& places) {
    if (arguments_[tensor].places != nullptr) arguments_[tensor].places = &places;
  }
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
  bool keeps_places_ = false;
};

// The mark of names and one more.
uint64_t with_name(uint64_t mark, std::string_view name);

// Not numbered: what autograd does or leaves out for reasons that no plan sees, when it begins a
// backward, keeps a gradient, or hands a tensor on as it is.
bool is_numbered(const OperatorCall& call);

// Follows the operators of the steps of one rank. Forwards and backwards of several microbatches
// may take turns: backwards are in the order of the forwards, and each runs without another.
// Thread safety: one thread at a time.
class StepFollower {
 public:
  explicit StepFollower(StepNotes notes);

  // A forward begins.
  // follows: false: one without backward, whose operators choose by themselves. Backwards that have
  //          not begun are given up
  // Throws:  ConfigError when the forward before has not run all of its operators
  void begin(bool follows);
  // The next operator: where it wants its arguments.
  // Throws: ConfigError when the plan has another one
  void next(OperatorCall& call);

 private:
  struct Pass {
    const char* name;
    int64_t first = 0, count = 0;  // numbers of its operators
    uint64_t whole_mark = kNoNames;
    size_t first_note = 0;
    int64_t done = 0;
    uint64_t mark = kNoNames;
    size_t note = 0;

    void rewind() { done = 0, mark = kNoNames, note = first_note; }
  };
  void check_name(const ArgumentNote& note, const OperatorCall& call) const;

  StepNotes notes_;
  std::vector<Places> places_{};  // of each note
  std::vector<char> is_placed_{};
  Pass forward_, backward_;
  bool is_forward_ = false;
  int64_t backwards_to_come_ = 0;
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
