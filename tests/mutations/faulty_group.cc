#include "tests/mutations/faulty_group.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>

#include "tests/mutations/made.h"

namespace trireme::mutations {
namespace {

using comm::Collective;
using comm::WorkPtr;
using Kind = comm::Collective::Kind;
using Tensors = std::vector<at::Tensor>;

class NothingToDo final : public comm::Work {
 public:
  void wait() override {}
  bool wait_for(std::chrono::milliseconds /*limit*/) override { return true; }
  bool poll() override { return true; }
  void abort() override {}
  int source() const override { return -1; }
};

// -1 outside of backward.
int64_t backward_pass() { return torch::autograd::get_current_graph_task_id(); }

bool has_floats(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_floating_point() && tensor.numel() > 0;
}

class FaultyGroup final : public comm::Communicator {
 public:
  explicit FaultyGroup(std::unique_ptr<comm::Communicator> group) : group_(std::move(group)) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  const std::string& name() const override { return group_->name(); }
  bool reduces_in_rank_order() const override { return group_->reduces_in_rank_order(); }

  WorkPtr run(Collective call) override {
    const Mutation* const mutation = making(Mistake::kGroup);
    if (mutation == nullptr || size() == 1 || !is_meant(mutation->rule, call)) {
      return group_->run(std::move(call));
    }
    const int64_t number = next_number(mutation->rule);
    if (mutation->rule.index >= 0 && mutation->rule.index != number) {
      return group_->run(std::move(call));
    }
    const at::NoGradGuard no_gradient;
    ++made().times;
    return make(mutation->rule, std::move(call), number);
  }

  at::Tensor symmetric_empty(at::IntArrayRef sizes, c10::ScalarType dtype) override {
    return group_->symmetric_empty(sizes, dtype);
  }
  void abort(const std::string& reason) override { group_->abort(reason); }
  void add_wait(int peer, std::chrono::nanoseconds waited) override {
    group_->add_wait(peer, waited);
  }
  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override {
    std::unique_ptr<Communicator> part = group_->split(color, key, name);
    return part == nullptr ? nullptr : make_faulty_group(std::move(part));
  }

 private:
  bool is_meant(const GroupRule& rule, const Collective& call) const {
    if (call.kind != rule.kind || name().find(rule.group) == std::string::npos) return false;
    const at::Tensor& tensor = call.first_tensor();
    if (!has_floats(tensor)) return false;
    if (rule.elements > 0 && tensor.numel() != rule.elements) return false;
    if (tensor.numel() < rule.least || (rule.only_down && call.peer > rank())) return false;
    const bool is_backward = backward_pass() >= 0;
    return rule.pass == Pass::kAny || is_backward == (rule.pass == Pass::kBackward);
  }

  // The number of a call among those that match in the same pass.
  int64_t next_number(const GroupRule& rule) {
    const int64_t pass = rule.pass == Pass::kBackward ? backward_pass() : made().step.load();
    if (std::exchange(pass_, pass) != pass) num_in_pass_ = 0;
    return num_in_pass_++;
  }

  WorkPtr make(const GroupRule& rule, Collective call, int64_t number) {
    switch (rule.action) {
      case GroupAction::kSkip: return skip(call);
      case GroupAction::kScale: return scale(rule, std::move(call));
      case GroupAction::kRotate: return rotate(std::move(call));
      case GroupAction::kStale: return return_stale(std::move(call), number);
      case GroupAction::kLoseRow: return lose_row(std::move(call));
    }
    return group_->run(std::move(call));
  }

  WorkPtr skip(Collective& call) const {
    if (call.kind == Kind::kReduceScatter) call.data.copy_(call.inputs[rank()]);
    return std::make_shared<NothingToDo>();
  }

  WorkPtr scale(const GroupRule& rule, Collective call) const {
    call.data = call.data * rule.factor;
    return group_->run(std::move(call));
  }

  WorkPtr rotate(Collective call) const {
    Tensors inputs = call.inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const at::Tensor& next = call.inputs[(i + 1) % inputs.size()];
      if (next.sizes() == inputs[i].sizes()) inputs[i] = next;
    }
    call.inputs = std::move(inputs);
    return group_->run(std::move(call));
  }

  // Runs it here, even if it was to run behind.
  Tensors outputs_of(Collective call) const {
    call.options.background = false;
    Tensors outputs = call.outputs;
    group_->run(std::move(call))->wait();
    return outputs;
  }

  WorkPtr return_stale(Collective call, int64_t number) {
    const Tensors outputs = outputs_of(std::move(call));
    Tensors& before = before_[number];
    Tensors now;
    for (const at::Tensor& output : outputs) now.push_back(output.clone());
    for (size_t i = 0; i < before.size() && i < outputs.size(); ++i) {
      // Its own part may be the weights themselves.
      if (static_cast<int>(i) == rank() || before[i].sizes() != outputs[i].sizes()) continue;
      outputs[i].copy_(before[i]);
    }
    before = std::move(now);
    return std::make_shared<NothingToDo>();
  }

  WorkPtr lose_row(Collective call) const {
    const at::Tensor last = outputs_of(std::move(call)).back();
    if (last.dim() > 0 && last.size(0) > 0) last.select(0, last.size(0) - 1).zero_();
    return std::make_shared<NothingToDo>();
  }

  std::unique_ptr<comm::Communicator> group_;
  int64_t pass_ = -2;  // of the last call that matched
  int64_t num_in_pass_ = 0;
  std::map<int64_t, Tensors> before_;  // kStale: what a call gave in the step before
};

}  // namespace

std::unique_ptr<comm::Communicator> make_faulty_group(std::unique_ptr<comm::Communicator> group) {
  return std::make_unique<FaultyGroup>(std::move(group));
}

}  // namespace trireme::mutations
