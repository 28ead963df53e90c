#include "trireme/comm/c10d/completion_watch.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <optional>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace trireme::comm {
namespace {

// Short compared with a step, long compared with a poll.
constexpr std::chrono::milliseconds kWatchInterval(5);
// For works that are still running when the watch ends.
constexpr std::chrono::milliseconds kLastPatience(50);

c10::Device current_device(c10::DeviceType type) {
  return type == c10::DeviceType::CPU ? c10::Device(type)
                                      : c10::impl::VirtualGuardImpl(type).getDevice();
}

}  // namespace

CompletionWatch::CompletionWatch(c10::DeviceType device) : device_(current_device(device)) {}

CompletionWatch::~CompletionWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CompletionWatch::add(Works works, std::function<void(bool)> on_end) {
  {
    const std::lock_guard lock(mutex_);
    added_.push_back({std::move(works), std::move(on_end)});
    // Made with the first work: many groups never need it.
    if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  }
  changed_.notify_all();
}

// Returns whether the works are done, after calling on_end.
bool CompletionWatch::end_if_done(const Watched& watched) {
  bool succeeded = false;
  try {
    const auto is_done = [](const auto& work) { return work->isCompleted(); };
    if (!std::ranges::all_of(watched.works, is_done)) return false;
    const auto has_failed = [](const auto& work) { return work->exception() != nullptr; };
    succeeded = std::ranges::none_of(watched.works, has_failed);
  } catch (const std::exception&) {
    // The device's error is reported to the work's waiter.
  }
  watched.on_end(succeeded);
  return true;
}

void CompletionWatch::loop() {
  try {
    // Without this, the first poll would make a context on the first GPU.
    if (!device_.is_cpu()) c10::impl::VirtualGuardImpl(device_.type()).setDevice(device_);
  } catch (const std::exception&) {
    // If the device has failed, each work reports it.
  }
  std::vector<Watched> watched;
  std::optional<std::chrono::steady_clock::time_point> end;
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto has_news = [this] { return stop_ || !added_.empty(); };
    if (watched.empty()) {
      changed_.wait(lock, has_news);
    } else {
      // Works that are added now wait for the next poll.
      changed_.wait_for(lock, kWatchInterval, [this] { return stop_; });
    }
    const auto now = std::chrono::steady_clock::now();
    if (stop_ && !end) end = now + kLastPatience;
    std::ranges::move(std::exchange(added_, {}), std::back_inserter(watched));
    lock.unlock();
    // Without the lock, as on_end is the caller's.
    std::erase_if(watched, end_if_done);
    if (end && (watched.empty() || now > *end)) return;
    // At the end there is nothing to disturb, and somebody waits.
    if (end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
  }
}

}  // namespace trireme::comm
