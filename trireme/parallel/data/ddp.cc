// Length: one class for DDP and ZeRO-1 to 3, which share their construction and their step.
#include "trireme/parallel/data/ddp.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/base/gradient_place.h"
#include "trireme/parallel/data/bucket_plan.h"
#include "trireme/parallel/data/gradient_reducer.h"
#include "trireme/parallel/data/same_module.h"
#include "trireme/parallel/data/sharded_weights.h"
#include "trireme/parallel/data/unit_runner.h"

namespace trireme::parallel {

// The engine ties autograd to the reducer and, with ZeRO-3, to the runner of units. A
// post-accumulate hook per parameter says when its gradient is there; everything else follows from
// begin_step() and the count of microbatches. Parameters must be the same on all ranks before the
// first step, so the constructor compares and broadcasts them before buckets are made of them.
// Weights are gathered over a split of the shard group: gathers and gradient sums then each keep
// their own order, though they overlap in time. With a schedule that splits backward (zero-bubble),
// gradients of the input part are held in waiting_ and given to the reducer in the weight part,
// because a microbatch counts only when both are done.

class DistributedDataParallel::Engine {
 public:
  Engine(torch::nn::Module& module, comm::Communicator& shard, comm::Communicator* replica,
         DdpOptions options);
  ~Engine();

  const std::vector<Shard>& shards() const { return shards_; }
  int64_t begin_step(int64_t local_count, int64_t num_microbatches);
  void begin_forward(int64_t microbatch);
  at::Tensor run(size_t unit, const at::Tensor& x, const UnitForward& forward);
  void backward(const at::Tensor& loss_sum, double scale);
  void run_backward(const std::function<void()>& autograd, int64_t microbatch);
  void run_input_backward(int64_t microbatch, const std::function<void()>& autograd);
  void run_weight_backward(int64_t microbatch, const std::function<void()>& weights);
  void spread_weights(bool with_frozen);
  void gather_parameters();
  void release_parameters();
  std::chrono::nanoseconds communication_time() const;
  int64_t gradient_bytes() const { return reducer_->bytes_sent(); }
  double microbatch_squares() const { return reducer_->microbatch_squares(); }
  DataParallelMemory memory(int64_t num_microbatches) const;

 private:
  struct Hook;

  // The engine whose hook the parameter has; null: none.
  static const Engine* owner_of(const at::Tensor& parameter);
  void make_weights(comm::Communicator& shard);
  void make_reducer();
  void make_shards();
  void fill_shards(const std::set<size_t>& unfilled);
  at::Tensor place_of(size_t parameter);
  void on_gradient(size_t parameter);
  void run_autograd(const std::function<void()>& autograd, int64_t microbatch);
  void end_microbatch();
  int64_t sum_over_ranks(int64_t value);

