#include "trireme/parallel/data/buffer_pool.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

namespace trireme::parallel {

struct BufferPool::State {
  static int64_t bytes_of(const at::Tensor& buffer) {
    return static_cast<int64_t>(buffer.nbytes());
  }

  // The smallest idle buffer that is large enough but not too large; undefined when there is none.
  at::Tensor reuse(int64_t elements, const at::TensorOptions& options) {
    auto best = idle.end();
    for (auto each = idle.begin(); each != idle.end(); ++each) {
      // Twice at most: a small need must not hold a large buffer.
      const int64_t size = each->numel();
      if (size < elements || size > 2 * elements || each->device() != options.device() ||
          each->dtype() != options.dtype() || (best != idle.end() && best->numel() <= size)) {
        continue;
      }
      best = each;
    }
    if (best == idle.end()) return {};
    at::Tensor buffer = std::move(*best);
    idle.erase(best);
    idle_bytes -= bytes_of(buffer);
    return buffer;
  }

  // Drops idle buffers, oldest first, to make room for those in use. The caller frees the result
  // without the lock.
  std::vector<at::Tensor> drop_idle() {
    std::vector<at::Tensor> dropped;
    // Half of the peak may be idle.
    while (!idle.empty() && out_bytes + idle_bytes > peak_bytes + peak_bytes / 2) {
      idle_bytes -= bytes_of(idle.front());
      dropped.push_back(std::move(idle.front()));
      idle.pop_front();
    }
    return dropped;
  }

  Allocate allocate;
  std::mutex mutex;
  std::deque<at::Tensor> idle;  // in the order of their return
  int64_t idle_bytes = 0;
  int64_t out_bytes = 0;
  int64_t peak_bytes = 0;  // of out_bytes
};

BufferPool::BufferPool(Allocate allocate) : state_(std::make_shared<State>()) {
  // Shared with the tensors' deleters, which may run after the pool is gone.
  state_->allocate = std::move(allocate);
}

at::Tensor BufferPool::take(int64_t elements, const at::TensorOptions& options) {
  at::Tensor buffer;
  int64_t num_bytes = 0;
  std::vector<at::Tensor> dropped;
  {
    const std::lock_guard lock(state_->mutex);
    buffer = state_->reuse(elements, options);
    num_bytes = buffer.defined() ? State::bytes_of(buffer)
                                 : elements * static_cast<int64_t>(options.dtype().itemsize());
    state_->out_bytes += num_bytes;
    state_->peak_bytes = std::max(state_->peak_bytes, state_->out_bytes);
    dropped = state_->drop_idle();
  }
  dropped.clear();  // before new memory is allocated
  if (!buffer.defined()) buffer = state_->allocate(elements, options);
  // The deleter runs wherever the last reference goes, also in the group's progress thread.
  const auto give_back = [state = state_, buffer, num_bytes](void*) {
    const std::lock_guard lock(state->mutex);
    state->out_bytes -= num_bytes;
    state->idle_bytes += num_bytes;
    state->idle.push_back(buffer);
  };
  return at::for_blob(buffer.data_ptr(), {elements})
      .deleter(give_back)
      .options(buffer.options())
      .target_device(buffer.device())
      .make_tensor();
}

int64_t BufferPool::held_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->out_bytes + state_->idle_bytes;
}

int64_t BufferPool::peak_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->peak_bytes;
}

}  // namespace trireme::parallel
