#include "tests/mutations/made.h"

namespace trireme::mutations {

Made& made() {
  static Made state;
  return state;
}

const Mutation* making(Mistake mistake) {
  const Mutation* const mutation = made().mutation;
  return mutation != nullptr && made().step > 0 && mutation->mistake == mistake ? mutation
                                                                                : nullptr;
}

}  // namespace trireme::mutations
