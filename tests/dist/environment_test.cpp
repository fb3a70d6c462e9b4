// What launchers say of a rank: which of them is believed, and what is refused.
#include "dist/environment.h"

#include <gtest/gtest.h>
#include <map>
#include <unistd.h>

#include "support/values.h"

namespace sinter::dist {
namespace {

using Given = std::map<std::string, std::string>;

std::optional<RankInfo> rank_in(const Given& given) {
  return rank_from([&](const char* name) -> std::optional<std::string> {
    auto found = given.find(name);
    return found == given.end() ? std::nullopt : std::optional(found->second);
  });
}

Given with(Given given, const Given& more) {
  for (const auto& [name, value] : more) given[name] = value;
  return given;
}

const Given torchrun = {{"RANK", "5"},
                        {"WORLD_SIZE", "8"},
                        {"LOCAL_RANK", "1"},
                        {"LOCAL_WORLD_SIZE", "4"},
                        {"MASTER_ADDR", "node0"},
                        {"MASTER_PORT", "29500"}};
const Given flags = {{"--rank", "1"}, {"--world-size", "3"}, {"--master-addr", "node1"}, {"--master-port", "29600"}};
const Given open_mpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                        {"OMPI_COMM_WORLD_SIZE", "2"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                        {"PMIX_NAMESPACE", "1338900481"}};
const Given pmi = {{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "3"}};
const Given slurm = {{"SLURM_PROCID", "6"},  {"SLURM_NTASKS", "7"},  {"SLURM_LOCALID", "0"},
                     {"SLURM_NODEID", "3"},  {"SLURM_NNODES", "4"},  {"SLURM_TASKS_PER_NODE", "2(x3),1"},
                     {"SLURM_JOB_ID", "42"}, {"SLURM_STEP_ID", "0"}, {"MASTER_ADDR", "node0"}};

TEST(DistEnvironment, NamesTheRankAsTheFirstCompleteSetSays) {
  struct Case {
    const char* what;
    Given given;
    const char* launcher;
    int rank, size, local_rank, local_size;
    const char* address;
  };
  const Case cases[] = {
      {"torchrun", torchrun, "torchrun's variables", 5, 8, 1, 4, "node0"},
      {"by hand",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1"}},
       "torchrun's variables",
       1,
       2,
       1,
       2,
       "127.0.0.1"},
      {"one GPU visible to each", with(torchrun, {{"LOCAL_RANK", "0"}}), "torchrun's variables", 5, 8, 0, 4, "node0"},
      {"alone", {{"RANK", "0"}, {"WORLD_SIZE", "1"}}, "torchrun's variables", 0, 1, 0, 1, "127.0.0.1"},
      {"one host, by its name", with(torchrun, {{"LOCAL_WORLD_SIZE", "8"}}), "torchrun's variables", 5, 8, 1, 8,
       "127.0.0.1"},
      {"one host, an address", with(torchrun, {{"LOCAL_WORLD_SIZE", "8"}, {"MASTER_ADDR", "192.0.2.7"}}),
       "torchrun's variables", 5, 8, 1, 8, "192.0.2.7"},
      {"Open MPI", open_mpi, "Open MPI", 1, 2, 1, 2, "127.0.0.1"},
      {"PMI", pmi, "PMI", 2, 3, 2, 3, "127.0.0.1"},
      {"Slurm", slurm, "Slurm", 6, 7, 0, 1, "node0"},
      {"Slurm's second host", with(slurm, {{"SLURM_PROCID", "3"}, {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "1"}}),
       "Slurm", 3, 7, 1, 2, "node0"},
      {"a step of fewer hosts than the job", with(slurm, {{"SLURM_STEP_TASKS_PER_NODE", "7"}, {"SLURM_NODEID", "0"}}),
       "Slurm", 6, 7, 0, 7, "127.0.0.1"},
      {"PMI of Slurm", with(slurm, {{"PMI_RANK", "6"}, {"PMI_SIZE", "7"}}), "PMI", 6, 7, 0, 1, "node0"},
      {"launch under mpirun", with(open_mpi, torchrun), "torchrun's variables", 5, 8, 1, 4, "node0"},
      {"mpirun in a Slurm job", with(slurm, open_mpi), "Open MPI", 1, 2, 1, 2, "127.0.0.1"},
      {"flags under mpirun", with(open_mpi, flags), "flags", 1, 3, 1, 3, "node1"},
      {"flags under torchrun", with(torchrun, flags), "flags", 1, 3, 1, 3, "node1"},
      {"flags in a Slurm step", with(slurm, flags), "flags", 1, 3, 1, 3, "node1"},
      {"flags that leave something to variables",
       {{"--rank", "0"}, {"--world-size", "2"}, {"MASTER_ADDR", "node2"}, {"MASTER_PORT", "7"}},
       "flags",
       0,
       2,
       0,
       2,
       "node2"},
      {"alone, by flags", {{"--rank", "0"}, {"--world-size", "1"}}, "flags", 0, 1, 0, 1, "127.0.0.1"},
      {"half a set before a whole one", with(open_mpi, {{"WORLD_SIZE", "9"}}), "Open MPI", 1, 2, 1, 2, "127.0.0.1"},
      {"an empty one is none", with(open_mpi, {{"RANK", ""}}), "Open MPI", 1, 2, 1, 2, "127.0.0.1"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    std::optional<RankInfo> me = rank_in(c.given);
    ASSERT_TRUE(me);
    EXPECT_EQ(me->launcher, c.launcher);
    EXPECT_EQ(me->rank, c.rank);
    EXPECT_EQ(me->size, c.size);
    EXPECT_EQ(me->local_rank, c.local_rank);
    EXPECT_EQ(me->local_size, c.local_size);
    EXPECT_EQ(me->address, c.address);
  }
}

TEST(DistEnvironment, IsAloneWithoutALauncher) {
  EXPECT_FALSE(rank_in({}));
  EXPECT_FALSE(rank_in({{"LOCAL_RANK", "0"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}}));
  // A batch script, an interactive shell of Slurm, and what older releases call a batch script.
  for (const char* step : {"", "4294967290", "batch", "-5"})
    EXPECT_FALSE(rank_in(with(slurm, {{"SLURM_STEP_ID", step}}))) << step;
}

TEST(DistEnvironment, RefusesWhatCannotBe) {
  struct Case {
    Given given;
    std::vector<std::string> words;
  };
  const Given torchrun_without_address = with(torchrun, {{"MASTER_ADDR", ""}});
  const Case cases[] = {
      {{{"RANK", "3"}}, {"RANK=3", "WORLD_SIZE is not set", "set both"}},
      {{{"WORLD_SIZE", "4"}}, {"WORLD_SIZE=4", "RANK is not set"}},
      {{{"OMPI_COMM_WORLD_RANK", "1"}}, {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE is not set"}},
      {{{"PMI_SIZE", "2"}}, {"PMI_SIZE=2", "PMI_RANK is not set"}},
      {with(slurm, {{"SLURM_NTASKS", ""}}), {"SLURM_PROCID=6", "SLURM_NTASKS is not set"}},
      {with(torchrun, {{"RANK", "one"}}), {"RANK=one", "whole number", "correct it"}},
      {with(torchrun, {{"RANK", "1 "}}), {"RANK=1 ", "whole number"}},
      {with(torchrun, {{"RANK", "99999999999"}}), {"RANK=99999999999", "whole number"}},
      {with(torchrun, {{"RANK", "-1"}}), {"RANK=-1", "from 0"}},
      {with(torchrun, {{"WORLD_SIZE", "0"}}), {"WORLD_SIZE=0", "from 1"}},
      {with(torchrun, {{"RANK", "8"}}), {"RANK=8", "WORLD_SIZE=8", "counted from 0"}},
      {with(torchrun, {{"LOCAL_RANK", "4"}}), {"LOCAL_RANK=4", "4 ranks", "LOCAL_WORLD_SIZE"}},
      {with(torchrun, {{"LOCAL_RANK", "x"}}), {"LOCAL_RANK=x", "whole number"}},
      {with(torchrun, {{"LOCAL_WORLD_SIZE", "9"}}), {"9 ranks", "LOCAL_WORLD_SIZE", "WORLD_SIZE=8"}},
      {with(torchrun, {{"MASTER_PORT", "0"}}), {"MASTER_PORT=0", "between 1 and 65535"}},
      {with(torchrun, {{"MASTER_PORT", "65536"}}), {"MASTER_PORT=65536", "between 1 and 65535"}},
      {with(torchrun, {{"MASTER_PORT", "http"}}), {"MASTER_PORT=http", "between 1 and 65535"}},
      {with(torchrun, {{"MASTER_PORT", ""}}), {"set MASTER_PORT", "sinter launch"}},
      {torchrun_without_address, {"several hosts", "set MASTER_ADDR"}},
      {with(open_mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}),
       {"several hosts", "Open MPI", "set MASTER_ADDR"}},
      {with(slurm, {{"MASTER_ADDR", ""}}), {"several hosts", "Slurm", "set MASTER_ADDR"}},
      {with(slurm, {{"MASTER_ADDR", ""}, {"SLURM_TASKS_PER_NODE", ""}}), {"several hosts", "set MASTER_ADDR"}},
      {with(slurm, {{"SLURM_TASKS_PER_NODE", "2(x3"}}), {"SLURM_TASKS_PER_NODE=2(x3", "2(x3),1"}},
      {with(slurm, {{"SLURM_TASKS_PER_NODE", "2,,1"}}), {"SLURM_TASKS_PER_NODE=2,,1", "2(x3),1"}},
      {with(slurm, {{"SLURM_NODEID", "4"}}), {"lists 4 hosts", "SLURM_NODEID=4"}},
      {with(open_mpi, {{"--rank", "1"}}), {"--world-size is missing", "give both"}},
      {with(open_mpi, {{"--world-size", "2"}}), {"--rank is missing", "give both"}},
      {with(open_mpi, {{"--master-port", "29600"}}), {"--rank is missing", "none of", "--master-port"}},
      {with(flags, {{"--rank", "3"}}), {"--rank=3", "--world-size=3", "counted from 0"}},
      {with(flags, {{"--rank", "one"}}), {"--rank=one", "whole number", "leave it out"}},
      {with(flags, {{"--master-port", "0"}, {"MASTER_PORT", "1"}}), {"--master-port=0", "between 1 and 65535"}},
      {with(flags, {{"--master-port", ""}}), {"3 ranks (flags)", "set --master-port", "sinter launch"}},
      {with(flags, {{"--master-port", ""}, {"MASTER_PORT", "x"}}), {"MASTER_PORT=x", "between 1 and 65535"}},
      {with(slurm, {{"SLURM_LOCALID", "1"}}), {"SLURM_LOCALID=1", "1 ranks", "SLURM_TASKS_PER_NODE"}},
  };
  for (const Case& c : cases) {
    std::string text = error_of(ErrorKind::usage, [&] { rank_in(c.given); });
    EXPECT_TRUE(mentions(text, c.words)) << text;
  }
}

TEST(DistEnvironment, KnowsThePortsToTry) {
  EXPECT_EQ(rank_in(torchrun)->ports, std::vector<int>{29500});
  EXPECT_EQ(rank_in(with(torchrun, with(flags, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})))->ports,
            std::vector<int>{29600});
  EXPECT_EQ(rank_in(with(open_mpi, {{"MASTER_PORT", "400"}}))->ports, std::vector<int>{400});
  auto beside_agent = [](const char* port) {
    return rank_in(with(torchrun, {{"MASTER_PORT", port}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}}))->ports;
  };
  std::vector<int> ports = beside_agent("29500");
  ASSERT_EQ(ports.size(), 16u);
  EXPECT_EQ(ports.front(), 29501);
  EXPECT_EQ(ports.back(), 29516);
  ports = beside_agent("65534");
  EXPECT_EQ(ports[0], 65535);
  EXPECT_EQ(ports[1], 1024);
  EXPECT_EQ(beside_agent("80")[0], 1024);
  EXPECT_EQ(rank_in(with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}))->ports, std::vector<int>{29500});

