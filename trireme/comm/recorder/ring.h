// A flight recorder's ring as it lies in its file: one rank's groups and its latest calls. Reads
// the rings of live and dead runs while they are written; never writes one (recorder.h does).
// The bytes: docs/recorder-format.md.
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

// A point of wall-clock time, by the clocks of the rank that recorded it.
using WallTime = std::chrono::sys_time<std::chrono::nanoseconds>;

enum class CallState : uint32_t { kIssued, kStarted, kDone, kFailed };

// One call of a rank, as it last was.
struct Record {
  uint64_t number = 0;    // of all this rank's calls, from 0; gaps are calls of an unfinished slot
  uint64_t sequence = 0;  // from 1: among this rank's collectives of the group, or among its
                          // sends and recvs there
  int group = -1;         // index into Ring::groups; -1: the table was full
  std::string operation;
  std::vector<int64_t> shape;  // the first 4 lengths
  int num_dims = 0;
  int64_t elements = -1;  // that all ranks must agree on; -1: may differ
  int dtype = -1;         // c10::ScalarType; -1: none
  int reduce_op = -1;     // ReduceOp; -1: none
  int peer = -1;          // root of a collective, peer of a send or recv; -1: none, or any source
  int tag = 0;
  uint32_t thread = 0;  // that issued it, as own_thread_id() says; 0: not known
  bool is_point_to_point = false;
  bool is_background = false;
  CallState state = CallState::kIssued;
  WallTime issued, started, ended;  // zero while it has not happened
};

struct RecordedGroup {
  std::string name;
  std::vector<int> world_ranks;  // in rank order
  // Calls issued so far, also those that the ring has forgotten.
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
  // Wall clock minus monotonic clock of the rank: in every time below.
  std::chrono::nanoseconds wall_offset{};
  std::optional<WallTime> closed{};  // the rank left by itself, in success or failure
  WallTime now{};                    // when it was read, by the rank's clocks
  std::vector<RecordedGroup> groups{};
  std::vector<Record> records{};  // by number
  uint64_t num_torn = 0;          // records left out because they were being written
  uint64_t num_dropped = 0;       // calls that found every slot taken by an unfinished call
};

// The name of a rank's ring in the recorder's folder: "rank-00012.ring".
std::string ring_name(int rank);
// Its name while its run is starting: "rank-00012.0123456789abcdef.new", another one for each
// `start`, a text that names the job and the process.
std::string unpublished_ring_name(int rank, const std::string& start);

// `source` names the bytes in errors.
// Throws: ConfigError when they are no ring, a corrupt one, or one of a newer format
Ring parse_ring(std::span<const std::byte> bytes, const std::string& source);
Ring read_ring(const std::filesystem::path& path);

// The rings of the newest job in `folder`, by rank; those that an earlier job left are passed over,
// and those of a job that is only starting while another one runs there.
// Throws: ConfigError when there is no such folder, it holds no ring, or one cannot be read
std::vector<Ring> read_rings(const std::filesystem::path& folder);
// Removes unpublished rings whose processes are gone.
void remove_abandoned_rings(const std::filesystem::path& folder);

// What became of the process that writes a ring.
enum class ProcessState {
  kRunning,
  kStopped,  // by SIGSTOP, a terminal or a debugger
  kGone,     // ended, or the machine has booted since
  kUnknown,  // runs, or ran, on another host or in another pid namespace
};
ProcessState process_state(const Ring& ring);

// A rank's ring, and what has become of its process.
struct ObservedRank {
  Ring ring;
  ProcessState process = ProcessState::kRunning;
};

// As read_rings(), with the processes; a rank that ends meanwhile is not taken for a dead one.
std::vector<ObservedRank> observe_ranks(const std::filesystem::path& folder);

// Who and where a process is; how a ring tells its own from another of the same id.
struct ProcessIdentity {
  std::string host;
  std::string boot_id;
  uint64_t pid_namespace = 0;
  int64_t process_id = 0;
  uint64_t process_start = 0;
};
ProcessIdentity own_identity();
// The calling thread's, asked of the kernel once: a nanosecond.
uint32_t own_thread_id();

}  // namespace trireme::comm
