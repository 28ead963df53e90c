// Buckets in the step's last microbatch, in backward order:
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
// A rank starts a sum by itself. The sum ends after the last rank has started it.
//
// The work of launch() and finish(), by kind:
//
//                 launch()                             finish()
//   DDP           all-reduce `whole` over replica      wait
//   ZeRO-1        reduce-scatter `whole` to `part`     wait; all-reduce `part` over replica
//   ZeRO-2, 3     as ZeRO-1                            as ZeRO-1; give `whole` back to the pool
//   tree          add up the microbatches' tree;       tree_all_reduce over replica; as ZeRO-2
//                 tree_reduce_scatter over shard
//   hook          the hook sums `whole`                copy `part` out where `whole` goes
//
// DDP's and ZeRO's launch() run in the background with options.overlap. Everything else waits for
// the peers in the calling thread, in both functions.
//
// Concurrency. From launch() to finish() a bucket's `whole` and `part` belong to the group, whose
// progress thread may read and write them. Meanwhile autograd fills later buckets. No gradient can
// come for a launched bucket: on_gradient() refuses a second one, and one after complete().
//
// Memory of `whole`. DDP and ZeRO-1 keep it. Otherwise the first gradient takes it from the pool
// (acquire()), the microbatches add to it, and finish() gives it back. With the tree each
// microbatch has a `whole` of its own. At most kInFlight buckets are on their way in these cases:
// before the next launch() the oldest is finished.
//
// That wait is in the middle of backward, where ranks may also wait for each other's gathers of
// weights (ZeRO-3). They cannot wait in a circle if all launch each bucket at the same point
// between their gathers. The arrival of a bucket's last gradient is no such point: it depends on
// what each rank's loss used. complete_when_told provides one.
//
// Failure. launch() and finish() throw when a peer dies, is late or aborts. The exception passes
// through autograd or end_microbatch() to the caller.
#include "trireme/parallel/data/gradient_reducer.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"

