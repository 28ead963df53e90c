#include "trireme/checkpoint/foreign/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved.h"

namespace trireme::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kPickleNames[] = {"torch.Size"};

TEST(Pickle, ValuesAreAskedForByKindAndRange) {
  Pickler pickler;
  pickler.mark().integer(-3).text("é").integers(std::vector<int64_t>{1, 2}).none().tuple();
  const Pickle pickle(pickler.finish(), kPickleNames, "file");
  const auto items = pickle.root().items(4);
  EXPECT_EQ(items[0].integer(-3), -3);
  EXPECT_EQ(items[1].word(), "é");
  EXPECT_THAT(items[2].integers(2, 1), ElementsAre(1, 2));
  EXPECT_EQ(items[3].kind(), PickleKind::kNone);
  EXPECT_EQ(items[3].global(), "");
  const auto refused = [](auto&& call) { return checkpoint_error(call); };
  EXPECT_THAT(refused([&] { items[0].integer(0, 9); }),
              HasSubstr("file: byte 3: the integer -3; expected an integer from 0 to 9"));
  EXPECT_THAT(refused([&] { items[1].integer(0); }), HasSubstr("a string \"\\u00e9\"; expected"));
  EXPECT_THAT(refused([&] { items[0].text(); }), HasSubstr("expected a string"));
  EXPECT_THAT(refused([&] { items[2].integers(1, 0); }), HasSubstr("expected at most 1 integers"));
  EXPECT_THAT(refused([&] { items[2].integers(2, 2); }), HasSubstr("the integer 1; expected"));
  EXPECT_THAT(refused([&] { items[3].items(); }), HasSubstr("None; expected a tuple"));
  EXPECT_THAT(refused([&] { pickle.root().items(3); }), HasSubstr("expected 3 values"));
  EXPECT_THAT(refused([&] { items[2].members(); }), HasSubstr("a tuple; expected a dict"));
  EXPECT_THAT(refused([&] { items[2].arguments(0); }), HasSubstr("expected an object"));
  EXPECT_THAT(refused([&] { items[2].reference(); }), HasSubstr("expected a persistent"));
}

TEST(Pickle, ARecordHasACallableArgumentsAndAttributes) {
  Pickler pickler;
  pickler.global("torch", "Size").mark().integer(5).tuple().call();
  pickler.empty_dict().mark().text("a").integer(1).integer(7).none().set_items().set_state();
  const Pickle pickle(pickler.finish(), kPickleNames, "file");
  const PickleValue root = pickle.root();
  EXPECT_EQ(root.global(), "torch.Size");
  EXPECT_EQ(root.arguments(1)[0].integer(0), 5);
  EXPECT_EQ(root.attribute("a").integer(0), 1);
  EXPECT_FALSE(root.find_attribute("b").has_value());
  EXPECT_THAT(checkpoint_error([&] { root.attribute("b"); }),
              HasSubstr("torch.Size; expected an object with \"b\""));
  EXPECT_THAT(checkpoint_error([&] { root.arguments(2); }), HasSubstr("2 to 64 arguments"));
}

// Many records may share them, so their number bounds the work.
TEST(Pickle, TheNumberOfArgumentsAndAttributesIsBounded) {
  Pickler pickler;
  pickler.global("torch", "Size").integers(std::vector<int64_t>(65, 0)).call();
  pickler.empty_dict().mark();
  for (int i = 0; i < 65; ++i) pickler.integer(i).none();
  pickler.set_items().set_state();
  const Pickle pickle(pickler.finish(), kPickleNames, "file");
  EXPECT_THAT(checkpoint_error([&] { pickle.root().arguments(0); }), HasSubstr("0 to 64"));
  EXPECT_THAT(checkpoint_error([&] { pickle.root().attribute("a"); }), HasSubstr("1 to 64"));
}

}  // namespace
}  // namespace trireme::checkpoint
