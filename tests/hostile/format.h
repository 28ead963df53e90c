// A format and its reader, as hostile_readers_test tries them.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/hostile/mutation.h"

namespace trireme::hostile {

// Thrown when a reader does something that it must not do.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Format {
 public:
  virtual ~Format() = default;
  virtual std::string name() const = 0;
  // Makes a damaged input. Its checksums are repaired more often than not.
  virtual void write(Random& random) = 0;
  // Passes the input to each of its readers through expect_refusal_or_sense().
  // Throws: Failure
  virtual void read() = 0;
};

// Runs `reader`. It may throw an Error that the user can act on, with a message of one line and
// moderate length in this project's words. Returns true if it threw nothing.
// Throws: Failure for any other exception or message
bool expect_refusal_or_sense(const std::function<void()>& reader);
// Throws: Failure(what) unless `condition` holds
void require(bool condition, const std::string& what);

using Formats = std::vector<std::unique_ptr<Format>>;
// Each format works in its own folder below `folder`.
void add_text_formats(Formats& formats, const std::filesystem::path& folder);
void add_launch_formats(Formats& formats);
void add_tokenizer_formats(Formats& formats, const std::filesystem::path& folder);
// Rows and classes of labelled texts.
void add_labelled_formats(Formats& formats);
// Text that gzip and zstd have compressed.
void add_compressed_formats(Formats& formats, const std::filesystem::path& folder);
// Rows of JSON lines that become documents.
void add_row_formats(Formats& formats, const std::filesystem::path& folder);
// Columns of texts, and rows of nested columns. Only in a build with Arrow.
void add_column_formats(Formats& formats, const std::filesystem::path& folder);
void add_nested_formats(Formats& formats, const std::filesystem::path& folder);
// Only in a build with tokenizers of tokenizer.json.
void add_chat_formats(Formats& formats, const std::filesystem::path& folder);
void add_binary_formats(Formats& formats, const std::filesystem::path& folder);
// Data of recommendation models.
void add_recommend_formats(Formats& formats, const std::filesystem::path& folder);
// CSV tables of such data.
void add_table_formats(Formats& formats, const std::filesystem::path& folder);
// Only in a build with PNG and JPEG.
void add_image_formats(Formats& formats, const std::filesystem::path& folder);
void add_checkpoint_formats(Formats& formats, const std::filesystem::path& folder);
// Event logs and output of runs.
void add_journal_formats(Formats& formats, const std::filesystem::path& folder);
// Series of ranks.
void add_series_formats(Formats& formats, const std::filesystem::path& folder);
// What schedulers tell the launcher.
void add_job_formats(Formats& formats, const std::filesystem::path& folder);
void add_link_formats(Formats& formats);
void add_http_formats(Formats& formats);
// Answers of object stores. Only in a build with libcurl.
void add_store_formats(Formats& formats, const std::filesystem::path& folder);
// Logs and views of parameter servers.
void add_server_formats(Formats& formats, const std::filesystem::path& folder);
// Communication graphs of learners, and their packed differences.
void add_learner_formats(Formats& formats);
// What a teacher says of a student's data.
void add_outputs_formats(Formats& formats, const std::filesystem::path& folder);
// What `trireme watch` follows.
void add_watch_formats(Formats& formats, const std::filesystem::path& folder);
// Checkpoints of other programs.
void add_foreign_formats(Formats& formats, const std::filesystem::path& folder);
// Steps of other frameworks, recorded to be compared with a run's.
void add_reference_formats(Formats& formats, const std::filesystem::path& folder);

// Plain file access, independent of the library under test. Files are not synced, because none must
// outlast its case.
void put_file(const std::filesystem::path& path, const std::string& content);
std::string get_file(const std::filesystem::path& path);

}  // namespace trireme::hostile
