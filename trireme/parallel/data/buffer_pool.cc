#include "trireme/parallel/data/buffer_pool.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

namespace trireme::parallel {

struct BufferPool::State {
  using Key = std::tuple<int64_t, at::ScalarType, at::DeviceType, at::DeviceIndex>;
  static Key key_of(const at::Tensor& buffer) {
    return {buffer.numel(), buffer.scalar_type(), buffer.device().type(), buffer.device().index()};
  }

  Allocate allocate;
  std::mutex mutex;
  std::map<Key, std::vector<at::Tensor>> idle;
  int64_t num_bytes = 0;  // out
  int64_t peak_bytes = 0;
};

BufferPool::BufferPool(Allocate allocate) : state_(std::make_shared<State>()) {
  state_->allocate = std::move(allocate);
}

at::Tensor BufferPool::take(int64_t elements, const at::TensorOptions& options) {
  const at::Device device = options.device();
  const State::Key key{elements, c10::typeMetaToScalarType(options.dtype()), device.type(),
                       device.index()};
  at::Tensor buffer;
  {
    const std::lock_guard lock(state_->mutex);
    std::vector<at::Tensor>& idle = state_->idle[key];
    if (!idle.empty()) {
      buffer = std::move(idle.back());
      idle.pop_back();
    }
  }
  if (!buffer.defined()) buffer = state_->allocate(elements, options);
  const auto num_bytes = static_cast<int64_t>(buffer.nbytes());
  {
    const std::lock_guard lock(state_->mutex);
    state_->num_bytes += num_bytes;
    state_->peak_bytes = std::max(state_->peak_bytes, state_->num_bytes);
  }
  const auto give_back = [state = state_, buffer, num_bytes](void*) {
    const std::lock_guard lock(state->mutex);
    state->num_bytes -= num_bytes;
    state->idle[State::key_of(buffer)].push_back(buffer);
  };
  return at::for_blob(buffer.data_ptr(), {elements})
      .deleter(give_back)
      .options(buffer.options())
      .target_device(buffer.device())
      .make_tensor();
}

int64_t BufferPool::peak_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->peak_bytes;
}

}  // namespace trireme::parallel
