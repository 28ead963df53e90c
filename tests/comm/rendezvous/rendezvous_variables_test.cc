#include "trireme/comm/rendezvous/rendezvous_variables.h"

#include <cstdlib>
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/comm/errors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

// Clears the variables of every launcher, sets those of a job, and puts back what was there.
class RendezvousVariables : public testing::Test {
 protected:
  void SetUp() override {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      const std::string name = text.substr(0, text.find('='));
      for (const char* prefix :
           {"RANK", "WORLD_SIZE", "LOCAL_", "TRIREME_JOB", "TRIREME_STORE", "TRIREME_LAUNCH",
            "TRIREME_LISTEN", "MASTER_", "OMPI_", "PMIX_", "SLURM_", "TORCHELASTIC_", "GLOO_"}) {
        if (name.starts_with(prefix)) before_[name] = text.substr(name.size() + 1);
      }
    }
    for (const auto& [name, _] : before_) unsetenv(name.c_str());
  }
  void TearDown() override {
    for (const auto& [name, _] : set_) unsetenv(name.c_str());
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }
  void set(const std::map<std::string, std::string>& variables) {
    for (const auto& [name, value] : variables) {
      set_[name] = value;
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  void set_torchrun() {
    set({{"RANK", "1"},
         {"WORLD_SIZE", "4"},
         {"LOCAL_RANK", "1"},
         {"LOCAL_WORLD_SIZE", "4"},
         {"TRIREME_JOB", "galley"}});
  }

 private:
  std::map<std::string, std::string> before_, set_;
};

TEST_F(RendezvousVariables, KnowWhatMakesAProcessARank) {
  set_torchrun();
  set({{"OMPI_COMM_WORLD_SIZE", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}});
  EXPECT_TRUE(is_launched());
  for (char** entry = environ; *entry != nullptr;) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    is_rank_variable(name) ? static_cast<void>(unsetenv(name.c_str())) : static_cast<void>(++entry);
  }
  EXPECT_FALSE(is_launched());
  for (const char* name : {"PATH", "HOME", "SLURM_JOB_ID", "GLOO_SOCKET_IFNAME", "TRIREME_EVENT"}) {
    EXPECT_FALSE(is_rank_variable(name)) << name;
  }
}

