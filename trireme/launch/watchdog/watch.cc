#include "trireme/launch/watchdog/watch.h"

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/machine/process_stat.h"
#include "trireme/base/seconds.h"
#include "trireme/comm/recorder/ring.h"
#include "trireme/comm/recorder/ring_layout.h"
#include "trireme/launch/watchdog/step_windows.h"

namespace trireme::launch::inline internal {
namespace {

namespace fs = std::filesystem;
using std::chrono::nanoseconds;
using Steady = std::chrono::steady_clock;

// Of a folder that others may have filled.
constexpr size_t kMostFiles = 64;
// A call's end becomes visible a moment after the time that it has.
constexpr std::chrono::milliseconds kSlack{10};
// The kernel counts CPU time in ticks of 10 ms.
constexpr std::chrono::milliseconds kCpuInterval{200};
// Of a diagnosis: more open calls than a sane rank has, and the last ones.
constexpr size_t kMostOpen = 64, kMostEnded = 8;

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
    if (!is_ring || path == own) continue;
    const bool is_likely = path.filename().string().starts_with(stem);
    std::vector<fs::path>& paths = is_likely ? found.likely : found.others;
    if (paths.size() < kMostFiles) paths.push_back(path);
  }
  return found;
}

std::string call_text(const comm::Ring& ring, const comm::Record& record) {
  const std::string group = record.group < 0 ? "?" : ring.groups[record.group].name;
  return concat(record.operation, " #", record.sequence, " of group ", group);
}

// Keeps the open calls and the last ended ones.
void cut(std::vector<comm::Record>& records) {
  size_t num_ended = 0, num_open = 0;
  std::vector<comm::Record> kept;
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
      comm::Ring ring = comm::parse_ring(file->bytes(), path.string(), comm::WallTime::max());
      if (ring.closed || (newest && ring.created <= newest->created)) continue;
      const comm::ProcessState state = comm::process_state(ring);
      const bool lives =
          state == comm::ProcessState::kRunning || state == comm::ProcessState::kStopped;
      if (!lives || !descends(ring.process_id, process_.process_id)) continue;
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
  comm::Ring ring = comm::parse_ring(file_->bytes(), "a ring", since_);
  since_ = ring.now - slack;
  last_event_ = std::max(last_event_, ring.created);
  for (const comm::Record& record : ring.records) {
    last_event_ = std::max({last_event_, record.issued, record.started, record.ended});
  }
  for (const comm::RecordedStep& step : ring.steps) {
    last_event_ = std::max({last_event_, step.began, step.ended});
    if (step.number < next_step_ || step.state != comm::CallState::kDone) continue;
    next_step_ = step.number + 1;
    step_ = step.step;
    windows_.add(step.step, step.ended - step.began - step.waiting, step.waiting);
  }
  const auto is_open = [](const comm::Record& record) {
    return record.state < comm::CallState::kDone;
  };
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
    if (!options.folder.empty() && (file_ == nullptr || ring_.closed)) {
      const Candidates found = candidates(options.folder, process_.rank);
      if (!find_ring(found.likely)) find_ring(found.others);
    }
    if (file_ != nullptr) read_ring();
  } catch (const Error&) {
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
  observation.idle = std::max(nanoseconds(0), nanoseconds(ring_.now - last_event_));
  observation.stage = stage_of(ring_);
  observation.windows = windows_.complete();
  if (observation.idle < options.evidence_after) return observation;
  try {
    comm::ObservedRank evidence{.ring = comm::parse_ring(file_->bytes(), "a ring")};
    evidence.process = comm::process_state(evidence.ring);
    evidence.ring.rank = process_.rank;
    cut(evidence.ring.records);
    evidence.ring.steps.clear();
    observation.evidence = std::move(evidence);
  } catch (const Error&) {
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

}  // namespace trireme::launch::inline internal
