#include "trireme/comm/recorder/ring.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>

#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/machine/machine.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/recorder/ring_layout.h"

namespace trireme::comm {

// A ring may be written while it is read, may come from a killed process, and may hold anything
// after a crash of the machine. So a record counts only if its stamp is the same before and after
// the copy and its values are possible. All that is later used as an index, a size or a time is
// bounded here, and waits.cc and diagnosis.cc rely on it. A folder may have rings of several runs:
// of an earlier one, of the running one, and of starts that may yet be refused. The newest job
// counts, and a start only if no other run goes on there. A dead process's ring is read again: it
// may have been closed between the reading and the look at the process.

namespace {

constexpr int kNumReduceOps = static_cast<int>(ReduceOp::kBitXor) + 1;

template <size_t size>
std::string text_of(const char (&text)[size]) {
  return {text, strnlen(text, size)};
}

bool is_time(int64_t ns) { return ns >= 0 && ns < kMostNs; }

// Checks the fixed part of the header and returns it.
const RingHeader& check_header(std::span<const std::byte> bytes, const std::string& source) {
  TRIREME_CHECK(bytes.size() >= kRingHeaderBytes && std::memcmp(bytes.data(), kRingMagic, 8) == 0,
                source, " is not a recorder's ring; expected a file that `trireme train` wrote");
  const auto& header = *reinterpret_cast<const RingHeader*>(bytes.data());
  TRIREME_CHECK(header.version <= kRingVersion, source, " has format ", header.version,
                "; this program reads up to ", kRingVersion, ": use the version that wrote it");
  // It covers what never changes. The rest is checked when it is read.
  const std::string found(header.checksum, sizeof(header.checksum));
  const std::string expected = checksum(bytes.first(offsetof(RingHeader, checksum)));
  TRIREME_CHECK(found == expected, source, " is corrupt: its header's checksum is ", expected,
                ", expected ", found);
  const bool has_places =
      header.header_bytes == kRingHeaderBytes && header.record_bytes == sizeof(RecordSlot) &&
      std::has_single_bit(header.max_records) && header.max_groups <= kMostGroups &&
      header.max_members <= kMostMembers && header.max_records <= kMostRecords;
  TRIREME_CHECK(has_places && bytes.size() == ring_bytes(header), source,
                " is corrupt: ", bytes.size(), " bytes, expected ", ring_bytes(header));
  const bool has_rank =
      header.world_size <= kMostRanks && header.rank >= 0 && header.rank < header.world_size;
  TRIREME_CHECK(has_rank, source, " is corrupt: rank ", header.rank, " of ", header.world_size,
                ", expected a rank below at most ", kMostRanks);
  // The wall clock is ahead of the monotonic clock by the boot time. Sums of the two stay in range.
  constexpr int64_t kMostOffset = 2 * kMostNs;
  TRIREME_CHECK(is_time(header.created_ns) && header.wall_offset_ns >= -kMostOffset &&
                    header.wall_offset_ns <= kMostOffset,
                source, " is corrupt: it was made at ", header.created_ns, " ns, ",
                header.wall_offset_ns, " ns before the wall clock");
  return header;
}

// Converts the rank's monotonic times to wall-clock times.
struct Clock {
  int64_t offset_ns;
  WallTime at(int64_t monotonic_ns) const {
    return monotonic_ns == 0 ? WallTime{}
                             : WallTime(std::chrono::nanoseconds(monotonic_ns + offset_ns));
  }
};

// False for values that no writer writes. After a machine crash the file may contain anything.
bool is_possible(const RecordSlot& values, CallState state) {
  const bool is_step = (values.flags & kStep) != 0;
  if (is_step && (values.group != -1 || values.elements < -1 || values.elements >= kMostNs)) {
    return false;
  }
  return state <= CallState::kFailed && values.group >= -1 && values.reduce_op < kNumReduceOps &&
         values.peer >= -1 && is_time(values.issued_ns) && is_time(values.started_ns) &&
         is_time(values.ended_ns);
}

// The words of a record. Nothing when the slot is empty or being written, or belongs to a call that
// ended before `since_ns`.
std::optional<RecordSlot> read_slot(const RecordSlot& slot, int64_t since_ns, CallState& state,
                                    uint64_t& num_torn) {
  const uint64_t stamp = load(slot.stamp);
  if (stamp == 0) return std::nullopt;
  // Load the state first, so that the times it promises are there.
  state = static_cast<CallState>(load(slot.state));
  // A watch reads often and wants only what is new.
  if (state >= CallState::kDone && load(slot.ended_ns) < since_ns) return std::nullopt;
  std::array<uint64_t, kRecordWords> words;
  const auto* from = reinterpret_cast<const uint64_t*>(&slot);
  for (size_t i = 0; i < words.size(); ++i) words[i] = load(from[i]);
  const auto values = std::bit_cast<RecordSlot>(words);
  if (stamp == kWriting || load(slot.stamp) != stamp || !is_possible(values, state)) {
    ++num_torn;
    return std::nullopt;
  }
  return values;
}

Record record_of(const RecordSlot& values, CallState state, const Clock& clock) {
  const auto num_lengths = std::min<size_t>(values.num_dims, std::size(values.shape));
  return {.number = values.stamp - 1,
          .sequence = values.sequence,
          .group = values.group,
          .operation = text_of(values.operation),
          .shape = {values.shape, values.shape + num_lengths},
          .num_dims = values.num_dims,
          .elements = values.elements,
          .dtype = values.dtype,
          .reduce_op = values.reduce_op,
          .peer = values.peer,
          .tag = values.tag,
          .thread = values.thread,
          .is_point_to_point = (values.flags & kPointToPoint) != 0,
          .is_background = (values.flags & kBackground) != 0,
          .state = state,
          .issued = clock.at(values.issued_ns),
          .started = clock.at(state == CallState::kIssued ? 0 : values.started_ns),
          .ended = clock.at(state >= CallState::kDone ? values.ended_ns : 0)};
}

RecordedStep step_of(const RecordSlot& values, CallState state, const Clock& clock) {
  const bool has_ended = state >= CallState::kDone;
  return {
      .number = values.stamp - 1,
      // A damaged file may hold any number.
      .step = static_cast<int64_t>(std::min<uint64_t>(values.sequence, kMostNs)),
      .state = state,
      .began = clock.at(values.issued_ns),
      .ended = clock.at(has_ended ? values.ended_ns : 0),
      .waiting = std::chrono::nanoseconds(has_ended ? std::max<int64_t>(values.elements, 0) : 0)};
}

std::vector<RecordedGroup> read_groups(std::span<const std::byte> bytes, const RingHeader& header,
                                       const std::string& source) {
  const auto* slots = reinterpret_cast<const GroupSlot*>(bytes.data() + groups_offset());
  const auto* members = reinterpret_cast<const int32_t*>(bytes.data() + members_offset(header));
  const uint32_t num_groups = load(header.num_groups);
  TRIREME_CHECK(num_groups <= header.max_groups, source, " is corrupt: ", num_groups,
                " groups, expected at most ", header.max_groups);
  std::vector<RecordedGroup> groups;
  uint32_t num_members = 0;
  for (const GroupSlot& slot : std::span(slots, num_groups)) {
    // Each group's members follow those of the group before.
    TRIREME_CHECK(
        slot.first_member == num_members && slot.num_members <= header.max_members - num_members,
        source, " is corrupt: group ", groups.size(), " has members ", slot.first_member, " to ",
        uint64_t{slot.first_member} + slot.num_members, ", expected them from ", num_members,
        " on and at most ", header.max_members);
    num_members += slot.num_members;
    const std::span own(members + slot.first_member, slot.num_members);
    for (const int32_t member : own) {
      TRIREME_CHECK(member >= 0 && member < kMostRanks, source, " is corrupt: rank ", member,
                    " is a member of group ", groups.size(), ", expected 0 to ", kMostRanks - 1);
    }
    groups.push_back({text_of(slot.name),
                      {own.begin(), own.end()},
                      load(slot.num_collectives),
                      load(slot.num_point_to_point)});
  }
  return groups;
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The kernel is asked only once, because a watch reads rings often.
const std::string& own_boot_id() {
  static const std::string id = first_line("/proc/sys/kernel/random/boot_id");
  return id;
}

bool has_ended(const Ring& ring) {
  return ring.closed || process_state(ring) == ProcessState::kGone;
}

auto same_run(const Ring& ring) {
  return [job = ring.job, world_size = ring.world_size](const Ring& other) {
    return other.job == job && other.world_size == world_size;
  };
}

std::vector<std::filesystem::path> paths_in(const std::filesystem::path& folder,
                                            const char* extension) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == extension) paths.push_back(entry.path());
  }
  return paths;
}

