// SPDX-License-Identifier: MIT
#include "provider/verbs/qp/qp_common.h"

#include <exception>
#include <mutex>

#include "provider/verbs/context.h"

namespace uiw::provider {

QpCommon::QpCommon(Context& opened, Pd& domain, Cq& for_sends, Cq& for_receives, ibv_qp* of_program,
                   ibv_qp_type of_type)
    : QpIdentity(opened, domain, for_sends, for_receives, of_program, of_type),
      rnic(opened.device().transport == Transport::iwarp),
      connection(opened.engine(), find_connection) {}

void QpCommon::no_memory() noexcept {
  try {
    const std::lock_guard lock(connection.locks.receive);
    connection.end_without_memory();
  } catch (const std::exception&) {
  }
}

}  // namespace uiw::provider
