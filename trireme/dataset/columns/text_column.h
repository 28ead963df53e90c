// A column of a Parquet or Arrow file whose values are texts. Apache Arrow reads it, in a module
// that is opened for the first such file: no other program pays for loading it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::dataset {

enum class ColumnFormat { kParquet, kArrow };  // kArrow: its IPC file or stream, also Feather's

// The values, in the order of the rows. Not thread safe.
class TextColumn {
 public:
  virtual ~TextColumn() = default;

  // The values of the next rows; nullopt for a null. They live until the next call. False after the
  // last row. All columns that are open take at most kColumnMemoryBytes.
  // Throws: std::runtime_error, without the path, when the file is damaged
  virtual bool next(std::vector<std::optional<std::string_view>>& values) = 0;

  // The share of the file in front of those values' end.
  virtual double share_read() const = 0;
};

inline constexpr size_t kColumnMemoryBytes = size_t{2} << 30;

// name: of the column, or the path to a part of it with dots, such as "data.text"
// Throws: ConfigError with the path when the file is not of this format, is damaged, or has no such
//         column of texts; when this build has no Arrow, or its libraries are gone
std::unique_ptr<TextColumn> open_text_column(const std::filesystem::path& path, ColumnFormat format,
                                             const std::string& name);

// What the module has. Throws: std::runtime_error, without the path
using OpenTextColumn = TextColumn*(const char* path, ColumnFormat format, const char* name);
inline constexpr const char* kOpenTextColumn = "trireme_open_text_column";

}  // namespace trireme::dataset
