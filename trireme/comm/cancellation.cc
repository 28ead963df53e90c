#include "trireme/comm/cancellation.h"

#include <utility>

#include "trireme/base/error.h"

namespace trireme::comm {

struct Cancellation::Watch::Entry {
  std::mutex mutex;  // held while `abort` runs
  Abort abort;       // null: called already, or its watch is gone

  void run(const std::string& reason) {
    // Held while it runs, so that the watch's destructor waits for it.
    const std::lock_guard lock(mutex);
    if (const Abort once = std::exchange(abort, nullptr)) once(reason);
  }
};

Cancellation::Watch::Watch(std::shared_ptr<Entry> entry) : entry_(std::move(entry)) {}

Cancellation::Watch::~Watch() {
  if (!entry_) return;
  const std::lock_guard lock(entry_->mutex);
  entry_->abort = nullptr;
}

void Cancellation::cancel(const std::string& reason) {
  std::vector<std::weak_ptr<Watch::Entry>> entries;
  {
    const std::lock_guard lock(mutex_);
    // The first reason counts.
    if (!reason_.empty()) return;
    reason_ = reason;
    entries.swap(entries_);
  }
  // Without the lock: what aborts may ask for the reason.
  for (const auto& each : entries) {
    if (const auto entry = each.lock()) entry->run(reason);
  }
}

std::string Cancellation::reason() const {
  const std::lock_guard lock(mutex_);
  return reason_;
}

void Cancellation::check(const std::string& doing) const {
  if (const std::string why = reason(); !why.empty()) throw CommError(concat(doing, ": ", why));
}

Cancellation::Watch Cancellation::watch(Abort abort) {
  auto entry = std::make_shared<Watch::Entry>();
  entry->abort = std::move(abort);
  std::string why;
  {
    const std::lock_guard lock(mutex_);
    // Groups come and go, and their entries would stay.
    std::erase_if(entries_, [](const auto& each) { return each.expired(); });
    entries_.push_back(entry);
    why = reason_;
  }
  // It was cancelled before the watch was made.
  if (!why.empty()) entry->run(why);
  return Watch(std::move(entry));
}

Cancellation::Watch watch(const std::shared_ptr<Cancellation>& cancellation,
                          Cancellation::Abort abort) {
  return cancellation ? cancellation->watch(std::move(abort)) : Cancellation::Watch();
}

std::string reason_of(const std::shared_ptr<Cancellation>& cancellation) {
  return cancellation ? cancellation->reason() : "";
}

}  // namespace trireme::comm
