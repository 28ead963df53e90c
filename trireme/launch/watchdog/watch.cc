#include "trireme/launch/watchdog/watch.h"

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/machine/machine.h"
#include "trireme/base/numbers.h"
#include "trireme/comm/recorder/ring.h"
#include "trireme/comm/recorder/ring_layout.h"

namespace trireme::launch {

// The watch reads rings that their ranks write at the same moment, and takes no lock: a rank must
// not wait for its watcher. It therefore relies on what a ring promises to a reader and checks the
// rest. A ring is found by trying files, because an epoch's ring has a new name, a survivor may
// keep the one that it had under another rank, and files of earlier runs lie beside them. It counts
// only if the process that writes it lives and is the worker or was started by it: process numbers
// are used again. While a rank makes progress, only records since the last look are read. The whole
// ring is read when the rank has been idle, because only then a diagnosis needs it; that is what
// keeps a look at 0.1 ms.

namespace {

namespace fs = std::filesystem;
using std::chrono::nanoseconds;
using Steady = std::chrono::steady_clock;

// Limit on the files read in a folder that others may have filled.
constexpr size_t kMostFiles = 64;
// A call's end becomes visible a moment after the time that it has.
constexpr std::chrono::milliseconds kSlack{10};
// The kernel counts CPU time in ticks of 10 ms.
constexpr std::chrono::milliseconds kCpuInterval{200};
// Limits of a diagnosis: more open calls than a sane rank has, and the last ended ones.
constexpr size_t kMostOpen = 64, kMostEnded = 8;

// A worker may be `bash train.sh`, whose child has the ring. The bound keeps a loop of reused
// numbers finite.
// Whether `process` is `ancestor` or has been started by it, at some distance.
bool descends(int64_t process, int64_t ancestor) {
  for (int level = 0; level < 16 && process > 1; ++level) {
    if (process == ancestor) return true;
    const auto stat = process_stat(process);
    if (!stat) return false;
    process = stat->parent;
  }
  return false;
}

struct Candidates {
  std::vector<fs::path> likely;  // named after the rank, published or not yet
  std::vector<fs::path> others;  // a survivor may keep the ring that it had under another rank
};

Candidates candidates(const fs::path& folder, int rank) {
  const fs::path own = folder / comm::ring_name(rank);
  const std::string stem = own.stem().string() + ".";
  Candidates found{.likely = {own}, .others = {}};
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    const bool is_ring = path.extension() == ".ring" || path.extension() == ".new";
    // ".new" is a ring before it is published: a rank that hangs in its start has only that.
    if (!is_ring || path == own) continue;
    const bool is_likely = path.filename().string().starts_with(stem);
    std::vector<fs::path>& paths = is_likely ? found.likely : found.others;
    if (paths.size() < kMostFiles) paths.push_back(path);
  }
  return found;
}

std::string call_text(const comm::Ring& ring, const comm::Record& record) {
  // A record may name no group.
  const std::string group = record.group < 0 ? "?" : ring.groups[record.group].name;
  return concat(record.operation, " #", record.sequence, " of group ", group);
}

// Keeps the open calls and the last ended ones.
void cut(std::vector<comm::Record>& records) {
  size_t num_ended = 0, num_open = 0;
  std::vector<comm::Record> kept;
  // From the newest back, so that the newest are kept.
  for (size_t i = records.size(); i-- > 0;) {
    const bool is_open = records[i].state < comm::CallState::kDone;
    if (is_open ? num_open++ < kMostOpen : num_ended++ < kMostEnded) {
      kept.push_back(std::move(records[i]));
    }
  }
  std::ranges::reverse(kept);
  records = std::move(kept);
}

int stage_of(const comm::Ring& ring) {
  for (const comm::RecordedGroup& group : ring.groups) {
    // The mesh names this group; without it there is one stage.
    if (group.name != "pipeline") continue;
    const auto place = std::ranges::find(group.world_ranks, ring.rank);
    if (place != group.world_ranks.end()) {
      return static_cast<int>(place - group.world_ranks.begin());
    }
  }
  return 0;
}

}  // namespace

// One worker.
class Watch::Subject {
 public:
  explicit Subject(const WatchedProcess& process)
      : process_(process), writer_(process.process_id) {}

