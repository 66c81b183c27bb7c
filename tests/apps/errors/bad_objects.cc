// SPDX-License-Identifier: MIT
// Wrong use of rdma_cm's identifiers, and of completion queues and queue pairs beyond their limits and out of their
// state.
#include <netinet/in.h>

#include "tests/apps/errors/bad_input.h"

namespace apps::bad_input {

namespace {

void port_in_use() {
  Listener first(g_host, g_port, {});
  rdma_addrinfo* address = resolve(g_host, g_port, RAI_PASSIVE);
  ibv_qp_init_attr attributes = qp_attributes({});
  rdma_cm_id* id = nullptr;
  errno = 0;
  int error = rdma_create_ep(&id, address, nullptr, &attributes) == 0 ? 0 : errno;
  if (error == 0) error = rdma_listen(id, 1) == 0 ? 0 : errno;
  expect_error("a second listener", error, {EADDRINUSE});
  if (id != nullptr) rdma_destroy_ep(id);
  rdma_freeaddrinfo(address);
}

void cm_misuse() {
  rdma_event_channel* channel = made("rdma_create_event_channel", rdma_create_event_channel());
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0) die("rdma_create_id: %s", std::strerror(errno));
  auto failed = [](int result) { return result == 0 ? 0 : errno; };
  sockaddr_in elsewhere{};
  elsewhere.sin_family = AF_INET;
  elsewhere.sin_addr.s_addr = htonl(0xCB007107);  // 203.0.113.7, of a documentation network
  expect_error("bind to an address that is not ours",
               failed(rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&elsewhere))), {EADDRNOTAVAIL, ENODEV});
  sockaddr wrong{};
  wrong.sa_family = AF_UNIX;
  expect_error("bind to another family", failed(rdma_bind_addr(id, &wrong)), {EINVAL, EAFNOSUPPORT, EADDRNOTAVAIL});
  // Stock librdmacm itself looks through a null pointer where these are called on an id without a device.
  rdma_addrinfo* address = resolve(g_host, g_port, RAI_PASSIVE);
  if (rdma_bind_addr(id, address->ai_src_addr) != 0) die("rdma_bind_addr: %s", std::strerror(errno));
  expect_error("a second bind", failed(rdma_bind_addr(id, address->ai_src_addr)), {EINVAL});
  rdma_freeaddrinfo(address);
  rdma_conn_param parameters = connection_parameters();
  expect_error("connect of a bound id", failed(rdma_connect(id, &parameters)), {EINVAL});
  expect_error("accept of a bound id", failed(rdma_accept(id, &parameters)), {EINVAL});
  expect_error("disconnect of a bound id", failed(rdma_disconnect(id)), {EINVAL, ENOTCONN});
  expect_error("resolve_route of a bound id", failed(rdma_resolve_route(id, 1000)), {EINVAL});
  expect_error("reject of a bound id", failed(rdma_reject(id, nullptr, 0)), {EINVAL});
  int option = 1;
  expect_error("an unknown option", failed(rdma_set_option(id, 99, 99, &option, sizeof option)),
               {ENOSYS, EINVAL, ENOPROTOOPT});
  rdma_destroy_id(id);
  rdma_destroy_event_channel(channel);
  // No datagrams on iWARP: creating the id may work, binding it to a device must not.
  channel = rdma_create_event_channel();
  const int created = failed(rdma_create_id(channel, &id, nullptr, RDMA_PS_UDP));
  if (created == 0)
    rdma_destroy_id(id);
  else
    expect_error("an id of port space UDP", created, {EPROTONOSUPPORT, EINVAL, EOPNOTSUPP});
  rdma_destroy_event_channel(channel);
}

