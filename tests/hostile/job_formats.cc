// Lists of hosts, as schedulers give them in variables and files.
#include "tests/hostile/format.h"
#include "trireme/comm/rendezvous/launcher_values.h"
#include "trireme/launch/jobs/host_file.h"

namespace trireme::hostile {
namespace {

class Hosts : public Format {
 public:
  explicit Hosts(std::filesystem::path folder) : path_(std::move(folder) / "hosts") {}
  std::string name() const override { return "hosts"; }

  void write(Random& random) override {
    list_ = "node[003-010,12]-ib,rack[1-2]n[01-40],login1";
    counts_ = "2(x3),1,16(x100)";
    pairs_ = "hosta 4 hostb 8 ";
    file_ = "# ours\nhosta slots=4 max_slots=8\nhostb\nhostb\r\nhostc 2\n";
    for (std::string* text : {&list_, &counts_, &pairs_, &file_}) {
      if (!random.one_in(4)) damage_text(*text, random);
    }
    put_file(path_, file_);
  }

  void read() override {
    expect_refusal_or_sense([&] {
      const auto hosts = comm::expand_hosts("SLURM_JOB_NODELIST", list_);
      require(!hosts.empty() && hosts.size() <= comm::kMaxJobHosts, "a wrong number of hosts");
      for (const std::string& host : hosts) require(!host.empty(), "a host without a name");
    });
    expect_refusal_or_sense([&] {
      const auto counts = comm::expand_counts("SLURM_TASKS_PER_NODE", counts_);
      require(!counts.empty() && counts.size() <= comm::kMaxJobHosts, "a wrong number of counts");
    });
    expect_refusal_or_sense([&] { use(launch::count_host_pairs("LSB_MCPU_HOSTS", pairs_)); });
    expect_refusal_or_sense([&] { use(launch::count_hosts("LSB_HOSTS", pairs_)); });
    expect_refusal_or_sense([&] { use(launch::read_host_file("PBS_NODEFILE", path_)); });
  }

 private:
  void use(const std::vector<launch::JobHost>& hosts) const {
    require(!hosts.empty() && hosts.size() <= comm::kMaxJobHosts, "a wrong number of hosts");
    for (const launch::JobHost& host : hosts) {
      require(!host.name.empty() && host.slots >= 0, "a host without a name or with slots below 0");
    }
    expect_refusal_or_sense([&] {
      const int index = launch::index_of_host("PBS_NODEFILE", path_.string(), hosts, "hostb");
      require(index >= 0 && index < static_cast<int>(hosts.size()), "an index out of range");
    });
  }

  std::filesystem::path path_;
  std::string list_, counts_, pairs_, file_;
};

}  // namespace

void add_job_formats(Formats& formats, const std::filesystem::path& folder) {
  formats.push_back(std::make_unique<Hosts>(folder / "hosts"));
}

}  // namespace trireme::hostile
