#include "trireme/dataset/recommend/record_file.h"

#include "trireme/base/error.h"
#include "trireme/dataset/as_config_error.h"
#include "trireme/dataset/recommend/feature_schema.h"

namespace trireme::dataset::inline internal {

RecordFile::RecordFile(const std::filesystem::path& path, size_t record_bytes)
    : file_(as_config_error([&] { return InputFile(path); })),
      record_bytes_(record_bytes),
      size_(static_cast<int64_t>(file_.num_bytes() / record_bytes)) {
  TRIREME_CHECK(file_.num_bytes() > 0 && file_.num_bytes() % record_bytes == 0, name(), " has ",
                file_.num_bytes(), " bytes; expected whole records of ", record_bytes,
                " bytes, as in ", kSchemaFile, "; prepare the data again");
}

void RecordFile::check_size(int64_t expected, const char* what) const {
  TRIREME_CHECK(size_ == expected, name(), " has ", size_, " ", what, " and ", kSchemaFile, " ",
                expected, "; prepare the data again");
}

void RecordFile::read(int64_t index, std::span<std::byte> record) const {
  TRIREME_ASSERT(index >= 0 && index < size_, "record ", index, " of ", size_);
  as_config_error([&] { file_.read(static_cast<uint64_t>(index) * record_bytes_, record); },
                  "; the data must stay as it is during a run");
}

}  // namespace trireme::dataset::inline internal
