#include "trireme/watch/run/run_facts.h"

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::watch {
namespace {

constexpr size_t kMostFactBytes = 64 << 10;  // of the file
constexpr size_t kMostFactWord = 256;

std::string word_of(const JsonView& view, std::string_view key) {
  const auto found = view.find(key);
  return found ? found->word(kMostFactWord) : "";
}

}  // namespace

std::string version_of(const RunFacts& facts) {
  if (facts.version.empty()) return "";
  std::string others;
  const auto add = [&others](const char* what, const std::string& value) {
    if (!value.empty()) others += concat(others.empty() ? "" : ", ", what, " ", value);
  };
  add("revision", facts.revision);
  add("libtorch", facts.libtorch);
  add("host", facts.host);
  return others.empty() ? facts.version : concat(facts.version, " (", others, ")");
}

RunFacts parse_run_facts(const std::string& text) {
  try {
    const std::string source = "run.json";
    const nlohmann::json value =
        parse_json(text, source, {.max_bytes = kMostFactBytes, .max_values = 256, .max_depth = 4});
    const JsonView view(value, source);
    RunFacts facts{.version = word_of(view, "version"),
                   .revision = word_of(view, "revision"),
                   .libtorch = word_of(view, "libtorch"),
                   .host = word_of(view, "host")};
    if (const auto started = view.find("started")) facts.started = started->number(0, 1e11);
    return facts;
  } catch (const ConfigError&) {
    return {};
  }
}

RunFacts read_run_facts(const std::filesystem::path& path) {
  try {
    return parse_run_facts(read_file(path, kMostFactBytes));
  } catch (const Error&) {
    return {};
  }
}

}  // namespace trireme::watch
