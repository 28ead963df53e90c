#include "trireme/dataset/file/unfinished_work.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

class UnfinishedWorkOf : public ::testing::Test {
 protected:
  // A preparation that fails, and writes a journal before if `writes`.
  template <typename Failure>
  void fail(bool writes) {
    leaving_work({.path = "out/.x.tmp",
                  .has_journal = [this] { return has_journal_; },
                  .release = [this] { is_released_ = true; }},
                 [&] {
                   has_journal_ = has_journal_ || writes;
                   throw Failure("no room");
                 });
  }
  bool has_journal_ = false;
  bool is_released_ = false;
};

TEST_F(UnfinishedWorkOf, AFullDiskStaysAndTheErrorNamesIt) {
  EXPECT_EQ(harness::message_of<Error>([&] { fail<Error>(/*writes=*/true); }),
            "no room; out/.x.tmp keeps what was done: run the same command again when this is "
            "mended, or remove it");
  EXPECT_TRUE(is_released_);
}

TEST_F(UnfinishedWorkOf, AStoreThatDoesNotAnswerKeepsItsKindOfError) {
  EXPECT_THROW(fail<CommError>(/*writes=*/true), CommError);
  EXPECT_TRUE(is_released_);
}

TEST_F(UnfinishedWorkOf, NothingStaysWithoutAJournal) {
  EXPECT_EQ(harness::message_of<Error>([&] { fail<Error>(/*writes=*/false); }), "no room");
  EXPECT_FALSE(is_released_);
}

TEST_F(UnfinishedWorkOf, WhatTheUserHasToChangeRemovesItsOwnWorkOnly) {
  EXPECT_EQ(harness::message_of<ConfigError>([&] { fail<ConfigError>(/*writes=*/true); }),
            "no room");
  EXPECT_FALSE(is_released_);
  has_journal_ = true;  // of an earlier call
  EXPECT_THROW(fail<ConfigError>(/*writes=*/false), ConfigError);
  EXPECT_TRUE(is_released_);
}

}  // namespace
}  // namespace trireme::dataset
