#include "trireme/comm/c10d/c10d_work.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ThreadLocalState.h>
#include <ATen/core/jit_type.h>
#include <ATen/record_function.h>
#include <c10/util/Exception.h>

#include "trireme/base/error.h"
#include "trireme/comm/c10d/gloo_behaviour.h"

namespace trireme::comm {
namespace {

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
  // Without a profiler this is all that it costs.
  if (recordFunctionEndCallback_) record_as_gloo();
  // Only the profiler wants them. Kept, they would hold their memory.
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
  // A call in the foreground is done already.
  isCompleted();
}

bool C10dWork::isCompleted() {
  if (work_->poll()) settle();
  return c10d::Work::isCompleted();
}

bool C10dWork::isSuccess() const {
  // c10d's interface is const, but asking settles the work.
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
  // Under the lock, so that either conclude() sees the future or this call the outcome.
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
    // Once: several threads may wait.
    if (std::exchange(settled_, true)) return;
    const auto epilogue = std::exchange(epilogue_, nullptr);
    if (error == nullptr && epilogue) {
      // Under the lock, so that nobody sees the result before it is copied back.
      try {
        epilogue();
      } catch (...) {
        error = std::current_exception();
      }
    }
    finish(error);
    future = future_;
  }
  // Without the lock: a callback may wait for this work.
  if (future != nullptr) complete(*future);
}

void C10dWork::complete(c10::ivalue::Future& future) const {
  if (const std::exception_ptr error = exception()) {
    future.setErrorIfNeeded(error);
  } else {
    future.markCompleted(c10::IValue(description_.outputs));
  }
}

// A future's callbacks may do anything, such as wait for another work or for Python's interpreter
// lock. So the thread that runs a callback is never the only one: before it completes a work it
// makes sure that another thread takes the next task. One thread at a time watches. It sleeps on
// the oldest work, because collectives finish in order and wake it. The state outlives the watcher:
// a callback that never returns keeps its thread, which is then left behind.

namespace {

// While it sleeps on the oldest work, the watching thread polls all others this often, because
// point-to-point works may finish in any order. Collectives finish in call order and wake it
// themselves.
constexpr std::chrono::milliseconds kSlice(2);
constexpr std::chrono::seconds kLongestFarewell(2);

}  // namespace

// Every thread runs loop(): it completes a work that is done, or becomes the one that watches.
class C10dWatcher::State : public std::enable_shared_from_this<State> {
 public:
  void add(c10::intrusive_ptr<C10dWork> work) {
    const std::lock_guard lock(mutex_);
    works_.push_back(std::move(work));
    find_thread();
  }
  // Ends the threads. Those that have not ended after `patience` are left to themselves.
  void end(std::chrono::milliseconds patience);

 private:
  using Works = std::deque<c10::intrusive_ptr<C10dWork>>;

  bool has_task() const { return !done_.empty() || (!is_watched_ && !works_.empty()); }
  void find_thread();
  void loop();
  void watch_once(std::unique_lock<std::mutex>& lock);
  void complete_one(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable ended_;
  Works works_;  // oldest first
  Works done_;   // their futures are not completed yet
  bool is_watched_ = false;
  bool stop_ = false;
  bool is_left_ = false;  // nobody joins further threads
  size_t num_running_ = 0;
  size_t num_idle_ = 0;
  std::vector<std::thread> threads_;
};

// Call with the lock. Makes sure that a thread takes the next task, whatever the others wait for.
void C10dWatcher::State::find_thread() {
  if (!has_task()) return;
  if (num_idle_ > 0) return changed_.notify_one();
  try {
    std::thread thread([state = shared_from_this()] { state->loop(); });
    ++num_running_;
    if (is_left_) return thread.detach();
    threads_.push_back(std::move(thread));
  } catch (const std::system_error&) {
    // Then nobody would ever complete a work.
    if (num_running_ == 0) throw;
    // The system has no thread left for us. A running one takes the task when its callback ends.
  }
}

void C10dWatcher::State::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++num_idle_;
    changed_.wait(lock, [this] { return stop_ || has_task(); });
    --num_idle_;
    // Not before all works are completed or abandoned.
    if (!has_task()) break;
    if (done_.empty()) {
      watch_once(lock);
    } else {
      complete_one(lock);
    }
  }
  --num_running_;
  ended_.notify_all();
}

void C10dWatcher::State::watch_once(std::unique_lock<std::mutex>& lock) {
  is_watched_ = true;
  // A copy, polled without the lock.
  Works looked_at = works_;
  const bool is_last = stop_;
  lock.unlock();
  if (!is_last) looked_at.front()->wait_briefly(kSlice);
  // At the end all of them, and complete_one() abandons those that are not done.
  Works pending, done;
  for (const auto& work : looked_at) (is_last || work->poll() ? done : pending).push_back(work);
  lock.lock();
  // Those that have come meanwhile.
  pending.insert(pending.end(), works_.begin() + std::ssize(looked_at), works_.end());
  std::swap(works_, pending);
  done_.insert(done_.end(), done.begin(), done.end());
  is_watched_ = false;
  // Freeing the last reference to a tensor may wait for a lock that a caller of watch() holds, such
  // as Python's interpreter lock.
  lock.unlock();
  for (Works* works : {&looked_at, &pending, &done}) works->clear();
  lock.lock();
}

void C10dWatcher::State::complete_one(std::unique_lock<std::mutex>& lock) {
  auto work = std::move(done_.front());
  done_.pop_front();
  find_thread();  // a callback of this work may wait for another
  lock.unlock();
  if (!work->isCompleted()) work->abandon("the group has been shut down");
  work.reset();
  lock.lock();
}

void C10dWatcher::State::end(std::chrono::milliseconds patience) {
  // A callback may give up the last reference to the group.
  const auto is_self = [](const std::thread& thread) {
    return thread.get_id() == std::this_thread::get_id();
  };
  std::unique_lock lock(mutex_);
  stop_ = true;
  changed_.notify_all();
  const auto num_self = static_cast<size_t>(std::ranges::count_if(threads_, is_self));
  // A callback may wait for something that the caller holds, such as Python's interpreter lock.
  const bool have_ended = ended_.wait_for(lock, patience, [&] { return num_running_ <= num_self; });
  // Threads that begin from now on detach themselves.
  is_left_ = true;
  std::vector<std::thread> threads = std::move(threads_);
  lock.unlock();
  for (std::thread& thread : threads) {
    if (have_ended && !is_self(thread)) {
      thread.join();
    } else {
      thread.detach();
    }
  }
}

C10dWatcher::C10dWatcher() : state_(std::make_shared<State>()) {}

C10dWatcher::~C10dWatcher() { state_->end(kLongestFarewell); }

void C10dWatcher::watch(c10::intrusive_ptr<C10dWork> work) { state_->add(std::move(work)); }

}  // namespace trireme::comm
