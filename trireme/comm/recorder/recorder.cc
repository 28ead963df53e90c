#include "trireme/comm/recorder/recorder.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/comm/recorder/ring_layout.h"

namespace trireme::comm {

// The ring has no lock: any thread may write it, and its readers are other processes, which may
// come after a crash. Each record has a stamp instead, which is kWriting while the record is filled
// in and then the call's number. A reader that finds the same stamp before and after has a whole
// record. This needs numbers that only grow, so that no slot has the same stamp twice, and stores
// in the order of docs/design/recorder-format.md. All that can fail or allocate is done in the
// constructor; issue() and Entry only store words. The file has a name of its own until its run
// holds the folder, because a start that is refused must not replace a live run's ring.

namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

// Cuts the text to fit and ends it with a zero. The bytes behind it stay zero.
template <size_t size>
void copy_text(char (&to)[size], std::string_view text) {
  text.copy(to, size - 1);
}

// Signs the fields that never change again.
void sign(RingHeader& header) {
  const auto fixed = std::as_bytes(std::span(&header, 1)).first(offsetof(RingHeader, checksum));
  std::memcpy(header.checksum, checksum(fixed).data(), sizeof(header.checksum));
}

RingHeader make_header(const RecorderOptions& options) {
  RingHeader header{};
  std::memcpy(header.magic, kRingMagic, sizeof(header.magic));
  header.version = kRingVersion;
  header.header_bytes = kRingHeaderBytes;
  // Fixed, so that every place in the file follows from the header.
  header.max_groups = 256;
  // In whole pages. Every rank is in a few groups of each size.
  header.max_members = static_cast<uint32_t>((options.world_size * 16 + 16384) / 1024 * 1024);
  header.max_records = static_cast<uint32_t>(
      std::bit_ceil(std::clamp<size_t>(options.num_records, 8, kMostRecords)));
  header.record_bytes = sizeof(RecordSlot);
  header.rank = options.rank;
  header.world_size = options.world_size;
  const ProcessIdentity self = own_identity();
  header.process_id = self.process_id;
  header.process_start = self.process_start;
  header.pid_namespace = self.pid_namespace;
  header.created_ns = monotonic_ns();
  header.wall_offset_ns =
      std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count() -
      header.created_ns;
  copy_text(header.boot_id, self.boot_id);
  copy_text(header.host, self.host);
  copy_text(header.job, options.job);
  sign(header);
  return header;
}

[[noreturn]] void fail(const std::filesystem::path& path, int code) {
  throw Error(concat("cannot make the recorder's ring ", path.string(), ": ", std::strerror(code)));
}

void* map(size_t num_bytes, int flags, int fd) {
  // Populated now, so that no call pays for the first touch of a page.
  return mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, flags | MAP_POPULATE, fd, 0);
}

// Makes the missing folders above `ring`. Returns them, innermost first.
std::vector<std::filesystem::path> make_folders_of(const std::filesystem::path& ring) {
  const std::filesystem::path folder = ring.parent_path();
  std::vector<std::filesystem::path> missing;
  std::error_code error;
  for (auto path = folder; !path.empty() && !exists(path, error); path = path.parent_path()) {
    missing.push_back(path);
  }
  std::filesystem::create_directories(folder, error);
  if (error) fail(ring, error.value());
  return missing;
}

// Makes the file as `name`; publish() renames it to `path`. Allocates the space now, so that a full
// disk is an error here and not a SIGBUS later.
void* map_file(const std::filesystem::path& name, const std::filesystem::path& path,
               const RingHeader& header) {
  const size_t num_bytes = ring_bytes(header);
  ::unlink(name.c_str());  // left by a killed start of the same job
  const Descriptor file(::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.is_open()) fail(path, errno);
  const int code = reserve_space(file.get(), 0, static_cast<int64_t>(num_bytes));
  if (code != 0) fail(path, code);
  void* const base = map(num_bytes, MAP_SHARED, file.get());
  if (base == MAP_FAILED) fail(path, errno);
  std::memcpy(base, &header, sizeof(header));
  return base;
}

}  // namespace

