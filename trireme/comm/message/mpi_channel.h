// Messages over MPI point to point, for the transport `mpi`. Compiled only when the build found
// MPI.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <mpi.h>

#include "trireme/comm/message/message_exchange.h"

namespace trireme::comm {

struct MpiConnections;

// Thread safety: MPI runs with MPI_THREAD_MULTIPLE; any thread may call any method.
class MpiChannel : public MessageChannel {
 public:
  // Both communicators have the same ranks and are used by this channel only. `data` carries the
  // blocks, `control` the words between ranks. They are never freed, because MPI_Comm_free is
  // collective and ranks leave groups in any order; MPI_Finalize frees them. `has_core_each`:
  // whether all ranks of this host can run at once. If not, they yield while they wait.
  MpiChannel(MPI_Comm data, MPI_Comm control, bool has_core_each);
  ~MpiChannel() override;

  int rank() const override;
  int size() const override;
  const std::string& transport() const override;

  ChannelMessagePtr send(const void* data, size_t num_bytes, int peer, int tag) override;
  ChannelMessagePtr recv(void* data, size_t num_bytes, int peer, int tag) override;
  void leave_word(const std::string& reason) noexcept override;
  std::string word_left() noexcept override;
  void close() noexcept override;
  // Throws: std::exception when a member has not come within `timeout`
  std::unique_ptr<MessageChannel> split(const std::string& uid, const std::vector<int>& members,
                                        std::chrono::milliseconds timeout) override;

 private:
  std::shared_ptr<MpiConnections> connections_;  // messages may outlive the channel
};

// Throws: std::runtime_error with MPI's text unless `code` is MPI_SUCCESS
void check_mpi(int code);

}  // namespace trireme::comm
