// Sites: groups of ranks that see the same folder under one path. On a shared file system, all
// ranks form one site; on a local disk or in memory, the ranks of each host do.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trireme/checkpoint/agreement.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/hierarchical/host_identity.h"

namespace trireme::checkpoint {

// Sites are numbered by their lowest ranks, which are their leaders. A leader makes, renames and
// removes files for its site.
class Sites {
 public:
  // marks[r]: equal for ranks of one site.
  Sites(const std::vector<std::string>& marks, int rank) : map_(marks), rank_(rank) {}
  // One site for all.
  static Sites shared(const comm::Communicator& world);

  int size() const { return map_.num_hosts(); }
  int mine() const { return map_.host_of(rank_); }
  int of(int rank) const { return map_.host_of(rank); }
  int leader(int site) const { return map_.ranks_of(site).front(); }
  bool leads() const { return leader(mine()) == rank_; }

 private:
  comm::HostMap map_;
  int rank_;
};

// Makes `folder` where it is missing. Every rank writes an empty file there and looks whose it
// sees; neither host names nor group sizes count.
// Collective: every rank of `world`; `folder` may differ between ranks
// Throws:     on all ranks: Error when a rank cannot write there; CommError
Sites find_sites(const std::filesystem::path& folder, comm::Communicator& world,
                 const OnWait& on_wait = {});

// Runs `produce` on the leaders. Returns what each rank's own leader got.
// Collective: every rank of `world`
// Throws:     as gather_or_throw()
std::string from_leader(const Sites& sites, comm::Communicator& world,
                        const std::function<std::string(const Peers&)>& produce,
                        const OnWait& on_wait = {});

// The same for work without a result.
void on_leaders(const Sites& sites, comm::Communicator& world,
                const std::function<void(const Peers&)>& work, const OnWait& on_wait = {});

}  // namespace trireme::checkpoint
