// Learners as threads that come and go, over sockets.
#include "trireme/comm/rounds/round_client.h"

#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/rendezvous/sockets.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/random/random.h"
#include "trireme/comm/rounds/round_service.h"
#include "trireme/comm/store/store_server.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using wire::Bytes;
using wire::RoundBytes;

constexpr int kPlaces = 3;
constexpr int64_t kLastStep = 4;

struct Killed {};

// The service at a port of its own; may be ended and begun anew there.
class Served {
 public:
  explicit Served(milliseconds lease) : lease_(lease) {
    Port port;
    address_ = concat("127.0.0.1:", port.number());
    port.release();
    begin();
  }
  void begin() {
    service_ = std::make_unique<RoundService>(
        RoundServiceOptions{.table = {.places = kPlaces, .lease = lease_}});
    server_ = serve_rounds(*service_, address_, nullptr);
  }
  void end() {
    server_.reset();
    service_.reset();
  }
  const std::string& address() const { return address_; }
  RoundService& service() { return *service_; }

 private:
  milliseconds lease_;
  std::string address_;
  std::unique_ptr<RoundService> service_;
  std::unique_ptr<StoreServer> server_;
};

// What the learners of a test have come to: the hashes of their weights by step.
class Ledger {
 public:
  void add(int64_t step, const std::string& hash) {
    const std::lock_guard lock(mutex_);
    hashes_[step].insert(hash);
  }
  void expect_equal() const {
    for (const auto& [step, hashes] : hashes_) EXPECT_EQ(hashes.size(), 1U) << "step " << step;
  }
  std::set<std::string> of(int64_t step) const {
    const auto found = hashes_.find(step);
    return found == hashes_.end() ? std::set<std::string>() : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<int64_t, std::set<std::string>> hashes_;
};

// A learner with a few weights and a round in every step, which changes its weights by something
// that depends on its place, its step and its weights.
class Learner {
 public:
  // point: called before each thing that a learner does; may throw Killed
  Learner(const std::string& address, int place, Ledger& ledger, std::function<void()> point)
      : address_(address), place_(place), ledger_(ledger), point_(std::move(point)) {}

  // From the weights that it has, as a new process, to the last step.
  void run() {
    point_();
    client_ = std::make_unique<RoundClient>(
        RoundClientOptions{.address = address_, .timeout = std::chrono::seconds(20)},
        RoundMember{.place = place_,
                    .num_places = kPlaces,
                    .process = unique_name(),
                    .step = step_,
                    .hash = hash(),
                    .last_step = kLastStep});
    settle();
    while (step_ < kLastStep) {
      do_round(step_ + 1);
      if (on_step) on_step(step_);
    }
    point_();
    client_->hand_down(step_, bytes());
    point_();
    client_->leave();
    client_.reset();
  }
  void die() { client_.reset(); }
  // Begins with what that one had saved.
  void go_on_from(const Learner& other) {
    weights_ = other.weights_;
    step_ = other.step_;
  }

  std::function<void(int64_t)> on_step = nullptr;

 private:
  using Weights = std::array<double, 5>;

  std::string hash() const { return checksum(std::as_bytes(std::span(weights_))); }
  std::span<const uint8_t> bytes() const {
    return {reinterpret_cast<const uint8_t*>(weights_.data()), sizeof(weights_)};
  }

  bool settle() {
    bool has_taken = false;
    while (true) {
      point_();
      const wire::RoundWelcome welcome = client_->await_welcome();
      if (welcome.standing == RoundStanding::kIn) return has_taken;
      point_();
      const auto state = client_->fetch(RoundBytes::kState, welcome.state, 0, sizeof(weights_));
      if (!state) continue;
      std::memcpy(weights_.data(), state->data(), state->size());
      EXPECT_GT(welcome.state, step_);
      step_ = welcome.state;
      ledger_.add(step_, hash());
      point_();
      client_->enroll(step_, hash());
      has_taken = true;
    }
  }

