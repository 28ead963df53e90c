// Counts what token files hold, and how much of each a run reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/file/byte_source.h"
#include "trireme/dataset/blend/blend.h"
#include "trireme/tasks/language/sources/data_files.h"

namespace trireme::tasks {

struct SourceCount {
  std::string name{};  // "": of data.path
  std::string path{};
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t validation_documents = 0;  // beside it; 0: there is no such file
  int64_t validation_tokens = 0;
  double weight = 1;  // its share of the run, of 1
  // Of a run; 0 before use_*().
  int64_t used_tokens = 0;
  double epochs = 0;  // how often the run reads all of it
};

// place: where the files are
// Throws: ConfigError with the path of a file that is missing or damaged, as IndexedFile
std::vector<SourceCount> count_sources(const DataFiles& files,
                                       const FilePlace& place = local_files());

// A run of so many tokens, which are divided by weight alone.
void use_tokens(std::vector<SourceCount>& sources, int64_t run_tokens);

// A run of so many samples of `tokens_per_sample` tokens, as training takes them. A sample has
// fewer tokens than that where documents are padded.
// blend: of the sources' samples; null: there is one source, of `num_samples` samples
void use_samples(std::vector<SourceCount>& sources, const dataset::Blend* blend,
                 int64_t num_samples, int64_t run_samples, int64_t tokens_per_sample);

}  // namespace trireme::tasks
