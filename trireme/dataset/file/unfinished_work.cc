#include "trireme/dataset/file/unfinished_work.h"

#include <exception>
#include <string>

#include "trireme/base/error.h"

namespace trireme::dataset {

void leaving_work(const UnfinishedWork& work, const std::function<void()>& run) {
  const bool was_there = work.has_journal();
  const auto keep = [&work](const std::exception& error) {
    work.release();
    return concat(error.what(), "; ", work.path.string(),
                  " keeps what was done: run the same command again when this is mended, or "
                  "remove it");
  };
  try {
    run();
  } catch (const ConfigError&) {
    if (was_there && work.has_journal()) work.release();
    throw;
  } catch (const CommError& error) {  // a store does not answer
    if (!work.has_journal()) throw;
    throw CommError(keep(error));
  } catch (const std::exception& error) {
    if (!work.has_journal()) throw;
    throw Error(keep(error));
  }
}

}  // namespace trireme::dataset
