#include "trireme/dataset/batch_reader.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

namespace trireme::dataset {

using Clock = std::chrono::steady_clock;

BatchReader::BatchReader(const Source& source, const BatchOptions& batches,
                         const BatchReaderOptions& options)
    : loader_(source, batches), options_(options) {
  for (int i = 0; i < options.num_workers; ++i) workers_.emplace_back([this] { work(); });
}

BatchReader::~BatchReader() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

Batch BatchReader::read(int64_t step, int64_t index) {
  const int64_t number = step * loader_.num_microbatches() + index;
  if (!peeked_.empty() && peeked_.front().first == number) {
    Batch batch = std::move(peeked_.front().second);
    peeked_.pop_front();
    return batch;
  }
  peeked_.clear();
  return read_next(number);
}

std::vector<Batch> BatchReader::peek(int64_t step) {
  const int64_t M = loader_.num_microbatches();
  peeked_.clear();
  std::vector<Batch> batches;
  for (int64_t number = step * M; number < (step + 1) * M; ++number) {
    batches.push_back(read_next(number));
    peeked_.emplace_back(number, batches.back());
  }
  return batches;
}

Batch BatchReader::read_next(int64_t number) {
  const auto start = Clock::now();
  if (workers_.empty()) {
    Batch batch = load(number);
    waiting_ += Clock::now() - start;
    return batch;
  }
  std::shared_ptr<Slot> slot;
  {
    std::unique_lock lock(mutex_);
    if (slots_.empty() || slots_.front()->number != number) restart(number);
    slot = slots_.front();
    changed_.wait(lock, [&] { return slot->is_done; });
    slots_.pop_front();
    refill();
  }
  changed_.notify_all();
  waiting_ += Clock::now() - start;
  if (slot->error) std::rethrow_exception(slot->error);
  return std::move(*slot->batch);
}

std::chrono::nanoseconds BatchReader::take_waiting() {
  return std::exchange(waiting_, std::chrono::nanoseconds(0));
}

// Workers may still be reading what is dropped; they share their slots.
void BatchReader::restart(int64_t number) {
  slots_.clear();
  next_number_ = number;
  add_slot();
  refill();
  changed_.notify_all();
}

void BatchReader::refill() {
  const auto most = static_cast<size_t>(options_.num_workers * options_.num_ahead);
  const int64_t end = options_.num_steps * loader_.num_microbatches();
  while (slots_.size() < most && next_number_ < end) add_slot();
}

void BatchReader::add_slot() {
  slots_.push_back(std::make_shared<Slot>(Slot{.number = next_number_++}));
}

Batch BatchReader::load(int64_t number) {
  const int64_t M = loader_.num_microbatches();
  Batch batch = loader_.microbatch(number / M, number % M);
  if (options_.device.is_cpu()) return batch;
  for (auto& [name, tensor] : batch.tensors) tensor = tensor.pin_memory();
  return batch;
}

void BatchReader::work() {
  if (!options_.device.is_cpu()) {  // pinned memory belongs to a thread's device
    c10::impl::VirtualGuardImpl(options_.device.type()).setDevice(options_.device);
  }
  std::unique_lock lock(mutex_);
  const auto untaken = [this] {
    return std::ranges::find(slots_, false, [](const auto& slot) { return slot->is_taken; });
  };
  while (true) {
    changed_.wait(lock, [&] { return is_ending_ || untaken() != slots_.end(); });
    if (is_ending_) return;
    const std::shared_ptr<Slot> slot = *untaken();
    slot->is_taken = true;
    lock.unlock();
    std::optional<Batch> batch;
    std::exception_ptr error;
    try {
      batch = load(slot->number);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    slot->batch = std::move(batch);
    slot->error = error;
    slot->is_done = true;
    changed_.notify_all();
  }
}

}  // namespace trireme::dataset
