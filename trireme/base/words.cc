#include "trireme/base/words.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

namespace trireme {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string killed_by(int signal) {
  const char* why = "";
  if (signal == SIGKILL) why = ", by someone or for lack of memory";
  if (signal == SIGBUS) why = ", a disk under a mapped file failed or the file was cut short";
  return "killed by signal " + std::to_string(signal) + " (" + ::strsignal(signal) + why + ")";
}

std::string nearest_name(std::span<const std::string> names, std::string_view text) {
  if (names.empty()) return "";
  return *std::ranges::min_element(names, {}, [&](std::string_view name) {
    return edit_distance(name.substr(0, kMaxComparedBytes), text.substr(0, kMaxComparedBytes));
  });
}

std::string likely_name(std::span<const std::string> names, std::string_view text) {
  if (text.size() > kMaxComparedBytes) return "";
  const std::string nearest = nearest_name(names, text);
  const size_t most = std::max<size_t>(1, std::max(text.size(), nearest.size()) / 4);
  return edit_distance(nearest, text) <= most ? nearest : "";
}

std::string did_you_mean(std::span<const std::string> names, std::string_view text) {
  const std::string name = likely_name(names, text);
  return name.empty() ? "" : "; did you mean \"" + name + "\"?";
}

}  // namespace trireme