void object_limits() {
  Pair pair;
  ibv_context* context = pair.near.id()->verbs;
  ibv_device_attr device{};
  if (ibv_query_device(context, &device) != 0) die("ibv_query_device fails");
  errno = 0;
  ibv_cq* cq = ibv_create_cq(context, 0, nullptr, nullptr, 0);
  expect_error("a CQ of 0 entries", cq == nullptr ? errno : 0, {EINVAL});
  cq = ibv_create_cq(context, -5, nullptr, nullptr, 0);
  expect_error("a CQ of -5 entries", cq == nullptr ? errno : 0, {EINVAL});
  if (device.max_cqe < INT32_MAX) {
    cq = ibv_create_cq(context, device.max_cqe + 1, nullptr, nullptr, 0);
    expect_error("a CQ beyond max_cqe", cq == nullptr ? errno : 0, {EINVAL});
  }
  cq = ibv_create_cq(context, 10, nullptr, nullptr, 1 << 20);
  expect_error("a completion vector that is not there", cq == nullptr ? errno : 0, {EINVAL});
  cq = made("ibv_create_cq", ibv_create_cq(context, 10, nullptr, nullptr, 0));
  auto refused = [&](const char* what, auto change) {
    ibv_qp_init_attr attributes = qp_attributes({});
    attributes.send_cq = attributes.recv_cq = cq;
    change(attributes);
    errno = 0;
    ibv_qp* qp = ibv_create_qp(pair.near.pd(), &attributes);
    expect_error(what, qp == nullptr ? errno : 0, {EINVAL, ENOMEM, EOPNOTSUPP});
  };
  refused("a QP beyond max_qp_wr",
          [&](auto& a) { a.cap.max_send_wr = static_cast<std::uint32_t>(device.max_qp_wr) + 1; });
  refused("a QP of 2^32-1 receives", [](auto& a) { a.cap.max_recv_wr = ~0u; });
  refused("a QP beyond max_sge", [&](auto& a) { a.cap.max_send_sge = static_cast<std::uint32_t>(device.max_sge) + 1; });
  refused("a QP of 2^31 octets inline", [](auto& a) { a.cap.max_inline_data = 1u << 31; });
  refused("a UD QP", [](auto& a) { a.qp_type = IBV_QPT_UD; });
  refused("a QP of an unknown type", [](auto& a) { a.qp_type = static_cast<ibv_qp_type>(77); });
  good("ibv_destroy_cq", ibv_destroy_cq(cq));
  expect_error("destroying a CQ in use", ibv_destroy_cq(pair.near.id()->send_cq), {EBUSY});
  expect_error("deallocating a PD in use", ibv_dealloc_pd(pair.near.pd()), {EBUSY});
  ibv_port_attr port{};
  expect_error("querying port 2", ibv_query_port(context, 2, &port), {EINVAL});
}

// As many objects as ibv_query_device() says can be had, and one more cannot.
template <typename Create, typename Destroy>
void expect_limit(const char* what, int most, Create create, Destroy destroy) {
  std::vector<decltype(create())> made;
  made.reserve(static_cast<std::size_t>(most));
  errno = 0;
  while (auto* object = create()) {
    made.push_back(object);
    if (made.size() > static_cast<std::size_t>(most)) die("more than %d %s", most, what);
  }
  expect_error(what, errno, {ENOMEM});
  // Other objects of the kind may exist, of the pair for example.
  if (made.size() + 8 < static_cast<std::size_t>(most)) die("no more than %zu %s, not %d", made.size(), what, most);
  if (const int error = destroy(made.back())) die("%s: %s", what, std::strerror(error));
  made.back() = create();
  if (made.back() == nullptr) die("%s: none after one was destroyed", what);
  for (auto* object : made)
    if (const int error = destroy(object)) die("%s: %s", what, std::strerror(error));
}

void device_limits() {
  Pair pair;
  ibv_context* context = pair.near.id()->verbs;
  ibv_device_attr device{};
  if (ibv_query_device(context, &device) != 0) die("ibv_query_device fails");
  expect_limit(
      "protection domains", device.max_pd, [&] { return ibv_alloc_pd(context); }, ibv_dealloc_pd);
  expect_limit(
      "completion queues", device.max_cq, [&] { return ibv_create_cq(context, 1, nullptr, nullptr, 0); },
      ibv_destroy_cq);
  expect_limit(
      "shared receive queues", device.max_srq,
      [&] {
        ibv_srq_init_attr attributes{};
        attributes.attr = {1, 1, 0};
        return ibv_create_srq(pair.near.pd(), &attributes);
      },
      ibv_destroy_srq);
}

