// Each rank performs its list of the schedule, action by action. Two ranks, two microbatches, 1F1B
// (F forward, B backward; > sends and < announces activations A and gradients G):
//
//   rank 0    F0 >A0 F1 >A1 <G0 B0 <G1 B1
//   rank 1    <A0 F0 <A1 B0 >G0 F1 B1 >G1
//
//   time      0       1       2       3       4       5       6       7       8       9
//   rank 0    |  F0   |  F1   |               |      B0       |       |      B1       |
//   rank 1            |  F0   |      B0       |  F1   |      B1       |
//   moved             A0      A1              G0                      G1
//
// Who waits. A send hands its tensors to the group and returns. A recv says that tensors may come
// (StageExchange::start_recv()) and returns: A1 can travel while rank 1 computes B0. The rank waits
// in take(), where a forward or backward needs the tensors; the time of the action is measured
// after that. At its list's end it waits for its sends.
//
// No circle. All lists follow one order of all transfers and computations (schedule.cc), and
// check_schedule() has performed them with every send waiting for its recv. This executor waits for
// less, so it cannot wait in a circle either.
//
// A (stage, microbatch), and what is kept for it:
//
//             +------------------ backward ------------------+
//             |                                              v
//   forward --+--> backward input -----> backward weight --> over
//             |                       |
//      its graph, in the           what layers left in `deferred`;
//      StageRunner                 its key, in pending_weights_
//
// An output stays in exchange_ until a stage of this rank takes it or the schedule sends it. One
// that no stage reads stays in result_.
//
// Concurrency. One thread computes, and the group moves tensors behind it. A tensor's recv can
// start only when its header is there, so progress() looks for headers before each action. Then the
// tensors of later actions travel behind this one.
//
// Failure. A stage throws, or a wait does because a peer has died, is late or has aborted. The rank
// aborts the group, waits until its own transfers have ended, and drops graphs, deferred work and
// kept tensors. The other ranks find the group aborted at their next wait and do the same.
#include "trireme/parallel/pipeline/run/executor.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <set>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/ops/add.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/comm/objects.h"
#include "trireme/parallel/pipeline/run/stage_runner.h"
#include "trireme/parallel/pipeline/run/tensor_channel.h"

namespace trireme::parallel {

bool DeferredWork::defer(const at::Tensor& leaf, GradientFunction gradient) {
  if (!is_recording_) return false;
  items_[current_].push_back({leaf, std::move(gradient)});
  return true;
}

void DeferredWork::begin(const Key& key) {
  // A second one would mix the gradients of two microbatches.
  TRIREME_ASSERT(!is_recording_, "two input parts at once");
  current_ = key;
  is_recording_ = true;
}

void DeferredWork::clear() {
  is_recording_ = false;
  items_.clear();
}

void DeferredWork::run(const Key& key) {
  const auto found = items_.find(key);
  if (found == items_.end()) return;
  std::vector<Item> items = std::move(found->second);
  items_.erase(found);
  struct Sum {
    int uses_left = 0;
    at::Tensor gradient;
  };
  std::map<const void*, Sum> sums;
  for (const Item& item : items) ++sums[item.leaf.unsafeGetTensorImpl()].uses_left;
  const c10::NoGradGuard no_grad;
  for (Item& item : items) {
    Sum& sum = sums[item.leaf.unsafeGetTensorImpl()];
    at::Tensor gradient = item.gradient();
    // Activations are freed one by one, which is what the order of weight parts is chosen for.
    item.gradient = nullptr;  // and everything it keeps alive
    sum.gradient = sum.gradient.defined() ? at::add(sum.gradient, gradient) : std::move(gradient);
    // A leaf that is used several times gets one gradient: hooks count it as one.
    if (--sum.uses_left == 0) accumulate_gradient(item.leaf, std::move(sum.gradient));
  }
}

void accumulate_gradient(const at::Tensor& leaf, at::Tensor gradient) {
  TRIREME_ASSERT(leaf.is_leaf() && leaf.requires_grad(), "a gradient for a tensor that has none");
  const c10::NoGradGuard no_grad;
  const auto accumulate = torch::autograd::impl::grad_accumulator(leaf);
  torch::autograd::variable_list gradients;
  gradients.push_back(std::move(gradient));
  (*accumulate)(std::move(gradients));
}

namespace {

using Clock = std::chrono::steady_clock;
using Key = std::pair<int, int>;  // stage, microbatch

}  // namespace

class PipelineExecutor::Engine {
 public:
  Engine(comm::Communicator& group, std::vector<PipelineStage> stages, Schedule schedule,
         PipelineOptions options)
      : group_(group),
        options_(std::move(options)),
        graph_(std::move(stages), options_.fed),
        schedule_(complete(std::move(schedule))),
        evaluation_(forward_only(schedule_)),
        exchange_(group, graph_, schedule_, options_.timeout, options_.device) {
    if (!options_.loss.empty()) graph_.check_loss(options_.loss);
    check_agreement();
    // Checked before a stage runs: an error of names would show as a rank that waits.
    for (int stage = 0; stage < schedule_.num_stages(); ++stage) {
      if (is_local(stage)) runners_.emplace(stage, graph_.stages()[stage]);
    }
  }

