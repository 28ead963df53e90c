#include "trireme/checkpoint/write/saver.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/write/save_job.h"
#include "trireme/checkpoint/write/snapshot.h"
#include "trireme/comm/objects.h"

namespace trireme::checkpoint {

// At most one save is under way. Its thread owns a Task by a shared pointer, together with
// everything that the task uses: groups, memory, the list of earlier saves. A disk that never
// answers can then keep its thread for ever without keeping this object. Saves run over groups of
// their own, made in the constructor. Their calls come from another thread and must never be
// matched with those of the training; and a group that is made at the first save could find the
// shared memory full. An error stays in the task until finish(), which throws it on all ranks in
// the same call.

using Clock = std::chrono::steady_clock;

// A save and its end.
struct Saver::Task {
  Task(std::vector<SaveTarget> targets, int64_t step, std::span<const Entry> entries,
       const std::string& state, comm::Communicator& world, SnapshotMemory* memory,
       EarlierSaves& earlier)
      : job(std::move(targets), step, entries, state, world, memory, earlier) {}

  void run(comm::Communicator& group, comm::Communicator& lane) {
    std::exception_ptr failure;
    // Nothing leaves the thread as an exception.
    try {
      job.finish(group, lane);
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    error = failure;
    took = Clock::now() - start;
    is_done = true;
    changed.notify_all();
  }
  bool wait_for(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, time, [this] { return is_done; });
  }

  const Clock::time_point start = Clock::now();
  SaveJob job;
  std::chrono::nanoseconds stall{0};
  std::thread thread;
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  std::exception_ptr error;
  std::chrono::nanoseconds took{0};
};

Saver::Saver(comm::Communicator& world, const SaverOptions& options)
    : world_(world), earlier_(std::make_shared<EarlierSaves>()) {
  // Only when it is needed: a group takes shared memory.
  if (options.has_replicas) lane_ = world_.split(0, world_.rank(), "replicas");
  if (!options.in_background) return;
  group_ = world_.split(0, world_.rank(), "checkpoint");
  memory_ = std::make_shared<SnapshotMemory>();
}

Saver::~Saver() {
  if (!task_ || !task_->thread.joinable()) return;
  // The thread waits in collectives that its peers will not join any more.
  group_->abort("the run ended during a save");
  if (lane_) lane_->abort("the run ended during a save");
  // A few seconds for a write that is under way. After that the process may end without it.
  if (task_->wait_for(std::chrono::seconds(5))) {
    task_->thread.join();
  } else {
    task_->thread.detach();  // its disk does not answer
  }
}

bool Saver::is_busy() const { return task_ != nullptr; }

void Saver::start(std::vector<SaveTarget> targets, int64_t step, std::span<const Entry> entries,
                  const std::string& state) {
  TRIREME_ASSERT(!is_busy(), "a save of step ", step, " before the end of the one before");
  on_wait_ = targets.front().options.on_wait;
  auto task = std::make_shared<Task>(std::move(targets), step, entries, state, world_,
                                     memory_.get(), *earlier_);
  if (!group_) {
    // In the caller's thread, and over its groups: nothing else runs.
    task->run(world_, lane_ ? *lane_ : world_);
    task->stall = task->took;
    task_ = std::move(task);
    return;
  }
  task->job.be_quiet();  // the caller reports waits, in finish()
  task->stall = Clock::now() - task->start;
  // Shared pointers, see above.
  task->thread = std::thread([task, group = group_, lane = lane_, memory = memory_,
                              earlier = earlier_] { task->run(*group, lane ? *lane : *group); });
  task_ = std::move(task);
}

std::optional<Saved> Saver::finish(bool waits) {
  if (!task_) return std::nullopt;
  const bool is_background = task_->thread.joinable();
  if (is_background && !waits) {
    // Asked of all: ranks finish at different times, and all must go the same way.
    const int64_t is_done = task_->wait_for(std::chrono::milliseconds(0)) ? 1 : 0;
    if (std::ranges::count(comm::all_gather_numbers(world_, is_done), 0) > 0) return std::nullopt;
  }
  const std::shared_ptr<Task> task = task_;
  const auto wait = [&](const Peers& peers) {
    // In short waits, so that a lost peer is noticed.
    while (!task->wait_for(std::chrono::milliseconds(50))) peers.check();
    if (task->thread.joinable()) task->thread.join();
    was_refused_ = !task->job.is_checked();
    if (task->error) std::rethrow_exception(task->error);
  };
  if (!is_background) {
    task_.reset();
    was_refused_ = !task->job.is_checked();
    if (task->error) std::rethrow_exception(task->error);
  } else {
    try {
      run_or_throw(world_, wait, on_wait_);
    } catch (...) {
      // A task that is not joined is still using its memory.
      if (!task->thread.joinable()) task_.reset();
      throw;
    }
    task_.reset();
  }
  return Saved{task->job.folder(), task->job.step(), task->stall, task->took};
}

void save(const std::filesystem::path& root, int64_t step, std::span<const Entry> entries,
          const std::string& state, comm::Communicator& world, const SaveOptions& options) {
  EarlierSaves earlier;
  SaveJob job({{root, options}}, step, entries, state, world, /*memory=*/nullptr, earlier);
  if (options.replicas == 0) return job.finish(world, world);
  job.finish(world, *world.split(0, world.rank(), "files"));
}

}  // namespace trireme::checkpoint
