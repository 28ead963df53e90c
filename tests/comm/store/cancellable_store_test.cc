#include "trireme/comm/rendezvous/job_store.h"

#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/rendezvous/store_group.h"

namespace trireme::comm {
namespace {

constexpr std::chrono::milliseconds kLong{60'000};

class CancellableStoreTest : public ::testing::Test {
 protected:
  const std::shared_ptr<Cancellation> cancellation_ = std::make_shared<Cancellation>();
  const c10::intrusive_ptr<c10d::Store> inner_ = c10::make_intrusive<c10d::HashStore>();
  const c10::intrusive_ptr<c10d::Store> store_ =
      c10::make_intrusive<CancellableStore>("job", inner_, cancellation_);
};

TEST_F(CancellableStoreTest, IsTheStoreUnderAPrefix) {
  store_->set("key", std::string("value"));
  EXPECT_EQ(inner_->get_to_str("job/key"), "value");
  EXPECT_EQ(store_->get_to_str("key"), "value");
  EXPECT_TRUE(store_->check({"key"}));
  store_->wait({"key"});
  EXPECT_EQ(store_->clone()->get_to_str("key"), "value");
}

TEST_F(CancellableStoreTest, WaitsForAKeyLongerThanASlice) {
  std::thread setter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    inner_->set("job/late", std::string("value"));
  });
  store_->wait({"late"}, kLong);
  EXPECT_EQ(store_->get_to_str("late"), "value");
  setter.join();
}

TEST_F(CancellableStoreTest, AKeyThatNeverComesIsTheStoresError) {
  EXPECT_ANY_THROW(store_->wait({"none"}, std::chrono::milliseconds(150)));
}

TEST_F(CancellableStoreTest, EndsAWaitWhenItIsCancelled) {
  std::thread canceller([&] { cancellation_->cancel("rank 2 was killed"); });
  EXPECT_THROW(store_->wait({"none"}, kLong), CommError);
  canceller.join();
  EXPECT_THROW(store_->get("none"), CommError);
  EXPECT_THROW(store_->set("key", std::string("value")), CommError);
}

TEST_F(CancellableStoreTest, EndsAMeetingOnEveryRank) {
  std::thread canceller([&] { cancellation_->cancel("rank 2 was killed"); });
  EXPECT_THROW(agree_on_session(store_, 0, 3, kLong), CommError);
  EXPECT_THROW(agree_on_session(store_, 1, 3, kLong), CommError);
  canceller.join();
}

}  // namespace
}  // namespace trireme::comm
