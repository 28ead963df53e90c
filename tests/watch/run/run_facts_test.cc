#include "trireme/watch/run/run_facts.h"

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/file/file.h"

namespace trireme::watch {
namespace {

constexpr const char* kFacts =
    R"({"version": "0.1.0", "revision": "abc", "libtorch": "2.13.0", "host": "a", "started": 7.5,)"
    R"( "newer": []})";

TEST(RunFacts, AreThoseOfTheFile) {
  const harness::TemporaryFolder folder;
  OutputFile(folder / "run.json").write(kFacts);
  const RunFacts facts = read_run_facts(folder / "run.json");
  EXPECT_EQ(facts.started, 7.5);
  EXPECT_EQ(version_of(facts), "0.1.0 (revision abc, libtorch 2.13.0, host a)");
  EXPECT_EQ(version_of({.version = "0.1.0"}), "0.1.0");
  EXPECT_EQ(version_of({.revision = "abc"}), "");
}

TEST(RunFacts, OfADamagedFileAreUnknown) {
  EXPECT_EQ(version_of(read_run_facts("/nowhere/run.json")), "");
  const std::string long_word(300, 'a');
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string(kFacts).substr(0, 40),
        std::string("{\"version\": 1}"), std::string("{\"version\": \"\\u001b[2J\"}"),
        "{\"version\": \"" + long_word + "\"}",
        std::string("{\"version\": \"1\", \"started\": -1}")})
    EXPECT_EQ(parse_run_facts(text).version, "") << text;
}

}  // namespace
}  // namespace trireme::watch
