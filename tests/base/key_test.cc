#include "trireme/base/key.h"

#include <cmath>

#include <gtest/gtest.h>

namespace trireme {
namespace {

enum class Oar { kShort, kLong };
constexpr Choice<Oar> kOarNames[] = {{"short", Oar::kShort}, {"long", Oar::kLong}};
std::vector<std::string> ports() { return {"Piraeus", "Delos"}; }

struct ShipConfig {
  TRIREME_KEYS_BEGIN(ShipConfig)
  TRIREME_KEY(int64_t, rowers, 170, kMayChange, "people at the oars", Range{1, 200})
  TRIREME_KEY(double, speed, 7.5, kMayChange,
              "knots, over several "
              "lines",
              Range{.minimum = 0, .maximum = 10, .above_minimum = true})
  TRIREME_KEY(std::string, home, "Piraeus", kMustStay, "port", ports)
  TRIREME_KEY(std::string, name, "Olympias, of Athens", kNotKept, "any text")
  TRIREME_KEY(bool, ram, true, kMustStay, "has one")
  TRIREME_KEY(Oar, oar, Oar::kLong, kMayChange, "of each rower", kOarNames)
  TRIREME_KEYS_END()
};

TEST(Key, DeclaresMembersWithTheirDefaults) {
  const ShipConfig ship;
  EXPECT_EQ(ship.rowers, 170);
  EXPECT_EQ(ship.speed, 7.5);
  EXPECT_EQ(ship.name, "Olympias, of Athens");
  EXPECT_EQ(ship.oar, Oar::kLong);
  const ShipConfig other{.rowers = 2, .oar = Oar::kShort};
  EXPECT_EQ(other.rowers, 2);
  EXPECT_TRUE(other.ram);
}

TEST(Key, IsVisitedInTheOrderOfItsLines) {
  std::string seen;
  visit_keys<ShipConfig>([&](const auto& key) { seen += std::string(key.name) + " "; });
  EXPECT_EQ(seen, "rowers speed home name ram oar ");
}

TEST(Key, KnowsWhatItsValueMayBe) {
  ShipConfig ship;
  visit_keys<ShipConfig>([&]<typename Value>(const Key<ShipConfig, Value>& key) {
    if constexpr (std::is_same_v<Value, int64_t>) {
      ship.*key.member = 3;
      EXPECT_EQ(to_text(key.range), "at least 1 and at most 200");
    } else if constexpr (std::is_same_v<Value, double>) {
      EXPECT_EQ(to_text(key.range), "above 0 and at most 10");
      EXPECT_EQ(key.meaning, "knots, over several lines");
    } else if constexpr (std::is_same_v<Value, std::string>) {
      EXPECT_EQ(key.names == nullptr, key.name == "name");
      EXPECT_EQ(key.on_resume, key.name == "name" ? OnResume::kNotKept : OnResume::kMustStay);
    } else if constexpr (std::is_same_v<Value, Oar>) {
      EXPECT_EQ(names_of(key.choices), (std::vector<std::string>{"short", "long"}));
    }
  });
  EXPECT_EQ(ship.rowers, 3);
}

TEST(Range, HasOrHasNotItsEnds) {
  const Range closed{0, 1};
  EXPECT_TRUE(closed.contains(0) && closed.contains(1) && !closed.contains(1.0000001));
  const Range open{.minimum = 0, .maximum = 1, .above_minimum = true, .below_maximum = true};
  EXPECT_FALSE(open.contains(0) || open.contains(1) || open.contains(std::nan("")));
  EXPECT_TRUE(open.contains(0.5));
  EXPECT_EQ(to_text(open), "above 0 and below 1");
}

TEST(Range, HoldsEveryIntegerOf64Bits) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  const Range range{0, static_cast<long double>(kLargest)};
  EXPECT_TRUE(range.contains(static_cast<long double>(kLargest)));
  EXPECT_FALSE(range.contains(static_cast<long double>(kLargest) + 1));
}

}  // namespace
}  // namespace trireme
