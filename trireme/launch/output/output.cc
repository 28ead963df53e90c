#include "trireme/launch/output/output.h"

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/launch/journal/event.h"
#include "trireme/launch/journal/log_line.h"

namespace trireme::launch {
namespace {

// Some ten thousand lines: more than a person reads after a pause.
constexpr size_t kMaxShownBytes = size_t{1} << 20;
// Whoever reads takes a line at once; a pager waits for a key.
constexpr std::chrono::seconds kReaderPatience{1};

// A folder that has not answered for this long is reported.
constexpr std::chrono::seconds kAnswerPatience{5};
constexpr std::chrono::seconds kFinishPatience{3};

}  // namespace

// A thread that hangs in the kernel cannot be ended. So the thread owns the state by a shared
// pointer, and the destructor waits a moment and then detaches it. Whoever posts never waits
// either: a queue without room refuses. It takes tasks again only when half of it is free, or a
// slow reader would get one line, lose one, get one, and nobody could follow what is left.

namespace {

using Clock = std::chrono::steady_clock;

// For a task that is about to end when the queue does.
constexpr std::chrono::milliseconds kEndPatience{200};

}  // namespace

struct TaskQueue::State {
  explicit State(size_t most) : max_bytes(most) {}
  void work();

  const size_t max_bytes;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::pair<size_t, Task>> waiting;
  size_t num_bytes = 0;  // of `waiting`
  bool is_full = false;
  std::optional<Clock::time_point> running_since;
  size_t num_done = 0;
  bool is_ending = false;
  bool has_ended = false;
};

void TaskQueue::State::work() {
  // A reader that leaves and a file that may not grow are errors here, not signals.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return is_ending || !waiting.empty(); });
    if (is_ending) break;
    auto [size, task] = std::move(waiting.front());
    waiting.pop_front();
    // Counted while it waits and not while it runs: the room is for what may pile up.
    num_bytes -= size;
    running_since = Clock::now();
    lock.unlock();
    task();
    // Destroyed without the lock: what it owns may close a file that hangs.
    task = nullptr;
    lock.lock();
    running_since.reset();
    ++num_done;
    changed.notify_all();
  }
  has_ended = true;
  changed.notify_all();
}

TaskQueue::TaskQueue(size_t max_bytes)
    : state_(std::make_shared<State>(max_bytes)), thread_([state = state_] { state->work(); }) {}

TaskQueue::~TaskQueue() {
  std::unique_lock lock(state_->mutex);
  state_->is_ending = true;
  state_->changed.notify_all();
  const bool has_ended =
      state_->changed.wait_for(lock, kEndPatience, [this] { return state_->has_ended; });
  lock.unlock();
  has_ended ? thread_.join() : thread_.detach();
}

bool TaskQueue::post(size_t num_bytes, Task task) {
  const std::lock_guard lock(state_->mutex);
  if (state_->is_full && state_->num_bytes > state_->max_bytes / 2) return false;
  // One task larger than the whole queue is still taken when nothing waits.
  state_->is_full = !state_->waiting.empty() && state_->num_bytes + num_bytes > state_->max_bytes;
  if (state_->is_full) return false;
  state_->num_bytes += num_bytes;
  state_->waiting.emplace_back(num_bytes, std::move(task));
  state_->changed.notify_all();
  return true;
}

bool TaskQueue::finish(std::chrono::milliseconds patience) {
  // A queue that moves is waited for, however long it is. One that hangs is not.
  std::unique_lock lock(state_->mutex);
  while (state_->running_since || !state_->waiting.empty()) {
    const size_t num_done = state_->num_done;
    const bool goes_on =
        state_->changed.wait_for(lock, patience, [&] { return state_->num_done != num_done; });
    if (!goes_on) return false;
  }
  return true;
}

std::chrono::milliseconds TaskQueue::running_for() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->running_since) return std::chrono::milliseconds(0);
  return std::chrono::ceil<std::chrono::milliseconds>(Clock::now() - *state_->running_since);
}

Terminal::Terminal(std::shared_ptr<AgentObserver> observer)
    : observer_(std::move(observer)),
      output_{TaskQueue(kMaxShownBytes)},
      errors_{TaskQueue(kMaxShownBytes)} {}

bool Terminal::post(Way& way, const std::string& line, bool is_error) {
  return way.tasks.post(line.size() + sizeof(line), [observer = observer_, line, is_error] {
    observer->on_line(line, is_error);
  });
}

// Returns whether all that was dropped has been told.
bool Terminal::tell_dropped(Way& way, bool is_error) {
  if (way.num_dropped == 0) return true;
  const bool is_told = post(way,
                            concat("run     ", way.num_dropped,
                                   " lines are left out here, because nobody read them; "
                                   "`trireme logs` shows them"),
                            is_error);
  if (is_told) way.num_dropped = 0;
  return is_told;
}