  PipelineResult run(const Schedule& schedule, const Feed& feed, bool keeps_graph, double seed) {
    result_ = {};
    result_.profile.begin = Clock::now();
    keeps_graph_ = keeps_graph;
    seed_ = seed;
    exchange_.channel().reset_counts();
    try {
      for (const Action& action : schedule.actions[group_.rank()]) {
        // Cheap, and between actions is the only time.
        exchange_.channel().progress();
        perform(action, feed);
      }
      exchange_.channel().finish_sends();
    } catch (const std::exception& error) {
      // The other ranks would wait for tensors that never come.
      abandon(concat("pipeline: rank ", group_.rank(), " failed: ", error.what()));
      throw;
    }
    result_.profile.waiting = exchange_.channel().waiting();
    result_.profile.bytes_sent = exchange_.channel().bytes_sent();
    return std::move(result_);
  }

  const Schedule& schedule() const { return schedule_; }
  const Schedule& evaluation() const { return evaluation_; }

 private:
  bool is_local(int stage) const { return schedule_.rank_of_stage[stage] == group_.rank(); }

  // The schedule's computations with the transfers of the stages' own edges, checked.
  Schedule complete(Schedule schedule) const {
    TRIREME_CHECK(schedule.num_ranks() == group_.size(), "schedule ", schedule.name, " is for ",
                  schedule.num_ranks(), " ranks; group ", group_.name(), " has ", group_.size());
    TRIREME_CHECK(schedule.num_stages() == std::ssize(graph_.stages()), "schedule ", schedule.name,
                  " is for ", schedule.num_stages(), " stages; there are ", graph_.stages().size());
    schedule = with_transfers(std::move(schedule), graph_.edges());
    check_schedule(schedule);
    return schedule;
  }

  // Ranks with different lists or edges would wait for what never comes.
  void check_agreement() const {
    const std::string text =
        concat(schedule_.fingerprint(), ", loss ", options_.loss, ", ", graph_.describe());
    const std::vector<std::string> all = comm::all_gather_strings(group_, text);
    for (size_t rank = 0; rank < all.size(); ++rank) {
      TRIREME_CHECK(all[rank] == all[0], "rank ", rank, " of group ", group_.name(),
                    " has a different pipeline from rank 0: ", all[rank], " against ", all[0]);
    }
  }

  void perform(const Action& action, const Feed& feed) {
    switch (action.kind) {
      case ActionKind::kForward: return forward(action, feed);
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput: return backward(action);
      case ActionKind::kBackwardWeight: return backward_weight(action);
      case ActionKind::kSendActivation:
      case ActionKind::kSendGradient: return exchange_.send(parcel_of(action));
      case ActionKind::kRecvActivation:
      case ActionKind::kRecvGradient: return exchange_.start_recv(parcel_of(action));
    }
  }

  // A stage's inputs, fed or from earlier stages. Waits for those that come from other ranks.
  std::vector<EdgeTensor> take_inputs(int stage, int microbatch, const Feed& feed) {
    std::vector<EdgeTensor> inputs(graph_.stages()[stage].inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!graph_.is_fed({stage, i})) continue;
      const std::string& edge = graph_.stages()[stage].inputs[i];
      inputs[i].value = feed(edge, microbatch);
      TRIREME_CHECK(inputs[i].value.defined(), "nothing was fed to edge \"", edge,
                    "\" for microbatch ", microbatch);
    }
    for (const StageEdge& edge : schedule_.edges) {
      if (edge.to != stage) continue;
      std::vector<EdgeTensor> list = exchange_.take({edge, microbatch, false});
      const std::vector<StagePort> ports = graph_.inputs_between(edge);
      for (size_t i = 0; i < ports.size(); ++i) inputs[ports[i].index] = std::move(list[i]);
    }
    // Waits here, after everything that could be done without them.
    return inputs;
  }

