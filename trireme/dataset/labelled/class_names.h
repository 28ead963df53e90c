// The classes of labelled data: a name for each index, kept as JSON beside the token files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::dataset {

inline constexpr size_t kMaxTextClasses = 65536;

class ClassNames {
 public:
  // The classes that occur in training data, in the order of their numbers if each is an integer,
  // otherwise of their bytes. The order does not depend on the order of the lines.
  // source: for messages
  // Throws: ConfigError when there are fewer than 2 or more than kMaxTextClasses
  static ClassNames of(const std::set<std::string>& labels, const std::string& source);
  // Reads what text() wrote.
  // Throws: ConfigError, one line, when it is something else
  static ClassNames parse(std::string_view text, const std::string& source);

  // {"classes": ["negative", "positive"]} and a line break
  std::string text() const;
  int64_t size() const { return std::ssize(names_); }
  const std::vector<std::string>& names() const { return names_; }

  // The index of a class.
  // where: file and line, the start of the message
  // Throws: ConfigError when training has no such class
  int64_t index(const std::string& label, const std::string& where) const;

 private:
  ClassNames(std::vector<std::string> names, const std::string& source);

  std::vector<std::string> names_;
  std::vector<int64_t> by_name_;  // indices in the order of the names' bytes
};

}  // namespace trireme::dataset
