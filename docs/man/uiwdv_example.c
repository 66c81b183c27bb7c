/* SPDX-License-Identifier: MIT */
/*
 * One operation moves two counters of 32 bits in one word, and 8
 * octets of Immediate Data follow it. The queue pair is its own peer.
 */
#include <errno.h>
#include <infiniband/uiwdv.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t counters = UINT64_C(7) << 32 | 0xffffffff, before;

static void must(const char* what, int error) {
  if (!error) return;
  fprintf(stderr, "%s: %s\n", what, strerror(error));
  exit(1);
}

static struct ibv_context* open_device(void) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  struct ibv_context* context = NULL;
  int i;

  for (i = 0; list && list[i] && !context; i++)
    if (uiwdv_is_supported(list[i]))
      context = ibv_open_device(list[i]);
  must("no device of uiw; start this with `uiw run`",
       context ? 0 : ENODEV);
  ibv_free_device_list(list);
  return context;
}

/* Without a flag in send_ops_flags, uiwdv_wr_*() fail with EINVAL. */
static struct ibv_qp* create(struct ibv_pd* pd, struct ibv_cq* cq) {
  struct ibv_qp_init_attr_ex init;

  memset(&init, 0, sizeof(init));
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = init.cap.max_recv_wr = 4;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  init.pd = pd;
  init.comp_mask =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  return ibv_create_qp_ex(pd->context, &init);
}

static int connect_to_itself(struct ibv_qp* qp) {
  struct ibv_qp_attr attr;
  int error;

  memset(&attr, 0, sizeof(attr));
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = attr.ah_attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_ATOMIC;
  error = ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX |
                            IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error) return error;
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = qp->qp_num;
  attr.max_dest_rd_atomic = attr.max_rd_atomic = 1;
  attr.ah_attr.is_global = 1;
  if (ibv_query_gid(qp->context, 1, 0, &attr.ah_attr.grh.dgid))
    return errno;
  error = ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                            IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                            IBV_QP_MAX_DEST_RD_ATOMIC |
                            IBV_QP_MIN_RNR_TIMER);
  if (error) return error;
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  return ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_TIMEOUT |
                           IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static int post(struct ibv_qp_ex* qp, struct ibv_mr* to,
                struct ibv_mr* result) {
  static const uint8_t name[UIWDV_IMM_SIZE] = {'c', 'o', 'u', 'n',
                                               't', 'e', 'r', 's'};
  int error;

  ibv_wr_start(qp);
  qp->wr_id = 1;
  qp->wr_flags = IBV_SEND_SIGNALED;
  error = uiwdv_wr_masked_fetch_add(
      qp, to->rkey, (uintptr_t)&counters, UINT64_C(5) << 32 | 3,
      UINT64_C(1) << 63 | UINT64_C(1) << 31);
  ibv_wr_set_sge(qp, result->lkey, (uintptr_t)&before,
                 sizeof(before));
  qp->wr_id = 2;
  if (!error) error = uiwdv_wr_imm8(qp, name);
  if (!error) return ibv_wr_complete(qp);
  ibv_wr_abort(qp);
  return error;
}

int main(void) {
  struct ibv_context* context = open_device();
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_cq* cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  struct ibv_qp* qp = pd && cq ? create(pd, cq) : NULL;
  struct ibv_mr *to, *result;
  struct ibv_recv_wr receive, *bad;
  struct ibv_wc wc;
  uint8_t name[UIWDV_IMM_SIZE];
  int left = 3;

  must("ibv_create_qp_ex", qp ? 0 : errno);
  to = ibv_reg_mr(pd, &counters, sizeof(counters),
                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
  result =
      ibv_reg_mr(pd, &before, sizeof(before), IBV_ACCESS_LOCAL_WRITE);
  must("ibv_reg_mr", to && result ? 0 : errno);
  must("ibv_modify_qp", connect_to_itself(qp));
  memset(&receive, 0, sizeof(receive));
  must("ibv_post_recv", ibv_post_recv(qp, &receive, &bad));
  must("ibv_wr_complete", post(ibv_qp_to_qp_ex(qp), to, result));
  while (left > 0) { /* of both requests, and of the receive */
    const int got = ibv_poll_cq(cq, 1, &wc);

    must("ibv_poll_cq", got < 0 ? EIO : 0);
    if (got == 0) continue;
    must(ibv_wc_status_str(wc.status), wc.status ? EIO : 0);
    if (uiwdv_wc_imm8(cq, &wc, name) == 0)
      printf("%.8s: ", (const char*)name);
    left--;
  }
  printf("%" PRIu64 " and %" PRIu64 ", before %" PRIu64
         " and %" PRIu64 "\n",
         counters >> 32, counters & 0xffffffff, before >> 32,
         before & 0xffffffff);
  ibv_destroy_qp(qp);
  ibv_dereg_mr(result);
  ibv_dereg_mr(to);
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
  return ibv_close_device(context);
}
