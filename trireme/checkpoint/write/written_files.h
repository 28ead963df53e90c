// What ranks have written, put together. Reads no file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/sites.h"
#include "trireme/checkpoint/transfer/site_files.h"

namespace trireme::checkpoint::inline internal {

// Two reports of one rank, whose first `num_shared` files are the same, as one.
Manifest joined(Manifest report, Manifest other, size_t num_shared);

// What the ranks wrote, as one manifest, and which files the ranks of each site use. Leaves out
// shared files that none uses.
struct Written {
  Manifest manifest;
  std::vector<FileNames> used;  // by site
};
// plan: see plan_save(). reports[r]: rank r's, as a manifest's text
Written complete_manifest(int64_t step, const std::string& state,
                          std::map<std::string, TensorRecord> plan,
                          std::span<const std::string> reports, const Sites& sites);

// Adds to what each site wants what the `replicas` sites before it use.
std::vector<FileNames> with_replicas(const std::vector<FileNames>& used, int replicas);

}  // namespace trireme::checkpoint::inline internal
