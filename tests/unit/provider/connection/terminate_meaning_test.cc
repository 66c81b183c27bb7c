// SPDX-License-Identifier: MIT
// What a Terminate means to the program: every layer, type and code of RFC 5040 section 4.8 (figure 9), RFC 5041
// section 7 and RFC 5044 section 8.
#include "provider/connection/terminate_meaning.h"
#include "rdmap/terminate.h"

#include <catch2/catch.hpp>

using namespace uiw;

TEST_CASE("terminate: what the request completes with, and which event the finder of the error gets", "[stream]") {
  using Status = rdmap::Status;
  const auto [layer, type, code, status, event] = GENERATE(table<unsigned, unsigned, unsigned, Status, ibv_event_type>({
      // RDMAP, remote protection errors
      {0, 1, 0x00, Status::remote_access, IBV_EVENT_QP_ACCESS_ERR},
      {0, 1, 0x01, Status::remote_access, IBV_EVENT_QP_ACCESS_ERR},
      {0, 1, 0x02, Status::remote_access, IBV_EVENT_QP_ACCESS_ERR},
      {0, 1, 0x09, Status::remote_access, IBV_EVENT_QP_ACCESS_ERR},
      {0, 1, 0xFF, Status::remote_access, IBV_EVENT_QP_ACCESS_ERR},
      // RDMAP, remote operation errors
      {0, 2, 0x05, Status::remote_operation, IBV_EVENT_QP_REQ_ERR},
      {0, 2, 0x06, Status::remote_invalid_request, IBV_EVENT_QP_REQ_ERR},
      {0, 2, 0x07, Status::remote_operation, IBV_EVENT_QP_REQ_ERR},
      {0, 2, 0xFF, Status::remote_operation, IBV_EVENT_QP_REQ_ERR},
      // DDP: catastrophic, tagged, untagged
      {1, 0, 0x00, Status::remote_operation, IBV_EVENT_QP_REQ_ERR},
      {1, 1, 0x00, Status::remote_access, IBV_EVENT_QP_ACCESS_ERR},
      {1, 1, 0x01, Status::remote_access, IBV_EVENT_QP_ACCESS_ERR},
      {1, 2, 0x01, Status::remote_invalid_request, IBV_EVENT_QP_REQ_ERR},
      {1, 2, 0x05, Status::remote_invalid_request, IBV_EVENT_QP_REQ_ERR},
      // MPA
      {2, 0, 0x02, Status::fatal, IBV_EVENT_QP_FATAL},
      {2, 0, 0x07, Status::fatal, IBV_EVENT_QP_FATAL},
  }));
  INFO("layer " << layer << ", type " << type << ", code " << code);
  rdmap::Terminate terminate;
  terminate.layer = static_cast<rdmap::Layer>(layer);
  terminate.type = static_cast<std::uint8_t>(type);
  terminate.code = static_cast<std::uint8_t>(code);
  CHECK(provider::completion_status_of(terminate) == status);
  CHECK(provider::event_of(terminate) == event);
}

TEST_CASE("terminate: those that a stream sends by itself", "[stream]") {
  const rdmap::Terminate crc = rdmap::terminate_for(mpa::MpaError::crc);
  CHECK(static_cast<unsigned>(crc.layer) == 2);
  CHECK(crc.type == 0);
  CHECK(crc.code == 2);
  const rdmap::Terminate closed = rdmap::terminate_for(rdmap::kCatastrophicStream);
  CHECK(static_cast<unsigned>(closed.layer) == 0);
  CHECK(closed.type == 2);
  CHECK(closed.code == 7);
}
