#include "trireme/dataset/text/row_lines.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"

namespace trireme::dataset {

RowLines::RowLines(const std::vector<Document>& files, size_t most_bytes)
    : files_(files), most_bytes_(most_bytes) {
  open();
}

bool RowLines::next(std::string_view& line) {
  while (file_ < files_.size()) {
    while (lines_->next(line)) {
      if (is_blank_line(line)) continue;
      ++number_;
      return true;
    }
    done_ += files_[file_].size();
    ++file_;
    open();
  }
  return false;
}

double RowLines::draw(uint64_t seed) const {
  return random_uniform(random_key(seed, concat("validation/", files_[file_].name, "/", number_)),
                        0);
}

void RowLines::open() {
  lines_.reset();
  number_ = -1;
  if (file_ == files_.size()) return;
  lines_.emplace(files_[file_].path, TextOrigin::kUser, most_bytes_);
}

RowSplit choose_split(const std::vector<Document>& files, const SplitOptions& options) {
  RowSplit split{.fraction = options.fraction};
  if (split.fraction == 0) return split;
  RowLines lines(files, options.most_bytes);
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