void Terminal::show(const std::string& line, bool is_error) {
  Way& way = is_error ? errors_ : output_;
  // First what was dropped, in its place. If that has no room, this line has none either.
  if (!tell_dropped(way, is_error) || !post(way, line, is_error)) ++way.num_dropped;
}

void Terminal::finish() {
  // Twice: the line about what was dropped needs room that the first wait makes.
  output_.tasks.finish(kReaderPatience);
  tell_dropped(output_, /*is_error=*/false);
  output_.tasks.finish(kReaderPatience);
  errors_.tasks.finish(kReaderPatience);
}

struct JournalWriter::Files {
  explicit Files(std::filesystem::path path) : folder(std::move(path)), events(folder) {}
  LogWriter& log(const std::string& name);
  void note(bool is_written, const std::string& problem, bool is_removed);

  const std::filesystem::path folder;
  EventWriter events;
  std::map<std::string, LogWriter> logs;
  bool is_failing = false;   // the folder
  bool was_removed = false;  // which was told
  std::mutex mutex;          // of `problems`
  std::vector<std::string> problems;
};

LogWriter& JournalWriter::Files::log(const std::string& name) {
  // Files are opened by their first line, so a rank without output leaves none.
  const auto found = logs.find(name);
  if (found != logs.end()) return found->second;
  return logs.emplace(name, LogWriter(folder / kLogFolderName / name)).first->second;
}

// A problem with one file affects all of them, so it is reported once.
void JournalWriter::Files::note(bool is_written, const std::string& problem, bool is_removed) {
  const std::lock_guard lock(mutex);
  // A full disk fails once for each line. People need to know it once.
  if (!problem.empty() && !std::exchange(is_failing, true)) problems.push_back(problem);
  // From now on another outage is news again.
  if (is_written) is_failing = false;
  if (is_removed && !std::exchange(was_removed, true)) {
    problems.push_back(concat("logs or events in ", folder.string(),
                              " were removed while the run writes them; what they had is lost, and "
                              "they are created again, empty"));
  }
}

JournalWriter::JournalWriter(std::filesystem::path run_folder, size_t max_bytes)
    : files_(std::make_shared<Files>(std::move(run_folder))), tasks_(max_bytes) {}

void JournalWriter::post(const std::string& log_name, size_t num_bytes, int64_t num_lines,
                         std::function<void(Files&, int64_t num_lost)> write) {
  // Losses are counted per log, since a gap is written into the log that has it.
  int64_t& num_lost = num_lost_[log_name];
  const bool is_taken = tasks_.post(
      // The closure owns the files: the thread may hang in them after this object is gone.
      num_bytes, [files = files_, num_lost, write = std::move(write)] { write(*files, num_lost); });
  // A task that was dropped takes its count of losses back.
  num_lost = is_taken ? 0 : num_lost + num_lines;
}

void JournalWriter::write(const std::string& log_name, std::vector<LogLine> lines) {
  if (lines.empty()) return;
  size_t num_bytes = 0;
  for (const LogLine& line : lines) num_bytes += sizeof(line) + line.text.size();
  const auto num_lines = std::ssize(lines);
  post(log_name, num_bytes, num_lines,
       [log_name, lines = std::move(lines)](Files& files, int64_t num_lost) {
         LogWriter& log = files.log(log_name);
         if (num_lost > 0) log.add_lost(num_lost);
         for (const LogLine& line : lines) {
           const bool is_written = log.write(line);
           files.note(is_written, log.take_problem(), log.take_removed());
         }
       });
}

void JournalWriter::write(const Event& event) {
  post("", sizeof(event) + event.text.size(), 1, [event](Files& files, int64_t num_lost) {
    if (num_lost > 0) files.events.add_lost(num_lost);
    const bool is_written = files.events.write(event);
    files.note(is_written, files.events.take_problem(), files.events.take_removed());
  });
}

std::vector<std::string> JournalWriter::take_problems() {
  std::vector<std::string> problems;
  {
    const std::lock_guard lock(files_->mutex);
    problems = std::exchange(files_->problems, {});
  }
  // Not an error of a write, since none returns: only the time tells.
  const bool is_stuck = tasks_.running_for() >= kAnswerPatience;
  if (is_stuck && !is_told_) {
    problems.push_back(concat("cannot write ", files_->folder.string(),
                              ": its file system does not answer; the logs wait in memory"));
  }
  is_told_ = is_stuck;
  return problems;
}

void JournalWriter::finish() {
  // Once it has given up, another wait would delay the end again.
  if (has_given_up_ || tasks_.finish(kFinishPatience)) return;
  has_given_up_ = true;
  const std::lock_guard lock(files_->mutex);
  files_->problems.push_back(concat("cannot write ", files_->folder.string(),
                                    ": its file system does not answer; the last logs are lost"));
}

}  // namespace trireme::launch
