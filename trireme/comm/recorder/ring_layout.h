// The bytes of a flight recorder's ring, shared by its writer (recorder.cc) and its reader
// (ring.cc). docs/design/recorder-format.md gives their meaning.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace trireme::comm {

inline constexpr char kRingMagic[8] = {'T', 'R', 'I', 'R', 'I', 'N', 'G', '\0'};
inline constexpr uint32_t kRingVersion = 1;
inline constexpr uint32_t kRingHeaderBytes = 4096;
// Limits that readers accept. No writer exceeds them.
inline constexpr uint32_t kMostGroups = 1 << 12;
inline constexpr uint32_t kMostMembers = 1 << 23;
inline constexpr uint32_t kMostRecords = 1 << 20;
inline constexpr int32_t kMostRanks = 1 << 18;
inline constexpr int64_t kMostNs = int64_t{1}
                                   << 60;           // 36 years: no time is further from its origin
inline constexpr uint64_t kWriting = ~uint64_t{0};  // stamp of a record that is being filled in

struct RingHeader {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;
  uint32_t max_groups;
  uint32_t max_members;
  uint32_t max_records;  // a power of two
  uint32_t record_bytes;
  int32_t rank;
  int32_t world_size;
  int64_t process_id;
  uint64_t process_start;
  uint64_t pid_namespace;
  int64_t wall_offset_ns;  // wall clock minus monotonic clock
  int64_t created_ns;      // monotonic, like every time below
  char boot_id[40];
  char host[72];
  char job[128];
  char checksum[16];  // of all bytes before it
  // The writer changes the fields from here on.
  int64_t closed_ns;    // 0: still open, or killed
  uint32_t num_groups;  // complete ones
  uint32_t num_members;
  char padding[32];
  uint64_t next_number;  // on its own cache line
  uint64_t num_dropped;
};
static_assert(offsetof(RingHeader, boot_id) == 80 && offsetof(RingHeader, checksum) == 320);
static_assert(offsetof(RingHeader, closed_ns) == 336 && offsetof(RingHeader, next_number) == 384);

struct GroupSlot {
  char name[64];
  uint32_t num_members;
  uint32_t first_member;  // index into the members
  uint64_t num_collectives;
  uint64_t num_point_to_point;
  char padding[40];
};
static_assert(sizeof(GroupSlot) == 128 && offsetof(GroupSlot, num_collectives) == 72);

struct RecordSlot {
  uint64_t stamp;  // 0: never used; kWriting; else number + 1
  uint64_t sequence;
  int64_t issued_ns;
  int64_t started_ns;  // 0: not yet
  int64_t ended_ns;    // 0: not yet
  uint32_t state;      // CallState
  int32_t group;       // -1: the table was full
  int32_t peer;
  int32_t tag;
  int8_t dtype;
  int8_t reduce_op;
  uint8_t flags;
  uint8_t num_dims;
  uint32_t thread;     // that issued it; 0: unknown
  char operation[24];  // ends in a zero
  int64_t shape[4];
  int64_t elements;
};
static_assert(sizeof(RecordSlot) == 128 && offsetof(RecordSlot, operation) == 64);

inline constexpr uint8_t kBackground = 1;
inline constexpr uint8_t kPointToPoint = 2;
inline constexpr uint8_t kStep =
    4;  // no call: a step, with its number as sequence, see recorder-format.md
inline constexpr size_t kRecordWords = sizeof(RecordSlot) / sizeof(uint64_t);

// The sections in order: header, groups, members (int32), records.
inline constexpr size_t groups_offset() { return kRingHeaderBytes; }
inline constexpr size_t members_offset(const RingHeader& header) {
  return groups_offset() + size_t{header.max_groups} * sizeof(GroupSlot);
}
inline constexpr size_t records_offset(const RingHeader& header) {
  return members_offset(header) + size_t{header.max_members} * sizeof(int32_t);
}
inline constexpr size_t ring_bytes(const RingHeader& header) {
  return records_offset(header) + size_t{header.max_records} * sizeof(RecordSlot);
}
inline constexpr size_t kMostRingBytes = kRingHeaderBytes + kMostGroups * sizeof(GroupSlot) +
                                         kMostMembers * sizeof(int32_t) +
                                         kMostRecords * sizeof(RecordSlot);

// Readers map the file read-only, so a load must be one instruction and never a store.
static_assert(std::atomic_ref<uint64_t>::is_always_lock_free);
template <typename T>
T load(const T& word, std::memory_order order = std::memory_order_acquire) {
  return std::atomic_ref<T>(const_cast<T&>(word)).load(order);
}
template <typename T>
void store(T& word, T value, std::memory_order order = std::memory_order_release) {
  std::atomic_ref<T>(word).store(value, order);
}

}  // namespace trireme::comm
