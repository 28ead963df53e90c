#include "trireme/cli/watch/wandb_script.h"

#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/watch/serve/small_run.h"

namespace trireme::cli {
namespace {

std::string script_of(const ExportedRun& run) {
  std::string script;
  write_wandb_script(run, "", [&](const std::string& piece) { script += piece; });
  return script;
}

std::vector<nlohmann::json> comments_of(const std::string& script) {
  std::vector<nlohmann::json> comments;
  std::istringstream lines(script);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#: ")) comments.push_back(nlohmann::json::parse(line.substr(3)));
  }
  return comments;
}

TEST(WandbScript, HasTheRunInItsComments) {
  watch::SmallRun small;
  const auto comments =
      comments_of(script_of(exported_run(small.folder.path(), "project", "name")));
  ASSERT_EQ(comments.size(), 4U);
  EXPECT_EQ(comments[0]["project"], "project");
  EXPECT_EQ(comments[0]["name"], "name");
  EXPECT_EQ(comments[0]["id"].get<std::string>().size(), 16U);
  EXPECT_EQ(comments[0]["config"]["train.steps"], "3");
  EXPECT_EQ(comments[0]["exit_code"], 0);
  EXPECT_EQ(comments[1]["step"], 1);
  EXPECT_EQ(comments[1]["values"]["loss"], 3);
  EXPECT_EQ(comments[1]["time"], 1000.5);
  EXPECT_TRUE(comments[2]["values"]["loss"].is_null());
  EXPECT_EQ(comments[3]["values"]["loss"], 1.25);
}

TEST(WandbScript, NothingOfARunIsCode) {
  watch::SmallRun small;
  const std::string clean = script_of(exported_run(small.folder.path(), "p", "n"));
  const std::string code = clean.substr(0, clean.find("\n#: ") + 1);
  small.put("metrics.jsonl",
            "{\"step\":1,\"\\n\\rimport os\\u2028\\u0085\":1,\"\\\"\\\"\\\"\":2}\n");
  small.put("config.toml", "[train]\nsteps = \"3\\nimport os\"\n");
  const std::string script =
      script_of(exported_run(small.folder.path(), "p\nimport os", "\r\"\"\""));
  EXPECT_EQ(script.substr(0, code.size()), code);
  EXPECT_EQ(comments_of(script).size(), 2U);  // the step is there
  std::istringstream rest(script.substr(code.size()));
  for (std::string line; std::getline(rest, line);) {
    EXPECT_TRUE(line.starts_with("#: ")) << line;
    for (const char c : line) EXPECT_TRUE(c >= ' ' && c < 127) << line;
  }
}

}  // namespace
}  // namespace trireme::cli