  ports = rank_in(open_mpi)->ports;
  EXPECT_EQ(ports.size(), 16u);
  for (int port : ports) EXPECT_TRUE(port >= 20000 && port < 31000) << port;
  EXPECT_EQ(rank_in(with(open_mpi, {{"OMPI_COMM_WORLD_RANK", "0"}}))->ports, ports) << "all ranks try the same";
  EXPECT_NE(rank_in(with(open_mpi, {{"PMIX_NAMESPACE", "7"}}))->ports, ports);
}

TEST(DistEnvironment, TellsJobsApart) {
  const Given same[] = {flags, torchrun, open_mpi, pmi, slurm};
  for (const Given& given : same) {
    std::string job = rank_in(given)->job;
    EXPECT_TRUE(mentions(job, {std::to_string(getuid())}));
    for (const char* rank : {"--rank", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"})
      if (given.count(rank)) {
        EXPECT_EQ(rank_in(with(given, {{rank, "0"}}))->job, job);
      }
  }
  const std::pair<Given, Given> different[] = {{flags, {{"--master-port", "29601"}}},
                                               {torchrun, {{"MASTER_PORT", "29501"}}},
                                               {torchrun, {{"TORCHELASTIC_RUN_ID", "other"}}},
                                               {open_mpi, {{"PMIX_NAMESPACE", "other"}}},
                                               {pmi, {{"PMI_JOBID", "other"}}},
                                               {slurm, {{"SLURM_JOB_ID", "43"}}},
                                               {slurm, {{"SLURM_STEP_ID", "1"}}},
                                               {open_mpi, {{"PMIX_NAMESPACE", ""}, {"OMPI_MCA_ess_base_jobid", "9"}}}};
  for (const auto& [given, change] : different) EXPECT_NE(rank_in(given)->job, rank_in(with(given, change))->job);
}

TEST(DistEnvironment, KnowsSecretAndHost) {
  EXPECT_EQ(rank_in(torchrun)->secret, "");
  EXPECT_EQ(rank_in(with(torchrun, {{"SINTER_SECRET", "psst"}}))->secret, "psst");
  EXPECT_EQ(rank_in(with(torchrun, {{"SINTER_HOSTID", "left"}}))->host, "left");
  EXPECT_EQ(rank_in(torchrun)->host, rank_in(open_mpi)->host);
  EXPECT_GT(rank_in(torchrun)->host.size(), 1u);
}

TEST(DistEnvironment, ReadsTheProcessEnvironment) {
  setenv("SINTER_TEST_VARIABLE", "here", 1);
  EXPECT_EQ(process_environment()("SINTER_TEST_VARIABLE"), "here");
  unsetenv("SINTER_TEST_VARIABLE");
  EXPECT_EQ(process_environment()("SINTER_TEST_VARIABLE"), std::nullopt);
}

}  // namespace
}  // namespace sinter::dist
