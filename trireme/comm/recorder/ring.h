// Reads a flight recorder's ring from its file: one rank's groups and latest calls. Reads rings of
// live and dead runs, even while they are written. Never writes one; recorder.h does.
// The bytes: docs/design/recorder-format.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::comm {

// A point of wall-clock time, by the recording rank's clocks.
using WallTime = std::chrono::sys_time<std::chrono::nanoseconds>;

enum class CallState : uint32_t { kIssued, kStarted, kDone, kFailed };

// The latest state of one of a rank's calls.
struct Record {
  uint64_t number = 0;    // among all this rank's calls, from 0; skipped for a slot in use
  uint64_t sequence = 0;  // from 1, among this rank's collectives of the group, or
                          // sends and recvs there
  int group = -1;         // index into Ring::groups; -1: the table was full
  std::string operation;
  std::vector<int64_t> shape;  // the first 4 lengths
  int num_dims = 0;
  int64_t elements = -1;  // all ranks must agree on it; -1: may differ
  int dtype = -1;         // c10::ScalarType; -1: none
  int reduce_op = -1;     // ReduceOp; -1: none
  int peer = -1;          // root of a collective, peer of a send or recv; -1: none, or any source
  int tag = 0;
  uint32_t thread = 0;  // that issued it, see own_thread_id(); 0: unknown
  bool is_point_to_point = false;
  bool is_background = false;
  CallState state = CallState::kIssued;
  WallTime issued, started, ended;  // zero until it happens
};

// A step of the training loop. It spans calls and is none itself.
struct RecordedStep {
  uint64_t number = 0;  // among this rank's calls and steps
  int64_t step = 0;
  CallState state = CallState::kStarted;
  WallTime began, ended;               // ended: zero until it happens
  std::chrono::nanoseconds waiting{};  // of it, for communication; known once it is done
};

struct RecordedGroup {
  std::string name;
  std::vector<int> world_ranks;  // in rank order
  // Calls issued so far, including those that the ring has overwritten.
  uint64_t num_collectives = 0;
  uint64_t num_point_to_point = 0;
};

// One rank's ring.
struct Ring {
  int rank = 0;
  int world_size = 1;
  std::string job;
  std::string host;
  std::string boot_id;
  uint64_t pid_namespace = 0;
  int64_t process_id = 0;
  uint64_t process_start = 0;  // clock ticks after boot
  WallTime created;
  // The rank's wall clock minus its monotonic clock. All times below include it.
  std::chrono::nanoseconds wall_offset{};
  std::optional<WallTime> closed{};  // the rank ended normally, in success or failure
  WallTime now{};                    // when the ring was read, by the rank's clocks
  std::vector<RecordedGroup> groups{};
  std::vector<Record> records{};      // ordered by number
  std::vector<RecordedStep> steps{};  // ordered by number
  uint64_t num_torn = 0;              // records left out because they were being written
  uint64_t num_dropped = 0;           // calls that found every slot taken by an unfinished call
};

// File name of a rank's ring in the recorder's folder: "rank-00012.ring".
std::string ring_name(int rank);
// Its name while the run starts: "rank-00012.0123456789abcdef.new". It depends on `start`, a text
// that identifies the job and the process.
std::string unpublished_ring_name(int rank, const std::string& start);

// `source` names the bytes in errors. Leaves out calls and steps that ended before `since`, a time
// of this ring, so that reading what is new costs little.
// Throws: ConfigError when they are not a ring, are corrupt, or have a newer format
Ring parse_ring(std::span<const std::byte> bytes, const std::string& source, WallTime since = {});
Ring read_ring(const std::filesystem::path& path);

// The rings of the newest job in `folder`, by rank. Ignores rings that an earlier job left, and
// those of a job that is starting while another one runs there.
// Throws: ConfigError when there is no such folder, it has no ring, or a ring cannot be read
std::vector<Ring> read_rings(const std::filesystem::path& folder);
// Removes unpublished rings whose processes are gone.
void remove_abandoned_rings(const std::filesystem::path& folder);

// The state of the process that writes a ring.
enum class ProcessState {
  kRunning,
  kStopped,  // by SIGSTOP, a terminal or a debugger
  kGone,     // ended, or the machine has rebooted since
  kUnknown,  // on another host or in another pid namespace
};
ProcessState process_state(const Ring& ring);

// A rank's ring and the state of its process.
struct ObservedRank {
  Ring ring;
  ProcessState process = ProcessState::kRunning;
};

// Like read_rings(), with the states of the processes. A rank that ends meanwhile does not count as
// dead.
std::vector<ObservedRank> observe_ranks(const std::filesystem::path& folder);

// Identifies a process, even when another one has the same process id.
struct ProcessIdentity {
  std::string host;
  std::string boot_id;
  uint64_t pid_namespace = 0;
  int64_t process_id = 0;
  uint64_t process_start = 0;
};
ProcessIdentity own_identity();
// The calling thread's id. The kernel is asked only once, so this takes a nanosecond.
uint32_t own_thread_id();

}  // namespace trireme::comm
