#include "trireme/base/machine/memory_ledger.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace trireme {
namespace {

// An allocator's interface has no argument for who asks, so the thread has to know.
thread_local const MemoryScope* innermost = nullptr;

// The process's ledgers, for threads that no scope has told.
struct LivingLedgers {
  std::mutex mutex;
  std::vector<std::weak_ptr<MemoryLedger>> all;

  void add(const std::shared_ptr<MemoryLedger>& ledger) {
    const std::lock_guard lock(mutex);
    std::erase_if(all, [](const auto& each) { return each.expired(); });
    all.push_back(ledger);
  }

  // Null unless exactly one lives.
  std::shared_ptr<MemoryLedger> only_one() {
    const std::lock_guard lock(mutex);
    std::shared_ptr<MemoryLedger> found;
    for (const auto& each : all) {
      std::shared_ptr<MemoryLedger> ledger = each.lock();
      if (ledger == nullptr) continue;
      if (found != nullptr) return nullptr;
      found = std::move(ledger);
    }
    return found;
  }
};

LivingLedgers& living_ledgers() {
  // Never destroyed: threads may allocate while the program ends.
  static auto* const ledgers = new LivingLedgers;
  return *ledgers;
}

}  // namespace

int64_t MemoryByKind::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
}

std::shared_ptr<MemoryLedger> MemoryLedger::make() {
  std::shared_ptr<MemoryLedger> ledger(new MemoryLedger);
  living_ledgers().add(ledger);
  return ledger;
}

void MemoryLedger::add(MemoryKind kind, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  int64_t& now = use_.now[kind];
  now += bytes;
  use_.most[kind] = std::max(use_.most[kind], now);
  total_ += bytes;
  if (total_ <= peak_) return;
  peak_ = total_;
  use_.at_peak = use_.now;
}

MemoryUse MemoryLedger::use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

void MemoryLedger::watch_blocks(MemoryBlocks::OnSnapshot on_snapshot) {
  blocks_ = std::make_unique<MemoryBlocks>(std::move(on_snapshot));
  watched_.store(blocks_.get(), std::memory_order_release);
}

MemoryOwner memory_owner() {
  MemoryOwner owner;
  if (innermost != nullptr) owner = innermost->owner_;
  if (owner.ledger == nullptr) owner.ledger = living_ledgers().only_one();
  return owner;
}

MemoryScope::MemoryScope(MemoryKind kind)
    : MemoryScope(kind, innermost == nullptr ? nullptr : innermost->owner_.ledger) {}

MemoryScope::MemoryScope(MemoryKind kind, std::shared_ptr<MemoryLedger> ledger)
    : owner_{std::move(ledger), kind}, outer_(std::exchange(innermost, this)) {}

MemoryScope::~MemoryScope() { innermost = outer_; }

MemoryCharge::MemoryCharge(int64_t bytes) : MemoryCharge(bytes, memory_owner()) {}

MemoryCharge::MemoryCharge(int64_t bytes, MemoryOwner owner)
    : bytes_(bytes), owner_(std::move(owner)) {
  if (owner_.ledger == nullptr) return;
  owner_.ledger->add(owner_.kind, bytes_);
  if (MemoryBlocks* const blocks = owner_.ledger->blocks(); blocks != nullptr && bytes_ > 0)
    block_ = blocks->add(owner_.kind, bytes_);
}

MemoryCharge::~MemoryCharge() {
  if (owner_.ledger == nullptr) return;
  owner_.ledger->add(owner_.kind, -bytes_);
  if (block_ != 0) owner_.ledger->blocks()->remove(block_);
}

MemoryCharge::MemoryCharge(MemoryCharge&& other) noexcept
    : bytes_(std::exchange(other.bytes_, 0)),
      block_(std::exchange(other.block_, 0)),
      owner_(std::exchange(other.owner_, {})) {}

MemoryCharge& MemoryCharge::operator=(MemoryCharge&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(block_, other.block_);
  std::swap(owner_, other.owner_);
  return *this;
}

}  // namespace trireme