  DdpOptions options_;
  GradientGroups groups_;                             // shard is null without ZeRO
  std::unique_ptr<comm::Communicator> gather_group_;  // gathers keep their own order
  BucketPlan plan_;
  std::optional<ShardedWeights> weights_;             // with ZeRO
  std::optional<UnitRunner> runner_;                  // ZeRO-3
  std::vector<std::vector<size_t>> trained_buckets_;  // by unit: bucket numbers in the reducer
  std::optional<GradientReducer> reducer_;
  std::vector<Shard> shards_;
  std::vector<at::Tensor> module_gradients_;  // without ZeRO: what .grad shows, by parameter
  int64_t global_count_ = 0;
  int64_t backwards_left_ = 0;  // of this step, not yet run by autograd
  // Gradients of microbatches whose weight part has not run yet: parameter and gradient.
  using Gradients = std::vector<std::pair<size_t, at::Tensor>>;
  std::map<int64_t, Gradients> waiting_;
  Gradients* waits_ = nullptr;  // takes gradients now; null: the reducer does
  std::chrono::nanoseconds communication_time_{0};
};

// Called by autograd after a parameter's gradient has been accumulated.
struct DistributedDataParallel::Engine::Hook : GradientTaker {
  Hook(Engine& engine, size_t index) : engine(engine), index(index) {}
  at::Tensor place() override { return engine.place_of(index); }
  void operator()(const torch::autograd::Variable&) override { engine.on_gradient(index); }
  Engine& engine;
  size_t index;
};

const DistributedDataParallel::Engine* DistributedDataParallel::Engine::owner_of(
    const at::Tensor& parameter) {
  const auto* hook = dynamic_cast<const Hook*>(taker_of(parameter));
  return hook == nullptr ? nullptr : &hook->engine;
}

DistributedDataParallel::Engine::Engine(torch::nn::Module& module, comm::Communicator& shard,
                                        comm::Communicator* replica, DdpOptions options)
    : options_(std::move(options)) {
  check_options(options_, replica != nullptr);
  if (options_.zero > 0) {
    groups_ = {&shard, replica};
  } else {
    // Without ZeRO the one group only replicates.
    TRIREME_CHECK(replica == nullptr, "replicas of a shard group need zero = 1, 2 or 3");
    groups_ = {nullptr, &shard};
  }
  for (comm::Communicator* group : {groups_.shard, groups_.replica}) {
    if (group == nullptr) continue;
    check_same_module(module, *group, options_.selects);
    broadcast_module(module, *group, options_.selects);
  }
  plan_ = plan_buckets(module, {.selects = options_.selects,
                                .units = options_.units,
                                // A bucket of ZeRO-3 is released as a whole, so it must not span
                                // units.
                                .apart = options_.zero >= 3,
                                .bucket_bytes = options_.bucket_bytes,
                                .partition = {.num_ranks = groups_.shard_size(),
                                              .whole_parameters = options_.whole_parameters}});
  for (size_t i = 0; i < plan_.parameters.size(); ++i) {
    TRIREME_CHECK(owner_of(plan_.parameters[i]) == nullptr, "parameter \"", plan_.names[i],
                  "\" is in another DistributedDataParallel; destroy that first");
  }
  std::set<size_t> unfilled;
  for (size_t i = 0; i < plan_.parameters.size(); ++i) {
    if (!has_memory(plan_.parameters[i])) unfilled.insert(i);
  }
  TRIREME_CHECK(unfilled.empty() || (options_.zero > 0 && options_.initialise),
                "parameters have no memory; that needs zero = 1, 2 or 3 and a function that fills "
                "their parts");
  if (options_.zero > 0) make_weights(shard);
  make_reducer();
  make_shards();
  if (!unfilled.empty()) fill_shards(unfilled);
  for (size_t i = 0; i < plan_.parameters.size(); ++i) {
    if (!plan_.parameters[i].requires_grad()) continue;
    // Not a tensor hook: a parameter that is used twice has one gradient with both.
    torch::autograd::impl::set_post_acc_grad_hooks(plan_.parameters[i],
                                                   std::make_unique<Hook>(*this, i));
  }
}

DistributedDataParallel::Engine::~Engine() {
  // Hooks hold a reference to this engine.
  // Including parameters that have been frozen since.
  for (const at::Tensor& parameter : plan_.parameters) {
    if (owner_of(parameter) == this)
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  }
}

void DistributedDataParallel::Engine::make_weights(comm::Communicator& shard) {
  gather_group_ = shard.split(0, shard.rank(), shard.name() + ".gather");
  std::vector<ShardedWeights::BucketWeights> buckets;
  std::vector<UnitRunner::UnitBuckets> units(options_.units.size());
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    const size_t unit = plan_.units[b];
    buckets.push_back({&plan_.buckets[b], plan_.cuts[b], unit != kNoUnit});
    if (unit != kNoUnit) units[unit].buckets.push_back(b);
  }
  weights_.emplace(plan_.parameters, std::move(buckets), *gather_group_, options_.symmetric,
                   options_.weights_home.get());
  if (options_.zero < 3) return;
  for (size_t u = 0; u < units.size(); ++u) {
    units[u].weights_in_backward = options_.units[u].weights_in_backward;
  }
  runner_.emplace(*weights_, std::move(units),
                  UnitOptions{options_.max_gathered_units, options_.overlap}, [this](size_t unit) {
                    // While parts remain, nothing is complete. The end of the last part says so.
                    if (waits_ != nullptr) return;
                    for (const size_t bucket : trained_buckets_[unit]) reducer_->complete(bucket);
                  });
}

