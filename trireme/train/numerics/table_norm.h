// The part of embedding tables in the gradient norm. A row's squares are summed in double and in a
// fixed order, and the rows' sums without rounding, so that the norm has the same bits whichever
// rank has which rows or columns.
#pragma once

#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/embedding/embedding_tables.h"

namespace trireme::train::inline internal {

// The sum of squares of each table's gradient since the last step. The same on every rank. NaN when
// a gradient is not finite.
// group: the ranks of the tables, or ranks among which they are all
// Comm:       EmbeddingTables::gradient_squares(); then 568 bytes per table, all-reduced
// Collective: every rank of `group`
std::vector<double> table_squares(const parallel::EmbeddingTables& tables,
                                  comm::Communicator& group);

}  // namespace trireme::train::inline internal
