// Length: one state machine, with its picture.
//
// Buckets in a microbatch that is summed over the ranks, in backward order. That is the step's last
// one, or with rank_first each:
//
//        0       1       2       3       4       5       6
//    +-------+-------+-------+-------+-------+-------+-------+
//    | summed        | on their way  | filling, or complete  |
//    +-------+-------+-------+-------+-------+-------+-------+
//                    ^               ^
//                    next_finish_    next_launch_
//
// filling -> complete      on_gradient() counts `missing` down to 0; with complete_when_told
//                          complete() says so instead
// complete -> on its way   launch(), once all buckets before are launched
// on its way -> summed     finish(), in the same order
//
// Order. The collectives of a group must come in one order on all ranks. Autograd's order may
// differ from rank to rank, and a rank's loss may not use every parameter. So a complete bucket
// waits for those before it, and end_microbatch() launches what is left:
//
//   rank 0   autograd   0 full        2 full        1 full
//            network    [======= sum 0 =======]     [= sum 1 =][= sum 2 =]
//   rank 1   autograd   1 full        0 full        2 full
//            network                  [ sum 0 ][==== sum 1 ===][= sum 2 =]
//
// Each rank starts a sum independently. The sum ends after the last rank has started it.
//
// By kind:        launch()                             finish()
//   DDP           all-reduce `whole` over replica      wait
//   ZeRO-1        reduce-scatter `whole` to `sum`      wait; all-reduce `sum` over replica
//   ZeRO-2, 3     as ZeRO-1                            as ZeRO-1; give `whole` back to the pool
//   tree          add up the microbatches' tree;       tree_all_reduce over replica; as ZeRO-2
//                 tree_reduce_scatter over shard
//   hook          the hook sums `whole`                copy `sum` out where `whole` goes
//   rank_first    as without it; the tree has one      as ZeRO-2; add `sum` to `part`, or to the
//                 microbatch                           tree of microbatches
//
// Where `sum` is the first and `part` has its dtype, both are one tensor.
//
// DDP's and ZeRO's launch() run in the background with options.overlap. Everything else waits for
// the peers in the calling thread, in both functions.
//
// Concurrency. From launch() to finish() a bucket's `whole` and `part` belong to the group, whose
// progress thread may read and write them. Meanwhile autograd fills later buckets. No gradient can
// come for a launched bucket: on_gradient() refuses a second one, and one after complete().
//
// Memory of `whole`. DDP and ZeRO-1 keep it. Otherwise the first gradient takes it from the pool
// (acquire()), the microbatches add to it, and finish() gives it back. With the tree or rank_first
// each microbatch has a `whole` of its own. At most kInFlight buckets are on their way in these
// cases: before the next launch() the oldest is finished.
//
// That wait is in the middle of backward, where ranks may also wait for each other's gathers of
// weights (ZeRO-3). They cannot wait in a circle if all launch each bucket at the same point
// between their gathers. The arrival of a bucket's last gradient is no such point: it depends on
// what each rank's loss used. complete_when_told provides one.
//
// With rank_first the last buckets of a microbatch may still be on their way while the next one's
// forward runs. begin_microbatch() finishes them: a point that is the same on every rank, and comes
// before the next gradient of the same bucket.
//
// Failure. launch() and finish() throw when a peer dies, is late or aborts. The exception passes
// through autograd or end_microbatch() to the caller.
#include "trireme/parallel/data/gradient_reducer.h"

#include <algorithm>
#include <bit>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using Clock = std::chrono::steady_clock;

// Maximum number of buckets in flight when `whole` is not kept.
constexpr size_t kInFlight = 3;

at::TensorOptions gradient_options(const Bucket& bucket, bool fp32) {
  const at::ScalarType dtype = c10::typeMetaToScalarType(bucket.options.dtype());
  return bucket.options.dtype(fp32 ? at::promote_types(dtype, at::kFloat) : dtype);
}

comm::Communicator* memory_group(const GradientGroups& groups) {
  return groups.shard != nullptr ? groups.shard : groups.replica;
}

}  // namespace

