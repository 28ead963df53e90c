// A run's run.json (train/run/run_facts.h): which Trireme made it, where and when. Anyone may have
// written the file.
#pragma once

#include <filesystem>
#include <string>

namespace trireme::watch {

// "" and 0: unknown.
struct RunFacts {
  std::string version{};
  std::string revision{};  // of git
  std::string libtorch{};
  std::string host{};
  double started = 0;  // the newest start, in seconds since 1970
};

inline constexpr const char* kRunFactsFile = "run.json";

// "0.1.0 (revision 301047ad6dea, libtorch 2.13.0, host a)"; "" without a version.
std::string version_of(const RunFacts& facts);

// Never throws: what cannot be read is unknown.
RunFacts read_run_facts(const std::filesystem::path& path);
RunFacts parse_run_facts(const std::string& text);

}  // namespace trireme::watch
