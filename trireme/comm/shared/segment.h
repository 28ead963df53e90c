// Memory that the ranks of one group share: ordinary memory of a process (ranks as threads) or a
// file in /dev/shm that several processes map. Knows which ranks are alive, but not what the bytes
// mean. A Bell in it wakes ranks that sleep.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace trireme::comm {

// The destructor unmaps it. Thread safe.
class Segment {
 public:
  virtual ~Segment() = default;
  virtual std::byte* data() const = 0;
  // Makes the first `num_bytes` from `offset` on usable, within the reserved part.
  // Throws: ConfigError when there is not enough memory, with the amount needed
  virtual void commit(size_t offset, size_t num_bytes) = 0;
  // False once the process of an attached rank has ended in any way. Never blocks.
  virtual bool is_alive(int rank) const = 0;
  // Call when all ranks have attached. Removes the name, so that nothing is left behind whatever
  // happens next.
  virtual void seal() = 0;
};

// Committed memory is there from the start. The reserved part behind it is only address space until
// commit().
struct SegmentSize {
  size_t committed = 0;
  size_t reserved = 0;
  size_t total() const { return committed + reserved; }
  bool operator==(const SegmentSize&) const = default;
};

// Makes and finds segments by name. One creates, the others open.
class SegmentFactory {
 public:
  virtual ~SegmentFactory() = default;
  // Makes zeroed memory. Rank 0 calls this; its destructor removes the name unless seal() has.
  // Throws: ConfigError when the name is in use or there is not enough memory
  virtual std::shared_ptr<Segment> create(const std::string& name, int rank, SegmentSize size) = 0;
  // Null when there is no such segment (yet), or only one whose rank 0 has died.
  // Throws: ConfigError when it is of another version or size, or when another user may have made
  //         or written it
  virtual std::shared_ptr<Segment> open(const std::string& name, int rank, SegmentSize size) = 0;
};

// For ranks that are threads. Each factory is its own namespace, which the ranks share.
std::shared_ptr<SegmentFactory> make_thread_segments();

// For processes of one host. The files are /dev/shm/trireme-<name>: a page with magic and sizes,
// then the data. A rank holds an open-file-description lock on byte `rank` of the file while it
// lives. The kernel drops the lock when the rank dies, even by kill -9, so no process ids are
// needed. Forked children share the memory but not the lock.
std::shared_ptr<SegmentFactory> make_shm_segments();

// The limit on the host's shared memory, used or not.
size_t shared_memory_bytes();
// Whether a ConfigError's message says that the host has too little.
bool is_shared_memory_full(std::string_view message);
// How much address space a group may reserve in each of its processes. The same on all of them if
// their limits (ulimit -v, -f) are.
size_t reservable_bytes();

// Removes this user's files of groups whose ranks all died before they could seal. Never opens or
// removes other users' files. Returns how many it removed.
int sweep_orphans();

// Pauses a rank between two polls of a word that another rank is about to change.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A futex for processes that share memory. Sleepers wait for a condition on shared words; whoever
// changes one of these rings the bell. With no sleepers, ringing costs one load. The initial state
// is all zero.
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

}  // namespace trireme::comm
