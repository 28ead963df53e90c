#include "trireme/dataset/labelled/class_names.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/dataset/labelled/labelled_text.h"

namespace trireme::dataset {
namespace {

// The number that a label is, written as read_labelled_text() writes it: "7", not "07" or "+7".
std::optional<int64_t> label_number(const std::string& label) {
  int64_t number = 0;
  const char* const end = label.data() + label.size();
  const auto [rest, error] = std::from_chars(label.data(), end, number);
  if (error != std::errc{} || rest != end || std::to_string(number) != label) return std::nullopt;
  return number;
}

}  // namespace

ClassNames::ClassNames(std::vector<std::string> names, const std::string& source)
    : names_(std::move(names)), by_name_(names_.size()) {
  TRIREME_CHECK(names_.size() >= 2 && names_.size() <= kMaxTextClasses, source,
                ": the number of classes is ", names_.size(), "; expected 2 to ", kMaxTextClasses,
                ": check the \"label\" of its lines");
  std::iota(by_name_.begin(), by_name_.end(), 0);
  const auto name_of = [&](int64_t index) -> const std::string& { return names_[index]; };
  std::ranges::sort(by_name_, {}, name_of);
  const auto twice = std::ranges::adjacent_find(by_name_, {}, name_of);
  TRIREME_CHECK(twice == by_name_.end(), source, ": two classes are named ",
                in_quotes(names_[*twice], 60), "; expected each name once");
}

ClassNames ClassNames::of(const std::set<std::string>& labels, const std::string& source) {
  std::vector<std::string> names(labels.begin(), labels.end());
  const auto is_number = [](const std::string& name) { return label_number(name).has_value(); };
  if (std::ranges::all_of(names, is_number)) std::ranges::sort(names, {}, label_number);
  return {std::move(names), source};
}

ClassNames ClassNames::parse(std::string_view text, const std::string& source) {
  const nlohmann::json root = parse_json(text, source);
  const JsonView view(root, source);
  std::vector<std::string> names;
  for (const JsonView& name : view.at("classes").elements()) {
    if (name.text().empty()) name.fail("the name of a class");
    names.push_back(name.word(kMaxLabelBytes));
  }
  return {std::move(names), source};
}

std::string ClassNames::text() const { return nlohmann::json{{"classes", names_}}.dump() + "\n"; }

int64_t ClassNames::index(const std::string& label, const std::string& where) const {
  const auto found = std::ranges::lower_bound(
      by_name_, label, {}, [&](int64_t index) -> const std::string& { return names_[index]; });
  TRIREME_CHECK(found != by_name_.end() && names_[*found] == label, where, ": the label is ",
                in_quotes(label, 60), ", which training does not have; expected one of its ",
                size(), " classes", did_you_mean(names_, label),
                "; correct the label, or leave the line out");
  return *found;
}

}  // namespace trireme::dataset
