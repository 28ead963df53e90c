#include "trireme/checkpoint/foreign/unpickler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved.h"

namespace trireme::checkpoint {
namespace {

using namespace std::string_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kUnpicklerNames[] = {"torch.Size", "collections.OrderedDict"};

std::string error_of_instructions(const std::string& instructions) {
  const std::string pickle = "\x80\x04" + instructions;
  const std::string message = checkpoint_error([&] { unpickle(pickle, kUnpicklerNames, "file"); });
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_LT(message.size(), 500u);
  return message;
}

PickleNode root_of(const std::string& pickle) {
  static std::string kept;  // nodes refer to it
  kept = pickle;
  const PickleNodes nodes = unpickle(kept, kUnpicklerNames, "file");
  return nodes.nodes[nodes.root];
}

TEST(Unpickler, ReadsEveryKindOfNumber) {
  const auto integer = [](const std::string& code) {
    const PickleNode node = root_of("\x80\x02" + code + ".");
    EXPECT_EQ(node.kind, PickleKind::kInteger) << code;
    return node.integer;
  };
  EXPECT_EQ(integer("K\xff"), 255);
  EXPECT_EQ(integer("M\x01\x02"), 513);
  EXPECT_EQ(integer("J\xfe\xff\xff\xff"), -2);
  EXPECT_EQ(integer("\x8a\0"s), 0);
  EXPECT_EQ(integer("\x8a\x01\xff"), -1);
  EXPECT_EQ(integer("\x8a\x02\xff\0"s), 255);
  EXPECT_EQ(integer("\x8b\x08\0\0\0\0\0\0\0\0\0\0\x80"s), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(root_of("\x80\x02\x8a\x09\0\0\0\0\0\0\0\0\x01."s).kind, PickleKind::kBigInteger);
  EXPECT_EQ(root_of("\x80\x02\x88."s).integer, 1);
}

TEST(Unpickler, AnythingThatIsCalledBecomesARecord) {
  // torch.Size((1, 2)), with a state
  const std::string pickle =
      "\x80\x02"
      "ctorch\nSize\nK\x01K\x02\x86\x85R}b.";
  const PickleNodes nodes = unpickle(pickle, kUnpicklerNames, "file");
  const PickleNode& root = nodes.nodes[nodes.root];
  ASSERT_EQ(root.kind, PickleKind::kRecord);
  ASSERT_EQ(root.items.size(), 3u);
  EXPECT_EQ(nodes.nodes[root.items[0]].text, "torch.Size");
  EXPECT_EQ(nodes.nodes[root.items[1]].items.size(), 1u);
  EXPECT_EQ(nodes.nodes[root.items[2]].kind, PickleKind::kDict);
}

// Each is a way to name something that Python would import, and most to call it.
TEST(Unpickler, CodeIsRefusedHoweverItIsReferredTo) {
  for (const auto& [module, name] : {std::pair("os", "system"),
                                     {"posix", "system"},
                                     {"builtins", "eval"},
                                     {"builtins", "exec"},
                                     {"subprocess", "Popen"},
                                     {"torch", "load"},
                                     {"torch", "Size.__new__"},
                                     {"torch.Size", "mro"}}) {
    const std::string refused = concat("refers to ", module, ".", name);
    const std::string global = concat("c", module, "\n", name, "\n");
    EXPECT_THAT(error_of_instructions(global + "\x8c\x02ls\x85R."), HasSubstr(refused));
    const auto text = [](const std::string& word) {
      return "\x8c" + std::string(1, static_cast<char>(word.size())) + word;
    };
    EXPECT_THAT(error_of_instructions(text(module) + text(name) + "\x93\x8c\x02ls\x85R."),
                HasSubstr(refused));
    EXPECT_THAT(error_of_instructions(concat("(\x8c\x02lsi", module, "\n", name, "\n.")),
                HasSubstr("the instruction 0x69"));
  }
  const std::string size = "ctorch\nSize\n";
  EXPECT_THAT(error_of_instructions("\x82\x01."), HasSubstr("the instruction 0x82"));     // EXT1
  EXPECT_THAT(error_of_instructions("\x83\x01\0."s), HasSubstr("the instruction 0x83"));  // EXT2
  EXPECT_THAT(error_of_instructions("\x84\x01\0\0\0."s),
              HasSubstr("the instruction 0x84"));                                            // EXT4
  EXPECT_THAT(error_of_instructions("(" + size + "o."), HasSubstr("the instruction 0x6f"));  // OBJ
  EXPECT_THAT(error_of_instructions(size + ")}\x92."),
              HasSubstr("the instruction 0x92"));                                  // NEWOBJ_EX
  EXPECT_THAT(error_of_instructions("P0\n."), HasSubstr("the instruction 0x50"));  // PERSID
  EXPECT_THAT(error_of_instructions("\x96\0\0\0\0\0\0\0\0."s), HasSubstr("the instruction 0x96"));
  EXPECT_THAT(error_of_instructions("ctorch\x1b[2J\nx\n."),
              AllOf(HasSubstr("torch?[2J.x"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(error_of_instructions("c" + std::string(1'000'000, 'a') + "\nb\n."),
              HasSubstr("aaa..."));
}

TEST(Unpickler, OnlyGlobalsAreCalled) {
  EXPECT_THAT(error_of_instructions("K\x01)R."), HasSubstr("needs a global, found an integer"));
  EXPECT_THAT(error_of_instructions("ctorch\nSize\n]R."), HasSubstr("needs a tuple, found a list"));
  EXPECT_THAT(error_of_instructions("ctorch\nSize\n)R)R."),
              HasSubstr("needs a global, found an object"));
  EXPECT_THAT(error_of_instructions("]}b."), HasSubstr("gives a state to a list"));
  EXPECT_THAT(error_of_instructions("ctorch\nSize\n)R}b}b."),
              HasSubstr("gives a state to an object"));
  EXPECT_THAT(error_of_instructions("ccollections\nOrderedDict\n]\x85R."),
              HasSubstr("an OrderedDict with arguments"));
}

TEST(Unpickler, LengthsBeyondTheEndAreRefusedWithoutAllocation) {
  EXPECT_THAT(error_of_instructions("\x8d\xff\xff\xff\xff\xff\xff\xff\x7f."s),
              HasSubstr("wants 9223372036854775807 bytes of 1"));
  EXPECT_THAT(error_of_instructions("\x8d\xff\xff\xff\xff\xff\xff\xff\xff."s),
              HasSubstr("wants 18446744073709551615"));
  EXPECT_THAT(error_of_instructions("\x8e\0\0\0\0\0\0\0\x80."s),
              HasSubstr("wants 9223372036854775808"));
  EXPECT_THAT(error_of_instructions("\x8b\xff\xff\xff\x7f."), HasSubstr("wants 2147483647 bytes"));
  EXPECT_THAT(error_of_instructions("\x8b\xff\xff\xff\xff."), HasSubstr("wants 4294967295 bytes"));
  EXPECT_THAT(error_of_instructions("X\xff\xff\xff\xff."), HasSubstr("wants 4294967295 bytes"));
  EXPECT_THAT(error_of_instructions("\x95\xff\xff\xff\xff\xff\xff\xff\x7fN."),
              HasSubstr("a frame beyond"));
  EXPECT_THAT(error_of_instructions("c"), HasSubstr("wants 1 bytes of 0"));
  EXPECT_THAT(error_of_instructions("ctorch"), HasSubstr("wants 1 bytes of 0"));
}

TEST(Unpickler, TheMemoGrowsByOneEntryAtATime) {
  EXPECT_THAT(error_of_instructions("Nr\xff\xff\xff\xff."),
              HasSubstr("memo entry 4294967295 of 0"));
  EXPECT_THAT(error_of_instructions("Nq\x01."), HasSubstr("memo entry 1 of 0"));
  EXPECT_THAT(error_of_instructions("h\0."s), HasSubstr("memo entry 0 of 0"));
  EXPECT_THAT(error_of_instructions("N\x94\x94."), HasSubstr("more memo entries than values"));
  EXPECT_THAT(error_of_instructions("q\0."s), HasSubstr("memo entries than values"));
}

TEST(Unpickler, TheStackIsBoundedBothWays) {
  EXPECT_THAT(error_of_instructions(std::string(kMaxPickleStack + 1, 'N')),
              HasSubstr("values on the stack"));
  EXPECT_THAT(error_of_instructions(std::string(kMaxPickleStack + 2, '(')), HasSubstr("marks"));
  for (const char* code :
       {".", "t",  "u",    "e",   "a",   "s",    "b",     "R",        "\x81", "\x85", "\x93",
        "Q", "(.", "N(t.", "N(.", "NN.", "}Nu.", "}(Nu.", "N(N\x86.", "N)",   ""}) {
    EXPECT_NE(error_of_instructions(code), "") << code;
  }
  EXPECT_THAT(error_of_instructions("N.N"), HasSubstr("1 bytes behind the end"));
}

TEST(Unpickler, OnlyProtocols2To5AreRead) {
  EXPECT_THAT(checkpoint_error([] { unpickle("(dp0\n.", kUnpicklerNames, "file"); }),
              HasSubstr("not a pickle of protocol 2 to 5"));
  EXPECT_THAT(checkpoint_error([] { unpickle("", kUnpicklerNames, "file"); }),
              HasSubstr("truncated"));
  for (const char* pickle : {"\x80\x01N.", "\x80\x06N."}) {
    EXPECT_THAT(checkpoint_error([&] { unpickle(pickle, kUnpicklerNames, "file"); }),
                HasSubstr("expected 2 to 5"));
  }
}

}  // namespace
}  // namespace trireme::checkpoint
