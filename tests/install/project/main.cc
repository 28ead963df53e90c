#include <cstdio>

#include <trireme/base/error.h>
#include <trireme/mesh/layout.h>

int main() {
  using trireme::mesh::Placement;
  const trireme::mesh::Layout layout({4, 3}, {{"data", 2}}, {Placement::sharded(0)});
  const trireme::mesh::Box box = layout.local_box(1);
  try {
    trireme::mesh::parse_placement("split");
    return 1;
  } catch (const trireme::ConfigError&) {
  }
  std::printf("rank 1 holds rows %d to %d\n", static_cast<int>(box.offset[0]),
              static_cast<int>(box.offset[0] + box.size[0] - 1));
}