namespace trireme::parallel::inline internal {
namespace {

using Clock = std::chrono::steady_clock;

// How many buckets may be on their way at once where `whole` does not stay.
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
      pool_([group = memory_group(groups), symmetric = options.symmetric](
                int64_t elements, const at::TensorOptions& tensor) {
        if (group == nullptr || !symmetric || !tensor.device().is_cpu())
          return at::empty({elements}, tensor);
        return group->symmetric_empty({elements}, c10::typeMetaToScalarType(tensor.dtype()));
      }),
      slots_(parameters.size()) {
  // The tree's sum ends in one of several buffers, but part() must be the same memory in each step.
  options_.keep_part_alone |= options_.tree;
  const auto rank = static_cast<size_t>(groups_.shard_rank());
  for (size_t b = 0; b < buckets.size(); ++b) {
    State state;
    state.bucket = buckets[b];
    state.cuts = std::move(cuts[b]);
    const int64_t begin = state.cuts[rank];
    const int64_t elements = state.cuts[rank + 1] - begin;
    if (options_.keep_part_alone) {
      state.part = at::zeros({elements}, gradient_options(*state.bucket, options_.reduce_in_fp32));
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
  std::vector<GradientSpec> gradients;
  for (State& state : states_) {
    for (const size_t index : state.bucket->parameters) {
      state.names.push_back(options_.names[index]);
      gradients.push_back({.name = state.names.back(),
                           .shape = parameters_[index].sizes().vec(),
                           .options = gradient_options(*state.bucket, options_.reduce_in_fp32)});
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
  microbatches_left_ = num_microbatches;
  communication_time_ = {};
  bytes_sent_ = 0;
  squares_.reset();
  if (options_.hook != nullptr) options_.hook->begin_step();
  next_launch_ = next_finish_ = 0;
  for (State& state : states_) {
    state.missing = state.bucket->parameters.size();
    state.is_closed = false;
    state.filled.assign(state.filled.size(), false);
    TRIREME_ASSERT(state.earlier.empty(), "terms of an earlier step are left");
  }
  for (Slot& slot : slots_) slot.microbatch = -1;
}

void GradientReducer::on_gradient(size_t parameter) {
  Slot& slot = slots_[parameter];
  State& state = states_[slot.bucket];
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
    at::Tensor& gradient = const_cast<at::Tensor&>(parameters_[parameter]).mutable_grad();
    if (options_.measure_squares) add_squares(gradient);
    if (state.filled[slot.index]) {
      state.views[slot.index].add_(gradient);
    } else {
      state.views[slot.index].copy_(gradient);
      state.filled[slot.index] = true;
    }
    gradient.reset();
  }
  --state.missing;
  if (microbatches_left_ == 1) launch_complete_buckets(false);
}

std::string GradientReducer::describe(size_t parameter) const {
  return concat(
      "parameter ",
      options_.names.empty() ? concat(parameter) : "\"" + options_.names[parameter] + "\"",
      " of shape ", parameters_[parameter].sizes());
}

void GradientReducer::complete(size_t bucket) {
  if (microbatches_left_ != 1) return;
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

// Ends a microbatch that is not the last. The tree takes its gradients whole, zeros included.
void GradientReducer::complete_microbatch(State& state) {
  const c10::NoGradGuard no_grad;
  state.missing = state.bucket->parameters.size();
  if (!options_.tree) return;
  if (!state.whole.defined()) acquire(state);
  for (size_t i = 0; i < state.views.size(); ++i) {
    if (!state.filled[i]) state.views[i].zero_();
  }
  state.earlier.push(std::exchange(state.whole, {}));
  state.views.clear();
}

void GradientReducer::end_microbatch() {
  if (microbatches_left_ == 1) {
    launch_complete_buckets(true);
    while (next_finish_ < states_.size()) finish(states_[next_finish_++]);
  } else {
    for (State& state : states_) complete_microbatch(state);
  }
  --microbatches_left_;
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
  if (!state.whole.defined()) acquire(state);  // no gradient has come
  for (size_t i = 0; i < state.views.size(); ++i) {
    if (!state.filled[i]) state.views[i].zero_();
  }
  const comm::Options call{.background = options_.overlap};
  timed([&] {
    if (options_.hook != nullptr) {
      call_hook(state);
    } else if (options_.tree) {
      state.earlier.push(std::exchange(state.whole, {}));
      state.whole = state.earlier.take();
      if (groups_.shard != nullptr) {
        state.part.copy_(tree_reduce_scatter(*groups_.shard, state.whole, state.cuts));
      }
    } else if (groups_.shard != nullptr) {
      state.work =
          groups_.shard->reduce_scatter(state.part, view_parts(state.whole, state.cuts), call);
    } else if (groups_.replica != nullptr) {
      state.work = groups_.replica->all_reduce(state.whole, call);
    }
  });
  if (options_.hook == nullptr) bytes_sent_ += bytes_of_sum(state);
}

void GradientReducer::call_hook(State& state) {
  const GradientBucket bucket{
      .index = next_launch_, .flat = state.whole, .gradients = state.views, .names = state.names};
  bytes_sent_ += options_.hook->all_reduce(bucket, *memory_group(groups_));
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
    if (state.work != nullptr) std::exchange(state.work, nullptr)->wait();
    // launch() has summed over all ranks when there is a hook, or no shard group and no tree.
    const bool is_reduced =
        options_.hook != nullptr || (groups_.shard == nullptr && !options_.tree);
    if (groups_.replica == nullptr || is_reduced) return;
    const at::Tensor& sum = groups_.shard == nullptr ? state.whole : state.part;
    if (options_.tree) {
      tree_all_reduce(*groups_.replica, sum);
    } else {
      groups_.replica->all_reduce(sum)->wait();
    }
  });
  if (options_.keep_part_alone) {
    if (groups_.shard == nullptr) state.part.copy_(state.whole);
    if (options_.hook != nullptr) {
      const auto rank = static_cast<size_t>(groups_.shard_rank());
      state.part.copy_(state.whole.narrow(0, state.cuts[rank], state.part.numel()));
    }
    state.whole.reset();
    state.views.clear();
  }
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

int64_t GradientReducer::whole_bytes() const {
  int64_t num_bytes = 0;
  for (const State& state : states_) {
    const at::TensorOptions options = gradient_options(*state.bucket, options_.reduce_in_fp32);
    num_bytes += state.bucket->num_elements * static_cast<int64_t>(options.dtype().itemsize());
  }
  return num_bytes;
}

}  // namespace trireme::parallel::inline internal
