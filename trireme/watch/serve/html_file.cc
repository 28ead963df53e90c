#include "trireme/watch/serve/html_file.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/sha256.h"
#include "trireme/watch/serve/answers.h"
#include "trireme/watch/serve/parameters.h"

namespace trireme::watch {
namespace {

using nlohmann::ordered_json;

constexpr const char* kPointsOfSeries = "2000";
constexpr size_t kMostSteps = 200;           // of each column of all ranks
constexpr size_t kMostRankNumbers = 25'000;  // of each column, so that many ranks have fewer steps
constexpr size_t kMostRanksAlone = 64;
constexpr size_t kMostRunsInFile = 50;
constexpr std::string_view kDataBegin = "<script type=\"application/json\" id=\"trireme-data\">";

std::string base64(std::span<const uint8_t> bytes) {
  constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = std::min<size_t>(3, bytes.size() - i);
    uint32_t word = uint32_t{bytes[i]} << 16;
    if (left > 1) word |= uint32_t{bytes[i + 1]} << 8;
    if (left > 2) word |= bytes[i + 2];
    for (size_t letter = 0; letter < 4; ++letter)
      text += letter <= left ? kLetters[word >> (18 - 6 * letter) & 63] : '=';
  }
  return text;
}

std::string hash_source(std::string_view content) {
  return "'sha256-" + base64(sha256(content)) + "'";
}

// Collects answers until they are too many bytes.
class Collection {
 public:
  Collection(RunList& runs, size_t most_bytes) : runs_(runs), left_(most_bytes) {}

  // The key has the parameters of `names`; `others` choose too, and are not in the key.
  ordered_json ask(const std::string& path, const Parameters::Pairs& names,
                   const Parameters::Pairs& others = {}) {
    Parameters::Pairs all = names;
    all.insert(all.end(), others.begin(), others.end());
    return answer(runs_, path, all);
  }
  void add(const std::string& path, const Parameters::Pairs& names,
           const Parameters::Pairs& others = {}) {
    put(path, names, ask(path, names, others));
  }
  void put(const std::string& path, const Parameters::Pairs& names, const ordered_json& value) {
    std::string key = path;
    for (const auto& [name, text] : names)
      key += (key.size() == path.size() ? "?" : "&") + name + "=" + url_text(text);
    std::string json = without_tags(to_line(value));
    const size_t size = key.size() + json.size() + 8;
    if (size > left_) return;
    left_ -= size;
    answers_.emplace_back(without_tags(to_line(key)), std::move(json));
  }
  std::vector<std::pair<std::string, std::string>> take() { return std::move(answers_); }

 private:
  RunList& runs_;
  size_t left_;
  std::vector<std::pair<std::string, std::string>> answers_;
};

void add_ranks(Collection& collection, WatchedRun& run, const std::string& index) {
  const RankBlocks& ranks = run.series().ranks();
  const auto num_ranks = static_cast<size_t>(ranks.num_ranks());
  const size_t most_steps =
      std::clamp<size_t>(kMostRankNumbers / std::max<size_t>(1, num_ranks), 1, kMostSteps);
  const std::vector<int64_t> steps = ranks.some_steps(most_steps);
  // What the mesh map shows first.
  std::vector<std::string> columns = ranks.columns();
  std::ranges::stable_partition(columns,
                                [](const std::string& name) { return name == "own_seconds"; });
  for (const std::string& column : columns) {
    ordered_json all = ordered_json::array();
    for (const int64_t step : steps) {
      all.push_back(collection.ask("/api/ranks", {{"run", index}, {"column", column}},
                                   {{"step", std::to_string(step)}}));
    }
    collection.add("/api/series", {{"run", index}, {"name", "ranks/" + column}},
                   {{"points", kPointsOfSeries}});
    if (!steps.empty()) collection.put("/api/ranks", {{"run", index}, {"column", column}}, all);
  }
  for (size_t rank = 0; rank < std::min(num_ranks, kMostRanksAlone); ++rank)
    collection.add("/api/straggler", {{"run", index}, {"rank", std::to_string(rank)}});
}

void add_experts(Collection& collection, WatchedRun& run, const std::string& index) {
  if (run.metrics().lists().empty()) return;
  ordered_json all = ordered_json::array();
  const size_t rows = run.metrics().num_rows();
  const size_t stride = std::max<size_t>(1, rows / kMostSteps);
  for (size_t row = (rows - 1) % stride; row < rows; row += stride) {
    all.push_back(collection.ask("/api/experts", {{"run", index}},
                                 {{"step", std::to_string(run.metrics().step_at(row))}}));
  }
  collection.put("/api/experts", {{"run", index}}, all);
}

constexpr std::string_view kFirstMetric = "loss";

// Without this the page of the run says nothing.
void begin_run(Collection& collection, const WatchedRun& run, const std::string& index) {
  collection.add("/api/run", {{"run", index}});
  if (!run.metrics().has(kFirstMetric)) return;
  collection.add("/api/series", {{"run", index}, {"name", std::string(kFirstMetric)}},
                 {{"points", kPointsOfSeries}});
}

void add_run(Collection& collection, WatchedRun& run, const std::string& index) {
  collection.add("/api/events", {{"run", index}});
  collection.add("/api/calls", {{"run", index}}, {{"most", "200"}});
  collection.add("/api/log", {{"run", index}}, {{"most", "1000"}});
  collection.add("/api/waits", {{"run", index}});
  collection.add("/api/memory", {{"run", index}});
  // A trace is another file, which this one does not hold.
  collection.put("/api/profile", {{"run", index}}, {{"files", ordered_json::array()}});
  for (const std::string& name : run.metrics().names()) {
    if (name == kFirstMetric) continue;
    collection.add("/api/series", {{"run", index}, {"name", name}}, {{"points", kPointsOfSeries}});
  }
  add_ranks(collection, run, index);
  add_experts(collection, run, index);
}

// The value of an attribute of a tag, which the page writes in double quotes.
std::optional<std::string_view> attribute_of(std::string_view tag, std::string_view name) {
  const std::string begin = concat(" ", name, "=\"");
  const size_t at = tag.find(begin);
  if (at == tag.npos) return std::nullopt;
  tag.remove_prefix(at + begin.size());
  return tag.substr(0, tag.find('"'));
}

std::string_view content_of(std::span<const Asset> assets, std::string_view name) {
  if (name.starts_with('/')) name.remove_prefix(1);
  const auto found = std::ranges::find(assets, name, &Asset::name);
  TRIREME_ASSERT(found != assets.end(), "the page names ", name, ", which is no asset");
  return found->content;
}

// A script may have "</script" in a text; written with an escape it means the same.
std::string without_end_tag(std::string_view script) {
  std::string text(script);
  for (size_t at = 0; (at = text.find("</script", at)) != text.npos; at += 3)
    text.replace(at, 2, "<\\/");
  return text;
}

struct PageParts {
  std::string html{};  // without the tags of styles and scripts
  std::vector<std::string> styles{};
  std::vector<std::string> scripts{};
};

PageParts parts_of(std::span<const Asset> assets) {
  PageParts parts{.html = std::string(content_of(assets, "index.html"))};
  const auto take_tags = [&](std::string_view begin, std::string_view end, auto&& take) {
    for (size_t at = 0; (at = parts.html.find(begin, at)) != std::string::npos;) {
      const size_t tag_end = parts.html.find('>', at);
      const size_t whole_end = parts.html.find(end, at);
      if (tag_end == std::string::npos || whole_end == std::string::npos) return;
      if (take(std::string_view(parts.html).substr(at, tag_end - at))) {
        parts.html.erase(at, whole_end + end.size() - at);
      } else {
        at = whole_end;
      }
    }
  };
  take_tags("<link ", ">", [&](std::string_view tag) {
    if (attribute_of(tag, "rel") != "stylesheet") return false;
    parts.styles.emplace_back(content_of(assets, attribute_of(tag, "href").value_or("")));
    return true;
  });
  take_tags("<script ", "</script>", [&](std::string_view tag) {
    const auto name = attribute_of(tag, "src");
    if (!name) return false;
    parts.scripts.push_back(without_end_tag(content_of(assets, *name)));
    return true;
  });
  return parts;
}

void insert_before(std::string& html, std::string_view tag, std::string_view text) {
  const size_t at = html.rfind(tag);
  html.insert(at == html.npos ? html.size() : at, text);
}

}  // namespace