  void forward(const Action& action, const Feed& feed) {
    std::vector<EdgeTensor> inputs = take_inputs(action.stage, action.microbatch, feed);
    std::vector<EdgeTensor> outputs;
    timed(action, [&] {
      outputs =
          runners_.at(action.stage).forward(action.microbatch, std::move(inputs), keeps_graph_);
    });
    for (const StageEdge& edge : schedule_.edges) {
      if (edge.from != action.stage) continue;
      std::vector<EdgeTensor> list;
      for (const StagePort& input : graph_.inputs_between(edge))
        list.push_back(outputs[graph_.source(input).index]);
      exchange_.put({edge, action.microbatch, false}, std::move(list));
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!graph_.readers({action.stage, i}).empty()) continue;
      auto& results = result_.outputs[graph_.stages()[action.stage].outputs[i]];
      results.resize(static_cast<size_t>(schedule_.num_microbatches));
      results[action.microbatch] = std::move(outputs[i].value);
    }
    count_live();
  }

  // Per output: the sum of the gradients of the stages that read it, the last stage first, whatever
  // the order of arrival; the seed for the loss. Undefined where no gradient comes.
  std::vector<at::Tensor> take_gradients(int stage, int microbatch) {
    const std::vector<std::string>& names = graph_.stages()[stage].outputs;
    std::vector<at::Tensor> gradients(names.size());
    // From the last edge: an order that does not depend on when gradients arrive.
    for (auto edge = schedule_.edges.rbegin(); edge != schedule_.edges.rend(); ++edge) {
      if (edge->from != stage) continue;
      std::vector<EdgeTensor> list = exchange_.take({*edge, microbatch, true});
      const std::vector<StagePort> ports = graph_.inputs_between(*edge);
      for (size_t i = 0; i < ports.size(); ++i) {
        // A stage that does not use an input sends nothing for it.
        if (!list[i].value.defined()) continue;
        at::Tensor& sum = gradients[graph_.source(ports[i]).index];
        sum = sum.defined() ? sum + list[i].value : std::move(list[i].value);
      }
    }
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] != options_.loss) continue;
      const at::Tensor& loss = result_.outputs.at(names[i])[microbatch];
      TRIREME_CHECK(loss.numel() == 1, "the loss of microbatch ", microbatch, " has shape ",
                    loss.sizes(), "; expected a scalar");
      gradients[i] = at::full_like(loss, seed_);
    }
    return gradients;
  }

  void backward(const Action& action) {
    const Key key{action.stage, action.microbatch};
    std::vector<at::Tensor> gradients = take_gradients(action.stage, action.microbatch);
    std::vector<at::Tensor> results;
    const bool splits = action.kind == ActionKind::kBackwardInput;
    const bool defers = splits && options_.deferred != nullptr;
    timed(action, [&] {
      // The time of the action is that of its computation; transfers are not in it.
      if (defers) options_.deferred->begin(key);
      around(options_.around_backward, action, [&] {
        results = runners_.at(action.stage).backward(action.microbatch, std::move(gradients));
      });
      if (defers) options_.deferred->end();
    });
    if (splits) pending_weights_.insert(key);
    for (const StageEdge& edge : schedule_.edges) {
      if (edge.to != action.stage) continue;
      std::vector<EdgeTensor> list;
      for (const StagePort& input : graph_.inputs_between(edge))
        list.push_back({std::move(results[input.index]), false});
      exchange_.put({edge, action.microbatch, true}, std::move(list));
    }
  }

  void backward_weight(const Action& action) {
    timed(action, [&] {
      around(options_.around_backward_weight, action, [&] {
        if (options_.deferred != nullptr) options_.deferred->run({action.stage, action.microbatch});
      });
    });
    pending_weights_.erase({action.stage, action.microbatch});
  }

  static void around(const AroundBackward& wrapper, const Action& action,
                     const std::function<void()>& work) {
    if (wrapper) return wrapper(action.stage, action.microbatch, work);
    work();
  }

  void timed(const Action& action, const std::function<void()>& work) {
    const double start = seconds_since(result_.profile.begin);
    work();
    result_.profile.actions.push_back({action, start, seconds_since(result_.profile.begin)});
  }

  // After a forward: nothing else adds to what is live.
  void count_live() {
    size_t live = 0;
    for (const auto& [stage, runner] : runners_) live += runner.num_live();
    PeakActivations& peak = result_.profile.peak;
    peak.until_backward = std::max(peak.until_backward, static_cast<int>(live));
    peak.until_weight =
        std::max(peak.until_weight, static_cast<int>(live + pending_weights_.size()));
  }

  // Ends all transfers first: their tensors must stay until then.
  void abandon(const std::string& reason) {
    exchange_.channel().abort(reason);
    for (auto& [stage, runner] : runners_) runner.clear();
    if (options_.deferred != nullptr) options_.deferred->clear();
    exchange_.clear();
    pending_weights_.clear();
  }

  comm::Communicator& group_;
  PipelineOptions options_;
  StageGraph graph_;
  Schedule schedule_;
  Schedule evaluation_;
  StageExchange exchange_;
  std::map<int, StageRunner> runners_;  // of this rank's stages

  // State of the run under way:
  bool keeps_graph_ = true;
  double seed_ = 1;
  PipelineResult result_;
  std::set<Key> pending_weights_;  // input part done, weight part to come
};

PipelineExecutor::PipelineExecutor(comm::Communicator& group, std::vector<PipelineStage> stages,
                                   Schedule schedule, PipelineOptions options)
    : engine_(std::make_unique<Engine>(group, std::move(stages), std::move(schedule),
                                       std::move(options))) {}
PipelineExecutor::~PipelineExecutor() = default;

PipelineResult PipelineExecutor::run(const Feed& feed, double seed) {
  return engine_->run(engine_->schedule(), feed, true, seed);
}

PipelineResult PipelineExecutor::evaluate(const Feed& feed) {
  return engine_->run(engine_->evaluation(), feed, false, 1);
}

const Schedule& PipelineExecutor::schedule() const { return engine_->schedule(); }

}  // namespace trireme::parallel
