#include "trireme/dataset/batch_reader.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

namespace trireme::dataset {

using Clock = std::chrono::steady_clock;

BatchReader::BatchReader(const Source& source, const BatchOptions& batches,
                         const BatchReaderOptions& options)
    : loader_(std::make_shared<BatchLoader>(source, batches)), options_(options) {
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
  const Position position{step, index};
  if (!peeked_.empty() && peeked_.front().first == position) {
    Batch batch = std::move(peeked_.front().second);
    peeked_.pop_front();
    return batch;
  }
  peeked_.clear();
  return read_next(position);
}

std::vector<Batch> BatchReader::peek(int64_t step) {
  peeked_.clear();
  std::vector<Batch> batches;
  for (Position position{step, 0}; position.step == step; position = after(position)) {
    batches.push_back(read_next(position));
    peeked_.emplace_back(position, batches.back());
  }
  return batches;
}

void BatchReader::use_shares(std::vector<Shares> shares) {
  auto loader = std::make_shared<BatchLoader>(loader_->with(std::move(shares)));
  peeked_.clear();
  const std::lock_guard lock(mutex_);
  loader_ = std::move(loader);
  slots_.clear();  // the next read starts anew
}

BatchReader::Position BatchReader::after(Position position) const {
  const bool is_last = position.index + 1 == loader_->num_microbatches(position.step);
  return is_last ? Position{position.step + 1, 0} : Position{position.step, position.index + 1};
}

Batch BatchReader::read_next(Position position) {
  const auto start = Clock::now();
  if (workers_.empty()) {
    Batch batch = load(*loader_, position);
    waiting_ += Clock::now() - start;
    return batch;
  }
  std::shared_ptr<Slot> slot;
  {
    std::unique_lock lock(mutex_);
    if (slots_.empty() || slots_.front()->position != position) restart(position);
    slot = slots_.front();
    await(*slot, lock);
    slots_.pop_front();
    refill();
  }
  changed_.notify_all();
  waiting_ += Clock::now() - start;
  if (slot->error) std::rethrow_exception(slot->error);
  return std::move(*slot->batch);
}

void BatchReader::await(const Slot& slot, std::unique_lock<std::mutex>& lock) {
  constexpr std::chrono::milliseconds kBetweenCalls{500};
  const auto is_done = [&slot] { return slot.is_done; };
  if (!options_.on_wait) return changed_.wait(lock, is_done);
  while (!changed_.wait_for(lock, kBetweenCalls, is_done)) {
    lock.unlock();
    options_.on_wait();
    lock.lock();
  }
}

std::chrono::nanoseconds BatchReader::take_waiting() {
  return std::exchange(waiting_, std::chrono::nanoseconds(0));
}

// Workers may still be reading what is dropped; they share their slots.
void BatchReader::restart(Position position) {
  slots_.clear();
  next_ = position;
  add_slot();
  refill();
  changed_.notify_all();
}

void BatchReader::refill() {
  const auto most = static_cast<size_t>(options_.num_workers * options_.num_ahead);
  while (slots_.size() < most && next_.step < options_.num_steps) add_slot();
}

void BatchReader::add_slot() {
  slots_.push_back(std::make_shared<Slot>(Slot{.position = next_}));
  next_ = after(next_);
}

Batch BatchReader::load(const BatchLoader& loader, Position position) const {
  Batch batch = loader.microbatch(position.step, position.index);
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
    const std::shared_ptr<const BatchLoader> loader = loader_;
    lock.unlock();
    std::optional<Batch> batch;
    std::exception_ptr error;
    try {
      batch = load(*loader, slot->position);
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