GradientReducer::GradientReducer(std::span<const at::Tensor> parameters,
                                 std::span<const Bucket* const> buckets,
                                 std::vector<std::vector<int64_t>> cuts, GradientGroups groups,
                                 ReducerOptions options)
    : parameters_(parameters),
      groups_(groups),
      options_(options),
      pool_([this, group = memory_group(groups), symmetric = options.symmetric](
                int64_t elements, const at::TensorOptions& tensor) {
        const MemoryScope scope(kind_of_buffers());
        // Only the host's memory can be symmetric.
        if (group == nullptr || !symmetric || !tensor.device().is_cpu())
          return at::empty({elements}, tensor);
        return group->symmetric_empty({elements}, c10::typeMetaToScalarType(tensor.dtype()));
      }),
      slots_(parameters.size()) {
  // The tree's sum ends in one of several buffers, but part() must be the same memory in each step.
  options_.keep_part_alone |= options_.tree || options_.rank_first;
  const auto rank = static_cast<size_t>(groups_.shard_rank());
  for (size_t b = 0; b < buckets.size(); ++b) {
    State state;
    state.bucket = buckets[b];
    state.cuts = std::move(cuts[b]);
    const int64_t begin = state.cuts[rank];
    const int64_t elements = state.cuts[rank + 1] - begin;
    if (options_.keep_part_alone) {
      const bool in_fp32 = options_.reduce_in_fp32 || options_.add_in_fp32;
      const MemoryScope scope(MemoryKind::kGradients);
      const at::TensorOptions kept = gradient_options(*state.bucket, in_fp32);
      state.part = options_.home == nullptr
                       ? at::zeros({elements}, kept)
                       : options_.home->make(elements, c10::typeMetaToScalarType(kept.dtype()));
    } else {
      acquire(state);
      state.whole.zero_();
      state.part = state.whole.narrow(0, begin, elements);
    }
    for (size_t i = 0; i < state.bucket->parameters.size(); ++i) {
      slots_[state.bucket->parameters[i]] = {b, i};
    }
    states_.push_back(std::move(state));
  }
  if (options_.hook != nullptr) prepare_hook();
}

void GradientReducer::prepare_hook() {
  const comm::Communicator* const group = memory_group(groups_);
  std::vector<GradientSpec> gradients;
  for (State& state : states_) {
    for (const size_t index : state.bucket->parameters) {
      state.names.push_back(options_.names[index]);
      gradients.push_back({.name = state.names.back(),
                           .shape = parameters_[index].sizes().vec(),
                           .options = gradient_options(*state.bucket, options_.reduce_in_fp32),
                           .num_ranks = group->size(),
                           .rank = group->rank()});
    }
  }
  options_.hook->prepare(gradients);
}

void GradientReducer::acquire(State& state) {
  const c10::NoGradGuard no_grad;
  state.whole = pool_.take(state.bucket->num_elements,
                           gradient_options(*state.bucket, options_.reduce_in_fp32));
  state.views = view_parameters(*state.bucket, state.whole, parameters_);
  state.filled.assign(state.views.size(), false);
}

void GradientReducer::begin(int64_t num_microbatches) {
  num_microbatches_ = microbatches_left_ = num_microbatches;
  communication_time_ = {};
  bytes_sent_ = 0;
  squares_.reset();
  if (options_.hook != nullptr) options_.hook->begin_step();
  TRIREME_ASSERT(next_finish_ == next_launch_, "sums of an earlier step are under way");
  for (State& state : states_) {
    state.num_sums = 0;
    state.filled.assign(state.filled.size(), false);
    TRIREME_ASSERT(state.earlier.empty(), "terms of an earlier step are left");
  }
  for (Slot& slot : slots_) slot.microbatch = slot.given = -1;
}

void GradientReducer::begin_microbatch() {
  finish_launched();
  next_launch_ = next_finish_ = 0;
  for (State& state : states_) {
    state.missing = state.bucket->parameters.size();
    state.is_closed = false;
  }
}

at::Tensor GradientReducer::place_of(size_t parameter) {
  Slot& slot = slots_[parameter];
  if (slot.bucket >= states_.size()) return {};
  if (std::exchange(slot.given, microbatches_left_) == microbatches_left_) return {};
  State& state = states_[slot.bucket];
  // on_gradient() refuses a gradient that comes later.
  const bool is_late = state.is_closed || slot.bucket < next_launch_;
  if (is_late || slot.microbatch == microbatches_left_) return {};
  const c10::NoGradGuard no_grad;
  if (!state.whole.defined()) acquire(state);
  const at::Tensor& view = state.views[slot.index];
  const at::Tensor& like = parameters_[parameter];
  // A GPU's products choose by a larger alignment than a bucket has.
  const bool is_like = view.scalar_type() == like.scalar_type() && view.is_cpu() && like.is_cpu() &&
                       view.strides() == like.strides();
  // A tensor of its own: autograd takes over one that nobody else refers to.
  return state.filled[slot.index] || !is_like ? at::Tensor() : view.detach();
}

