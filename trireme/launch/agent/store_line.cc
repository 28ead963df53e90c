#include "trireme/launch/agent/store_line.h"

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/descriptor.h"
#include "trireme/launch/membership/limits.h"

namespace trireme::launch::inline internal {
namespace {

constexpr std::chrono::milliseconds kPlanPatience{500};
// For a key that is there or is not; zero would mean for ever.
constexpr std::chrono::milliseconds kNow{1};
// Between the leader's looks at reports.
constexpr std::chrono::milliseconds kLook{50};

std::string host_key(int64_t number) { return concat("host/", number); }
std::string plan_key(int64_t number) { return concat("plan/", number); }

comm::Meeting open_meeting(const StoreLineOptions& options, bool& leads) {
  leads = options.leads.value_or(comm::Meeting::can_serve(options.meeting));
  if (!leads) return comm::Meeting::join(options.meeting);
  try {
    return comm::Meeting::serve(options.meeting);
  } catch (const ConfigError&) {
    // Another agent of this host may have been faster.
    if (options.leads || comm::Meeting::can_serve(options.meeting)) throw;
  }
  leads = false;
  return comm::Meeting::join(options.meeting);
}

// Keys: "hosts" counts those that joined; "host/<n>" is the newest report of the n-th, "plan/<n>"
// the n-th plan; "plans" counts them.
class StoreLine final : public Line {
 public:
  explicit StoreLine(const StoreLineOptions& options)
      : beat_(options.beat), meeting_(open_meeting(options, leads_)) {
    number_ = meeting_.add("hosts", 1);
    TRIREME_CHECK(number_ < kMaxHosts, "the job has seen ", number_,
                  " agents; expected fewer than ", kMaxHosts);
    // Signals are for the agent's own thread.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    threads_.emplace_back([this] { until_lost([this] { send_reports(); }); });
    threads_.emplace_back(
        [this] { until_lost([this] { leads_ ? receive_reports() : receive_plans(); }); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  ~StoreLine() override {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void report(const HostReport& report) override {
    {
      const std::lock_guard lock(mutex_);
      report_ = report;
      has_news_ = true;
    }
    changed_.notify_all();
  }

  Plan plan() const override {
    const std::lock_guard lock(mutex_);
    return plan_;
  }
  Clock::time_point last_contact() const override {
    const std::lock_guard lock(mutex_);
    return last_contact_;
  }
  std::string problem() const override {
    const std::lock_guard lock(mutex_);
    return problem_;
  }
  int descriptor() const override { return wake_.get(); }
  std::string own_address() const override { return meeting_.own_address(); }
  bool leads() const override { return leads_; }
  std::vector<SeenHost> hosts() const override {
    const std::lock_guard lock(mutex_);
    std::vector<SeenHost> known;
    for (const SeenHost& host : hosts_) {
      if (!host.report.id.empty()) known.push_back(host);  // not one whose report cannot be read
    }
    return known;
  }
  void publish(const Plan& plan) override {
    meeting_.set(plan_key(++num_plans_), to_json(plan));
    meeting_.set("plans", std::to_string(num_plans_));
    const std::lock_guard lock(mutex_);
    plan_ = plan;
  }

 private:
  void until_lost(const std::function<void()>& work) {
    try {
      work();
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      if (problem_.empty()) problem_ = error.what();
    }
    wake();
  }

  void wake() const {
    const uint64_t one = 1;
    static_cast<void>(!write(wake_.get(), &one, sizeof(one)));
  }

  // Waits for the next beat or for news. False at the end.
  bool next_report(HostReport& report) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, beat_, [this] { return is_ending_ || has_news_; });
    if (is_ending_) return false;
    has_news_ = false;
    report = report_;
    report.beat = ++num_beats_;
    report.clock_us = std::chrono::duration_cast<std::chrono::microseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
    return true;
  }

  void send_reports() {
    HostReport report;
    while (next_report(report)) {
      if (report.id.empty()) continue;  // the agent has not said anything yet
      const Clock::time_point sent = Clock::now();
      meeting_.set(host_key(number_), to_json(report));
      const std::lock_guard lock(mutex_);
      last_contact_ = sent;
    }
  }

  bool is_ending() const {
    const std::lock_guard lock(mutex_);
    return is_ending_;
  }

  // Begins at the newest plan, so that an agent that joins late does not see all before it.
  void receive_plans() {
    int64_t next = 1;
    if (const auto count = meeting_.wait_for("plans", kNow)) {
      next = std::stoll(*count);
    }
    while (!is_ending()) {
      const auto text = meeting_.wait_for(plan_key(next), kPlanPatience);
      if (!text) continue;
      ++next;
      Plan plan = parse_plan(*text);
      {
        const std::lock_guard lock(mutex_);
        plan_ = std::move(plan);
      }
      wake();
    }
  }

  // The leader's: fetches all reports, and notes when each was new.
  void receive_reports() {
    std::set<int64_t> silent;  // hosts that have joined and not reported yet
    std::vector<std::string> keys;
    std::vector<std::string> taken;
    int64_t num_joined = 0;
    while (!is_ending()) {
      std::this_thread::sleep_for(kLook);
      const int64_t count = meeting_.add("hosts", 0);
      while (num_joined < count) silent.insert(++num_joined);
      std::erase_if(silent, [&](int64_t host) {
        if (!meeting_.wait_for(host_key(host), kNow)) return false;
        keys.push_back(host_key(host));
        return true;
      });
      take_reports(meeting_.get(keys), taken);
    }
  }

  // The texts that were taken last are in `taken`: each beat has another one.
  void take_reports(std::vector<std::string> texts, std::vector<std::string>& taken) {
    bool is_news = false;
    taken.resize(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      if (texts[i] == taken[i]) continue;
      taken[i] = std::move(texts[i]);
      try {
        HostReport report = parse_report(taken[i], "an agent's report");
        const std::lock_guard lock(mutex_);
        if (i >= hosts_.size()) hosts_.resize(i + 1);
        hosts_[i] = {std::move(report), Clock::now()};
        is_news = true;
      } catch (const ConfigError&) {
        // Of another version, or broken. Its silence counts the host out.
      }
    }
    if (is_news) wake();
  }

  const std::chrono::milliseconds beat_;
  bool leads_ = false;
  comm::Meeting meeting_;
  const Descriptor wake_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  int64_t number_ = 0;     // of this host, from 1
  int64_t num_plans_ = 0;  // published
  int64_t num_beats_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ending_ = false;
  bool has_news_ = false;
  HostReport report_;
  Plan plan_;
  std::vector<SeenHost> hosts_;
  Clock::time_point last_contact_ = Clock::now();
  std::string problem_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Line> make_store_line(const StoreLineOptions& options) {
  return std::make_unique<StoreLine>(options);
}

}  // namespace trireme::launch::inline internal