void DistributedDataParallel::Engine::make_reducer() {
  std::vector<const Bucket*> trained;
  std::vector<std::vector<int64_t>> cuts;
  trained_buckets_.resize(options_.units.size());
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    if (!plan_.buckets[b].is_trained) continue;
    const size_t unit = plan_.units[b];
    if (unit != kNoUnit) trained_buckets_[unit].push_back(trained.size());
    trained.push_back(&plan_.buckets[b]);
    cuts.push_back(plan_.cuts[b]);
  }
  reducer_.emplace(plan_.parameters, trained, std::move(cuts), groups_,
                   ReducerOptions{.overlap = options_.overlap,
                                  .symmetric = options_.symmetric,
                                  .keep_part_alone = options_.zero >= 2,
                                  .rank_first = options_.rank_first,
                                  .add_in_fp32 = options_.add_in_fp32,
                                  .tree = options_.reproducible,
                                  .reduce_in_fp32 = options_.reduce_in_fp32,
                                  .hook = options_.hook.get(),
                                  .home = options_.gradients_home.get(),
                                  .names = plan_.names,
                                  .measure_squares = options_.measure_squares,
                                  .complete_when_told = runner_ && !options_.units.empty()});
}

void DistributedDataParallel::Engine::make_shards() {
  std::vector<std::optional<Shard>> shards(plan_.parameters.size());
  module_gradients_.resize(plan_.parameters.size());
  size_t trained = 0;
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    const Bucket& bucket = plan_.buckets[b];
    const at::Tensor gradient = bucket.is_trained ? reducer_->part(trained++) : at::Tensor();
    for (size_t i = 0; i < bucket.parameters.size(); ++i) {
      const size_t index = bucket.parameters[i];
      const at::Tensor& parameter = plan_.parameters[index];
      mesh::Layout layout = layout_of(bucket, i, parameter.sizes(), plan_.cuts[b]);
      if (options_.outer_layout) {
        const auto [outer, rank] = options_.outer_layout(plan_.names[index]);
        // A tensor-parallel layout lies outside of the shards: the checkpoint needs both.
        layout = layout.inside(outer, rank);
      }
      const auto view = [&](const at::Tensor& part) {
        return view_shard(bucket, i, layout, plan_.cuts[b], groups_.shard_rank(), part);
      };
      at::Tensor weights = parameter.detach().view(layout.shape());
      if (weights_) weights = view(weights_->part(b));
      Shard shard{.name = plan_.names[index],
                  .weights = std::move(weights),
                  .layout = layout,
                  .rank = layout.num_ranks() == 1 ? 0 : groups_.shard_rank(),
                  .is_trained = bucket.is_trained};
      if (plan_.units[b] != kNoUnit) shard.weights_home = options_.weights_home.get();
      if (gradient.defined()) {
        shard.gradient = view(gradient);
        shard.gradient_home = options_.gradients_home.get();
        if (!weights_) module_gradients_[index] = shard.gradient.view(parameter.sizes());
        // The optimizer reads .grad, which must have the weights' dtype.
        if (shard.gradient.scalar_type() == shard.weights.scalar_type() &&
            shard.gradient.device() == shard.weights.device())
          shard.weights.mutable_grad() = shard.gradient;
      }
      shards[index] = std::move(shard);
    }
  }
  // In the module's order.
  for (size_t i = shards.size(); i-- > 0;) shards_.push_back(std::move(*shards[i]));
}

// Gives parameters that were built without memory their first values.
void DistributedDataParallel::Engine::fill_shards(const std::set<size_t>& unfilled) {
  const c10::NoGradGuard no_grad;
  std::vector<Shard> shards;  // shards_ has the opposite order
  for (const size_t p : unfilled) shards.push_back(shards_[shards_.size() - 1 - p]);
  for (const Shard& shard : shards) {
    options_.initialise({&shard, 1});
    shard.let_go();
  }
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    if (groups_.replica != nullptr) groups_.replica->broadcast(weights_->part(b), 0)->wait();
    if (plan_.units[b] == kNoUnit) weights_->gather(b, /*background=*/false)->wait();
  }
}

int64_t DistributedDataParallel::Engine::sum_over_ranks(int64_t value) {
  const auto start = std::chrono::steady_clock::now();
  at::Tensor sum = at::tensor(std::vector<int64_t>{value});
  for (comm::Communicator* group : {groups_.shard, groups_.replica}) {
    if (group != nullptr) group->all_reduce(sum)->wait();
  }
  communication_time_ += std::chrono::steady_clock::now() - start;
  return sum.item<int64_t>();
}