  int rank() const { return process_.rank; }
  Observation observe(const WatchOptions& options);

 private:
  bool find_ring(const std::vector<fs::path>& paths);
  void read_ring();
  void observe_process(Observation& observation);

  WatchedProcess process_;
  int64_t writer_;  // the process that writes the ring; until it is known, the worker
  std::unique_ptr<MappedFile> file_;
  comm::Ring ring_;  // the last reading, with what is new
  comm::WallTime last_event_{};
  comm::WallTime since_{};
  uint64_t next_step_ = 0;  // number of the first step that has not been counted
  int64_t step_ = 0;
  std::string last_call_;
  bool is_in_call_ = false;
  StepWindows windows_;
  double cores_used_ = 0;
  std::optional<nanoseconds> cpu_time_;
  Steady::time_point cpu_time_at_{};
};

// Takes the newest open ring that the worker, or a process that it has started, writes. Returns
// whether there is one.
bool Watch::Subject::find_ring(const std::vector<fs::path>& paths) {
  std::optional<comm::Ring> newest;
  for (const fs::path& path : paths) {
    try {
      auto file = std::make_unique<MappedFile>(path, comm::kMostRingBytes);
      // max(): nothing is read but the head, which says whose ring it is.
      comm::Ring ring = comm::parse_ring(file->bytes(), path.string(), comm::WallTime::max());
      if (ring.closed || (newest && ring.created <= newest->created)) continue;
      const comm::ProcessState state = comm::process_state(ring);
      const bool lives =
          state == comm::ProcessState::kRunning || state == comm::ProcessState::kStopped;
      if (!lives || !descends(ring.process_id, process_.process_id)) continue;
      // What was counted for another ring is not this one's.
      *this = Subject(process_);
      file_ = std::move(file);
      writer_ = ring.process_id;
      newest = std::move(ring);
    } catch (const Error&) {  // no ring, or one that is being made
    }
  }
  return newest.has_value();
}

void Watch::Subject::read_ring() {
  const nanoseconds slack = kSlack;
  // Overlaps a little: records that end between two looks must be in one of them.
  comm::Ring ring = comm::parse_ring(file_->bytes(), "a ring", since_);
  since_ = ring.now - slack;
  last_event_ = std::max(last_event_, ring.created);
  for (const comm::Record& record : ring.records) {
    last_event_ = std::max({last_event_, record.issued, record.started, record.ended});
  }
  for (const comm::RecordedStep& step : ring.steps) {
    last_event_ = std::max({last_event_, step.began, step.ended});
    // Steps are counted once, although looks overlap.
    if (step.number < next_step_ || step.state != comm::CallState::kDone) continue;
    next_step_ = step.number + 1;
    step_ = step.step;
    windows_.add(step.step, step.ended - step.began - step.waiting, step.waiting);
  }
  const auto is_open = [](const comm::Record& record) {
    return record.state < comm::CallState::kDone;
  };
  // A call of the training thread says more than one that runs behind it.
  auto shown = std::ranges::find_if(ring.records, [&](const comm::Record& record) {
    return is_open(record) && !record.is_background;
  });
  if (shown == ring.records.end()) shown = std::ranges::find_if(ring.records, is_open);
  is_in_call_ = shown != ring.records.end();
  if (is_in_call_) {
    last_call_ = call_text(ring, *shown);
  } else if (!ring.records.empty()) {
    last_call_ = call_text(ring, ring.records.back());
  }
  ring_ = std::move(ring);
}

void Watch::Subject::observe_process(Observation& observation) {
  observation.process_id = writer_;
  const auto stat = process_stat(writer_);
  if (!stat) return;
  observation.process_state = stat->state;
  const auto now = Steady::now();
  const auto interval = now - cpu_time_at_;
  // Less, and the ticks of the kernel's clock would be most of the result.
  if (interval >= kCpuInterval) {
    if (cpu_time_) {
      cores_used_ = std::max(0.0, in_seconds(stat->cpu_time - *cpu_time_) / in_seconds(interval));
    }
    cpu_time_ = stat->cpu_time;
    cpu_time_at_ = now;
  }
  observation.cores_used = cores_used_;
}

