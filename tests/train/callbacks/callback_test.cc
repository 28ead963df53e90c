#include "trireme/train/callbacks/callback.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/harness/messages.h"
#include "tests/train/language_config.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

class Mine : public Callback {
 public:
  std::unique_ptr<Callback> clone() const override { return std::make_unique<Mine>(*this); }
};
std::unique_ptr<Callback> make_mine() { return std::make_unique<Mine>(); }

TEST(Callback, AProgramsOwnComeFirstThenTheTasksThenTheBuiltInOnes) {
  static constexpr CallbackKind kOwn[] = {{"mine", make_mine}};
  const RunConfig config = default_config({tasks::all_tasks(), kOwn});
  std::vector<std::string> names;
  for (const NamedCallback& named : config.callbacks) names.push_back(named.name);
  EXPECT_EQ(names, (std::vector<std::string>{"mine", "experts", "average", "early_stop", "best",
                                             "time_limit", "histograms", "activations", "record",
                                             "examine", "command"}));
  EXPECT_EQ(std::ranges::count_if(config.callbacks,
                                  [&](const auto& named) { return hears(named, config); }),
            1);
}

TEST(Callback, ANameGivenTwiceIsRefused) {
  static constexpr CallbackKind kTwice[] = {{"mine", make_mine}, {"mine", make_mine}};
  static constexpr CallbackKind kBuiltIn[] = {{"average", make_mine}};
  static constexpr CallbackKind kNoName[] = {{"a.b", make_mine}};
  const auto message = [](CallbackTable own) {
    return harness::message_of<ConfigError>([&] { default_config({tasks::all_tasks(), own}); });
  };
  EXPECT_EQ(message(kTwice), "the program has two callbacks named \"mine\"; rename one");
  EXPECT_EQ(message(kBuiltIn), "the program has two callbacks named \"average\"; rename one");
  EXPECT_EQ(message(kNoName),
            "the program has a callback named \"a.b\"; expected letters, digits and _");
}

}  // namespace
}  // namespace trireme::train
