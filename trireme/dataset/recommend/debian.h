// The package metadata of a Debian system: files named Packages, or the output of `apt-cache
// dumpavail`. Every such machine has them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/dataset/recommend/raw_data.h"

namespace trireme::dataset {

struct DebianPackage {
  std::string name{};
  std::string section{};
  std::string priority{};
  std::string maintainer{};
  double installed_size = 0;              // in KiB; 0: not said
  std::vector<std::string> tags{};        // such as "role::program"
  std::vector<std::string> words{};       // of its name and the first line of its description
  std::vector<std::string> depends_on{};  // of alternatives the first; without versions
  int64_t num_bytes = 0;                  // of its paragraph
};

// One paragraph per package, separated by empty lines. Of two with one name the first counts.
// Memory: about the size of the files, which is at most 1 GiB
// Throws: ConfigError with file, line and field when a paragraph has no Package, a line is neither
//         a field nor continues one, a field occurs twice, or Installed-Size is not a number
std::vector<DebianPackage> read_debian(const std::vector<std::string>& paths);

// Pairs of a package and a package that it depends on. Queries: section, priority, maintainer,
// words, tags and the logarithm of 1 + installed size. Items: name, section, words. All pairs of a
// package have one group. Packages without a section are taken to be in section "".
std::unique_ptr<RawData> open_debian_depends(const std::vector<std::string>& paths);

// Packages and their sections as classes: priority, maintainer, words, tags, names of dependencies,
// installed size. Leaves out packages without a section.
std::unique_ptr<RawData> open_debian_sections(const std::vector<std::string>& paths);

}  // namespace trireme::dataset
