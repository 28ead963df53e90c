// A run of three steps in a folder of its own, for tests.
#pragma once

#include <filesystem>
#include <string>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/file/file.h"
#include "trireme/watch/run/run_list.h"

namespace trireme::watch {

struct SmallRun {
  SmallRun() {
    put("config.toml", "[train]\nsteps = 3\n[parallel]\ndata = 2\n");
    put("metrics.jsonl",
        "{\"step\":1,\"loss\":3,\"tokens_per_second\":10,\"time\":1000.5,\"tokens_per_expert\":[1,"
        "2]}"
        "\n{\"step\":2,\"loss\":null,\"</"
        "script><b>\":1}\n{\"step\":3,\"loss\":1.25}\n{\"step\":4,");
    put("events.jsonl",
        "{\"time\":\"2026-11-25T07:00:00.000000Z\",\"event\":\"start\",\"epoch\":1,\"step\":0,"
        "\"text\":\"</script>\"}\n");
    std::filesystem::create_directories(folder / "logs");
    put("logs/rank-00000.log",
        "2026-11-25T07:00:01.000000Z 1 5 out| hello\n2026-11-25T07:00:02.000000Z 1 5 err| there\n");
    std::filesystem::create_directories(folder / "profile");
    put("profile/trace.json", "{\"traceEvents\":[]}");
  }
  void put(const std::string& name, const std::string& text) {
    OutputFile(folder / name).write(text);
  }
  RunList& runs() {
    if (!list) list = std::make_unique<RunList>(std::vector{folder.path()});
    while (list->update(std::chrono::seconds(10))) {
    }
    return *list;
  }

  harness::TemporaryFolder folder;
  std::unique_ptr<RunList> list;
};

}  // namespace trireme::watch
