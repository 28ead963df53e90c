#include "trireme/tasks/recommend/tables/planned_tables.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::tasks {
namespace {

using plan::TableSplit;

const std::vector<parallel::TableConfig> kTables{{.name = "user", .rows = 9, .width = 2},
                                                 {.name = "shop", .rows = 4, .width = 2},
                                                 {.name = "word", .rows = 7, .width = 2}};

TableChoice some_choice() {
  return {.places = {{.split = TableSplit::kRows, .cuts = {0, 3, 9}},
                     {.split = TableSplit::kWhole, .rank = 1},
                     {.split = TableSplit::kRows}},
          .predicted = {{.look_ups = 10, .sent_bytes = 2000}, {.look_ups = 14, .sent_bytes = 1e3}}};
}

TEST(TableChoice, IsTheSameAfterItsText) {
  const TableChoice choice = some_choice();
  const TableChoice again = parse_choice(to_json(choice, kTables), "text", kTables, 2);
  EXPECT_EQ(again.places, choice.places);
  ASSERT_EQ(again.predicted.size(), 2U);
  EXPECT_EQ(again.predicted[1].look_ups, 14);
  EXPECT_EQ(again.predicted[0].sent_bytes, 2000);
}

TEST(TableChoice, IsRefusedForOtherTablesAndDamage) {
  const std::string text = to_json(some_choice(), kTables);
  const auto message = [&](std::string damaged, int num_ranks = 2) {
    return harness::message_of<ConfigError>(
        [&] { parse_choice(damaged, "file", kTables, num_ranks); });
  };
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string damaged = text;
    damaged.replace(damaged.find(from), from.size(), to);
    return damaged;
  };
  EXPECT_EQ(message(text), "");
  EXPECT_NE(message(text, 3).find("file: ranks is "), std::string::npos);
  EXPECT_NE(message(replaced("\"user\"", "\"item\"")).find("tables[0].name"), std::string::npos);
  EXPECT_NE(message(replaced("\"rows\": 4", "\"rows\": 5")).find("tables[1].rows"),
            std::string::npos);
  EXPECT_NE(message(replaced("\"rank\": 1", "\"rank\": 2")).find("tables[1].rank"),
            std::string::npos);
  EXPECT_NE(message(replaced("\"whole\"", "\"half\"")).find("tables[1].split"), std::string::npos);
  EXPECT_NE(message(replaced("   3,", "   12,")).find("rise from 0 to the table's 9 rows"),
            std::string::npos);
  EXPECT_NE(message(replaced("   3,", "")).find("3 numbers"), std::string::npos);
  EXPECT_NE(message(text.substr(0, text.size() / 2)).find("file"), std::string::npos);
}

// It may take what is damaged, but only with places that the tables can have.
TEST(TableChoice, TakesOrRefusesEveryDamage) {
  const std::string text = to_json(some_choice(), kTables);
  const auto read = [&](const std::string& damaged) {
    harness::message_of<ConfigError>([&] {
      for (const plan::TablePlace& place : parse_choice(damaged, "file", kTables, 2).places) {
        EXPECT_LT(place.rank, 2);
        EXPECT_TRUE(place.cuts.empty() || place.cuts.size() == 3);
      }
    });
  };
  for (size_t i = 0; i < text.size(); ++i) {
    read(text.substr(0, i));
    read(text.substr(0, i) + text.substr(i + 1));
    for (const char wrong : {'9', '-', '"', ']', '\0', '\xff'}) {
      std::string damaged = text;
      damaged[i] = wrong;
      read(damaged);
    }
  }
}

TEST(TableChoice, SaysHowManyTablesLieHow) {
  EXPECT_EQ(describe(some_choice().places), "3 tables: 2 by rows, 1 whole");
  EXPECT_EQ(describe(std::vector<plan::TablePlace>{{.split = TableSplit::kReplicated}}),
            "1 table: 1 replicated");
}

TEST(TableChoice, ComparesWhatRanksMeasuredWithThePrediction) {
  const parallel::TableCounts counts{
      .num_steps = 4, .rows_read = 20, .gradients_added = 28, .sent_bytes = 8000};
  const std::vector<RankLookUps> measured{look_ups_of(counts),
                                          {.look_ups = 18, .sent_bytes = 4000}};
  EXPECT_EQ(compare_look_ups(measured, some_choice().predicted),
            "tables  busiest rank / mean: look-ups 1.20 (predicted 1.17), bytes 1.33 (predicted "
            "1.33); mean per step: 15 look-ups (predicted 12), 3 kB (predicted 2)");
  EXPECT_EQ(compare_look_ups(measured, {}),
            "tables  busiest rank / mean: look-ups 1.20, bytes 1.33; mean per step: 15 look-ups, "
            "3 kB");
  EXPECT_EQ(compare_look_ups(std::vector<RankLookUps>(1), {}), "");
  EXPECT_EQ(compare_look_ups(std::vector<RankLookUps>(2), {}), "");
}

}  // namespace
}  // namespace trireme::tasks
