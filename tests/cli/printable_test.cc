#include "trireme/cli/terminal_text.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace trireme::cli {
namespace {

TEST(Printable, KeepsText) {
  for (const char* text : {"", "all_reduce #5 of group world", "größe 漢字 😀", "a\\x1b"}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, ShowsControlCharactersAndBytesThatAreNoText) {
  EXPECT_EQ(printable("\x1b]0;title\x07"), "\\x1b]0;title\\x07");
  EXPECT_EQ(printable("a\nb\tc\r\x7f"), "a\\x0ab\\x09c\\x0d\\x7f");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m")
      << "U+009B begins a sequence too";
  EXPECT_EQ(printable("\xc2\xa0"), "\xc2\xa0");
  EXPECT_EQ(printable("\xff\xe2\x82!"), "\\xff\\xe2\\x82!");
}

TEST(JsonText, IsAsciiWhateverTheBytes) {
  for (const std::string bytes : {"\xff\xfe", "\xc3", "é\xc2\x9b", "\x1b[31m"}) {
    const std::string text = json_text({{"name", bytes}});
    for (const char byte : text) EXPECT_TRUE(byte == '\n' || (byte >= ' ' && byte < 0x7f)) << text;
    EXPECT_TRUE(nlohmann::json::parse(text).contains("name"));
  }
  EXPECT_EQ(nlohmann::json::parse(json_text({{"name", "é"}})).at("name"), "é");
  EXPECT_EQ(nlohmann::json::parse(json_text({{"name", "\xff"}})).at("name"), "\uFFFD");
}

TEST(TerminalText, JoinsCharactersThatComeByteByByte) {
  const std::string text = "größe\n\t漢字 😀";
  TerminalText terminal;
  std::string shown;
  for (const char byte : text) shown += terminal.add({&byte, 1});
  EXPECT_EQ(shown + terminal.finish(), text);
}

TEST(TerminalText, LetsNoControlCharacterThroughAtAnyCut) {
  const std::string text = "a\x1b[31m\xc2\x9b\xffz\xe2\x82";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    TerminalText terminal;
    std::string shown = terminal.add(text.substr(0, cut));
    shown += terminal.add(text.substr(cut));
    EXPECT_EQ(shown, "a\\x1b[31m\\xc2\\x9b\\xffz");
    EXPECT_EQ(terminal.finish(), "\\xe2\\x82");
    EXPECT_EQ(terminal.finish(), "");
  }
}

}  // namespace
}  // namespace trireme::cli
