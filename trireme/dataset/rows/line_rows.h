// Texts for a model that classifies them: lines, or JSON lines with a text each.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/dataset/rows/row_source.h"

namespace trireme::dataset {

enum class TextForm { kLines, kJsonLines };
inline constexpr Choice<TextForm> kTextForms[] = {{"lines", TextForm::kLines},
                                                  {"json-lines", TextForm::kJsonLines}};

struct LineRowOptions {
  int64_t sequence_length = 0;  // T, of the model
  // The tokens of a text, with those that begin and end one.
  std::function<std::vector<int32_t>(std::string_view text)> encode{};
  // Empty: JSON lines in files whose names have .jsonl or .ndjson, lines in others.
  std::optional<TextForm> form{};
};

// Blank lines are left out. A row of JSON has its text in "text"; its label is not used. Files may
// be compressed. A row has "tokens" and "documents" as LabelledSource cuts and pads them.
// Throws: ConfigError with the path when an input cannot be opened
std::unique_ptr<RowSource> open_line_rows(std::span<const std::string> paths,
                                          const LineRowOptions& options);

}  // namespace trireme::dataset
