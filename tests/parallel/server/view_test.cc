#include "trireme/parallel/server/view.h"

#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using Chains = std::vector<std::vector<uint32_t>>;

std::map<uint32_t, std::string> servers(uint32_t count) {
  std::map<uint32_t, std::string> all;
  for (uint32_t id = 0; id < count; ++id) all[id] = "tcp://127.0.0.1:" + std::to_string(4000 + id);
  return all;
}

TEST(View, IsTheSameAfterItsText) {
  ViewMaker maker(3, 2);
  maker.start(servers(3), {{0, 1}, {7, 2}});
  EXPECT_EQ(parse_view(to_text(maker.view())), maker.view());
}

TEST(View, RefusesOtherTexts) {
  for (
      const char* const text :
      {"", "{}", "[1]", R"({"view": -1, "servers": [], "workers": [], "chains": []})",
       R"({"view": 1, "servers": [], "workers": [], "chains": [[0]]})",
       R"({"view": 1, "servers": [], "workers": [], "chains": [[]]})",
       R"({"view": 1, "servers": [{"id": 0, "address": "a"}], "workers": [], "chains": [[0, 0]]})",
       R"({"view": 1, "servers": [], "workers": [{"number": 1, "incarnation": 0}], "chains": []})"}) {
    EXPECT_THROW(parse_view(text), ConfigError) << text;
  }
}

TEST(View, HasAddressesOfASCII) {
  EXPECT_TRUE(is_address("tcp://[::1]:4000"));
  for (const std::string& text : {std::string(), std::string("a b"), std::string("a\n"),
                                  std::string("\xff"), std::string(513, 'a')}) {
    EXPECT_FALSE(is_address(text)) << text;
  }
}

TEST(ViewMaker, ChainsBeginAtTheServersInTurn) {
  ViewMaker maker(3, 2);
  maker.start(servers(3), {});
  EXPECT_EQ(maker.view().chains, (Chains{{0, 1}, {1, 2}, {2, 0}}));
  EXPECT_TRUE(maker.is_whole());
  EXPECT_THROW(ViewMaker(2, 3), ConfigError);
  EXPECT_THROW(ViewMaker(0, 0), ConfigError);
}

TEST(ViewMaker, AChainClosesUpAndGrowsAtItsEnd) {
  ViewMaker maker(2, 2);
  maker.start(servers(2), {});
  maker.remove_server(0);
  EXPECT_EQ(maker.view().chains, (Chains{{1}, {1}}));
  EXPECT_FALSE(maker.is_whole());
  maker.add_server(5, "tcp://127.0.0.1:5");
  EXPECT_EQ(maker.view().chains, (Chains{{1, 5}, {1, 5}}));
  EXPECT_FALSE(maker.is_whole()) << "the new copies are not filled yet";
  const uint32_t number = maker.view().number;
  maker.set_filled(0, 5);
  maker.set_filled(1, 5);
  EXPECT_TRUE(maker.is_whole());
  EXPECT_EQ(maker.view().number, number) << "nobody needs to know";
  EXPECT_EQ(maker.lost(), "");
}

TEST(ViewMaker, AShardIsLostWithItsLastWholeCopy) {
  ViewMaker maker(2, 2);
  maker.start(servers(2), {});
  maker.remove_server(0);
  maker.add_server(5, "tcp://127.0.0.1:5");
  maker.set_filled(0, 5);
  maker.remove_server(1);
  EXPECT_NE(maker.lost().find("shard 1"), std::string::npos) << maker.lost();
}

TEST(ViewMaker, NeverLosesAShardWhileEveryChainGetsTimeToFill) {
  harness::Draw draw(5);
  for (int round = 0; round < 30; ++round) {
    const auto shards = 2 + draw.below<int64_t>(4);
    ViewMaker maker(shards, 2);
    maker.start(servers(static_cast<uint32_t>(shards)), {});
    uint32_t next = static_cast<uint32_t>(shards);
    for (int kill = 0; kill < 40; ++kill) {
      const auto& known = maker.view().servers;
      maker.remove_server(std::next(known.begin(), draw.below<int64_t>(std::ssize(known)))->first);
      maker.add_server(next++, "tcp://127.0.0.1:9");
      for (int turn = 0; turn < 5; ++turn) {
        const Chains chains = maker.view().chains;
        for (int64_t shard = 0; shard < shards; ++shard) {
          for (const uint32_t id : chains[static_cast<size_t>(shard)]) maker.set_filled(shard, id);
        }
      }
      ASSERT_TRUE(maker.is_whole());
      ASSERT_EQ(maker.lost(), "");
    }
  }
}

TEST(ViewMaker, WorkersComeAndGo) {
  ViewMaker maker(1, 1);
  maker.start(servers(1), {{0, 1}});
  maker.add_worker(3, 1);
  maker.remove_worker(0);
  maker.remove_worker(9);
  EXPECT_EQ(maker.view().workers, (std::map<uint32_t, uint32_t>{{3, 1}}));
  EXPECT_EQ(maker.view().number, 3U);
}

}  // namespace
}  // namespace trireme::parallel
