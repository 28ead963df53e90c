#include "trireme/dataset/file/npy_array.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/shown.h"
#include "trireme/dataset/as_config_error.h"

namespace trireme::dataset::inline internal {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 18;

std::shared_ptr<const InputFile> open(const std::filesystem::path& path) {
  return as_config_error([&] { return std::make_shared<const InputFile>(path); });
}

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += concat(text.empty() ? "" : ", ", size);
  return concat("(", text, shape.size() == 1 ? ",)" : ")");
}

}  // namespace

NpyArray::NpyArray(const std::filesystem::path& path, const NpyForm& form)
    : NpyArray(open(path), form) {}

NpyArray::NpyArray(const std::shared_ptr<const InputFile>& file, const NpyForm& form)
    : NpyArray(file, 0, file->num_bytes(), file->path().string(), form) {}

NpyArray::NpyArray(std::shared_ptr<const InputFile> file, uint64_t begin, uint64_t size,
                   std::string name, const NpyForm& form)
    : file_(std::move(file)), name_(std::move(name)), begin_(begin) {
  std::string bytes(std::min<uint64_t>(size, kMaxNpyHeaderBytes), '\0');
  as_config_error([&] { file_->read(begin, std::as_writable_bytes(std::span(bytes))); });
  const NpyHeader header = parse_npy_header(bytes, name_);
  check_form(header, form);
  begin_ += header.num_bytes;
  const uint64_t num_bytes = size - header.num_bytes;
  // num_columns_ is small. The quotient is compared, because the product may not fit.
  TRIREME_CHECK(
      num_bytes % row_bytes() == 0 && num_bytes / row_bytes() == static_cast<uint64_t>(num_rows_),
      name_, " has ", num_bytes, " bytes behind its header, which says ", num_rows_, " rows of ",
      row_bytes(), " bytes: truncated or damaged; copy or prepare it again");
}

void NpyArray::check_form(const NpyHeader& header, const NpyForm& form) {
  std::vector<std::string> types;
  for (const NpyType type : form.types) {
    types.push_back(name_of(kNpyTypes, type));
    if (types.back() == header.type) type_ = type;
  }
  TRIREME_CHECK(std::ranges::find(types, header.type) != types.end(), name_,
                ": the numbers are of type \"", shown(header.type), "\"; expected ",
                in_words(types), ": save it again with array.astype(\"", types.front(), "\")");
  TRIREME_CHECK(!header.is_fortran_order, name_,
                ": the numbers are in Fortran's order; expected row after row: save it again with "
                "numpy.ascontiguousarray(array)");
  const std::string columns = form.min_columns == form.max_columns
                                  ? concat(form.min_columns)
                                  : concat(form.min_columns, " to ", form.max_columns);
  TRIREME_CHECK(header.shape.size() == 2 && header.shape[0] > 0 &&
                    header.shape[1] >= form.min_columns && header.shape[1] <= form.max_columns,
                name_, " has the shape ", shown(text_of(header.shape)),
                "; expected a row for each sample, at least one, and ", columns,
                form.max_columns == 1 ? " column" : " columns");
  num_rows_ = header.shape[0];
  num_columns_ = header.shape[1];
}

void NpyArray::read(int64_t first, std::span<std::byte> rows) const {
  const uint64_t offset = begin_ + static_cast<uint64_t>(first) * row_bytes();
  as_config_error([&] { file_->read(offset, rows); },
                  "; the data must stay as it is while it is prepared");
}

NpyRows::NpyRows(const NpyArray& array) : array_(&array), at_(0) {}

std::span<const std::byte> NpyRows::next() {
  const size_t size = array_->row_bytes();
  if (at_ == piece_.size()) {
    const int64_t left = array_->num_rows() - next_;
    TRIREME_ASSERT(left > 0, "a row behind the last");
    const auto count =
        std::min<int64_t>(left, static_cast<int64_t>(std::max<size_t>(1, kPieceBytes / size)));
    piece_.resize(static_cast<size_t>(count) * size);
    array_->read(next_, piece_);
    next_ += count;
    at_ = 0;
  }
  at_ += size;
  return std::span(piece_).subspan(at_ - size, size);
}

}  // namespace trireme::dataset::inline internal
