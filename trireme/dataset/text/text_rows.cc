#include "trireme/dataset/text/text_rows.h"

#include <exception>
#include <utility>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"
#include "trireme/dataset/text/row_lines.h"

namespace trireme::dataset {
namespace {

class JsonRows : public TextRows {
 public:
  JsonRows(const std::vector<Document>& files, TextKey key)
      : lines_(files, {.most_bytes = kMaxTextRowBytes}), key_(std::move(key)) {}

  bool next(StoredRow& row) override { return lines_.next(row.bytes); }
  std::string where() const override { return lines_.where(); }
  int64_t num_read() const override { return lines_.num_read(); }
  std::string text_of(const StoredRow& row, const std::string& where) const override {
    return key_.text_of(row.bytes, where);
  }

 private:
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

  std::string where() const override {
    return concat(files_[file_].path.string(), ", row ", number_);
  }

  int64_t num_read() const override {
    return done_ +
           (column_ ? static_cast<int64_t>(share_ * static_cast<double>(files_[file_].size())) : 0);
  }

  std::string text_of(const StoredRow& row, const std::string& where) const override {
    TRIREME_CHECK(!row.is_null, where, ": ", in_quotes(name_, 60), " is null; expected a text");
    TRIREME_CHECK(row.bytes.size() <= kMaxTextRowBytes, where, ": ", in_quotes(name_, 60), " has ",
                  row.bytes.size(), " bytes; expected at most ", kMaxTextRowBytes);
    TRIREME_CHECK(is_utf8(row.bytes), where, ": ", in_quotes(name_, 60),
                  " is not UTF-8; expected a text");
    return std::string(row.bytes);
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