int64_t DistributedDataParallel::Engine::begin_step(int64_t local_count, int64_t num_microbatches) {
  TRIREME_CHECK(num_microbatches > 0, "a step needs at least one microbatch, got ",
                num_microbatches);
  TRIREME_CHECK(reducer_->microbatches_left() == 0, "begin_step() called with ",
                reducer_->microbatches_left(),
                " microbatches of the last step still to come; call backward() for each");
  communication_time_ = {};
  // A gradient that was left would be added to the first one of this step.
  for (at::Tensor& parameter : plan_.parameters) parameter.mutable_grad().reset();
  release_parameters();
  global_count_ = sum_over_ranks(local_count);
  TRIREME_CHECK(global_count_ > 0, "the step's losses sum over 0 terms on all ranks of group ",
                (groups_.shard != nullptr ? groups_.shard : groups_.replica)->name(),
                "; expected at least one target that is not ignored: make the global batch larger, "
                "or leave samples without targets out of the data");
  if (runner_) runner_->begin_step();
  reducer_->begin(num_microbatches);
  backwards_left_ = num_microbatches;
  // A weight part that never came would show only as a wrong gradient.
  TRIREME_ASSERT(waiting_.empty(), "gradients of an earlier step are left");
  return global_count_;
}

void DistributedDataParallel::Engine::begin_forward(int64_t microbatch) {
  if (runner_) runner_->begin_forward(microbatch);
}

at::Tensor DistributedDataParallel::Engine::run(size_t unit, const at::Tensor& x,
                                                const UnitForward& forward) {
  return runner_ ? runner_->run(unit, x, forward) : forward(x);
}

void DistributedDataParallel::Engine::backward(const at::Tensor& loss_sum, double scale) {
  run_backward(
      [&] {
        // The division is part of the first factor of the chain rule and needs no pass over the
        // gradients.
        const at::Tensor seed = at::full_like(loss_sum, scale / static_cast<double>(global_count_));
        // A rank without targets has no graph, but its buckets are summed all the same.
        if (loss_sum.requires_grad()) loss_sum.backward(seed);
      },
      kAnyMicrobatch);
}

void DistributedDataParallel::Engine::run_backward(const std::function<void()>& autograd,
                                                   int64_t microbatch) {
  reducer_->begin_microbatch();
  run_autograd(autograd, microbatch);
  end_microbatch();
}

void DistributedDataParallel::Engine::run_input_backward(int64_t microbatch,
                                                         const std::function<void()>& autograd) {
  waits_ = &waiting_[microbatch];
  run_autograd(autograd, microbatch);
  waits_ = nullptr;
}

void DistributedDataParallel::Engine::run_weight_backward(int64_t microbatch,
                                                          const std::function<void()>& weights) {
  const auto found = waiting_.find(microbatch);
  TRIREME_CHECK(found != waiting_.end(), "the weight part of microbatch ", microbatch,
                " without its input part; call run_input_backward() before");
  reducer_->begin_microbatch();
  for (auto& [parameter, gradient] : found->second) {
    // The hook's way: the reducer reads .grad and takes it away.
    plan_.parameters[parameter].mutable_grad() = std::move(gradient);
    reducer_->on_gradient(parameter);
  }
  waiting_.erase(found);
  weights();
  end_microbatch();
}

void DistributedDataParallel::Engine::run_autograd(const std::function<void()>& autograd,
                                                   int64_t microbatch) {
  TRIREME_CHECK(backwards_left_ > 0,
                "backward() called without begin_step(), or more often than its "
                "num_microbatches");
  if (runner_) runner_->begin_backward(microbatch);
  autograd();
  if (runner_) runner_->end_backward(microbatch, /*is_last=*/backwards_left_ == 1);
  --backwards_left_;
}

void DistributedDataParallel::Engine::end_microbatch() {
  reducer_->end_microbatch();
  if (reducer_->microbatches_left() > 0) return;
  // The module's .grad shows the sum, as after a backward without DDP.
  for (size_t i = 0; i < plan_.parameters.size(); ++i) {
    if (module_gradients_[i].defined() &&
        module_gradients_[i].scalar_type() == plan_.parameters[i].scalar_type())
      plan_.parameters[i].mutable_grad() = module_gradients_[i];
  }
}

at::Tensor DistributedDataParallel::Engine::place_of(size_t parameter) {
  // What waits for its weight part is not in the reducer yet.
  return waits_ == nullptr ? reducer_->place_of(parameter) : at::Tensor();
}

void DistributedDataParallel::Engine::on_gradient(size_t parameter) {
  // A layer that defers its weight's gradient gives autograd an undefined one.
  if (!plan_.parameters[parameter].grad().defined()) return;
  if (waits_ == nullptr) return reducer_->on_gradient(parameter);
  waits_->emplace_back(parameter, std::exchange(plan_.parameters[parameter].mutable_grad(), {}));
}

