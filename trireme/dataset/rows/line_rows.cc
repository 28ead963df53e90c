#include "trireme/dataset/rows/line_rows.h"

#include <filesystem>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/dataset/file/text_lines.h"
#include "trireme/dataset/labelled/labelled_source.h"
#include "trireme/dataset/labelled/labelled_text.h"
#include "trireme/dataset/rows/file_rows.h"

namespace trireme::dataset {
namespace {

TextForm form_of(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  const bool is_json =
      name.find(".jsonl") != std::string::npos || name.find(".ndjson") != std::string::npos;
  return is_json ? TextForm::kJsonLines : TextForm::kLines;
}

class LineRows final : public FileRows {
 public:
  LineRows(std::span<const std::string> paths, LineRowOptions options)
      : options_(std::move(options)) {
    for (const std::string& path : paths) add_file(path, TextLines(path).num_bytes());
  }

 private:
  void read_file(size_t /*index*/, const std::string& path, const Use& use) override {
    const TextForm form = options_.form.value_or(form_of(path));
    TextLines lines(path, TextOrigin::kUser, kMaxLabelledTextBytes);
    for (std::string_view line; lines.next(line);) {
      if (is_blank_line(line)) continue;
      const std::string text = form == TextForm::kJsonLines
                                   ? read_unlabelled_text(line, lines.where())
                                   : std::string(line);
      const std::vector<int32_t> tokens = options_.encode(text);
      TRIREME_CHECK(!tokens.empty(), lines.where(), " has no tokens; expected a text");
      use({.number = lines.number(), .sample = padded_text(tokens, options_.sequence_length)},
          lines.num_read());
    }
  }

  LineRowOptions options_;
};

}  // namespace

std::unique_ptr<RowSource> open_line_rows(std::span<const std::string> paths,
                                          const LineRowOptions& options) {
  TRIREME_ASSERT(options.encode && options.sequence_length >= 2, "texts without an encoder");
  return std::make_unique<LineRows>(paths, options);
}

}  // namespace trireme::dataset
