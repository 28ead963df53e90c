// A futex for processes that share memory: sleepers wait for a condition over shared words; whoever
// changes one rings. Costs the ringer one load when nobody sleeps. All zero is its initial state.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace trireme::comm {

// A rank between two looks at a word that another is about to change.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// No lost wake-up: a sleeper counts itself before it looks at the condition, a ringer looks at the
// count after it has changed the condition, and all four accesses are sequentially consistent.
struct alignas(64) Bell {
  std::atomic<uint32_t> rings;
  std::atomic<uint32_t> sleepers;

  // Wakes all who sleep here. The caller's change is a sequentially consistent store before it.
  void ring() {
    if (sleepers.load() != 0) wake_all();
  }
  // Sleeps until it is rung, at most for `slice`; returns at once when `done()`, whose loads are
  // sequentially consistent. Returns done(), as it was last seen.
  template <typename Done>
  bool sleep(const Done& done, std::chrono::nanoseconds slice) {
    sleepers.fetch_add(1);
    const uint32_t seen = rings.load();
    bool is_done = done();
    if (!is_done) {
      wait(seen, slice);
      is_done = done();
    }
    sleepers.fetch_sub(1);
    return is_done;
  }

 private:
  void wake_all();
  void wait(uint32_t seen, std::chrono::nanoseconds slice);
};

}  // namespace trireme::comm
