#include "trireme/watch/serve/html_file.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/watch/serve/small_run.h"
#include "trireme/base/error.h"

namespace trireme::watch {
namespace {

constexpr Asset kAssets[] = {
    {"index.html",
     "<!doctype html><html><head><meta charset=\"utf-8\"><title>t</title><link rel=\"icon\" "
     "href=\"data:,\">"
     "<link rel=\"stylesheet\" href=\"a.css\"></head><body>x<script src=\"/a.js\"></script>"
     "<script src=\"b.js\"></script></body></html>"},
    {"a.css", "p { color: red }"},
    {"a.js", "let a = '</script>';"},
    {"b.js", "b();"},
    {"LICENSE.uplot", "A licence."}};

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; ++at) ++count;
  return count;
}

TEST(HtmlFile, StylesScriptsAndNumbersAreInTheFile) {
  const std::string html = html_of(kAssets, {{"\"/api/runs\"", "{\"runs\":[]}"}});
  EXPECT_EQ(html.find("src="), html.npos);
  EXPECT_EQ(html.find("stylesheet"), html.npos);
  EXPECT_NE(html.find("<style>p { color: red }</style>"), html.npos);
  EXPECT_NE(html.find("<script>let a = '<\\/script>';</script>"), html.npos);
  EXPECT_LT(html.find("trireme-data"), html.find("let a"));
  EXPECT_LT(html.find("let a"), html.find("b();"));
  EXPECT_LT(html.find("Content-Security-Policy"), html.find("<title>"));
  EXPECT_LT(html.find("charset"), html.find("Content-Security-Policy"));
  EXPECT_NE(html.find("{\"/api/runs\":{\"runs\":[]}}"), html.npos);
  EXPECT_NE(html.find("A licence."), html.npos);
  EXPECT_EQ(count_of(html, "</script"), 3u);
  EXPECT_THROW(html_of(std::span(kAssets).subspan(1), {}), InternalError);
}

TEST(HtmlFile, ThePolicyHasTheHashOfEachScript) {
  const std::string html = html_of(kAssets, {});
  // printf 'b();' | openssl dgst -sha256 -binary | base64
  EXPECT_NE(html.find("'sha256-9q75f4czX5pM1hYLoMI6KUdfzqgNRmejLvCSdtoLgS0='"), html.npos) << html;
}

TEST(HtmlFile, ARunIsWholeAndNoTextOfItEndsTheBlock) {
  SmallRun small;
  const auto path = small.folder / "page.html";
  const size_t size = write_html(small.runs(), path);
  const std::string html = read_file(path);
  EXPECT_EQ(html.size(), size);
  EXPECT_LT(size, kMostHtmlBytes);
  const std::string begin = "id=\"trireme-data\">";
  const size_t at = html.find(begin) + begin.size();
  const std::string block = html.substr(at, html.find("</script>", at) - at);
  EXPECT_EQ(block.find('<'), block.npos);
  const auto data = nlohmann::json::parse(block);
  EXPECT_EQ(data.at("/api/series?run=0&name=loss")["series"][0]["mean"][2], 1.25);
  EXPECT_TRUE(data.contains("/api/series?run=0&name=%3C/script%3E%3Cb%3E"));
  EXPECT_EQ(data.at("/api/events?run=0")["events"][0]["text"], "</script>");
  EXPECT_EQ(data.at("/api/experts?run=0")[0]["lists"][0]["values"][1], 2);
}

TEST(HtmlFile, EveryRunHasItsLossBeforeAnyHasTheRest) {
  SmallRun first, second;
  RunList runs({first.folder.path(), second.folder.path()});
  while (runs.update(std::chrono::seconds(10))) {
  }
  std::vector<std::string> keys;
  for (const auto& [key, json] : answers_in_file(runs, kMostHtmlBytes)) keys.push_back(key);
  ASSERT_GT(keys.size(), 6u);
  keys.resize(6);
  EXPECT_EQ(keys, (std::vector<std::string>{"\"/api/runs\"", "\"/api/run?run=0\"",
                                            "\"/api/series?run=0&name=loss\"", "\"/api/run?run=1\"",
                                            "\"/api/series?run=1&name=loss\"",
                                            "\"/api/compare?runs=0%2C1\""}));
}

TEST(HtmlFile, WithTooManyNumbersTheFirstStay) {
  SmallRun small;
  const auto answers = answers_in_file(small.runs(), 3000);
  size_t size = 0;
  for (const auto& [key, json] : answers) size += key.size() + json.size();
  EXPECT_LE(size, 3000u);
  EXPECT_EQ(answers.front().first, "\"/api/runs\"");
}

}  // namespace
}  // namespace trireme::watch
