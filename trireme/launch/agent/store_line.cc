#include "trireme/launch/agent/store_line.h"

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/launch/agent/agent.h"
#include "trireme/launch/membership/rank_plan.h"

namespace trireme::launch {

// The line maps reports and plans to keys of the leader's store. Two threads hold the store's
// connection, since each call may wait for the network; the agent's thread only exchanges values
// under mutex_ and is woken through an eventfd. Every thread works inside until_lost(), so an error
// of the store ends the line with a reason instead of ending a thread in silence. Reports are
// overwritten in place, since only the newest counts. Plans are appended under numbers of their
// own: "plans" is written after the plan, so a reader that sees the count finds the plan, and a
// host that joins late begins at the newest. The lease is renewed by the sending thread with the
// moment before the send, and only after the answer. Renewing with the time of the answer would let
// a follower outlive the leader's patience on a slow network.

namespace {

// Bounds how long the destructor waits for the thread, which looks for the end in between.
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
    // can_serve() only says that the address is this host's, not that the port is free.
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
      : beat_(options.beat),
        on_answer_(options.on_answer),
        meeting_(open_meeting(options, leads_)),
        lease_(options.lease, BootClock::now()) {
    number_ = meeting_.add("hosts", 1);
    // Numbers are never used again, so a job that is restarted very often ends here instead of
    // growing.
    TRIREME_CHECK(number_ < kMaxHosts, "the job has seen ", number_,
                  " agents; expected fewer than ", kMaxHosts);
    if (!leads_ && on_answer_) on_answer_();  // before any plan can come
    // Threads inherit the mask. A signal taken here would never reach the agent's signalfd.
    // Signals are for the agent's own thread.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    threads_.emplace_back(
        [this] { until_lost([this] { leads_ ? send_plans() : send_reports(); }); });
    threads_.emplace_back(
        [this] { until_lost([this] { leads_ ? receive_reports() : receive_plans(); }); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  ~StoreLine() override {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    // Outside the lock: a woken thread would wait for it at once.
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
  BootClock::time_point last_contact() const override {
    const std::lock_guard lock(mutex_);
    return lease_.last_contact();
  }
  bool has_lapsed() const override {
    const std::lock_guard lock(mutex_);
    // The leader hears itself and renews no lease.
    return !leads_ && lease_.has_lapsed(BootClock::now());
  }
  bool begin_anew() override {
    const std::lock_guard lock(mutex_);
    return lease_.begin_anew(BootClock::now());
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
    std::map<int64_t, SeenHost> all = hosts_;
    // The leader's report needs no way through the store, and has just been made.
    if (!report_.id.empty()) all[number_] = {report_, Clock::now()};
    std::vector<SeenHost> known;
    for (auto& [number, host] : all) known.push_back(std::move(host));
    return known;
  }
  void publish(const Plan& plan) override {
    {
      const std::lock_guard lock(mutex_);
      plan_ = plan;
      unsent_.push_back(to_json(plan));
    }
    changed_.notify_all();
  }

 private:
  void until_lost(const std::function<void()>& work) {
    try {
      work();
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      // The first reason is the cause; what follows it are consequences.
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
    // Reports also go out without news: they are the heartbeat.
    changed_.wait_for(lock, beat_, [this] { return is_ending_ || has_news_; });
    if (is_ending_) return false;
    has_news_ = false;
    report = report_;
    // A number that grows makes each text new, so the leader can tell a beat from a value it has
    // read.
    report.beat = ++num_beats_;
    // So the leader can warn of a clock that is off: logs of hosts are merged by time.
    report.clock_us = std::chrono::duration_cast<std::chrono::microseconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
    return true;
  }

  void send_reports() {
    HostReport report;
    while (next_report(report)) {
      if (report.id.empty()) continue;  // the agent has not said anything yet
      const BootClock::time_point sent = BootClock::now();
      meeting_.set(host_key(number_), to_json(report));
      {
        const std::lock_guard lock(mutex_);
        lease_.renew(sent, BootClock::now());
      }
      if (on_answer_) on_answer_();
    }
  }

  // The leader's. All plans are in the store before the line ends.
  void send_plans() {
    int64_t num_plans = 0;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return is_ending_ || !unsent_.empty(); });
      // Looks at unsent_ and not at is_ending_: the plan to stop is published just before the end,
      // and the others would wait for it in vain.
      if (unsent_.empty()) return;
      const std::string plan = std::move(unsent_.front());
      unsent_.pop_front();
      // The store may be slow, and publish() must not wait for it.
      lock.unlock();
      meeting_.set(plan_key(++num_plans), plan);
      meeting_.set("plans", std::to_string(num_plans));
      lock.lock();
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
      // No plan yet. The wait is bounded so that the end of the line is noticed.
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

  // The leader's: fetches the others' reports, and notes when each was new.
  void receive_reports() {
    std::set<int64_t> silent;  // hosts that have joined and not reported yet
    std::vector<int64_t> heard;
    std::vector<std::string> keys;
    std::vector<std::string> taken;
    int64_t num_joined = 0;
    while (!is_ending()) {
      // Polling is cheaper here than a wait per host: one request brings the reports of all.
      std::this_thread::sleep_for(kLook);
      // Adding zero reads the counter.
      const int64_t count = meeting_.add("hosts", 0);
      while (num_joined < count) {
        if (++num_joined != number_) silent.insert(num_joined);
      }
      std::erase_if(silent, [&](int64_t host) {
        // A key that is missing would make the request for all of them wait.
        if (!meeting_.wait_for(host_key(host), kNow)) return false;
        heard.push_back(host);
        keys.push_back(host_key(host));
        return true;
      });
      take_reports(heard, meeting_.get(keys), taken);
    }
  }

  // The texts that were taken last are in `taken`: each beat has another one.
  void take_reports(const std::vector<int64_t>& numbers, std::vector<std::string> texts,
                    std::vector<std::string>& taken) {
    bool is_news = false;
    taken.resize(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      if (texts[i] == taken[i]) continue;
      taken[i] = std::move(texts[i]);
      try {
        HostReport report = parse_report(taken[i], "an agent's report");
        const std::lock_guard lock(mutex_);
        hosts_[numbers[i]] = {std::move(report), Clock::now()};
        is_news = true;
      } catch (const ConfigError&) {
        // The report has a different version or is broken. Its silence will exclude the host.
      }
    }
    if (is_news) wake();
  }

  const std::chrono::milliseconds beat_;
  const std::function<void()> on_answer_;
  // Before meeting_, whose initializer sets it.
  bool leads_ = false;
  comm::Meeting meeting_;
  const Descriptor wake_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  int64_t number_ = 0;  // of this host, from 1
  int64_t num_beats_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ending_ = false;
  bool has_news_ = false;
  HostReport report_;
  Plan plan_;
  std::deque<std::string> unsent_;     // the leader's plans that are not in the store yet
  std::map<int64_t, SeenHost> hosts_;  // the others, by number
  Lease lease_;
  std::string problem_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Line> make_store_line(const StoreLineOptions& options) {
  return std::make_unique<StoreLine>(options);
}

std::unique_ptr<Line> make_line(const AgentOptions& options, std::optional<bool> leads,
                                std::chrono::milliseconds timeout, std::function<void()> on_answer,
                                const std::shared_ptr<comm::Cancellation>& cancellation) {
  if (options.endpoint.empty()) return make_local_line();
  return make_store_line({.meeting = {.address = options.endpoint,
                                      .listen = options.listen,
                                      .job = options.job,
                                      .timeout = timeout,
                                      .answer_patience = options.lease,
                                      .cancellation = cancellation},
                          .leads = leads,
                          .lease = options.lease,
                          .on_answer = std::move(on_answer)});
}

}  // namespace trireme::launch
