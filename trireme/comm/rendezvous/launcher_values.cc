#include "trireme/comm/rendezvous/launcher_values.h"

#include <charconv>
#include <cstdint>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::comm {
namespace {

constexpr size_t kMaxNameBytes = 255;  // of DNS
constexpr size_t kMaxDigits = 9;       // fits an int

// Takes a number from the front of `text`; -1 when there is none.
int take_number(std::string_view& text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // from_chars takes a minus sign, and no launcher writes one.
  if (error != std::errc() || text.front() == '-') return -1;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

std::string_view take_digits(std::string_view& text) {
  size_t size = text.find_first_not_of("0123456789");
  if (size == std::string_view::npos) size = text.size();
  const std::string_view digits = text.substr(0, size);
  text.remove_prefix(size);
  return digits;
}

class HostList {
 public:
  HostList(std::string_view variable, std::string_view list) : variable_(variable), list_(list) {}

  std::vector<std::string> expand() {
    std::string_view rest = list_;
    do {
      add_names(rest);
    } while (take(rest, ","));
    check(rest.empty());
    return std::move(hosts_);
  }

 private:
  void check(bool is_valid) const {
    TRIREME_CHECK(is_valid, variable_, " is \"", shown(list_),
                  "\"; expected hosts as in node[003-010,12],login1");
  }
  void check_count(size_t count) const {
    TRIREME_CHECK(count <= kMaxJobHosts, variable_, " is \"", shown(list_), "\", more than ",
                  kMaxJobHosts, " hosts; expected the hosts of one job");
  }

  // Appends the hosts of one name with brackets.
  void add_names(std::string_view& rest) {
    std::vector<std::string> names(1);
    size_t bytes = 0;
    while (!rest.empty() && rest.front() != ',') {
      std::vector<std::string> endings(1);
      if (take(rest, "[")) {
        endings = numbers(rest);
      } else {
        check(rest.front() != ']');
        endings[0] = rest.substr(0, rest.find_first_of("[],"));
        check(is_printable(endings[0]) && endings[0].find(' ') == std::string::npos);
        rest.remove_prefix(endings[0].size());
      }
      bytes += endings.back().size();
      check(bytes <= kMaxNameBytes);
      // Both factors are bounded, so that the product fits.
      check_count(names.size() * endings.size());
      names = product(names, endings);
    }
    check(bytes > 0);
    check_count(hosts_.size() + names.size());
    hosts_.insert(hosts_.end(), names.begin(), names.end());
  }

  static std::vector<std::string> product(const std::vector<std::string>& names,
                                          const std::vector<std::string>& endings) {
    std::vector<std::string> result;
    result.reserve(names.size() * endings.size());
    for (const std::string& name : names) {
      for (const std::string& ending : endings) result.push_back(name + ending);
    }
    return result;
  }

  // After "[": "003-010,12]" -> 003, 004, ..., 12.
  std::vector<std::string> numbers(std::string_view& rest) const {
    std::vector<std::string> result;
    do {
      const std::string_view first = take_digits(rest);
      const std::string_view last = take(rest, "-") ? take_digits(rest) : first;
      check(!first.empty() && first.size() <= kMaxDigits && !last.empty() &&
            last.size() <= kMaxDigits);
      const int from = std::stoi(std::string(first));
      const int to = std::stoi(std::string(last));
      check(from <= to);
      check_count(result.size() + static_cast<size_t>(to - from) + 1);
      for (int number = from; number <= to; ++number) {
        const std::string digits = std::to_string(number);
        result.push_back(
            std::string(first.size() > digits.size() ? first.size() - digits.size() : 0, '0') +
            digits);
      }
    } while (take(rest, ","));
    check(take(rest, "]"));
    return result;
  }

  std::string_view variable_, list_;
  std::vector<std::string> hosts_;
};

}  // namespace

int whole_number(std::string_view variable, std::string_view value, int minimum,
                 std::string_view setter) {
  int number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  TRIREME_CHECK(!value.empty() && error == std::errc() && end == value.data() + value.size() &&
                    number >= minimum,
                "environment variable ", variable, " is ",
                value.empty() ? "not set" : concat("\"", shown(value), "\""),
                "; expected a whole number from ", minimum, " on (", setter, " set it)");
  return number;
}

std::vector<std::string> expand_hosts(std::string_view variable, std::string_view list) {
  return HostList(variable, list).expand();
}

std::vector<int> expand_counts(std::string_view variable, std::string_view list) {
  std::vector<int> counts;
  std::string_view rest = list;
  do {
    const int count = rest.empty() ? -1 : take_number(rest);
    int repeats = 1;
    bool is_valid = count >= 0;
    if (is_valid && take(rest, "(x")) {
      repeats = rest.empty() ? -1 : take_number(rest);
      is_valid = repeats > 0 && take(rest, ")");
    }
    TRIREME_CHECK(is_valid && (rest.empty() || rest.front() == ','), variable, " is \"",
                  shown(list), "\"; expected counts as in 2(x3),1");
    TRIREME_CHECK(counts.size() + static_cast<size_t>(repeats) <= kMaxJobHosts, variable, " is \"",
                  shown(list), "\", more than ", kMaxJobHosts,
                  " hosts; expected the hosts of one job");
    counts.insert(counts.end(), static_cast<size_t>(repeats), count);
  } while (take(rest, ","));
  return counts;
}

int port_of_job(std::string_view job) {
  // Written out, because std::hash may differ between the programs of two hosts.
  uint32_t hash = 2166136261;
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
  // Below the range from which Linux gives ports to clients, 32768 and up.
  return static_cast<int>(16384 + hash % 16384);
}

}  // namespace trireme::comm
