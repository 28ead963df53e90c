// Rows of JSON lines that become documents.
#include <string>

#include <nlohmann/json.hpp>

#include "tests/hostile/format.h"
#include "trireme/base/error.h"
#include "trireme/base/file/folder.h"
#include "trireme/dataset/text/row_lines.h"
#include "trireme/dataset/text/row_texts.h"

namespace trireme::hostile {
namespace {

using nlohmann::ordered_json;

// What is a row to the plain parser and has a text there is taken as that text, and nothing else.
class JsonLines : public Format {
 public:
  explicit JsonLines(const std::filesystem::path& folder) : path_(folder / "rows.jsonl") {}
  std::string name() const override { return "json-lines"; }

  void write(Random& random) override {
    const ordered_json row = {{"id", 7},
                              {"meta", {{"lang", "de"}, {"text", "s\u00e9 \n"}}},
                              {"text", "a line\nand another"},
                              {"tags", {"a", nullptr, 1.5}}};
    std::string file;
    for (size_t i = 0, count = 1 + random.below(4); i < count; ++i) {
      file += random.one_in(3) ? row.dump() : damaged_json(row, -1, random);
      file += random.one_in(8) ? "\r\n" : "\n";
    }
    if (random.one_in(4)) damage_bytes(file, random);
    constexpr size_t kMostBytes = 64 << 10;  // it may have become many lines
    put_file(path_, file.substr(0, kMostBytes));
    key_ = random.one_in(2) ? "text" : "meta.text";
    skip_ = !random.one_in(3);
    fraction_ = random.one_in(2) ? 0.3 : 0.0;
  }

  void read() override {
    expect_refusal_or_sense([&] {
      dataset::RowTextOptions options{.form = {.key = dataset::TextKey(key_)},
                                      .skip_bad_rows = skip_};
      const std::vector<dataset::Document> files =
          dataset::find_documents({.inputs = {path_.string()}, .as_text = true});
      options.split = dataset::choose_text_split(files, options, fraction_, 1);
      dataset::RowTexts texts(files, options);
      dataset::RowLines lines(files, {.most_bytes = dataset::kMaxTextRowBytes});
      std::string_view line;
      while (const auto batch = texts.next()) {
        const dataset::TextBatch texts_of_batch = batch();
        for (const dataset::DocumentText& document : texts_of_batch.texts) {
          require(lines.next(line), "more documents than lines");
          require(document.num_read <= texts.num_bytes(), "more bytes than the file has");
          if (!document.problem.empty()) {
            require(skip_ && document.text.empty(), "a bad row that is not skipped");
            require(document.problem.find('\n') == std::string::npos, "a problem of two lines");
            continue;
          }
          const nlohmann::json row =
              nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
          const nlohmann::json* value = &row;
          require(row.is_object(), "a row that is no object");
          if (key_ == "text" || row.contains(key_)) {
            value = &row.at(key_);
          } else {
            value = &row.at("meta").at("text");
          }
          require(*value == std::string(document.text), "another text than the plain parser's");
        }
      }
      require(!lines.next(line), "fewer documents than lines");
    });
  }

 private:
  std::filesystem::path path_;
  std::string key_{};
  bool skip_ = false;
  double fraction_ = 0;
};

}  // namespace

void add_row_formats(Formats& formats, const std::filesystem::path& folder) {
  formats.push_back(std::make_unique<JsonLines>(folder));
}

}  // namespace trireme::hostile
