// One row of the data of text classification: a text and the name of its class.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme::dataset {

inline constexpr size_t kMaxLabelBytes = 256;
inline constexpr size_t kMaxLabelledTextBytes = size_t{16} << 20;  // of a line

// The members of a line that read_labelled_text() looks at.
inline constexpr std::string_view kLabelledMembers[] = {"text", "label", "text_pair"};

struct LabelledText {
  std::string text{};
  std::string label{};  // an integer label as its decimal digits
};

// Reads a JSON line {"text": ..., "label": ...}. The label is a string or an integer. Other keys
// are ignored, except "text_pair", which is refused.
// where: file and line, the start of every message
// Throws: ConfigError when the line is not such an object
LabelledText read_labelled_text(std::string_view line, const std::string& where);

// Reads the text of a JSON line {"text": ...}, which may have a label: it is not looked at.
// Throws: as read_labelled_text()
std::string read_unlabelled_text(std::string_view line, const std::string& where);

}  // namespace trireme::dataset