void GradientReducer::on_gradient(size_t parameter) {
  Slot& slot = slots_[parameter];
  State& state = states_[slot.bucket];
  // Else the gradient would be added to a bucket whose sum is under way.
  TRIREME_CHECK(!state.is_closed, describe(parameter),
                " got a gradient after the backward of its unit; what run() computes may use the "
                "unit's parameters, and nothing else may");
  TRIREME_CHECK(slot.microbatch != microbatches_left_, describe(parameter),
                " had two gradients in one backward; a module that recomputes its activations may "
                "be used once per forward");
  slot.microbatch = microbatches_left_;
  if (!state.whole.defined()) acquire(state);
  {
    const c10::NoGradGuard no_grad;
    // The span's tensors are handles; what they refer to is not const.
    at::Tensor& gradient = const_cast<at::Tensor&>(parameters_[parameter]).mutable_grad();
    if (options_.measure_squares) add_squares(gradient);
    if (state.filled[slot.index]) {
      state.views[slot.index].add_(gradient);
    } else {
      // It may have been written there (place_of()). Else copied and not zeroed before: a pass over
      // the memory less.
      if (!gradient.is_set_to(state.views[slot.index])) state.views[slot.index].copy_(gradient);
      state.filled[slot.index] = true;
    }
    // Frees the gradient now, and the next microbatch begins anew.
    gradient.reset();
  }
  --state.missing;
  if (sums_now()) launch_complete_buckets(false);
}

std::string GradientReducer::describe(size_t parameter) const {
  return concat(
      "parameter ",
      options_.names.empty() ? concat(parameter) : "\"" + options_.names[parameter] + "\"",
      " of shape ", parameters_[parameter].sizes());
}

void GradientReducer::complete(size_t bucket) {
  if (!sums_now()) return;
  states_[bucket].is_closed = true;
  launch_complete_buckets(false);
}

// Keeps the sum on the device, so that nothing waits for it before the step's end.
void GradientReducer::add_squares(const at::Tensor& gradient) {
  const at::ScalarType dtype = at::promote_types(gradient.scalar_type(), at::kFloat);
  const at::Tensor norm = at::linalg_vector_norm(gradient, 2, {}, false, dtype).to(at::kDouble);
  squares_ = squares_.defined() ? squares_.add_(norm.square()) : norm.square();
}

double GradientReducer::microbatch_squares() const {
  return squares_.defined() ? squares_.item<double>() : 0.0;
}

// Ends a microbatch that is not summed over ranks yet. The tree takes its gradients whole, zeros
// included.
void GradientReducer::complete_microbatch(State& state) {
  const c10::NoGradGuard no_grad;
  if (!options_.tree) return;
  if (!state.whole.defined()) acquire(state);
  for (size_t i = 0; i < state.views.size(); ++i) {
    if (!state.filled[i]) state.views[i].zero_();
  }
  state.earlier.push(std::exchange(state.whole, {}));
  state.views.clear();
}

void GradientReducer::end_microbatch() {
  if (sums_now()) {
    launch_complete_buckets(true);
    if (microbatches_left_ == 1) finish_launched();
  } else {
    for (State& state : states_) complete_microbatch(state);
  }
  --microbatches_left_;
}

void GradientReducer::finish_launched() {
  while (next_finish_ < next_launch_) finish(states_[next_finish_++]);
}

void GradientReducer::launch_complete_buckets(bool all) {
  const auto is_complete = [this](const State& state) {
    return options_.complete_when_told ? state.is_closed : state.missing == 0;
  };
  for (; next_launch_ < states_.size() && (all || is_complete(states_[next_launch_]));
       ++next_launch_) {
    if (options_.keep_part_alone && next_launch_ - next_finish_ >= kInFlight) {
      finish(states_[next_finish_++]);
    }
    launch(states_[next_launch_]);
  }
}

void GradientReducer::launch(State& state) {
  const c10::NoGradGuard no_grad;
  // No rank used its parameters, and all must still take part in the sum.
  if (!state.whole.defined()) acquire(state);  // no gradient has come
  for (size_t i = 0; i < state.views.size(); ++i) {
    if (!state.filled[i]) state.views[i].zero_();
  }
  const comm::Options call{.background = options_.overlap};
  timed([&] {
    if (options_.hook != nullptr) {
      call_hook(state);
    } else if (options_.tree) {
      launch_tree(state);
    } else if (groups_.shard != nullptr) {
      state.sum = room_for_sum(state);
      // Also for the first sum: what is written over is read before.
      if (options_.home != nullptr) options_.home->will_need(state.part);
      state.work =
          groups_.shard->reduce_scatter(state.sum, view_parts(state.whole, state.cuts), call);
    } else {
      state.sum = state.whole;
      if (groups_.replica != nullptr) state.work = groups_.replica->all_reduce(state.sum, call);
    }
  });
  if (options_.hook == nullptr) bytes_sent_ += bytes_of_sum(state);
}