  void do_round(int64_t step) {
    Weights difference = weights_;
    for (size_t i = 0; i < difference.size(); ++i) {
      difference[i] = std::sin(weights_[i] * 3 + static_cast<double>(place_) +
                               static_cast<double>(step) / static_cast<double>(i + 1));
    }
    const std::span<const uint8_t> message{reinterpret_cast<const uint8_t*>(difference.data()),
                                           sizeof(difference)};
    std::vector<Weights> all;
    RoundOutcome outcome;
    while (!bring(step, message, outcome, all)) {
      if (settle()) return;
    }
    for (size_t i = 0; i < weights_.size(); ++i) {
      double sum = all[0][i];
      for (size_t each = 1; each < all.size(); ++each) sum += all[each][i];
      weights_[i] -= sum / static_cast<double>(all.size());
    }
    step_ = step;
    ledger_.add(step_, hash());
    point_();
    client_->enroll(step_, hash());
    point_();
    if (step_ == kLastStep || outcome.donor != place_) return;
    client_->send(RoundBytes::kState, step_, bytes());
  }

  bool bring(int64_t step, std::span<const uint8_t> message, RoundOutcome& outcome,
             std::vector<Weights>& all) {
    point_();
    client_->send(RoundBytes::kMessage, step, message);
    point_();
    outcome = client_->await_outcome(step, message);
    if (outcome.kind != RoundOutcome::Kind::kDecided) return false;
    all.clear();
    for (const int place : outcome.places) {
      point_();
      const auto theirs = client_->fetch(RoundBytes::kMessage, step, place, std::ssize(message));
      if (!theirs) return false;
      std::memcpy(all.emplace_back().data(), theirs->data(), theirs->size());
    }
    return true;
  }

