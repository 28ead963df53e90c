// A column of a Parquet or Arrow file whose values are texts, or its rows as lines of JSON. Apache
// Arrow reads it, in a module that is opened for the first such file: no other program pays for
// loading it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/file/byte_source.h"

namespace trireme::dataset {

enum class ColumnFormat { kParquet, kArrow };  // kArrow: its IPC file or stream, also Feather's

// The values, in the order of the rows. Not thread safe.
class TextColumn {
 public:
  virtual ~TextColumn() = default;

  // The values of the next rows; nullopt for a null. They live until the next call. False after the
  // last row. All columns that are open take at most kColumnMemoryBytes.
  // Throws: std::runtime_error, without the path, when the file is damaged; what reading it throws
  virtual bool next(std::vector<std::optional<std::string_view>>& values) = 0;

  // The share of the file in front of those values' end.
  virtual double share_read() const = 0;
};

inline constexpr size_t kColumnMemoryBytes = size_t{2} << 30;

// name: of the column, or the path to a part of it with dots, such as "data.text"
// Throws: ConfigError with the path when the file is not of this format, is damaged, or has no such
//         column of texts; when this build has no Arrow, or its libraries are gone; what reading
//         the file throws
std::unique_ptr<TextColumn> open_text_column(std::shared_ptr<const ByteSource> file,
                                             ColumnFormat format, const std::string& name);

// Each row as an object of JSON, with those of the columns `names` that the file has, in its order.
// Structs are objects, lists arrays, maps objects of their keys; a number that is no integer has a
// point or an exponent; NaN and infinity are null. A null of a column is left out.
// Throws: as open_text_column(); ConfigError also when the file has none of these columns, or one
//         has another type
std::unique_ptr<TextColumn> open_json_rows(std::shared_ptr<const ByteSource> file,
                                           ColumnFormat format,
                                           std::span<const std::string_view> names);

// The longest line of a row.
inline constexpr size_t kMostRowJsonBytes = size_t{64} << 20;

// The format of a file that begins so; nullopt: neither. A stream of Arrow's does not tell.
inline std::optional<ColumnFormat> column_format_of(std::string_view head) {
  if (head.starts_with("PAR1")) return ColumnFormat::kParquet;
  if (head.starts_with("ARROW1")) return ColumnFormat::kArrow;
  return std::nullopt;
}

// What the module has. Throws: std::runtime_error, without the path
using OpenTextColumn = TextColumn*(const std::shared_ptr<const ByteSource>& file,
                                   ColumnFormat format, const char* name);
inline constexpr const char* kOpenTextColumn = "trireme_open_text_column";
using OpenJsonRows = TextColumn*(const std::shared_ptr<const ByteSource>& file, ColumnFormat format,
                                 std::span<const std::string_view> names);
inline constexpr const char* kOpenJsonRows = "trireme_open_json_rows";

}  // namespace trireme::dataset
