#include "trireme/comm/c10d/c10d_work.h"

#include <algorithm>
#include <condition_variable>
#include <string_view>
#include <thread>
#include <utility>

#include <ATen/ThreadLocalState.h>
#include <ATen/core/jit_type.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include "trireme/base/error.h"
#include "trireme/comm/c10d/c10d_errors.h"

namespace trireme::comm {
namespace {

// While it sleeps on the oldest work, the watcher polls all others this often, because
// point-to-point works may finish in any order. Collectives finish in call order and wake it
// themselves.
constexpr std::chrono::milliseconds kSlice(2);
constexpr std::chrono::seconds kLongestFarewell(2);

// "gloo:all_reduce" for "trireme:all_reduce". Gloo has one name for all forms of a collective.
std::string title_of_gloo(std::string_view title) {
  title.remove_prefix(title.find(':') + 1);
  if (title == "_all_gather_base") title = "all_gather";
  if (title == "_reduce_scatter_base") title = "reduce_scatter";
  return concat("gloo:", title);
}

}  // namespace

C10dWork::C10dWork(int rank, Description description, std::weak_ptr<C10dWatcher> watcher)
    : c10d::Work(rank, description.type, description.title, description.inputs),
      description_(std::move(description)),
      watcher_(std::move(watcher)) {
  if (recordFunctionEndCallback_) record_as_gloo();
  description_.inputs.clear();
}

void C10dWork::record_as_gloo() {
  const auto event = std::make_shared<at::RecordFunction>(at::RecordScope::USER_SCOPE);
  if (!event->isActive()) return;
  event->_setAsync();  // it may end on another thread
  const std::vector<c10::IValue> inputs(description_.inputs.begin(), description_.inputs.end());
  event->before(title_of_gloo(description_.title),
                c10::ArrayRef<const c10::IValue>(inputs.data(), inputs.size()));
  std::function<void()> end = at::wrapPropagateTLSState([event] { event->end(); });
  recordFunctionEndCallback_ = [end = std::move(end), own = recordFunctionEndCallback_] {
    end();
    own();
  };
}

void C10dWork::start(WorkPtr work, std::function<void()> epilogue) {
  work_ = std::move(work);
  epilogue_ = std::move(epilogue);
  isCompleted();
}

bool C10dWork::isCompleted() {
  if (work_->poll()) settle();
  return c10d::Work::isCompleted();
}

bool C10dWork::isSuccess() const {
  const_cast<C10dWork*>(this)->isCompleted();
  return c10d::Work::isSuccess();
}

int C10dWork::sourceRank() const {
  return work_->source() >= 0 ? work_->source() : c10d::Work::sourceRank();
}

bool C10dWork::wait(std::chrono::milliseconds timeout) {
  if (!isCompleted()) {
    bool is_done = true;
    try {
      if (timeout.count() > 0) {
        is_done = work_->wait_for(timeout);
      } else {
        work_->wait();
      }
    } catch (const std::exception&) {
      // settle() reports it.
    }
    if (!is_done) {
      C10_THROW_ERROR(DistBackendError,
                      concat("[trireme] Operation timed out! ",
                             c10d::opTypeToString(description_.type), " #", description_.sequence,
                             " is not done after ", static_cast<double>(timeout.count()) / 1000,
                             " s; it goes on, and the group's own timeout still counts"));
    }
    settle();
  }
  if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
  return true;
}

void C10dWork::abort() { work_->abort(); }

c10::intrusive_ptr<c10::ivalue::Future> C10dWork::getFuture() {
  isCompleted();
  auto watcher = watcher_.lock();
  if (watcher == nullptr) abandon("the group has been shut down");
  const std::lock_guard lock(settling_);
  if (future_ != nullptr) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  if (settled_) {
    complete(*future_);
  } else {
    watcher->watch(c10::intrusive_ptr<C10dWork>::reclaim_copy(this));
  }
  return future_;
}

void C10dWork::wait_briefly(std::chrono::milliseconds limit) noexcept {
  try {
    static_cast<void>(work_->wait_for(limit));
  } catch (const std::exception&) {
    // settle() reports it.
  }
}

// Makes the outcome of a finished work visible.
void C10dWork::settle() {
  std::exception_ptr error;
  try {
    as_c10d_errors([&] { work_->wait(); });
  } catch (...) {
    error = std::current_exception();
  }
  conclude(error);
}

void C10dWork::abandon(const std::string& reason) {
  try {
    C10_THROW_ERROR(DistBackendError, concat(c10d::opTypeToString(description_.type), " #",
                                             description_.sequence, ": ", reason));
  } catch (...) {
    conclude(std::current_exception());
  }
}

void C10dWork::conclude(std::exception_ptr error) {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    const std::lock_guard lock(settling_);
    if (std::exchange(settled_, true)) return;
    const auto epilogue = std::exchange(epilogue_, nullptr);
    if (error == nullptr && epilogue) {
      try {
        epilogue();
      } catch (...) {
        error = std::current_exception();
      }
    }
    finish(error);
    future = future_;
  }
  if (future != nullptr) complete(*future);
}

void C10dWork::complete(c10::ivalue::Future& future) const {
  if (const std::exception_ptr error = exception()) {
    future.setErrorIfNeeded(error);
  } else {
    future.markCompleted(c10::IValue(description_.outputs));
  }
}

struct C10dWatcher::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<c10::intrusive_ptr<C10dWork>> works;  // oldest first
  bool stop = false;
  bool ended = false;
  std::thread thread;

  void loop() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return stop || !works.empty(); });
      auto looked_at = works;
      const bool is_last = stop;
      lock.unlock();
      if (!is_last) looked_at.front()->wait_briefly(kSlice);
      std::vector<c10::intrusive_ptr<C10dWork>> pending;
      for (auto& work : looked_at) {
        if (work->isCompleted()) continue;
        if (is_last) {
          work->abandon("the group has been shut down");
        } else {
          pending.push_back(std::move(work));
        }
      }
      const size_t num_looked_at = looked_at.size();
      lock.lock();
      pending.insert(pending.end(), works.begin() + static_cast<std::ptrdiff_t>(num_looked_at),
                     works.end());
      std::swap(works, pending);
      // Freeing the last reference to a tensor may wait for a lock that a caller of watch() holds,
      // such as Python's interpreter lock.
      lock.unlock();
      looked_at.clear();
      pending.clear();
      lock.lock();
      if (is_last && works.empty()) break;
    }
    ended = true;
    changed.notify_all();
  }
};

C10dWatcher::C10dWatcher() : state_(std::make_shared<State>()) {}

C10dWatcher::~C10dWatcher() {
  std::unique_lock lock(state_->mutex);
  if (!state_->thread.joinable()) return;
  state_->stop = true;
  state_->changed.notify_all();
  // A callback may wait for something that the caller holds, such as Python's interpreter lock.
  const bool ended =
      state_->changed.wait_for(lock, kLongestFarewell, [this] { return state_->ended; });
  std::thread thread = std::move(state_->thread);
  lock.unlock();
  if (ended) {
    thread.join();
  } else {
    thread.detach();
  }
}

void C10dWatcher::watch(c10::intrusive_ptr<C10dWork> work) {
  const std::lock_guard lock(state_->mutex);
  state_->works.push_back(std::move(work));
  if (!state_->thread.joinable()) {
    state_->thread = std::thread([state = state_] { state->loop(); });
  }
  state_->changed.notify_all();
}

}  // namespace trireme::comm