  const std::string address_;
  const int place_;
  Ledger& ledger_;
  const std::function<void()> point_;
  std::unique_ptr<RoundClient> client_;
  Weights weights_{1, 2, 3, 4, 5};
  int64_t step_ = 0;
};

// Runs learners that die at drawn points and come back, with the weights that they had or with the
// first ones, or stay away. All have the same weights after each round, and at the end.
void run_drawn(uint64_t seed) {
  SCOPED_TRACE(concat("seed ", seed));
  Served served(milliseconds(400));
  Ledger ledger;
  std::atomic<int> expected = 0, finished = 0;
  std::vector<std::thread> threads;
  for (int place = 0; place < kPlaces; ++place) {
    threads.emplace_back([&, place] {
      std::mt19937_64 random(seed * kPlaces + static_cast<uint64_t>(place));
      // One lives to the end.
      const bool lives = place == static_cast<int>(seed % kPlaces);
      int deaths = lives ? 0 : static_cast<int>(random() % 3);
      const bool stays_away = deaths > 0 && random() % 4 == 0;
      if (!stays_away) ++expected;
      std::unique_ptr<Learner> learner;
      for (; deaths >= (stays_away ? 1 : 0); --deaths) {
        int points = deaths > 0 ? 1 + static_cast<int>(random() % 30) : 1'000'000;
        const auto point = [&] {
          if (--points == 0) throw Killed();
        };
        auto next = std::make_unique<Learner>(served.address(), place, ledger, point);
        // What two of them have is never lost: otherwise there may be no newest weights.
        const bool forgets = place == static_cast<int>((seed + 1) % kPlaces) && random() % 2 == 0;
        if (learner && !forgets) next->go_on_from(*learner);
        learner = std::move(next);
        try {
          learner->run();
          if (!stays_away) ++finished;
          return;
        } catch (const Killed&) {
          learner->die();
        } catch (const Error& error) {
          ADD_FAILURE() << "seed " << seed << ", place " << place << ": " << error.what();
          return;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ledger.expect_equal();
  EXPECT_EQ(finished, expected);
  if (!::testing::Test::HasFailure()) return;
  for (const std::string& line : served.service().take_news())
    ADD_FAILURE() << seed << ": " << line;
  EXPECT_EQ(ledger.of(kLastStep).size(), 1U);
}

TEST(RoundClient, LearnersThatDieAtDrawnPointsLeaveAllWithTheSameWeights) {
  constexpr uint64_t kSeeds = 200, kAtOnce = 20;
  for (uint64_t begin = 0; begin < kSeeds; begin += kAtOnce) {
    std::vector<std::thread> threads;
    for (uint64_t seed = begin; seed < begin + kAtOnce; ++seed)
      threads.emplace_back(run_drawn, seed);
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(RoundClient, AServiceThatBeginsAnewGoesOnWithTheRounds) {
  Served served(milliseconds(150));
  Ledger ledger;
  std::vector<std::thread> threads;
  std::atomic<int> arrived = 0;
  std::atomic<bool> goes_on = false;
  for (int place = 0; place < kPlaces; ++place) {
    threads.emplace_back([&, place] {
      Learner learner(served.address(), place, ledger, [] {});
      learner.on_step = [&](int64_t step) {
        if (step != 2) return;
        ++arrived;
        goes_on.wait(false);
      };
      learner.run();
    });
  }
  while (arrived < kPlaces) std::this_thread::yield();
  served.end();
  goes_on = true;
  goes_on.notify_all();
  std::this_thread::sleep_for(milliseconds(20));  // some ask while nobody is there
  served.begin();
  for (std::thread& thread : threads) thread.join();
  ledger.expect_equal();
  EXPECT_EQ(ledger.of(kLastStep).size(), 1U);
  EXPECT_TRUE(served.service().is_done());
}

TEST(RoundClient, WithoutAServiceItGivesUp) {
  Served served(milliseconds(100));
  const std::string address = served.address();
  served.end();
  try {
    RoundClient client({.address = address, .timeout = milliseconds(50)}, {.num_places = kPlaces});
    FAIL();
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no answer of the learners' service"));
  }
}

// For a service that is away, and for the others: without the stop each waits for minutes.
TEST(RoundClient, OneThatIsStoppedWaitsNoMore) {
  Served served(std::chrono::hours(1));
  const RoundClientOptions options{.address = served.address(), .is_stopped = [] { return true; }};
  const auto expect_stop = [](const std::function<void()>& wait) {
    try {
      wait();
      FAIL();
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr("stopped while"));
    }
  };
  {
    RoundClient client(options, {.num_places = kPlaces, .num_ranks = 1, .process = "a"});
    expect_stop([&] { static_cast<void>(client.await_welcome()); });
  }
  served.end();
  expect_stop([&] { RoundClient client(options, {.num_places = kPlaces}); });
}

TEST(RoundClient, ARefusalIsTheServicesLine) {
  Served served(milliseconds(100));
  try {
    RoundClient client({.address = served.address()}, {.num_places = 7});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("parallel.learners = 7"));
  }
}

TEST(RoundClient, AMessageOfAnotherSizeIsAnError) {
  Served served(milliseconds(10'000));
  std::vector<std::unique_ptr<RoundClient>> clients;
  for (int place = 0; place < kPlaces; ++place) {
    clients.push_back(std::make_unique<RoundClient>(
        RoundClientOptions{.address = served.address()},
        RoundMember{
            .place = place, .num_places = kPlaces, .process = unique_name(), .last_step = 9}));
  }
  const Bytes bytes(100);
  for (auto& client : clients) client->send(RoundBytes::kMessage, 1, bytes);
  EXPECT_EQ(clients[0]->await_outcome(1, bytes).kind, RoundOutcome::Kind::kDecided);
  EXPECT_EQ(clients[0]->fetch(RoundBytes::kMessage, 1, 2, 100), bytes);
  EXPECT_THROW(clients[0]->fetch(RoundBytes::kMessage, 1, 2, 99), CommError);
}

TEST(RoundClient, ALongMessageTravelsInPieces) {
  Served served(milliseconds(10'000));
  std::vector<std::unique_ptr<RoundClient>> clients;
  Bytes bytes(static_cast<size_t>(2 * wire::kRoundPieceBytes + 17));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * i % 251);
  for (int place = 0; place < kPlaces; ++place) {
    clients.push_back(std::make_unique<RoundClient>(
        RoundClientOptions{.address = served.address()},
        RoundMember{
            .place = place, .num_places = kPlaces, .process = unique_name(), .last_step = 9}));
  }
  for (auto& client : clients) client->send(RoundBytes::kMessage, 1, bytes);
  EXPECT_EQ(clients[1]->await_outcome(1, bytes).kind, RoundOutcome::Kind::kDecided);
  EXPECT_EQ(clients[1]->fetch(RoundBytes::kMessage, 1, 0, std::ssize(bytes)), bytes);
}

}  // namespace
}  // namespace trireme::comm