// What returns an errno also sets errno.
template <typename Call>
void fails(const char* what, int error, const Call& call) {
  errno = 0;
  const int result = call();
  if (result != error || errno != error) die("%s: returns %d, errno %d", what, result, errno);
}

void errno_of_queues() {
  Pair pair;
  ibv_context* context = pair.near.id()->verbs;
  fails("ibv_destroy_cq", EBUSY, [&] { return ibv_destroy_cq(pair.near.id()->send_cq); });
  fails("ibv_dealloc_pd", EBUSY, [&] { return ibv_dealloc_pd(pair.near.pd()); });
  fails("ibv_resize_cq", EINVAL, [&] { return ibv_resize_cq(pair.near.id()->send_cq, 0); });
  ibv_port_attr port{};
  fails("ibv_query_port", EINVAL, [&] { return ibv_query_port(context, 2, &port); });
  ibv_qp_attr change{};
  change.qp_state = static_cast<ibv_qp_state>(55);
  fails("ibv_modify_qp", EINVAL, [&] { return ibv_modify_qp(pair.near.qp(), &change, IBV_QP_STATE); });
  ibv_send_wr send{}, *bad_send = nullptr;
  send.num_sge = -1;
  fails("ibv_post_send", EINVAL, [&] { return ibv_post_send(pair.near.qp(), &send, &bad_send); });
  ibv_recv_wr receive{}, *bad_receive = nullptr;
  receive.num_sge = -1;
  fails("ibv_post_recv", EINVAL, [&] { return ibv_post_recv(pair.near.qp(), &receive, &bad_receive); });

  ibv_srq_init_attr shared{};
  shared.attr = {4, 1, 0};
  ibv_srq* srq = ibv_create_srq(pair.near.pd(), &shared);
  ibv_qp_init_attr attributes = qp_attributes({});
  attributes.send_cq = attributes.recv_cq = pair.near.id()->send_cq;
  attributes.srq = srq;
  ibv_qp* qp = ibv_create_qp(pair.near.pd(), &attributes);
  if (srq == nullptr || qp == nullptr) die("a shared receive queue and its queue pair: %s", std::strerror(errno));
  fails("ibv_destroy_srq", EBUSY, [&] { return ibv_destroy_srq(srq); });
  fails("ibv_post_srq_recv", EINVAL, [&] { return ibv_post_srq_recv(srq, &receive, &bad_receive); });
  if (ibv_destroy_qp(qp) != 0 || ibv_destroy_srq(srq) != 0) die("destroying them");
}

