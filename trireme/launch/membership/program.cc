#include "trireme/launch/membership/program.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/shown.h"

namespace trireme::launch::inline internal {
namespace {

constexpr size_t kMostDifferences = 3;

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// Without a comment. A "#" within quotes is none.
std::string_view without_comment(std::string_view line) {
  bool is_quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') is_quoted = !is_quoted;
    if (line[i] == '#' && !is_quoted) return line.substr(0, i);
  }
  return line;
}

template <typename Function>
void for_each_line(std::string_view text, const Function& function) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    function(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

std::map<std::string, std::string> values_of(std::string_view program) {
  std::map<std::string, std::string> values;
  for_each_line(program, [&](std::string_view line) {
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      values.emplace(trimmed(line), "");
    } else {
      values[std::string(trimmed(line.substr(0, equals)))] = trimmed(line.substr(equals + 1));
    }
  });
  return values;
}

}  // namespace

std::string config_lines(std::string_view toml) {
  std::string lines;
  std::string section;
  for_each_line(toml, [&](std::string_view line) {
    line = trimmed(without_comment(line));
    if (line.empty()) return;
    if (line.front() == '[' && line.back() == ']' && line.find('=') == std::string_view::npos) {
      section = concat(trimmed(line.substr(1, line.size() - 2)), ".");
      return;
    }
    const size_t equals = line.find('=');
    const std::string_view key = trimmed(line.substr(0, equals));
    lines += concat(section, key);
    if (equals != std::string_view::npos) lines += concat(" = ", trimmed(line.substr(equals + 1)));
    lines += '\n';
  });
  return lines;
}

std::string program_difference(std::string_view theirs, std::string_view ours) {
  const auto there = values_of(theirs);
  const auto here = values_of(ours);
  std::set<std::string> keys;
  for (const auto& [key, value] : there) keys.insert(key);
  for (const auto& [key, value] : here) keys.insert(key);
  std::vector<std::string> differences;
  const auto value_in = [](const auto& values, const std::string& key) {
    const auto found = values.find(key);
    return found == values.end() ? std::string("not set") : shown(found->second);
  };
  for (const std::string& key : keys) {
    const std::string a = value_in(there, key);
    const std::string b = value_in(here, key);
    if (a != b) differences.push_back(concat(shown(key), " is ", a, ", and ", b, " on the leader"));
  }
  std::string text;
  for (size_t i = 0; i < std::min(differences.size(), kMostDifferences); ++i) {
    text += concat(text.empty() ? "" : "; ", differences[i]);
  }
  const size_t num_more = differences.size() - std::min(differences.size(), kMostDifferences);
  return num_more > 0 ? concat(text, "; and ", num_more, " more") : text;
}

}  // namespace trireme::launch::inline internal
