// A format and its reader: what hostile_readers_test tries on each.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/hostile/mutation.h"

namespace trireme::hostile {

// A reader did what it must not.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Format {
 public:
  virtual ~Format() = default;
  virtual std::string name() const = 0;
  // Makes a damaged input, its checksums repaired more often than not.
  virtual void write(Random& random) = 0;
  // Gives it to everything that reads it; each through expect_refusal_or_sense().
  // Throws: Failure
  virtual void read() = 0;
};

// Runs `reader`, which may throw an Error that the user can act on: one line of moderate length,
// in this project's words. True when it threw none.
// Throws: Failure for any other exception
bool expect_refusal_or_sense(const std::function<void()>& reader);
// Throws: Failure(what) unless `condition` holds
void require(bool condition, const std::string& what);

using Formats = std::vector<std::unique_ptr<Format>>;
// Each works in a folder of its own below `folder`.
void add_text_formats(Formats& formats, const std::filesystem::path& folder);
void add_binary_formats(Formats& formats, const std::filesystem::path& folder);
void add_checkpoint_formats(Formats& formats, const std::filesystem::path& folder);

// Not through the library, which is under test. Not synced: of a case nothing need last.
void put_file(const std::filesystem::path& path, const std::string& content);
std::string get_file(const std::filesystem::path& path);

}  // namespace trireme::hostile
