#include "trireme/dataset/text/row_lines.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/dataset/file/as_config_error.h"

namespace trireme::dataset {

namespace {

std::optional<ColumnFormat> columns_of(const ByteSource& file) {
  std::string head(std::min<uint64_t>(8, file.num_bytes()), '\0');
  as_config_error([&] { file.read(0, std::as_writable_bytes(std::span(head))); });
  return column_format_of(head);
}

}  // namespace

RowLines::RowLines(const std::vector<Document>& files, LineForm form)
    : files_(files), form_(std::move(form)) {
  open();
}

bool RowLines::next_line(std::string_view& line) {
  while (lines_->next(line)) {
    if (!is_blank_line(line)) return true;
  }
  return false;
}

bool RowLines::next_value(std::string_view& line) {
  if (at_ == values_.size()) {
    at_ = 0;
    try {
      if (!column_->next(values_)) return false;
    } catch (const Error&) {  // of reading the file
      throw;
    } catch (const std::exception& error) {  // also those of Arrow's own types
      throw ConfigError(
          concat(files_[file_].path.string(), error.what(), ", behind row ", number_ + 1));
    }
  }
  line = values_[at_++].value_or("");
  TRIREME_CHECK(line.size() <= form_.most_bytes, files_[file_].path.string(), ", row ", number_ + 2,
                " has more than ", form_.most_bytes, " bytes as JSON; expected shorter rows");
  return true;
}

bool RowLines::next(std::string_view& line) {
  while (file_ < files_.size()) {
    if (column_ ? next_value(line) : next_line(line)) {
      ++number_;
      return true;
    }
    done_ += files_[file_].size();
    ++file_;
    open();
  }
  return false;
}

std::string RowLines::where() const {
  return column_ ? concat(files_[file_].path.string(), ", row ", number_ + 1) : lines_->where();
}

int64_t RowLines::num_read() const {
  if (column_) {
    const auto size = static_cast<double>(files_[file_].size());
    return done_ + static_cast<int64_t>(column_->share_read() * size);
  }
  return done_ + (lines_ ? lines_->num_read() : 0);
}

double RowLines::draw(uint64_t seed) const {
  const std::string& name = files_[file_].name;
  const std::string drawn =
      column_ ? std::filesystem::path(name).replace_extension(".jsonl").generic_string() : name;
  return random_uniform(random_key(seed, concat("validation/", drawn, "/", number_)), 0);
}

void RowLines::open() {
  lines_.reset();
  column_.reset();
  values_.clear();
  at_ = 0;
  number_ = -1;
  if (file_ == files_.size()) return;
  std::unique_ptr<ByteSource> file = files_[file_].open();
  const auto format = form_.columns.empty() ? std::nullopt : columns_of(*file);
  if (format) {
    column_ = open_json_rows(std::move(file), *format, form_.columns);
  } else {
    lines_.emplace(std::move(file), TextOrigin::kUser, form_.most_bytes);
  }
}

RowSplit choose_split(const std::vector<Document>& files, const SplitOptions& options) {
  RowSplit split{.fraction = options.fraction};
  if (split.fraction == 0) return split;
  RowLines lines(files, options.form);
  double low = 2, high = -1;
  int64_t count = 0;
  for (std::string_view line; lines.next(line); ++count) {
    const double draw = lines.draw(options.seed);
    if (draw < low) split.lowest = count;
    if (draw >= high) split.highest = count;
    low = std::min(low, draw);
    high = std::max(high, draw);
  }
  TRIREME_CHECK(count != 1, files.front().path.string(), " has 1 ", options.row,
                ", too few to set ", split.fraction,
                " of them aside for validation; give more, or set --validation-fraction 0");
  return split;
}

}  // namespace trireme::dataset