void DistributedDataParallel::Engine::spread_weights(bool with_frozen) {
  release_parameters();
  if (!weights_) return;
  const auto start = std::chrono::steady_clock::now();
  for (size_t b = 0; b < plan_.buckets.size(); ++b) {
    // Units of ZeRO-3 are gathered when they are used.
    const bool has_changed = with_frozen || plan_.buckets[b].is_trained;
    if (has_changed && plan_.units[b] == kNoUnit) weights_->gather(b, /*background=*/false)->wait();
  }
  communication_time_ += std::chrono::steady_clock::now() - start;
  for (const Shard& shard : shards_) shard.let_go();
}

void DistributedDataParallel::Engine::gather_parameters() {
  if (runner_) runner_->gather_all();
}

void DistributedDataParallel::Engine::release_parameters() {
  if (runner_) runner_->release_all();
}

std::chrono::nanoseconds DistributedDataParallel::Engine::communication_time() const {
  std::chrono::nanoseconds time = communication_time_ + reducer_->communication_time();
  if (runner_) time += runner_->communication_time();
  return time;
}

DataParallelMemory DistributedDataParallel::Engine::memory(int64_t num_microbatches) const {
  DataParallelMemory memory{.gradients = reducer_->resident_bytes(),
                            .accumulating = reducer_->accumulating_bytes(num_microbatches),
                            .peak_in_transit = reducer_->peak_transient_bytes()};
  if (weights_) {
    memory.parameters = weights_->resident_bytes();
    memory.peak_gathered = weights_->peak_gathered_bytes();
  } else {
    for (const at::Tensor& p : plan_.parameters)
      memory.parameters += static_cast<int64_t>(p.nbytes());
  }
  return memory;
}

DistributedDataParallel::DistributedDataParallel(torch::nn::Module& module,
                                                 comm::Communicator& group, DdpOptions options)
    : engine_(std::make_unique<Engine>(module, group, nullptr, std::move(options))) {}

DistributedDataParallel::DistributedDataParallel(torch::nn::Module& module, DataGroups groups,
                                                 DdpOptions options)
    : engine_(std::make_unique<Engine>(module, groups.shard, groups.replica, std::move(options))) {}

DistributedDataParallel::~DistributedDataParallel() = default;

const std::vector<Shard>& DistributedDataParallel::shards() const { return engine_->shards(); }

int64_t DistributedDataParallel::begin_step(int64_t local_count, int64_t num_microbatches) {
  return engine_->begin_step(local_count, num_microbatches);
}

void DistributedDataParallel::begin_forward(int64_t microbatch) {
  engine_->begin_forward(microbatch);
}

at::Tensor DistributedDataParallel::run(size_t unit, const at::Tensor& x,
                                        const UnitForward& forward) {
  return engine_->run(unit, x, forward);
}

void DistributedDataParallel::backward(const at::Tensor& loss_sum, double scale) {
  engine_->backward(loss_sum, scale);
}

void DistributedDataParallel::run_backward(const std::function<void()>& autograd,
                                           int64_t microbatch) {
  engine_->run_backward(autograd, microbatch);
}

void DistributedDataParallel::run_input_backward(int64_t microbatch,
                                                 const std::function<void()>& autograd) {
  engine_->run_input_backward(microbatch, autograd);
}

void DistributedDataParallel::run_weight_backward(int64_t microbatch,
                                                  const std::function<void()>& weights) {
  engine_->run_weight_backward(microbatch, weights);
}

void DistributedDataParallel::end_step() { engine_->spread_weights(/*with_frozen=*/false); }

void DistributedDataParallel::spread_weights() { engine_->spread_weights(/*with_frozen=*/true); }

void DistributedDataParallel::gather_parameters() { engine_->gather_parameters(); }

void DistributedDataParallel::release_parameters() { engine_->release_parameters(); }

std::chrono::nanoseconds DistributedDataParallel::communication_time() const {
  return engine_->communication_time();
}

int64_t DistributedDataParallel::gradient_bytes() const { return engine_->gradient_bytes(); }

double DistributedDataParallel::microbatch_squares() const { return engine_->microbatch_squares(); }

DataParallelMemory DistributedDataParallel::memory(int64_t num_microbatches) const {
  return engine_->memory(num_microbatches);
}

}  // namespace trireme::parallel