// The ring's bytes, mapped.
class Recorder::Memory {
 public:
  Memory(const std::filesystem::path& name, const std::filesystem::path& path,
         const RingHeader& header)
      : num_bytes_(ring_bytes(header)) {
    void* base = nullptr;
    if (path.empty()) {
      base = map(num_bytes_, MAP_PRIVATE | MAP_ANONYMOUS, -1);
      if (base == MAP_FAILED) throw Error(concat("no memory for a ring's ", num_bytes_, " bytes"));
      std::memcpy(base, &header, sizeof(header));
    } else {
      base = map_file(name, path, header);
    }
    base_ = static_cast<std::byte*>(base);
    groups = reinterpret_cast<GroupSlot*>(base_ + groups_offset());
    members = reinterpret_cast<int32_t*>(base_ + members_offset(header));
    records = reinterpret_cast<RecordSlot*>(base_ + records_offset(header));
    mask = header.max_records - 1;
  }
  ~Memory() { munmap(base_, num_bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  RingHeader& header() const { return *reinterpret_cast<RingHeader*>(base_); }
  std::span<const std::byte> bytes() const { return {base_, num_bytes_}; }

  GroupSlot* groups;
  int32_t* members;
  RecordSlot* records;
  uint64_t mask;

 private:
  size_t num_bytes_;
  std::byte* base_;
};

Recorder::Recorder(const RecorderOptions& options) {
  if (!options.folder.empty()) {
    path_ = options.folder / ring_name(options.rank);
    // Jobs that use one address one after another may have the same name.
    const ProcessIdentity self = own_identity();
    const std::string starting =
        concat(options.job, " ", self.boot_id, " ", self.process_id, " ", self.process_start);
    unpublished_ = options.folder / unpublished_ring_name(options.rank, starting);
    new_folders_ = make_folders_of(path_);
  }
  try {
    memory_ = std::make_unique<Memory>(unpublished_, path_, make_header(options));
    if (!options.is_unpublished) publish();
  } catch (...) {
    withdraw();
    throw;
  }
}

Recorder::~Recorder() {
  // A ring that is not closed tells its readers that the process was killed.
  store(memory_->header().closed_ns, monotonic_ns());
  withdraw();
}

// A start that was refused leaves nothing. Folders that others use by now are not empty and stay.
void Recorder::withdraw() noexcept {
  if (unpublished_.empty()) return;
  ::unlink(unpublished_.c_str());
  for (const auto& folder : new_folders_) ::rmdir(folder.c_str());
}

void Recorder::name_job(std::string_view job) {
  RingHeader& header = memory_->header();
  std::memset(header.job, 0, sizeof(header.job));
  copy_text(header.job, job);
  sign(header);
}

// A process that still writes the replaced ring keeps a complete one.
void Recorder::publish() {
  if (unpublished_.empty()) return;
  if (::rename(unpublished_.c_str(), path_.c_str()) != 0) fail(path_, errno);
  unpublished_.clear();
  if (memory_->header().rank == 0) remove_abandoned_rings(path_.parent_path());
}

int Recorder::add_group(std::string_view name, std::span<const int> world_ranks) {
  const std::lock_guard lock(groups_mutex_);
  RingHeader& header = memory_->header();
  const uint32_t id = header.num_groups;
  if (id == header.max_groups || world_ranks.size() > header.max_members - header.num_members) {
    return -1;
  }
  GroupSlot& group = memory_->groups[id];
  copy_text(group.name, name);
  group.num_members = static_cast<uint32_t>(world_ranks.size());
  group.first_member = header.num_members;
  std::ranges::copy(world_ranks, memory_->members + header.num_members);
  header.num_members += group.num_members;
  // Last: readers look only at groups below this number.
  store(header.num_groups, id + 1);
  return static_cast<int>(id);
}

// Claims a slot that no other call uses and marks it as being written; null when there is none. The
// slot's stamp decides: a number only replaces a smaller one. The header's next number is just a
// hint where to start, so threads may overwrite each other's.
RecordSlot* Recorder::claim(uint64_t& number) noexcept {
  RingHeader& header = memory_->header();
  number = load(header.next_number, kRelaxed);
  // Bounded: a ring full of unfinished calls must not hold up communication.
  for (uint64_t attempt = 0; attempt < 4 * (memory_->mask + 1); ++attempt, ++number) {
    RecordSlot& record = memory_->records[number & memory_->mask];
    uint64_t stamp = load(record.stamp);
    if (stamp == kWriting) continue;
    if (stamp > number) {  // this thread slept while others continued; continue after them
      number = stamp - 1;
      continue;
    }
    const bool is_finished = load(record.state) >= static_cast<uint32_t>(CallState::kDone);
    if (stamp != 0 && !is_finished) continue;
    if (std::atomic_ref(record.stamp).compare_exchange_strong(stamp, kWriting)) {
      if (load(header.next_number, kRelaxed) <= number) {
        store(header.next_number, number + 1, kRelaxed);
      }
      return &record;
    }
  }
  std::atomic_ref(header.num_dropped).fetch_add(1, kRelaxed);
  return nullptr;
}

Recorder::Entry Recorder::issue(int group, const RecordedCall& call) noexcept {
  uint64_t sequence = 0;
  if (group >= 0) {
    GroupSlot& slot = memory_->groups[group];
    uint64_t& count = call.is_point_to_point ? slot.num_point_to_point : slot.num_collectives;
    // No fetch_add: one thread at a time issues a group's calls.
    sequence = load(count, kRelaxed) + 1;
    store(count, sequence);
  }
  // A step has its own number.
  if (call.step > 0) sequence = static_cast<uint64_t>(call.step);
  uint64_t number = 0;
  RecordSlot* const record = claim(number);
  if (record == nullptr) return {};
  // Each field becomes visible only after the stamp that says the record is being written.
  const int64_t now = monotonic_ns();
  store(record->sequence, sequence);
  store(record->issued_ns, now);
  store(record->started_ns, call.is_background ? 0 : now);
  store(record->ended_ns, int64_t{0});
  store(record->state,
        static_cast<uint32_t>(call.is_background ? CallState::kIssued : CallState::kStarted));
  store(record->group, int32_t{group});
  store(record->peer, int32_t{call.peer});
  store(record->tag, int32_t{call.tag});
  store(record->dtype, static_cast<int8_t>(call.dtype));
  store(record->reduce_op, static_cast<int8_t>(call.reduce_op));
  store(record->flags, static_cast<uint8_t>((call.is_background ? kBackground : 0) |
                                            (call.is_point_to_point ? kPointToPoint : 0) |
                                            (call.step > 0 ? kStep : 0)));
  store(record->num_dims, static_cast<uint8_t>(std::min<size_t>(call.shape.size(), 255)));
  store(record->thread, own_thread_id());
  // In words, so that every store is atomic.
  std::array<uint64_t, 3> operation{};
  std::memcpy(operation.data(), call.operation.data(), std::min<size_t>(call.operation.size(), 23));
  auto* const words = reinterpret_cast<uint64_t*>(record->operation);
  for (size_t i = 0; i < operation.size(); ++i) store(words[i], operation[i]);
  for (size_t i = 0; i < std::size(record->shape); ++i) {
    store(record->shape[i], i < call.shape.size() ? call.shape[i] : 0);
  }
  store(record->elements, call.elements);
  store(record->stamp, number + 1);
  return Entry(record);
}

void Recorder::Entry::start() const {
  if (record_ == nullptr) return;
  // Time first: the state promises that it is there.
  store(record_->started_ns, monotonic_ns(), kRelaxed);
  store(record_->state, static_cast<uint32_t>(CallState::kStarted));
}

void Recorder::Entry::finish(bool succeeded) const {
  if (record_ == nullptr) return;
  store(record_->ended_ns, monotonic_ns(), kRelaxed);
  store(record_->state, static_cast<uint32_t>(succeeded ? CallState::kDone : CallState::kFailed));
}

void Recorder::Entry::finish_step(std::chrono::nanoseconds waiting) const {
  if (record_ == nullptr) return;
  store(record_->elements, std::max<int64_t>(waiting.count(), 0), kRelaxed);
  finish(true);
}

std::span<const std::byte> Recorder::bytes() const { return memory_->bytes(); }

Ring Recorder::snapshot() const { return parse_ring(bytes(), "the recorder's memory"); }

}  // namespace trireme::comm
