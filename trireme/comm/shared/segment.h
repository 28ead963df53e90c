// Memory that the ranks of one group share: ordinary memory of a process (ranks as threads) or a
// file in /dev/shm that several processes map. Knows who still lives; knows nothing of what the
// bytes mean.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

namespace trireme::comm {

// Unmapped by the destructor. Thread safe.
class Segment {
 public:
  virtual ~Segment() = default;
  virtual std::byte* data() const = 0;
  // The first `num_bytes` from `offset` on, of the reserved part, may be used from now on.
  // Throws: ConfigError when there is not enough memory, saying how much is needed
  virtual void commit(size_t offset, size_t num_bytes) = 0;
  // False once the process of an attached rank has ended, however it ended. Never blocks.
  virtual bool is_alive(int rank) const = 0;
  // No further rank attaches: takes the name away, so that nothing is left behind whatever happens
  // next.
  virtual void seal() = 0;
};

// Committed memory is there from the start; the reserved part behind it is only address space until
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
  // Zeroed memory; by rank 0, whose destructor takes the name away when seal() has not.
  // Throws: ConfigError when the name is in use or there is not enough memory
  virtual std::shared_ptr<Segment> create(const std::string& name, int rank, SegmentSize size) = 0;
  // Null when there is no such segment (yet), or only one whose rank 0 has died.
  // Throws: ConfigError when it is not one of this version, has another size, or another user may
  // have made or written it
  virtual std::shared_ptr<Segment> open(const std::string& name, int rank, SegmentSize size) = 0;
};

// For ranks that are threads: each factory is a namespace of its own, shared by the ranks.
std::shared_ptr<SegmentFactory> make_thread_segments();

// For processes of one host. Files are /dev/shm/trireme-<name>: a page that says whose and how
// large they are, then the data. A rank holds an open-file-description lock on byte `rank` of the
// file for as long as it lives: the kernel drops it at death, kill -9 included, so liveness needs
// no process ids. Forked children share the memory and not the lock.
std::shared_ptr<SegmentFactory> make_shm_segments();

// How large the host's shared memory may become, used or not.
size_t shared_memory_bytes();
// How much address space one group may reserve in each of its processes: the same on all of them
// where their limits (ulimit -v, -f) are the same.
size_t reservable_bytes();

// Removes this user's files of groups whose ranks have all died before they could seal. Opens and
// removes nobody else's. Returns how many.
int sweep_orphans();

}  // namespace trireme::comm