// Rings of runs that are starting. Skips those being made, published or withdrawn right now.
std::vector<Ring> unpublished_rings(const std::filesystem::path& folder) {
  std::vector<Ring> rings;
  for (const std::filesystem::path& path : paths_in(folder, ".new")) {
    try {
      Ring ring = read_ring(path);
      if (!has_ended(ring)) rings.push_back(std::move(ring));
    } catch (const Error&) {
    }
  }
  return rings;
}

}  // namespace

std::string ring_name(int rank) {
  char name[32];
  std::snprintf(name, sizeof(name), "rank-%05d.ring", rank);
  return name;
}

Ring parse_ring(std::span<const std::byte> bytes, const std::string& source, WallTime since) {
  const RingHeader& header = check_header(bytes, source);
  const Clock clock{header.wall_offset_ns};
  Ring ring{.rank = header.rank,
            .world_size = header.world_size,
            .job = text_of(header.job),
            .host = text_of(header.host),
            .boot_id = text_of(header.boot_id),
            .pid_namespace = header.pid_namespace,
            .process_id = header.process_id,
            .process_start = header.process_start,
            .created = clock.at(header.created_ns),
            .wall_offset = std::chrono::nanoseconds(header.wall_offset_ns)};
  const auto* slots = reinterpret_cast<const RecordSlot*>(bytes.data() + records_offset(header));
  const int64_t since_ns = (since.time_since_epoch() - ring.wall_offset).count();
  CallState state{};
  for (const RecordSlot& slot : std::span(slots, header.max_records)) {
    const std::optional<RecordSlot> values = read_slot(slot, since_ns, state, ring.num_torn);
    if (!values) continue;
    if ((values->flags & kStep) != 0) {
      ring.steps.push_back(step_of(*values, state, clock));
    } else {
      ring.records.push_back(record_of(*values, state, clock));
    }
  }
  // Slots are reused in turn and unfinished ones are skipped, so their places have no order.
  std::ranges::sort(ring.records, {}, &Record::number);
  std::ranges::sort(ring.steps, {}, &RecordedStep::number);
  // Read after the records, so that a group's counts are never behind them.
  ring.groups = read_groups(bytes, header, source);
  // A damaged file's; others use it as an index.
  std::erase_if(ring.records, [&](const Record& found) {
    return found.group >= static_cast<int>(ring.groups.size());
  });
  ring.num_dropped = load(header.num_dropped);
  if (const int64_t closed_ns = load(header.closed_ns); closed_ns != 0) {
    TRIREME_CHECK(is_time(closed_ns), source, " is corrupt: it was closed at ", closed_ns, " ns");
    ring.closed = clock.at(closed_ns);
  }
  // Ranks of one host share a monotonic clock. For others the time of day is used.
  const bool is_here = own_boot_id() == ring.boot_id;
  ring.now =
      is_here
          ? clock.at(std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch())
                         .count())
          : WallTime(std::chrono::system_clock::now());
  return ring;
}

