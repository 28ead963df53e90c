#include "trireme/dataset/labelled/labelled_text.h"

#include <cstdint>
#include <limits>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

constexpr JsonLimits kRowLimits{.max_bytes = kMaxLabelledTextBytes};

std::string label_of(const JsonView& label) {
  if (label.value().is_number_integer()) {
    return std::to_string(label.integer(std::numeric_limits<int64_t>::min()));
  }
  // JSON has no NaN, but writers of tables put null or a number with a point in its place.
  if (!label.value().is_string() || label.text().empty()) {
    label.fail("the name of a class, or an integer; leave the line out if it has no label");
  }
  return label.word(kMaxLabelBytes);
}

const std::string& text_of(const JsonView& row, const std::string& where) {
  TRIREME_CHECK(!row.find("text_pair"), where,
                ": the line has \"text_pair\"; expected one text: pairs need token types, which "
                "are not supported; join the texts in \"text\"");
  return row.at("text").text();
}

}  // namespace

LabelledText read_labelled_text(std::string_view line, const std::string& where) {
  const nlohmann::json row = parse_json(line, where, kRowLimits);
  const JsonView view(row, where);
  return {.text = text_of(view, where), .label = label_of(view.at("label"))};
}

std::string read_unlabelled_text(std::string_view line, const std::string& where) {
  const nlohmann::json row = parse_json(line, where, kRowLimits);
  return text_of(JsonView(row, where), where);
}

}  // namespace trireme::dataset
