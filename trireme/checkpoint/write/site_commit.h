// The end of a save: combines the manifests of what the ranks have written; then each site gives
// its folder the checkpoint's name, or all remove it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/sites.h"
#include "trireme/checkpoint/transfer/site_files.h"
#include "trireme/comm/communicator.h"

namespace trireme::checkpoint {

// Two reports of one rank, whose first `num_shared` files are the same, as one.
Manifest joined(Manifest report, Manifest other, size_t num_shared);

// Everything that the ranks wrote, as one manifest, and the files that the ranks of each site use.
// Unused shared files are left out.
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

struct Unfinished {
  const std::filesystem::path& root;
  int64_t step = 0;
  int64_t epoch = 1;
  int64_t num_bytes = 0;  // that it needs
};

// Runs `work`, which is collective. When it throws, on all ranks, the leaders remove the folder
// under its temporary name; an error of room or permission becomes a ConfigError with advice.
void clean_up_on_error(const Unfinished& save, const Sites& sites, comm::Communicator& group,
                       const OnWait& on_wait, const std::function<void()>& work);

// The leaders remove from the temporary folder what their site does not want, commit the rest, and
// then remove old checkpoints: not before every site has the new one, so at any moment one
// checkpoint is complete over all sites.
// wanted: by site
// Collective: every rank of `group`
// Throws:     on all ranks, as commit()
void commit_at_sites(const std::filesystem::path& root, const Manifest& manifest,
                     const std::vector<FileNames>& wanted, const Sites& sites,
                     const SaveOptions& options, comm::Communicator& group);

}  // namespace trireme::checkpoint