std::string unpublished_ring_name(int rank, const std::string& start) {
  const std::string stem = std::filesystem::path(ring_name(rank)).stem();
  return concat(stem, ".", checksum(std::as_bytes(std::span(start))), ".new");
}

Ring read_ring(const std::filesystem::path& path) {
  const MappedFile file(path, kMostRingBytes);
  return parse_ring(file.bytes(), path.string());
}

std::vector<Ring> read_rings(const std::filesystem::path& folder) {
  std::error_code error;
  TRIREME_CHECK(std::filesystem::is_directory(folder, error), folder.string(),
                " is not a folder; expected a run's recorder/, which `trireme train` makes");
  // Read these first: a ring that is published meanwhile is then among the others.
  std::vector<Ring> starting = unpublished_rings(folder);
  std::vector<Ring> rings;
  for (const auto& path : paths_in(folder, ".ring")) rings.push_back(read_ring(path));
  const auto created = [](const Ring& ring) { return ring.created; };
  const auto newest = std::ranges::max_element(rings, {}, created);
  const bool is_over = newest == rings.end() || std::ranges::none_of(rings, [&](const Ring& ring) {
                         return ring.job == newest->job && !has_ended(ring);
                       });
  // A starting run counts as the newest, unless the folder's run is still running.
  for (Ring& ring : starting) {
    const auto same = std::ranges::find_if(rings, same_run(ring));
    const bool is_published = std::ranges::any_of(
        rings, [&](const Ring& other) { return other.rank == ring.rank && same_run(ring)(other); });
    if (is_published || (!is_over && same == rings.end())) continue;
    rings.push_back(std::move(ring));
  }
  TRIREME_CHECK(!rings.empty(), folder.string(),
                " holds no ring; expected rank-00000.ring, which `trireme train` makes");
  const Ring chosen = *std::ranges::max_element(rings, {}, created);
  std::erase_if(rings, std::not_fn(same_run(chosen)));
  std::ranges::sort(rings, {}, &Ring::rank);
  return rings;
}