void GradientReducer::launch_tree(State& state) {
  const MemoryScope scope(options_.rank_first ? MemoryKind::kGradients : kind_of_buffers());
  if (!options_.rank_first) {
    state.earlier.push(std::exchange(state.whole, {}));
    state.whole = state.earlier.take();
  }
  state.sum = groups_.shard == nullptr
                  ? state.whole
                  : tree_reduce_scatter(*groups_.shard, state.whole, state.cuts);
}

// Where the ranks' sum of this rank's part goes: into `part` if nothing is there yet.
at::Tensor GradientReducer::room_for_sum(State& state) {
  const at::ScalarType dtype = state.whole.scalar_type();
  const bool is_alike =
      state.part.scalar_type() == dtype && state.part.device() == state.whole.device();
  if (state.num_sums == 0 && is_alike) return state.part;
  return pool_.take(state.part.numel(), state.whole.options());
}

void GradientReducer::call_hook(State& state) {
  const GradientBucket bucket{
      .index = next_launch_, .flat = state.whole, .gradients = state.views, .names = state.names};
  bytes_sent_ += options_.hook->all_reduce(bucket, *memory_group(groups_));
  const auto rank = static_cast<size_t>(groups_.shard_rank());
  state.sum = state.whole.narrow(0, state.cuts[rank], state.part.numel());
}

// By the formulas of comm/communicator.h. Where cuts are uneven: the mean over the ranks.
int64_t GradientReducer::bytes_of_sum(const State& state) const {
  auto whole = static_cast<int64_t>(state.whole.nbytes());
  int64_t num_bytes = 0;
  if (groups_.shard != nullptr) {
    whole /= groups_.shard->size();
    num_bytes += (groups_.shard->size() - 1) * whole;
  }
  if (groups_.replica == nullptr) return num_bytes;
  return num_bytes + int64_t{2} * (groups_.replica->size() - 1) * whole / groups_.replica->size();
}

void GradientReducer::finish(State& state) {
  const c10::NoGradGuard no_grad;
  timed([&] {
    // exchange: a wait that throws must not be repeated.
    if (state.work != nullptr) std::exchange(state.work, nullptr)->wait();
    // launch() has summed over all ranks when there is a hook, or no shard group and no tree.
    const bool is_reduced =
        options_.hook != nullptr || (groups_.shard == nullptr && !options_.tree);
    if (groups_.replica == nullptr || is_reduced) return;
    // Only this rank's part: the shard group has summed it already.
    if (options_.tree) {
      tree_all_reduce(*groups_.replica, state.sum);
    } else {
      groups_.replica->all_reduce(state.sum)->wait();
    }
  });
  if (options_.keep_part_alone) {
    state.whole.reset();
    state.views.clear();
    take_sum(state);
  }
  state.sum.reset();
}

// Adds the ranks' sum to those of the microbatches before.
void GradientReducer::take_sum(State& state) {
  const bool is_first = state.num_sums++ == 0;
  if (options_.tree && options_.rank_first) {
    state.earlier.push(std::exchange(state.sum, {}));
    if (state.num_sums == num_microbatches_) state.part.copy_(state.earlier.take());
  } else if (!is_first) {
    state.part.add_(state.sum.to(state.part.device()));
  } else if (!state.sum.is_same(state.part)) {
    state.part.copy_(state.sum);
  }
  if (options_.home != nullptr) options_.home->let_go(state.part);
}

template <typename Function>
void GradientReducer::timed(Function&& communicate) {
  const auto start = Clock::now();
  communicate();
  communication_time_ += Clock::now() - start;
}

int64_t GradientReducer::resident_bytes() const {
  int64_t num_bytes = 0;
  for (const State& state : states_) {
    num_bytes +=
        static_cast<int64_t>((options_.keep_part_alone ? state.part : state.whole).nbytes());
  }
  return num_bytes;
}

int64_t GradientReducer::accumulating_bytes(int64_t num_microbatches) const {
  if (num_microbatches == 1 || (options_.rank_first && !options_.tree)) return 0;
  // Of the tree: 1 + 1, then 2 + 1 + 1. A bucket's last term joins them as soon as it is there.
  const int64_t num_sums = std::bit_width(static_cast<uint64_t>(num_microbatches)) - 1;
  if (options_.rank_first) return (num_sums + 1) * resident_bytes();
  int64_t num_bytes = 0;
  for (const State& state : states_) {
    const at::TensorOptions options = gradient_options(*state.bucket, options_.reduce_in_fp32);
    num_bytes += state.bucket->num_elements * static_cast<int64_t>(options.dtype().itemsize());
  }
  if (options_.tree) num_bytes *= num_sums;
  return options_.keep_part_alone ? num_bytes + resident_bytes() : num_bytes;
}

}  // namespace trireme::parallel
