#include "trireme/train/annotated/placed_probes.h"

#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/train/annotated/annotated_run.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/train/callbacks/activation_record.h"

namespace trireme::train {
namespace {

using Names = std::vector<std::string>;

class PlacedProbesTest : public AnnotatedRun {
 protected:
  // Two steps in fp64, the first recorded.
  void run_recorded(const std::string& name, int num_ranks, std::vector<Override> settings) {
    settings.insert(settings.begin(), {{"record.activations", "1"},
                                       {"train.steps", "2"},
                                       {"optimizer.warmup_steps", "1"},
                                       {"train.evaluate_interval", "0"}});
    run(config(name, settings), num_ranks);
  }
  std::filesystem::path record(const std::string& name) const {
    return folder_ / name / kActivationFolder / checkpoint::folder_name(1);
  }
  nlohmann::json state(const std::string& name) const {
    return nlohmann::json::parse(checkpoint::inspect(record(name)).state);
  }
  // The probes, in the order of forward, that differ by more than rounding.
  Names differing(const std::string& name, const std::string& expected) const {
    const auto a = checkpoint::load_global(record(name));
    const auto b = checkpoint::load_global(record(expected));
    EXPECT_EQ(state(name).at(kRecordedProbes), state(expected).at(kRecordedProbes));
    EXPECT_EQ(a.size(), b.size());
    Names names;
    for (const auto& probe : state(expected).at(kRecordedProbes).get<Names>()) {
      for (const std::string& each : {probe, probe + std::string(verify::kGradientEnd)}) {
        const double largest = b.at(each).abs().max().item<double>();
        if (a.at(each).sizes() != b.at(each).sizes() ||
            (a.at(each) - b.at(each)).abs().max().item<double>() > 1e-10 * largest)
          names.push_back(each);
      }
    }
    return names;
  }
};

TEST_F(PlacedProbesTest, EveryLayoutHasTheSameProbesAndGradients) {
  run_recorded("one", 1, {});
  EXPECT_EQ(state("one").at(kRecordedProbes), (Names{"first", "up", "down", "middle", "output"}));
  EXPECT_EQ(checkpoint::load_global(record("one")).at("up").sizes(),
            (std::vector<int64_t>{12, 11}));
  const std::map<std::string, std::pair<int, std::vector<Override>>> layouts = {
      {"tensor 3", {3, {{"parallel.tensor", "3"}}}},
      {"2 x 2", {4, {{"parallel.tensor", "2"}, {"parallel.zero", "2"}}}},
      {"of three", {2, {{"parallel.tensor", "2"}, {"train.micro_batch", "3"}}}}};
  for (const auto& [name, layout] : layouts) {
    run_recorded(name, layout.first, layout.second);
    EXPECT_EQ(differing(name, "one"), Names()) << name;
    EXPECT_TRUE(state(name).at(kDifferingProbes).empty()) << state(name);
    EXPECT_TRUE(state(name).at(kPartialProbes).empty()) << state(name);
  }
}

TEST_F(PlacedProbesTest, LinksOfAChainAreProbed) {
  const Override chain = {"points.chain", "true"};
  run_recorded("one", 1, {chain});
  EXPECT_EQ(state("one").at(kRecordedProbes), (Names{"enter", "middle", "tied", "head"}));
  run_recorded("stages", 4, {chain, {"parallel.tensor", "2"}, {"parallel.pipeline", "2"}});
  run_recorded(
      "again", 4,
      {chain, {"parallel.tensor", "2"}, {"parallel.zero", "3"}, {"train.recompute", "full"}});
  for (const char* name : {"stages", "again"}) EXPECT_EQ(differing(name, "one"), Names()) << name;
}

TEST_F(PlacedProbesTest, AMapThatNeedsTheWholeDiffersFromThereOn) {
  const Override flaw = {"points.flaw", "of halves"};
  run_recorded("one", 1, {flaw});
  run_recorded("two", 2, {flaw, {"parallel.tensor", "2"}});
  const Names found = differing("two", "one");
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(std::ranges::count(found, "first"), 0);
  EXPECT_EQ(std::ranges::count(found, "up"), 1);
}

TEST_F(PlacedProbesTest, RanksWithOtherValuesOfAWholeAreTold) {
  const Override flaw = {"points.flaw", "unsummed"};
  run_recorded("two", 2, {flaw, {"parallel.tensor", "2"}});
  const nlohmann::json replicas = state("two").at(kDifferingProbes);
  EXPECT_FALSE(replicas.contains("first")) << replicas;
  run_recorded("one", 1, {flaw});
  const Names found = differing("two", "one");
  EXPECT_EQ(std::ranges::count(found, "up"), 1);
}

TEST_F(PlacedProbesTest, ARoundoffReachesEveryProbe) {
  run_recorded("plain", 1, {});
  run_recorded("off", 1, {{"record.perturb", "5"}});
  run_recorded("two", 2, {{"record.perturb", "5"}, {"parallel.tensor", "2"}});
  EXPECT_EQ(differing("two", "off"), Names());
  const auto plain = checkpoint::load_global(record("plain"));
  for (const auto& [name, values] : checkpoint::load_global(record("off"))) {
    const double off = (values - plain.at(name)).abs().max().item<double>();
    EXPECT_GT(off, 0) << name;
    EXPECT_LT(off, 1e-12) << name;
  }
}

}  // namespace
}  // namespace trireme::train
