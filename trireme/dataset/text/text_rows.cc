#include "trireme/dataset/text/text_rows.h"

#include <exception>
#include <utility>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/dataset/text/quick_json.h"
#include "trireme/dataset/text/row_lines.h"

namespace trireme::dataset {
namespace {

class JsonRows : public TextRows {
 public:
  JsonRows(const std::vector<Document>& files, TextKey key)
      : files_(files), lines_(files, {.most_bytes = kMaxTextRowBytes}), key_(std::move(key)) {}

  bool next(StoredRow& row) override { return lines_.next(row.bytes); }
  RowPlace place() const override { return {lines_.file(), lines_.line_number()}; }
  int64_t num_read() const override { return lines_.num_read(); }
  std::string where(const RowPlace& place) const override {
    return concat(files_[place.file].path.string(), ":", place.number);
  }
  std::string_view text_in(std::span<char> bytes, bool /*is_null*/,
                           const RowPlace& place) const override {
    return key_.text_in(bytes, [&] { return where(place); });
  }

 private:
  const std::vector<Document>& files_;
  RowLines lines_;
  TextKey key_;
};

class ColumnRows : public TextRows {
 public:
  ColumnRows(const std::vector<Document>& files, ColumnFormat format, std::string name)
      : files_(files), format_(format), name_(std::move(name)) {
    open();
  }

  bool next(StoredRow& row) override {
    while (at_ == values_.size()) {
      if (file_ == files_.size()) return false;
      at_ = 0;
      if (read()) continue;
      done_ += files_[file_].size();
      ++file_;
      number_ = 0;
      open();
    }
    const std::optional<std::string_view> value = values_[at_++];
    row = {.bytes = value.value_or(""), .is_null = !value};
    ++number_;
    return true;
  }

  RowPlace place() const override { return {file_, number_}; }

  int64_t num_read() const override {
    return done_ +
           (column_ ? static_cast<int64_t>(share_ * static_cast<double>(files_[file_].size())) : 0);
  }

  std::string where(const RowPlace& place) const override {
    return concat(files_[place.file].path.string(), ", row ", place.number);
  }

  std::string_view text_in(std::span<char> bytes, bool is_null,
                           const RowPlace& place) const override {
    const std::string_view text(bytes.data(), bytes.size());
    TRIREME_CHECK(!is_null, where(place), ": ", in_quotes(name_, 60), " is null; expected a text");
    TRIREME_CHECK(text.size() <= kMaxTextRowBytes, where(place), ": ", in_quotes(name_, 60),
                  " has ", text.size(), " bytes; expected at most ", kMaxTextRowBytes);
    TRIREME_CHECK(quick_is_utf8(text), where(place), ": ", in_quotes(name_, 60),
                  " is not UTF-8; expected a text");
    return text;
  }

 private:
  void open() {
    column_.reset();
    share_ = 0;
    if (file_ < files_.size()) column_ = open_text_column(files_[file_].open(), format_, name_);
  }

  bool read() {
    try {
      const bool found = column_->next(values_);
      share_ = column_->share_read();
      return found;
    } catch (const Error&) {  // of reading the file
      throw;
    } catch (const std::exception& error) {  // also those of Arrow's own types
      throw ConfigError(
          concat(files_[file_].path.string(), error.what(), ", behind row ", number_));
    }
  }

  const std::vector<Document>& files_;
  ColumnFormat format_;
  std::string name_;
  std::unique_ptr<TextColumn> column_{};
  std::vector<std::optional<std::string_view>> values_{};
  size_t at_ = 0;       // of values_, the next
  size_t file_ = 0;     // of files_, the one that is open
  int64_t number_ = 0;  // of the row in its file, from 1
  int64_t done_ = 0;    // bytes of the files before it
  double share_ = 0;    // of it
};

}  // namespace

std::unique_ptr<TextRows> open_text_rows(const std::vector<Document>& files,
                                         const TextRowForm& form) {
  if (form.columns) return std::make_unique<ColumnRows>(files, *form.columns, form.key.name());
  return std::make_unique<JsonRows>(files, form.key);
}

}  // namespace trireme::dataset