std::string without_tags(std::string json) {
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> answers_in_file(RunList& runs, size_t most_bytes) {
  Collection collection(runs, most_bytes);
  collection.add("/api/runs", {});
  const size_t num_runs = std::min(runs.size(), kMostRunsInFile);
  std::string all;
  for (size_t i = 0; i < num_runs; ++i) {
    all += concat(i == 0 ? "" : ",", i);
    begin_run(collection, runs.run(i), std::to_string(i));
  }
  if (num_runs > 1) collection.add("/api/compare", {{"runs", all}});
  // A run with many numbers leaves no room for those of the runs behind it.
  for (size_t i = 0; i < num_runs; ++i) add_run(collection, runs.run(i), std::to_string(i));
  return collection.take();
}

std::string html_of(std::span<const Asset> assets,
                    const std::vector<std::pair<std::string, std::string>>& answers) {
  PageParts parts = parts_of(assets);
  std::string script_sources, style_sources, styles, scripts;
  for (const std::string& style : parts.styles) {
    style_sources += " " + hash_source(style);
    styles += concat("<style>", style, "</style>\n");
  }
  for (const std::string& script : parts.scripts) {
    script_sources += " " + hash_source(script);
    scripts += concat("<script>", script, "</script>\n");
  }
  const std::string policy = concat(
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src",
      script_sources, "; style-src", style_sources,
      "; img-src data:; base-uri 'none'; form-action 'none'\">\n");
  std::string data(kDataBegin);
  for (size_t i = 0; i < answers.size(); ++i)
    data += concat(i == 0 ? "{" : ",\n", answers[i].first, ":", answers[i].second);
  data += answers.empty() ? "{}</script>\n" : "}</script>\n";
  // The policy comes before all that it rules, and behind the charset, which browsers look for in
  // the first kilobyte.
  constexpr std::string_view kCharset = "<meta charset=\"utf-8\">", kHead = "<head>";
  const std::string_view before = parts.html.find(kCharset) == parts.html.npos ? kHead : kCharset;
  const size_t place = parts.html.find(before);
  parts.html.insert(place == parts.html.npos ? 0 : place + before.size(), "\n" + policy);
  // What is copied here keeps its licence.
  const auto licence = std::ranges::find(assets, "LICENSE.uplot", &Asset::name);
  if (licence != assets.end()) scripts = concat("<!--\n", licence->content, "-->\n", scripts);
  insert_before(parts.html, "</head>", styles);
  insert_before(parts.html, "</body>", data + scripts);
  return parts.html;
}

size_t write_html(RunList& runs, const std::filesystem::path& path) {
  while (runs.update(std::chrono::seconds(1))) {
  }
  size_t page_bytes = size_t{16} << 10;  // the policy and the tags
  for (const Asset& asset : assets()) page_bytes += asset.content.size();
  const size_t left = kMostHtmlBytes - std::min(kMostHtmlBytes, page_bytes);
  const std::string html = html_of(assets(), answers_in_file(runs, left));
  write_file_atomically(path, html);
  return html.size();
}

}  // namespace trireme::watch
