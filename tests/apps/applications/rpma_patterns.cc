// SPDX-License-Identifier: MIT
// A program over librpma, which benchmarks.py compiles and runs: `server ADDRESS PORT` shows a block of memory to the
// caller, `client ADDRESS PORT` writes, flushes, writes eight octets atomically, reads back, and says by a message that
// the server may look. Both end with 0 and the word "right" where all data is as it should be.
#include <librpma.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr std::size_t kBlock = 1 << 20, kMessage = 64, kTooMuch = 512;
constexpr char kAtomic[9] = "together";

void must(int result, const char* what) {
  if (result == 0) return;
  std::fprintf(stderr, "%s: %s\n", what, rpma_err_2str(result));
  std::exit(1);
}

struct Memory {
  Memory(rpma_peer* peer, std::size_t size, int usage) {
    if (posix_memalign(reinterpret_cast<void**>(&octets), 4096, size) != 0) std::exit(1);
    std::memset(octets, 0, size);
    must(rpma_mr_reg(peer, octets, size, usage, &mr), "rpma_mr_reg");
  }
  ~Memory() {
    rpma_mr_dereg(&mr);
    std::free(octets);
  }
  char* octets = nullptr;
  rpma_mr_local* mr = nullptr;
};

rpma_peer* peer_for(const char* address, rpma_util_ibv_context_type type) {
  ibv_context* context = nullptr;
  must(rpma_utils_get_ibv_context(address, type, &context), "rpma_utils_get_ibv_context");
  rpma_peer* peer = nullptr;
  must(rpma_peer_new(context, &peer), "rpma_peer_new");
  return peer;
}

void event(rpma_conn* conn, rpma_conn_event wanted) {
  rpma_conn_event got = RPMA_CONN_UNDEFINED;
  must(rpma_conn_next_event(conn, &got), "rpma_conn_next_event");
  if (got == wanted) return;
  std::fprintf(stderr, "%s\n", rpma_utils_conn_event_2str(got));
  std::exit(1);
}

void complete(rpma_conn* conn, ibv_wc_opcode wanted) {
  rpma_cq* cq = nullptr;
  must(rpma_conn_get_cq(conn, &cq), "rpma_conn_get_cq");
  must(rpma_cq_wait(cq), "rpma_cq_wait");
  ibv_wc wc{};
  must(rpma_cq_get_wc(cq, 1, &wc, nullptr), "rpma_cq_get_wc");
  if (wc.status == IBV_WC_SUCCESS && wc.opcode == wanted) return;
  std::fprintf(stderr, "opcode %d: %s\n", wc.opcode, ibv_wc_status_str(wc.status));
  std::exit(1);
}

void close(rpma_conn* conn) {
  must(rpma_conn_disconnect(conn), "rpma_conn_disconnect");
  event(conn, RPMA_CONN_CLOSED);
  must(rpma_conn_delete(&conn), "rpma_conn_delete");
}

bool serve(const char* address, const char* port) {
  rpma_peer* peer = peer_for(address, RPMA_UTIL_IBV_CONTEXT_LOCAL);
  bool right;
  {
    const Memory block(peer, kBlock,
                       RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY);
    const Memory message(peer, kMessage, RPMA_MR_USAGE_RECV);
    std::size_t size = 0;
    must(rpma_mr_get_descriptor_size(block.mr, &size), "rpma_mr_get_descriptor_size");
    std::vector<char> descriptor(size);
    must(rpma_mr_get_descriptor(block.mr, descriptor.data()), "rpma_mr_get_descriptor");
    rpma_ep* listener = nullptr;
    must(rpma_ep_listen(peer, address, port, &listener), "rpma_ep_listen");
    rpma_conn_req* request = nullptr;
    must(rpma_ep_next_conn_req(listener, nullptr, &request), "rpma_ep_next_conn_req");
    must(rpma_conn_req_recv(request, message.mr, 0, kMessage, nullptr), "rpma_conn_req_recv");
    const rpma_conn_private_data data{descriptor.data(), static_cast<std::uint8_t>(size)};
    rpma_conn* conn = nullptr;
    must(rpma_conn_req_connect(&request, &data, &conn), "rpma_conn_req_connect");
    event(conn, RPMA_CONN_ESTABLISHED);
    complete(conn, IBV_WC_RECV);
    right = std::memcmp(message.octets, "look", 4) == 0 && std::memcmp(block.octets, kAtomic, 8) == 0;
    for (std::size_t i = 8; i < kBlock; ++i) right = right && block.octets[i] == static_cast<char>(i * 7);
    event(conn, RPMA_CONN_CLOSED);
    must(rpma_conn_disconnect(conn), "rpma_conn_disconnect");
    must(rpma_conn_delete(&conn), "rpma_conn_delete");
    must(rpma_ep_shutdown(&listener), "rpma_ep_shutdown");
  }
  must(rpma_peer_delete(&peer), "rpma_peer_delete");
  return right;
}