TEST_F(RendezvousVariables, KnowWhetherALauncherStartedThisRank) {
  EXPECT_FALSE(is_launched());
  set({{"SLURM_JOB_ID", "4711"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}});
  EXPECT_FALSE(is_launched()) << "a batch script, which calls srun itself";
  set({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  EXPECT_FALSE(is_launched()) << "srun --pty bash";
  set({{"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_LOCALID", "0"}, {"SLURM_STEP_NODELIST", "node7"}});
  EXPECT_TRUE(is_launched());
  EXPECT_EQ(world_info().size, 3) << "of the step, not of the job";
}

TEST_F(RendezvousVariables, MayCountPods) {
  EXPECT_FALSE(counts_pods());
  set({{"WORLD_SIZE", "2"}, {"RANK", "1"}});
  EXPECT_TRUE(counts_pods());
  set({{"LOCAL_RANK", "0"}});
  EXPECT_FALSE(counts_pods());
}

TEST_F(RendezvousVariables, OfTorchrunAndOpenMpiMeanALaunchedRank) {
  set({{"OMPI_COMM_WORLD_SIZE", "1"}});
  EXPECT_TRUE(is_launched());
  set({{"OMPI_COMM_WORLD_SIZE", ""}, {"WORLD_SIZE", "1"}});
  EXPECT_TRUE(is_launched());
}

TEST_F(RendezvousVariables, ReadsTorchrunsVariables) {
  set_torchrun();
  const WorldInfo info = world_info();
  EXPECT_EQ(info.rank, 1);
  EXPECT_EQ(info.size, 4);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.local_size, 4);
  EXPECT_EQ(info.job, "galley");
  EXPECT_EQ(info.store, "");
  EXPECT_TRUE(info.is_one_host);
}

TEST_F(RendezvousVariables, MasterAddressAndPortAreAStore) {
  set_torchrun();
  unsetenv("TRIREME_JOB");
  set({{"MASTER_ADDR", "127.0.0.1"}});
  EXPECT_ERROR(ConfigError, world_info(), "MASTER_PORT are not set");
  set({{"MASTER_PORT", "29500"}});
  const WorldInfo info = world_info();
  EXPECT_EQ(info.job, "");
  EXPECT_EQ(info.store, "tcp://127.0.0.1:29500");
  EXPECT_EQ(info.listen, "");
  EXPECT_FALSE(info.is_one_host);
  EXPECT_FALSE(info.launcher_serves_store);
  set({{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RUN_ID", "none"}});
  EXPECT_TRUE(world_info().launcher_serves_store);
  EXPECT_EQ(world_info().job, "torchrun-none-0");
  set({{"TORCHELASTIC_RESTART_COUNT", "2"}, {"TRIREME_LISTEN", "0.0.0.0"}});
  EXPECT_EQ(world_info().job, "torchrun-none-2");
  EXPECT_EQ(world_info().listen, "0.0.0.0");
}

TEST_F(RendezvousVariables, AStoreIsBelievedBeforeTheUsersName) {
  set_torchrun();
  EXPECT_TRUE(world_info().is_one_host) << "the user's word, where there is no other";
  set({{"TRIREME_STORE", "file:/shared/meet"}});
  EXPECT_EQ(world_info().job, "galley");
  EXPECT_FALSE(world_info().is_one_host);
  unsetenv("TRIREME_STORE");
  set({{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}});
  EXPECT_FALSE(world_info().is_one_host);
}

TEST_F(RendezvousVariables, ALaunchsOwnNameIsBelievedInItsRanksAlone) {
  const std::string launch = "0123456789abcdef0123456789abcdef";
  const std::string store = "file:/tmp/trireme-" + launch + ".store";
  set_torchrun();
  set({{"TRIREME_JOB", launch},
       {"TRIREME_LAUNCH", launch},
       {"TRIREME_STORE", store},
       {"MASTER_ADDR", "127.0.0.1"},
       {"MASTER_PORT", "29500"}});
  EXPECT_TRUE(world_info().is_one_host);
  EXPECT_EQ(world_info().job, launch);
  EXPECT_EQ(world_info().store, store);
  // torchrun, started from one of its ranks: two of them are two jobs.
  set({{"TORCHELASTIC_RUN_ID", "none"}});
  EXPECT_FALSE(world_info().is_one_host);
  EXPECT_EQ(world_info().job, "torchrun-none-0");
  EXPECT_EQ(world_info().store, "tcp://127.0.0.1:29500");
  // A user's names in there count.
  set({{"TRIREME_JOB", "galley"}, {"TRIREME_STORE", "file:/shared/meet"}});
  EXPECT_FALSE(world_info().is_one_host);
  EXPECT_EQ(world_info().job, "galley");
  EXPECT_EQ(world_info().store, "file:/shared/meet");
}

TEST_F(RendezvousVariables, MissingVariablesAreNamed) {
  set_torchrun();
  for (const std::string name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
    const std::string value = std::getenv(name.c_str());
    unsetenv(name.c_str());
    EXPECT_ERROR(ConfigError, world_info(), "environment variable " + name + " is not set");
    setenv(name.c_str(), value.c_str(), 1);
  }
}

TEST_F(RendezvousVariables, MalformedValuesAreNamedWithWhatIsExpected) {
  set_torchrun();
  for (const std::string value : {"two", "-1", "1x", " 1", "99999999999"}) {
    setenv("RANK", value.c_str(), 1);
    EXPECT_ERROR(ConfigError, world_info(),
                 "RANK is \"" + value + "\"; expected a whole number from 0 on");
  }
  setenv("RANK", "4", 1);
  EXPECT_ERROR(ConfigError, world_info(), "RANK is 4; expected below WORLD_SIZE = 4");
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "0", 1);
  EXPECT_ERROR(ConfigError, world_info(), "WORLD_SIZE is \"0\"; expected a whole number from 1 on");
}

TEST_F(RendezvousVariables, WithoutALauncherThereIsNoWorldOfOne) {
  EXPECT_ERROR(ConfigError, world_info(), "environment variable RANK is not set");
}

TEST_F(RendezvousVariables, AFileMayBeTheStore) {
  set_torchrun();
  set({{"TRIREME_STORE", "file:/shared/meet"}, {"GLOO_SOCKET_IFNAME", "ib0"}});
  EXPECT_EQ(world_info().store, "file:/shared/meet");
  EXPECT_EQ(world_info().interface, "ib0");
  unsetenv("TRIREME_JOB");
  EXPECT_EQ(world_info().job, "");
  set({{"TRIREME_STORE", "/shared/meet"}});
  EXPECT_ERROR(ConfigError, world_info(), "TRIREME_STORE is \"/shared/meet\"; expected file:PATH");
}

TEST_F(RendezvousVariables, ReadsOpenMpis) {
  set({{"OMPI_COMM_WORLD_RANK", "2"},
       {"OMPI_COMM_WORLD_SIZE", "4"},
       {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
       {"PMIX_NAMESPACE", "3087007745"}});
  const WorldInfo info = world_info();
  EXPECT_EQ(info.rank, 2);
  EXPECT_EQ(info.size, 4);
  EXPECT_EQ(info.local_rank, 2);
  EXPECT_EQ(info.local_size, 4);
  EXPECT_EQ(info.job, "mpirun-3087007745");
  EXPECT_TRUE(info.store.starts_with("tcp://127.0.0.1:")) << info.store;
  set({{"PMIX_NAMESPACE", "3087007746"}});
  EXPECT_NE(world_info().store, info.store);
  set({{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_ERROR(ConfigError, world_info(),
               "mpirun started 2 of 4 ranks on this host; expected the host of rank 0");
  set({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "1234"}});
  EXPECT_EQ(world_info().store, "tcp://node1:1234");
  unsetenv("OMPI_COMM_WORLD_LOCAL_RANK");
  EXPECT_ERROR(ConfigError, world_info(), "OMPI_COMM_WORLD_LOCAL_RANK is not set");
}

TEST_F(RendezvousVariables, ReadsSlurms) {
  set({{"SLURM_PROCID", "5"},
       {"SLURM_NTASKS", "7"},
       {"SLURM_LOCALID", "1"},
       {"SLURM_NODEID", "2"},
       {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
       {"SLURM_STEP_NODELIST", "node[003-010,12],login1"},
       {"SLURM_JOB_ID", "4711"}});
  const WorldInfo info = world_info();
  EXPECT_EQ(info.rank, 5);
  EXPECT_EQ(info.size, 7);
  EXPECT_EQ(info.local_rank, 1);
  EXPECT_EQ(info.local_size, 2);
  EXPECT_EQ(info.job, "slurm-4711.");
  EXPECT_TRUE(info.store.starts_with("tcp://node003:")) << info.store;
  const int port = std::stoi(info.store.substr(info.store.rfind(':') + 1));
  EXPECT_GE(port, 16384);
  EXPECT_LT(port, 32768);
  EXPECT_EQ(world_info().store, info.store);
  set({{"SLURM_STEP_ID", "1"}});
  EXPECT_NE(world_info().store, info.store);
  set({{"MASTER_PORT", "1234"}, {"SLURM_NODEID", "3"}});
  for (const auto& [list, host] : std::map<std::string, std::string>{{"one", "one"},
                                                                     {"one,two", "one"},
                                                                     {"n[7]", "n7"},
                                                                     {"n[07,09]-ib,m", "n07-ib"},
                                                                     {"a,n[1-2]", "a"}}) {
    set({{"SLURM_STEP_NODELIST", list}});
    EXPECT_EQ(world_info().store, "tcp://" + host + ":1234");
  }
  EXPECT_EQ(world_info().local_size, 1);
  set({{"SLURM_NODEID", "4"}});
  EXPECT_ERROR(ConfigError, world_info(), "SLURM_NODEID is 4; expected below the 4 nodes");
  set({{"SLURM_NODEID", "0"}});
  for (const std::string text : {"two", "2(x", "2(x3", "2,,1", "-1"}) {
    set({{"SLURM_STEP_TASKS_PER_NODE", text}});
    EXPECT_ERROR(ConfigError, world_info(), "SLURM_STEP_TASKS_PER_NODE is \"" + text + "\"");
  }
}

TEST_F(RendezvousVariables, SlurmsRanksOfOneNodeMeetOnIt) {
  set({{"SLURM_PROCID", "1"},
       {"SLURM_STEP_NUM_TASKS", "4"},
       {"SLURM_LOCALID", "1"},
       {"SLURM_NODEID", "0"},
       {"SLURM_STEP_TASKS_PER_NODE", "4"},
       {"SLURM_STEP_NODELIST", "node7"},
       {"SLURM_JOB_ID", "4711"}});
  EXPECT_TRUE(world_info().store.starts_with("tcp://127.0.0.1:")) << world_info().store;
  set({{"MASTER_ADDR", "node7"}});
  EXPECT_TRUE(world_info().store.starts_with("tcp://node7:")) << world_info().store;
}

TEST_F(RendezvousVariables, TorchrunsComeFirst) {
  set({{"SLURM_PROCID", "5"}, {"OMPI_COMM_WORLD_RANK", "3"}});
  set_torchrun();
  EXPECT_EQ(world_info().rank, 1);
}

}  // namespace
}  // namespace trireme::comm