Observation Watch::Subject::observe(const WatchOptions& options) {
  Observation observation{.rank = process_.rank, .host = options.host};
  try {
    // A closed ring belongs to an epoch that is over; the worker may have made the next one.
    if (!options.folder.empty() && (file_ == nullptr || ring_.closed)) {
      const Candidates found = candidates(options.folder, process_.rank);
      if (!find_ring(found.likely)) find_ring(found.others);
    }
    if (file_ != nullptr) read_ring();
  } catch (const Error&) {
    // The file is gone or damaged. The next look searches anew.
    file_ = nullptr;
  }
  observe_process(observation);
  // Closed: the worker is between two epochs, or about to end.
  if (file_ == nullptr || ring_.closed) return observation;
  observation.has_ring = true;
  observation.step = step_;
  observation.is_in_step =
      !ring_.steps.empty() && ring_.steps.back().state == comm::CallState::kStarted;
  for (const comm::RecordedGroup& group : ring_.groups) {
    observation.num_calls += group.num_collectives + group.num_point_to_point;
  }
  observation.last_call = last_call_;
  observation.is_in_call = is_in_call_;
  // The clock of the ring may be set back, and idle time is never negative.
  observation.idle = std::max(nanoseconds(0), nanoseconds(ring_.now - last_event_));
  observation.stage = stage_of(ring_);
  observation.windows = windows_.complete();
  if (observation.idle < options.evidence_after) return observation;
  try {
    comm::ObservedRank evidence{.ring = comm::parse_ring(file_->bytes(), "a ring")};
    evidence.process = comm::process_state(evidence.ring);
    evidence.ring.rank = process_.rank;
    cut(evidence.ring.records);
    // Steps are in the windows already.
    evidence.ring.steps.clear();
    observation.evidence = std::move(evidence);
  } catch (const Error&) {
    // Without evidence there is no diagnosis, and the rest of the observation is still true.
  }
  return observation;
}

Watch::Watch(WatchOptions options) : options_(std::move(options)) {}
Watch::~Watch() = default;

void Watch::set_folder(std::filesystem::path folder) {
  if (folder == options_.folder) return;
  options_.folder = std::move(folder);
  subjects_.clear();
}

std::vector<Observation> Watch::poll(std::span<const WatchedProcess> processes) {
  std::vector<Observation> observations;
  std::set<int64_t> watched;
  for (const WatchedProcess& process : processes) {
    std::unique_ptr<Subject>& subject = subjects_[process.process_id];
    if (subject == nullptr || subject->rank() != process.rank) {
      subject = std::make_unique<Subject>(process);
    }
    watched.insert(process.process_id);
    observations.push_back(subject->observe(options_));
  }
  std::erase_if(subjects_, [&](const auto& item) { return !watched.contains(item.first); });
  return observations;
}

namespace {

std::chrono::nanoseconds median_of(const std::vector<std::chrono::nanoseconds>& times) {
  std::vector<int64_t> counts;
  for (const auto time : times) counts.push_back(time.count());
  return std::chrono::nanoseconds(median(std::move(counts)));
}

}  // namespace

void StepWindows::add(int64_t step, std::chrono::nanoseconds computing,
                      std::chrono::nanoseconds waiting) {
  if (step < 1) return;
  // Steps may be missing: a ring holds some thousand calls, and a poll may come late.
  // Also when a run went back to a checkpoint: its repeated steps must not be mixed with the first
  // ones.
  if (step <= last_step_ || step > last_step_ + kWindowSteps) {
    complete_.clear();
    computing_.clear();
    waiting_.clear();
  }
  const int64_t first_of_last = (last_step_ - 1) / kWindowSteps * kWindowSteps + 1;
  const int64_t first = (step - 1) / kWindowSteps * kWindowSteps + 1;
  if (first != first_of_last && !computing_.empty()) {
    // Half a window has a sound median; less of it is thrown away.
    if (2 * std::ssize(computing_) >= kWindowSteps) {
      complete_.push_back({first_of_last, median_of(computing_), median_of(waiting_)});
    } else {
      // Windows must follow each other without a gap, or the comparison is with other steps.
      complete_.clear();
    }
    computing_.clear();
    waiting_.clear();
  }
  computing_.push_back(computing);
  waiting_.push_back(waiting);
  last_step_ = step;
  if (complete_.size() > kMaxWindows) complete_.erase(complete_.begin());
}

}  // namespace trireme::launch