void errno_of_memory() {
  Pair pair;
  Memory memory(kSize);
  ibv_context* context = pair.near.id()->verbs;
  ibv_mr* mr = reg(pair.near.pd(), memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  ibv_mw* mw = ibv_alloc_mw(pair.near.pd(), IBV_MW_TYPE_1);
  ibv_mw_bind bind{};
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = {mr, reinterpret_cast<std::uint64_t>(mr->addr), 100, IBV_ACCESS_REMOTE_READ};
  if (mw == nullptr || ibv_bind_mw(pair.near.qp(), mw, &bind) != 0) die("ibv_bind_mw: %s", std::strerror(errno));
  expect_status("the bind", sent(pair.near), {IBV_WC_SUCCESS});
  fails("ibv_dereg_mr", EBUSY, [&] { return ibv_dereg_mr(mr); });
  bind.bind_info.mw_access_flags = 1U << 12;
  fails("ibv_bind_mw", EINVAL, [&] { return ibv_bind_mw(pair.near.qp(), mw, &bind); });
  if (ibv_dealloc_mw(mw) != 0 || ibv_dereg_mr(mr) != 0) die("destroying them");

  ibv_alloc_dm_attr of_dm{};
  of_dm.length = 64;
  ibv_dm* dm = ibv_alloc_dm(context, &of_dm);
  ibv_mr* in_dm = ibv_reg_dm_mr(pair.near.pd(), dm, 0, 64, IBV_ACCESS_ZERO_BASED);
  if (dm == nullptr || in_dm == nullptr) die("device memory: %s", std::strerror(errno));
  fails("ibv_free_dm", EBUSY, [&] { return ibv_free_dm(dm); });
  fails("ibv_memcpy_to_dm", EFAULT, [&] { return ibv_memcpy_to_dm(dm, 60, pair.near.pd(), 5); });
  if (ibv_dereg_mr(in_dm) != 0 || ibv_free_dm(dm) != 0) die("destroying them");

  ibv_td_init_attr of_td{};
  ibv_td* td = ibv_alloc_td(context, &of_td);
  ibv_parent_domain_init_attr of_parent{};
  of_parent.pd = pair.near.pd();
  of_parent.td = td;
  ibv_pd* parent = ibv_alloc_parent_domain(context, &of_parent);
  if (td == nullptr || parent == nullptr) die("a parent domain: %s", std::strerror(errno));
  fails("ibv_dealloc_td", EBUSY, [&] { return ibv_dealloc_td(td); });
  if (ibv_dealloc_pd(parent) != 0 || ibv_dealloc_td(td) != 0) die("destroying them");
}

void qp_states() {
  Pair pair;
  Memory memory(kSize);
  ibv_mr* mr = reg(pair.near.pd(), memory);
  ibv_qp_init_attr attributes = qp_attributes({});
  ibv_cq* cq = made("ibv_create_cq", ibv_create_cq(pair.near.id()->verbs, 100, nullptr, nullptr, 0));
  attributes.send_cq = attributes.recv_cq = cq;
  ibv_qp* qp = made("ibv_create_qp", ibv_create_qp(pair.near.pd(), &attributes));
  expect_error("a send in RESET", SendRequest(IBV_WR_SEND, sge(mr, 10), 0, 0).try_post(qp), {EINVAL, ENOTCONN});
  ibv_qp_attr change{};
  change.qp_state = IBV_QPS_RTS;
  expect_error("RESET to RTS", ibv_modify_qp(qp, &change, IBV_QP_STATE), {EINVAL});
  change.qp_state = static_cast<ibv_qp_state>(55);
  expect_error("an unknown state", ibv_modify_qp(qp, &change, IBV_QP_STATE), {EINVAL});
  change.qp_state = IBV_QPS_ERR;
  good("RESET to ERR", ibv_modify_qp(qp, &change, IBV_QP_STATE));
  good("ibv_destroy_qp", ibv_destroy_qp(qp));
  good("ibv_destroy_cq", ibv_destroy_cq(cq));
  // A connected QP put into ERR flushes what it holds, in order, and takes more only to flush it.
  for (int i = 0; i < 3; ++i) good("ibv_post_recv", try_post_receive(pair.near.qp(), {sge(mr, 10)}));
  change.qp_state = IBV_QPS_ERR;
  good("RTS to ERR", ibv_modify_qp(pair.near.qp(), &change, IBV_QP_STATE));
  for (int i = 0; i < 3; ++i) expect_status("a receive of a QP in ERR", received(pair.near), {IBV_WC_WR_FLUSH_ERR});
  good("a send in ERR", Post(IBV_WR_SEND, {sge(mr, 10)}).at(pair.near));
  expect_status("a send of a QP in ERR", sent(pair.near), {IBV_WC_WR_FLUSH_ERR});
  if (try_post_receive(pair.near.qp(), {sge(mr, 10)}) != 0) die("a receive in ERR is refused");
  expect_status("a receive posted in ERR", received(pair.near), {IBV_WC_WR_FLUSH_ERR});
  // The peer hears of it.
  ibv_wc wc{};
  if (try_post_receive(pair.far.qp(), {sge(mr, 10)}) == 0) {
    if (!pair.far.recv_completion(wc)) die("the peer of a QP in ERR is told nothing");
    expect_status("the peer's receive", wc, {IBV_WC_WR_FLUSH_ERR, IBV_WC_LOC_PROT_ERR});
  }
  ibv_dereg_mr(mr);
}

}  // namespace

void object_cases(Cases& cases) {
  cases.insert({
      {"port_in_use", port_in_use},
      {"cm_misuse", cm_misuse},
      {"object_limits", object_limits},
      {"device_limits", device_limits},
      {"errno_of_queues", errno_of_queues},
      {"errno_of_memory", errno_of_memory},
      {"qp_states", qp_states},
  });
}

}  // namespace apps::bad_input
