#include "trireme/parallel/server/run_identity.h"

#include "trireme/base/error.h"

namespace trireme::parallel {

std::string identity_of(const ServerRun& run) {
  std::string text =
      concat(run.shards, " shards, ", run.copies, " copies, staleness ", run.consistency.staleness,
             ", quorum ", run.consistency.quorum, ", grace ", run.consistency.grace.count(), "\n");
  for (const Piece& piece : run.pieces) {
    text += concat(piece.parameter, " ", piece.first_row, " ", piece.rows, " ", piece.width, " ",
                   piece.dtype, " ", piece.is_sparse, " ", piece.shard, "\n");
  }
  return text + run.config;
}

HubOptions hub_options(const ServerRun& run, Role role) {
  return {.role = role, .secret = run.secret, .config = identity_of(run), .silence = run.silence};
}

}  // namespace trireme::parallel
