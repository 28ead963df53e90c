// The end of a save at the sites: each gives its folder the checkpoint's name, or all remove it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/sites.h"
#include "trireme/checkpoint/transfer/site_files.h"
#include "trireme/comm/communicator.h"

namespace trireme::checkpoint::inline internal {

struct Unfinished {
  const std::filesystem::path& root;
  int64_t step = 0;
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

}  // namespace trireme::checkpoint::inline internal
