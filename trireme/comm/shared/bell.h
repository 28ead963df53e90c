// A futex for processes that share memory. Sleepers wait for a condition on shared words; whoever
// changes one of these rings the bell. With no sleepers, ringing costs one load. The initial state
// is all zero.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace trireme::comm::inline internal {

// Pauses a rank between two polls of a word that another rank is about to change.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// No wake-up is lost: a sleeper counts itself before it checks the condition, and a ringer checks
// the count after it has changed the condition. All four accesses are sequentially consistent.
struct alignas(64) Bell {
  std::atomic<uint32_t> rings;
  std::atomic<uint32_t> sleepers;

  // Wakes all sleepers. The caller must change the condition first, by a sequentially consistent
  // store.
  void ring() {
    if (sleepers.load() != 0) wake_all();
  }
  // Sleeps until the bell rings, at most for `slice`. Returns at once when `done()` holds; its
  // loads must be sequentially consistent. Returns the last result of done().
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

}  // namespace trireme::comm::inline internal
