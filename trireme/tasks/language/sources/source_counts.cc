#include "trireme/tasks/language/sources/source_counts.h"

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/dataset/indexed_file.h"
#include "trireme/dataset/prepare.h"

namespace trireme::tasks {

std::vector<SourceCount> count_sources(const DataFiles& files, const FilePlace& place) {
  std::vector<SourceCount> sources;
  double sum = 0;
  for (const dataset::ListedSource& file : files.files) sum += static_cast<double>(file.weight);
  for (const dataset::ListedSource& file : files.files) {
    const dataset::IndexedFile tokens(file.path, place);
    SourceCount& source =
        sources.emplace_back(SourceCount{.name = file.name,
                                         .path = file.path,
                                         .documents = tokens.num_documents(),
                                         .tokens = tokens.num_tokens(),
                                         .weight = static_cast<double>(file.weight) / sum});
    const std::string beside = dataset::validation_prefix(file.path);
    if (!place.find(dataset::bin_path(beside).string())) continue;
    const dataset::IndexedFile validation(beside, place);
    source.validation_documents = validation.num_documents();
    source.validation_tokens = validation.num_tokens();
  }
  return sources;
}

void use_tokens(std::vector<SourceCount>& sources, int64_t run_tokens) {
  for (SourceCount& source : sources) {
    const double used = source.weight * static_cast<double>(run_tokens);
    source.used_tokens = std::llround(used);
    source.epochs = used / static_cast<double>(source.tokens);
  }
}

void use_samples(std::vector<SourceCount>& sources, const dataset::Blend* blend,
                 int64_t num_samples, int64_t run_samples, int64_t tokens_per_sample) {
  TRIREME_ASSERT(blend == nullptr ? sources.size() == 1 : sources.size() == blend->parts().size(),
                 sources.size(), " sources of another blend");
  for (size_t i = 0; i < sources.size(); ++i) {
    const int64_t used = blend == nullptr ? run_samples : blend->count(i, run_samples);
    const int64_t size = blend == nullptr ? num_samples : blend->parts()[i].size;
    sources[i].used_tokens = used * tokens_per_sample;
    sources[i].epochs = static_cast<double>(used) / static_cast<double>(size);
  }
}

}  // namespace trireme::tasks
