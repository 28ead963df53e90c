#include "trireme/comm/c10d/completion_watch.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace trireme::comm {
namespace {

// Short beside a step, long beside a look.
constexpr std::chrono::milliseconds kSlice(5);

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
    if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  }
  changed_.notify_all();
}

void CompletionWatch::loop() {
  // Otherwise the first look would make a context on the first GPU.
  if (!device_.is_cpu()) c10::impl::VirtualGuardImpl(device_.type()).setDevice(device_);
  std::vector<Watched> watched;
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto has_news = [this] { return stop_ || !added_.empty(); };
    if (watched.empty()) {
      changed_.wait(lock, has_news);
    } else {
      changed_.wait_for(lock, kSlice, [this] { return stop_; });
    }
    if (stop_) return;
    std::ranges::move(std::exchange(added_, {}), std::back_inserter(watched));
    lock.unlock();
    std::erase_if(watched, [](const Watched& each) {
      if (!std::ranges::all_of(each.works, [](const auto& work) { return work->isCompleted(); })) {
        return false;
      }
      each.on_end(std::ranges::all_of(
          each.works, [](const auto& work) { return work->exception() == nullptr; }));
      return true;
    });
    lock.lock();
  }
}

}  // namespace trireme::comm