bool call(const char* address, const char* port) {
  rpma_peer* peer = peer_for(address, RPMA_UTIL_IBV_CONTEXT_REMOTE);
  bool right;
  {
    const Memory source(peer, kBlock, RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_SEND);
    const Memory back(peer, kBlock, RPMA_MR_USAGE_READ_DST);
    rpma_conn_req* request = nullptr;
    must(rpma_conn_req_new(peer, address, port, nullptr, &request), "rpma_conn_req_new");
    rpma_conn* conn = nullptr;
    must(rpma_conn_req_connect(&request, nullptr, &conn), "rpma_conn_req_connect");
    event(conn, RPMA_CONN_ESTABLISHED);
    rpma_conn_private_data data{};
    must(rpma_conn_get_private_data(conn, &data), "rpma_conn_get_private_data");
    rpma_mr_remote* remote = nullptr;
    // The RoCE view has room for more private data than the server has sent, as an adapter for RoCE has.
    std::size_t size = 0;
    must(rpma_mr_get_descriptor_size(source.mr, &size), "rpma_mr_get_descriptor_size");
    if (data.len < size || data.len > kTooMuch) std::exit(1);
    must(rpma_mr_remote_from_descriptor(data.ptr, size, &remote), "rpma_mr_remote_from_descriptor");

    for (std::size_t i = 0; i < kBlock; ++i) source.octets[i] = static_cast<char>(i * 7);
    must(rpma_write(conn, remote, 0, source.mr, 0, kBlock, RPMA_F_COMPLETION_ALWAYS, nullptr), "rpma_write");
    complete(conn, IBV_WC_RDMA_WRITE);
    must(rpma_flush(conn, remote, 0, kBlock, RPMA_FLUSH_TYPE_VISIBILITY, RPMA_F_COMPLETION_ALWAYS, nullptr),
         "rpma_flush");
    complete(conn, IBV_WC_RDMA_READ);
    must(rpma_atomic_write(conn, remote, 0, kAtomic, RPMA_F_COMPLETION_ALWAYS, nullptr), "rpma_atomic_write");
    complete(conn, IBV_WC_RDMA_WRITE);
    must(rpma_read(conn, back.mr, 0, remote, 0, kBlock, RPMA_F_COMPLETION_ALWAYS, nullptr), "rpma_read");
    complete(conn, IBV_WC_RDMA_READ);
    right =
        std::memcmp(back.octets, kAtomic, 8) == 0 && std::memcmp(back.octets + 8, source.octets + 8, kBlock - 8) == 0;
    std::memcpy(source.octets, "look", 4);
    must(rpma_send(conn, source.mr, 0, kMessage, RPMA_F_COMPLETION_ALWAYS, nullptr), "rpma_send");
    complete(conn, IBV_WC_SEND);
    must(rpma_mr_remote_delete(&remote), "rpma_mr_remote_delete");
    close(conn);
  }
  must(rpma_peer_delete(&peer), "rpma_peer_delete");
  return right;
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) return 2;
  const bool right = std::strcmp(words[1], "server") == 0 ? serve(words[2], words[3]) : call(words[2], words[3]);
  std::puts(right ? "right" : "wrong");
  return right ? 0 : 1;
}
