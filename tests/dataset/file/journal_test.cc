#include "trireme/dataset/file/journal.h"

#include <cstdint>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::dataset {
namespace {

class JournalOf : public ::testing::Test {
 protected:
  PreparationPlace place(uint64_t identity) const {
    return {.work = folder_.path(), .identity = {.high = 7, .low = identity}};
  }
  // The number that was written last; -1: none.
  static int64_t found(const PreparationPlace& place) {
    int64_t number = -1;
    const bool goes_on = go_on_from_journal(
        place, [&](const JsonView& journal) { number = journal.at("done").integer(0); });
    return goes_on ? number : -1;
  }
  harness::TemporaryFolder folder_;
};

TEST_F(JournalOf, APreparationHasWhatItWroteLast) {
  EXPECT_FALSE(has_journal(folder_.path()));
  EXPECT_EQ(found(place(1)), -1);
  EXPECT_FALSE(has_journal(folder_.path()));
  write_journal(place(1), {{"done", 3}});
  write_journal(place(1), {{"done", 5}});
  EXPECT_TRUE(has_journal(folder_.path()));
  EXPECT_EQ(found(place(1)), 5);
}

TEST_F(JournalOf, AnotherPreparationRemovesItWithItsOwn) {
  found(place(1));
  write_journal(place(1), {{"done", 3}});
  EXPECT_EQ(found(place(2)), -1);
  EXPECT_EQ(found(place(1)), 3);
  write_journal(place(2), {{"done", 4}});
  EXPECT_EQ(found(place(1)), -1);
  EXPECT_EQ(found(place(2)), 4);
}

TEST_F(JournalOf, OneThatCannotBeUsedIsRemoved) {
  found(place(1));
  for (const char* text : {"", "{", "{\"done\": -1}", "{\"other\": 1}"}) {
    write_file_atomically(place(1).folder() / "journal.json", text);
    EXPECT_EQ(found(place(1)), -1) << text;
    EXPECT_FALSE(has_journal(folder_.path())) << text;
  }
  write_journal(place(1), {{"done", 3}});
  EXPECT_FALSE(go_on_from_journal(place(1), [](const JsonView&) { throw Error("cut short"); }));
  EXPECT_EQ(found(place(1)), -1);
}

}  // namespace
}  // namespace trireme::dataset
