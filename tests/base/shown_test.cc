#include "trireme/base/words.h"

#include <csignal>

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(Shown, IsShortAndHarmless) {
  EXPECT_EQ(shown(""), "");
  EXPECT_EQ(shown("d\u00e9j\u00e0 vu"), "d\u00e9j\u00e0 vu");
  EXPECT_EQ(shown("a\nb\x1b[2J\x7f"), "a?b?[2J?");
  EXPECT_EQ(shown("\xc2\x9b"
                  "2J \xc2\xa0"),
            "?\x9b"
            "2J \xc2\xa0");
  EXPECT_EQ(shown(std::string(60, 'x')), std::string(60, 'x'));
  EXPECT_EQ(shown(std::string(61, 'x')), std::string(60, 'x') + "...");
}

TEST(IsPrintable, KnowsWhatATerminalObeys) {
  EXPECT_TRUE(is_printable(""));
  EXPECT_TRUE(is_printable("d\u00e9j\u00e0 \xc2\xa0 vu"));
  for (const char* text : {"a\n", "\x1b[2J", "\x7f", "\xc2\x80", "a\xc2\x9f"}) {
    EXPECT_FALSE(is_printable(text)) << shown(text);
  }
  EXPECT_TRUE(is_printable("abc", 3));
  EXPECT_FALSE(is_printable("abcd", 3));
}

TEST(KilledBy, NamesTheSignalAndWhatItUsuallyMeans) {
  EXPECT_EQ(killed_by(SIGSEGV), "killed by signal 11 (Segmentation fault)");
  EXPECT_EQ(killed_by(SIGKILL), "killed by signal 9 (Killed, by someone or for lack of memory)");
  EXPECT_EQ(killed_by(SIGBUS),
            "killed by signal 7 (Bus error, a disk under a mapped file failed or the file was cut "
            "short)");
}

}  // namespace
}  // namespace trireme