void remove_abandoned_rings(const std::filesystem::path& folder) {
  for (const std::filesystem::path& path : paths_in(folder, ".new")) {
    std::error_code error;
    try {
      if (!has_ended(read_ring(path))) continue;
    } catch (const Error&) {
      // Not a ring yet: it is being made, which takes a moment, or its maker was killed.
      const auto written = std::filesystem::last_write_time(path, error);
      const auto now = std::filesystem::file_time_type::clock::now();
      if (error || now - written < std::chrono::minutes(1)) continue;
    }
    std::filesystem::remove(path, error);
  }
}

ProcessIdentity own_identity() {
  char host[72] = {};
  gethostname(host, sizeof(host) - 1);
  struct stat status {};
  ::stat("/proc/self/ns/pid", &status);
  const int64_t self = getpid();
  const std::optional<ProcessStat> stat = process_stat(self);
  return {host, own_boot_id(), status.st_ino, self, stat ? stat->start : 0};
}

uint32_t own_thread_id() {
  thread_local const auto id = static_cast<uint32_t>(gettid());
  return id;
}

ProcessState process_state(const Ring& ring) {
  const ProcessIdentity here = own_identity();
  if (ring.boot_id != here.boot_id) {
    // This host has booted since.
    return ring.host == here.host ? ProcessState::kGone : ProcessState::kUnknown;
  }
  // The process id means nothing here.
  if (ring.pid_namespace != here.pid_namespace) return ProcessState::kUnknown;
  const std::optional<ProcessStat> stat = process_stat(ring.process_id);
  // Another process may have the id by now.
  if (!stat || stat->start != ring.process_start || stat->state == 'Z' || stat->state == 'X') {
    return ProcessState::kGone;
  }
  return stat->state == 'T' || stat->state == 't' ? ProcessState::kStopped : ProcessState::kRunning;
}

std::vector<ObservedRank> observe_ranks(const std::filesystem::path& folder) {
  std::vector<ObservedRank> ranks;
  for (Ring& ring : read_rings(folder)) {
    const ProcessState process = process_state(ring);
    // The rank may have closed its ring after it was read. Once its process is gone, the ring is
    // final.
    const std::filesystem::path path = folder / ring_name(ring.rank);
    if (process == ProcessState::kGone && !ring.closed && std::filesystem::exists(path)) {
      Ring last = read_ring(path);
      if (last.job == ring.job) ring = std::move(last);
    }
    ranks.push_back({std::move(ring), process});
  }
  return ranks;
}

}  // namespace trireme::comm
