#include "trireme/dataset/rows/line_rows.h"

#include <filesystem>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/dataset/file/text_lines.h"
#include "trireme/dataset/labelled/labelled_source.h"
#include "trireme/dataset/labelled/labelled_text.h"

namespace trireme::dataset {
namespace {

TextForm form_of(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  const bool is_json =
      name.find(".jsonl") != std::string::npos || name.find(".ndjson") != std::string::npos;
  return is_json ? TextForm::kJsonLines : TextForm::kLines;
}

class LineRows final : public RowSource {
 public:
  LineRows(std::span<const std::string> paths, LineRowOptions options)
      : paths_(paths.begin(), paths.end()), options_(std::move(options)) {
    for (const std::string& path : paths_) total_ += TextLines(path).num_bytes();
  }

  void read(const std::function<void(Row)>& use) override {
    done_ = 0;
    for (const std::string& path : paths_) {
      const TextForm form = options_.form.value_or(form_of(path));
      TextLines lines(path, TextOrigin::kUser, kMaxLabelledTextBytes);
      const int64_t before = done_;
      for (std::string_view line; lines.next(line);) {
        if (is_blank_line(line)) continue;
        const std::string text = form == TextForm::kJsonLines
                                     ? read_unlabelled_text(line, lines.where())
                                     : std::string(line);
        const std::vector<int32_t> tokens = options_.encode(text);
        TRIREME_CHECK(!tokens.empty(), lines.where(), " has no tokens; expected a text");
        use({.path = path,
             .number = lines.number(),
             .sample = padded_text(tokens, options_.sequence_length)});
        done_ = before + lines.num_read();
      }
      done_ = before + lines.num_bytes();
    }
  }

  int64_t num_done() const override { return done_; }
  int64_t num_total() const override { return total_; }
  std::string unit() const override { return ""; }
  std::string left_out() const override { return ""; }

 private:
  std::vector<std::string> paths_;
  LineRowOptions options_;
  int64_t total_ = 0;
  int64_t done_ = 0;
};

}  // namespace

std::unique_ptr<RowSource> open_line_rows(std::span<const std::string> paths,
                                          const LineRowOptions& options) {
  TRIREME_ASSERT(options.encode && options.sequence_length >= 2, "texts without an encoder");
  return std::make_unique<LineRows>(paths, options);
}

}  // namespace trireme::dataset
